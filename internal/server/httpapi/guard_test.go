package httpapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/server/httpapi"
	"github.com/berth-dev/berth/internal/state"
)

const aVolume = `volume {"id":"pg"}
cluster {}
`

// TestPanicIsAnswered, and told to those who run the server, not to the caller.
func TestPanicIsAnswered(t *testing.T) {
	t.Parallel()
	f := newFake(t, aVolume, nil)
	f.explain = func(state.View) []api.Wait { panic("explained too much: geheim") }
	got := f.get("GET", "/v1/volume/default/pg")
	e := got.refusal(t)
	if got.status != 500 || e.Code != api.CodeInternal || e.Message != "a fault of Berth kept this from being done; the server's log says more" ||
		got.header.Get("Content-Type") != "application/json" {
		t.Errorf("answered %d %s", got.status, got.body)
	}
	logs := f.logs.String()
	for _, want := range []string{"level=ERROR", "request panicked", `route="GET /v1/volume/{namespace}/{id}"`, "explained too much", "guard_test.go"} {
		if !strings.Contains(logs, want) {
			t.Errorf("the log lacks %q:\n%s", want, logs)
		}
	}
}

// TestFaultIsAnswered likewise.
func TestFaultIsAnswered(t *testing.T) {
	t.Parallel()
	f := newFake(t, aVolume, nil)
	got := f.get("DELETE", "/v1/volume/default/pg")
	if e := got.refusal(t); got.status != 500 || e.Code != api.CodeInternal || strings.Contains(got.body, "hole") {
		t.Errorf("answered %d %s", got.status, got.body)
	}
	if logs := f.logs.String(); !strings.Contains(logs, "level=ERROR") || !strings.Contains(logs, "the disk has a hole") {
		t.Errorf("the log says\n%s", logs)
	}
}

// TestSavedStateThatFailsIsCut: its status is on its way already, so only a
// connection that breaks tells the caller that it is not whole.
func TestSavedStateThatFailsIsCut(t *testing.T) {
	t.Parallel()
	for name, save := range map[string]func(io.Writer) error{
		"Error": func(w io.Writer) error {
			_, _ = io.WriteString(w, strings.Repeat("half", 10_000))
			return errors.New("the disk has a hole")
		},
		"Panic": func(w io.Writer) error {
			_, _ = io.WriteString(w, strings.Repeat("half", 10_000))
			panic("the disk has a hole")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t, aVolume, nil)
			f.save = save
			server := httptest.NewServer(f)
			defer server.Close()
			resp, err := http.Get(server.URL + "/v1/system/snapshot")
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the caller sees %v, want a connection that broke", err)
			}
		})
	}
}

func TestWhoDoesNotLeadSaysWhoDoes(t *testing.T) {
	t.Parallel()
	for leader, want := range map[string]string{
		"":       "the cluster has no leader yet",
		"server": "server server leads the cluster, and is not ready yet",
		"other":  "server other leads the cluster, not server",
	} {
		f := newFake(t, aVolume, nil)
		f.ready, f.leader = false, leader
		for _, route := range []string{"GET /v1/volumes", "DELETE /v1/volume/default/pg", "POST /v1/agent/report", "GET /v1/system/snapshot"} {
			method, path, _ := strings.Cut(route, " ")
			got := f.get(method, path)
			if e := got.refusal(t); got.status != 503 || e.Code != api.CodeUnavailable || !e.Retry || e.Message != want {
				t.Errorf("%s: %d %s, want %s", route, got.status, got.body, want)
			}
		}
		want := api.Status{ServerID: "server", Version: "1.2.3", Leader: leader}
		if diff := cmp.Diff(want, into[api.Status](t, f.get("GET", "/v1/status"))); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	}
}

