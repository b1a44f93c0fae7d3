package httpapi_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// TestWhoAsked: what people do says afterwards who did it, by their own word. A name
// that cannot be kept changes nothing.
func TestWhoAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, alloc := placed(t)
		defer w.stop()
		send := func(method, path, body, user string) {
			t.Helper()
			var sent any
			if body != "" {
				sent = body
			}
			if r := w.send(method, path, sent, api.HeaderUser, user, "Content-Type", "application/json"); r.status != 200 {
				t.Errorf("%s %s: %d %s", method, path, r.status, r.body)
			}
		}
		send("POST", "/v1/allocation/"+string(alloc.ID)+"/restart", "{}", "alice")
		send("POST", "/v1/node/n1/eligibility", `{"eligible":false}`, "bob")
		a, _, err := w.Allocation(t.Context(), string(alloc.ID), client.Query{})
		if err != nil || a.AskedBy != "alice" {
			t.Errorf("the restart was asked for by %q (%v)", a.AskedBy, err)
		}
		n, _, err := w.Node(t.Context(), "n1", client.Query{})
		if err != nil || n.Spec.EligibilityBy != "bob" {
			t.Errorf("the node is not eligible by %q (%v)", n.Spec.EligibilityBy, err)
		}
		send("POST", "/v1/node/n1/drain", `{"force":true}`, "carol")
		send("DELETE", "/v1/node/n1/drain", "", "dave")
		if n, _, err = w.Node(t.Context(), "n1", client.Query{}); err != nil || n.Status.Drained == nil || n.Status.Drained.By != "carol" || n.Status.Drained.CalledOffBy != "dave" {
			t.Errorf("the drain was %+v (%v)", n.Status.Drained, err)
		}
		for user, want := range map[string]string{strings.Repeat("x", 65): "is longer than 64 bytes", "\xff\xfe": "cannot be printed"} {
			r := w.send("DELETE", "/v1/job/default/db", nil, api.HeaderUser, user)
			if e := r.refusal(t); e.Code != api.CodeInvalid || !strings.Contains(r.body, want) {
				t.Errorf("as %q it is answered %s", user, r.body)
			}
		}
		send("DELETE", "/v1/job/default/db", "", "eve")
		if j, _, err := w.Job(t.Context(), "default", "db", client.Query{}); err != nil || j.Status.StoppedBy != "eve" {
			t.Errorf("the job was stopped by %q (%v)", j.Status.StoppedBy, err)
		}
	})
}

// TestUserOfAClient that cannot be sent is refused at once.
func TestUserOfAClient(t *testing.T) {
	t.Parallel()
	for user, ok := range map[string]bool{"": true, "alice": true, "a\nb": false, strings.Repeat("x", 65): false} {
		if _, err := client.New(client.Config{User: user}); (err == nil) != ok {
			t.Errorf("as %q: %v", user, err)
		}
	}
}