// TestPagesOfOthers: the browser of somebody who runs Berth on this machine
// shows pages of people who would like to run a job there.
func TestPagesOfOthers(t *testing.T) {
	t.Parallel()
	const local, anywhere = true, false
	for name, tc := range map[string]struct {
		local   bool
		headers []string
		refused bool
	}{
		"CommandLine":              {local, []string{"Host", "127.0.0.1:7400"}, false},
		"CommandLineByName":        {local, []string{"Host", "localhost:7400"}, false},
		"CommandLineIPv6":          {local, []string{"Host", "[::1]:7400"}, false},
		"CommandLineNoPort":        {local, []string{"Host", "127.0.0.1"}, false},
		"OwnPage":                  {local, []string{"Host", "127.0.0.1:7400", "Origin", "http://127.0.0.1:7400", "Sec-Fetch-Site", "same-origin"}, false},
		"PageOfAnother":            {local, []string{"Host", "127.0.0.1:7400", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, true},
		"PageOfAnotherOldBrowser":  {local, []string{"Host", "127.0.0.1:7400", "Origin", "https://evil.example"}, true},
		"NamePointedHere":          {local, []string{"Host", "evil.example:7400", "Origin", "http://evil.example:7400", "Sec-Fetch-Site", "same-origin"}, true},
		"NamePointedHereNoHeaders": {local, []string{"Host", "evil.example:7400"}, true},
		"NameThatLooksLikeOurs":    {local, []string{"Host", "localhost.evil.example"}, true},
		"EmptyHost":                {local, []string{"Host", ""}, true},
		"ServerByItsName":          {anywhere, []string{"Host", "berth.example:7400"}, false},
		"PageOfAnotherToAServer":   {anywhere, []string{"Host", "berth.example:7400", "Origin", "https://evil.example"}, true},
	} {
		f := newFake(t, aVolume, func(c *httpapi.Config) { c.Local = tc.local })
		f.propose = func(context.Context) (uint64, error) { return 1, nil }
		got := f.get("DELETE", "/v1/volume/default/pg", tc.headers...)
		refused := got.status == http.StatusForbidden
		if refused != tc.refused || !refused && got.status != http.StatusOK {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		if refused && got.refusal(t).Code != api.CodeForbidden {
			t.Errorf("%s: %s", name, got.body)
		}
	}
	f := newFake(t, aVolume, func(c *httpapi.Config) { c.Local = true })
	want := `the API listens on this machine only, and was asked for as "evil.example": use its address or localhost, also in the Host header of a proxy`
	if e := f.get("GET", "/v1/volumes", "Host", "evil.example").refusal(t); e.Message != want {
		t.Errorf("got %q", e.Message)
	}
}

// TestWriteGoesOnWithoutItsCaller: a caller who is gone, and a server that
// stops, must not make the outcome of a write unknown that takes its time.
func TestWriteGoesOnWithoutItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, aVolume, nil)
		f.propose = func(ctx context.Context) (uint64, error) {
			select {
			case <-time.After(3 * time.Second):
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/v1/volume/default/pg", http.NoBody).WithContext(ctx))
		if w.Code != http.StatusOK {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
		f.propose = func(ctx context.Context) (uint64, error) {
			<-ctx.Done()
			return 0, api.Errorf(api.CodeUncertain, "it is not known whether this was written: %v", context.Cause(ctx))
		}
		began := time.Now()
		if got := f.get("DELETE", "/v1/volume/default/pg"); got.status != http.StatusGatewayTimeout || time.Since(began) > time.Minute {
			t.Errorf("a write that never ends was answered %d %s after %s", got.status, got.body, time.Since(began))
		}
	})
}

// TestSecretsAreNowhere: neither in what anybody is answered, nor in the log,
// which here has everything.
func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		n1.provision("pg")
		n1.run("db", "pg")
		secret := []string{api.HeaderNode, "n1", "Authorization", "Bearer n1-secret"}
		var answers strings.Builder
		for _, path := range []string{
			"status", "volumes", "volume/default/pg", "jobs", "job/default/db", "allocations", "nodes", "node/n1", "plugins", "plugin/disk",
			"operations", "operation/create/default/pg@1", "system/recovery", "nothing", "agent/assignments",
		} {
			answers.WriteString(w.send("GET", "/v1/"+path, nil, secret...).body)
		}
		answers.WriteString(w.send("POST", "/v1/agent/register", registration("n1", "other"), secret...).body)
		answers.WriteString(w.send("POST", "/v1/agent/register", `{"node_id":`, secret...).body)
		answers.WriteString(w.send("POST", "/v1/agent/report", api.Report{NodeID: "n1", Session: "x"}, secret...).body)
		w.stop()
		sum := sha256.Sum256([]byte("n1-secret"))
		for what, text := range map[string]string{"answers": answers.String(), "log": w.logs.String()} {
			for _, s := range []string{"n1-secret", hex.EncodeToString(sum[:]), n1.session} {
				if strings.Contains(text, s) {
					t.Errorf("the %s have %q", what, s)
				}
			}
		}
	})
}
