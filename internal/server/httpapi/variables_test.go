package httpapi_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/server/httpapi"
)

func (w *world) putVariable(ns api.NamespaceID, path api.VariablePath, value string) *api.Variable {
	w.t.Helper()
	row, err := w.PutVariable(w.t.Context(), ns, path, api.VariableSpec{Items: map[string]string{"token": value}}, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return row
}

func TestVariableIsReadAsItWasPut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		ctx := t.Context()
		items := map[string]string{"token": passphrase, "tls.crt": "-----BEGIN\n<&>\u2028é\x00\n", "empty": "", "large": strings.Repeat("\"\n", 20_000)}
		row, err := w.PutVariable(ctx, "default", "nomad/jobs/db", api.VariableSpec{Items: items}, 0)
		if err != nil || row.Version != 1 || !slices.Equal(row.Keys, []string{"empty", "large", "tls.crt", "token"}) {
			t.Fatalf("%+v, %v", row, err)
		}
		for range 2 {
			got, index, err := w.Variable(ctx, "default", "nomad/jobs/db", client.Query{})
			if diff := cmp.Diff(items, got.Items); diff != "" || err != nil || index != row.ModifyIndex || got.Version != 1 {
				t.Fatalf("%v, version %d at index %d (-want +got):\n%s", err, got.Version, index, diff)
			}
		}
		// What is put takes the place of all that was there.
		if row = w.putVariable("default", "nomad/jobs/db", "next"); row.Version != 2 {
			t.Errorf("it has version %d, want 2", row.Version)
		}
		got, _, err := w.Variable(ctx, "default", "nomad/jobs/db", client.Query{})
		if diff := cmp.Diff(map[string]string{"token": "next"}, got.Items); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if again := w.putVariable("default", "nomad/jobs/db", "next"); again.ModifyIndex != row.ModifyIndex {
			t.Errorf("the same again was written at index %d, after %d", again.ModifyIndex, row.ModifyIndex)
		}
		if err := w.DeleteVariable(ctx, "default", "nomad/jobs/db", 2); err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.Variable(ctx, "default", "nomad/jobs/db", client.Query{}); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("it was deleted, and reading it answers %v", err)
		}
	})
}

func TestVariableIsWrittenOnlyAsItsWriterKnowsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		ctx, spec := t.Context(), api.VariableSpec{Items: map[string]string{"token": "a"}}
		w.putVariable("default", "a", "a")
		for name, err := range map[string]error{
			"the same, of another version":   second(w.PutVariable(ctx, "default", "a", spec, 7)),
			"other, of another version":      second(w.PutVariable(ctx, "default", "a", api.VariableSpec{Items: map[string]string{"token": "b"}}, 7)),
			"a version of what is not there": second(w.PutVariable(ctx, "default", "b", spec, 1)),
			"the same, only if absent":       second(w.IfAbsent().PutVariable(ctx, "default", "a", spec, 0)),
			"deleted, of another version":    w.DeleteVariable(ctx, "default", "a", 7),
		} {
			if api.CodeOf(err) != api.CodeConflict {
				t.Errorf("%s: %v, want a conflict", name, err)
			}
		}
		if got, _, err := w.Variable(ctx, "default", "a", client.Query{}); err != nil || got.Version != 1 || got.Items["token"] != "a" {
			t.Errorf("it is %+v, %v after refused writes", got.Variable, err)
		}
		if _, err := w.PutVariable(ctx, "default", "a", spec, 1); err != nil {
			t.Errorf("the same, of its version: %v", err)
		}
		if row, err := w.IfAbsent().PutVariable(ctx, "default", "b", spec, 0); err != nil || row.Version != 1 {
			t.Errorf("only if absent: %+v, %v", row, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// TestVariablesAreShownToWhoReadsThem, and nowhere else: not in lists, events,
// answers to writers, errors, the server's log, or a saved state.
func TestVariablesAreShownToWhoReadsThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		path := "/v1/var/default/nomad/jobs/db"
		for name, r := range map[string]response{
			"put":            w.send(http.MethodPut, path, map[string]any{"items": map[string]string{"token": passphrase}}),
			"put again":      w.send(http.MethodPut, path, map[string]any{"items": map[string]string{"token": passphrase}}),
			"put wrong key":  w.send(http.MethodPut, path, map[string]any{"items": map[string]string{"": passphrase}}),
			"put wrong path": w.send(http.MethodPut, "/v1/var/default/a.b", map[string]any{"items": map[string]string{"token": passphrase}}),
			"put wrong type": w.send(http.MethodPut, path, map[string]any{"items": map[string]any{"token": []string{passphrase}}}),
			"put conflict":   w.send(http.MethodPut, path+"?version=9", map[string]any{"items": map[string]string{"token": passphrase}}),
			"list":           w.send(http.MethodGet, "/v1/vars", nil),
			"filtered":       w.send(http.MethodGet, "/v1/vars?filter=keys==token", nil),
			"by value":       w.send(http.MethodGet, "/v1/vars?filter=items.token==x", nil),
		} {
			if strings.Contains(r.body, passphrase) {
				t.Errorf("%s answers %s", name, r.body)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		events := 0
		for e, err := range w.Events(ctx, client.EventQuery{Index: 1}) {
			if err != nil {
				break
			}
			if b, _ := json.Marshal(e); bytes.Contains(b, []byte(passphrase)) || bytes.Contains(b, []byte(`"box"`)) {
				t.Errorf("an event tells %s", b)
			}
			for _, one := range e.Events {
				if one.Topic == api.TopicVariable {
					events++
				}
			}
		}
		if events != 1 {
			t.Errorf("%d events of variables, want 1", events)
		}
		var saved bytes.Buffer
		if err := w.SaveState(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		if text := unpacked(t, saved.Bytes()); strings.Contains(text, passphrase) || !strings.Contains(text, `"path":"nomad/jobs/db"`) {
			t.Errorf("the saved state is\n%s", text)
		}
		if strings.Contains(w.logs.String(), passphrase) {
			t.Error("the server's log has it")
		}
		if r := w.send(http.MethodGet, path, nil); !strings.Contains(r.body, passphrase) {
			t.Errorf("who reads it is answered %s", r.body)
		}
	})
}

func unpacked(t *testing.T, saved []byte) string {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(saved), zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWhatIsNoVariableIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		spec := func(key, value string) api.VariableSpec {
			return api.VariableSpec{Items: map[string]string{key: value}}
		}
		for _, tc := range []struct {
			path api.VariablePath
			spec api.VariableSpec
			want string
		}{
			{"a.b", spec("k", "v"), `path has the character '.'`},
			{"a b", spec("k", "v"), `path has the character ' '`},
			{"ä", spec("k", "v"), `path has the character 'ä'`},
			{api.VariablePath(strings.Repeat("a", 129)), spec("k", "v"), "path is longer than 128 characters"},
			{"nomad", spec("k", "v"), `path is "nomad"; use nomad/jobs, or what is below it`},
			{"nomad/other", spec("k", "v"), `path is "nomad/other"; use nomad/jobs`},
			{"nomad/jobs/a/b/c/d", spec("k", "v"), `path is "nomad/jobs/a/b/c/d"; use nomad/jobs/JOB/GROUP/TASK at most`},
			{"a", spec("", "v"), "items has an empty key"},
			{"a", spec("a\nb", "v"), `items has the key "a\nb"`},
			{"a", spec(strings.Repeat("k", 129), "v"), "items has a key of 129 bytes"},
			{"a", spec("k", strings.Repeat("v", 64<<10)), "items are 65537 bytes, more than the 65536 that a variable holds"},
			{"a", api.VariableSpec{}, "items is empty"},
		} {
			_, err := w.PutVariable(t.Context(), "default", tc.path, tc.spec, 0)
			if api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%.40s: %v, want %s", tc.path, err, tc.want)
			}
		}
		for _, path := range []api.VariablePath{"nomad/jobs", "nomad/jobs/a/b/c", "nomadic", "A-_~/9", api.VariablePath(strings.Repeat("a", 128))} {
			if _, err := w.PutVariable(t.Context(), "default", path, spec("a key of words", strings.Repeat("v", 64<<10-14)), 0); err != nil {
				t.Errorf("%.40s: %v", path, err)
			}
		}
	})
}

// TestWhoWaitsForAVariableIsToldWhenItComes, changes and goes, and nothing of
// others.
func TestWhoWaitsForAVariableIsToldWhenItComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		const path = "/v1/var/default/nomad/jobs/db"
		w.putVariable("default", "nomad/jobs/web", "0")
		missing := w.send(http.MethodGet, path, nil)
		index := missing.header.Get(api.HeaderIndex)
		if e := missing.refusal(t); e.Code != api.CodeNotFound || index == "" {
			t.Fatalf("%d %s at index %q", missing.status, missing.body, index)
		}
		poll := func(at string) *polled {
			t.Helper()
			var n uint64
			if _, err := fmt.Sscan(at, &n); err != nil {
				t.Fatal(err)
			}
			return w.poll(path, n, "1m")
		}
		others := func(p *polled) {
			t.Helper()
			for i, other := range []api.VariablePath{"nomad/jobs", "nomad/jobs/d", "nomad/jobs/db/g", "nomad/jobs/dba", "nomad/jobs/web"} {
				w.putVariable("default", other, time.Now().Format(time.RFC3339Nano)+string(rune('a'+i)))
			}
			w.putVariable("other", "nomad/jobs/db", time.Now().Format(time.RFC3339Nano))
			if synctest.Wait(); !p.waiting() {
				t.Errorf("who waits for %s was told of others: %d %s", path, p.status, p.body)
			}
		}
		p := poll(index)
		others(p)
		w.putVariable("default", "nomad/jobs/db", "first")
		if <-p.done; !strings.Contains(p.body, `"first"`) || p.took != 0 {
			t.Errorf("it came, and who waits was told %d %s after %s", p.status, p.body, p.took)
		}
		p = poll(p.header.Get(api.HeaderIndex))
		others(p)
		w.putVariable("default", "nomad/jobs/db", "second")
		if <-p.done; !strings.Contains(p.body, `"second"`) {
			t.Errorf("it changed, and who waits was told %d %s", p.status, p.body)
		}
		p = poll(p.header.Get(api.HeaderIndex))
		synctest.Wait()
		if err := w.DeleteVariable(t.Context(), "default", "nomad/jobs/db", 0); err != nil {
			t.Fatal(err)
		}
		if <-p.done; p.status != http.StatusNotFound || p.took != 0 {
			t.Errorf("it went, and who waits was told %d %s after %s", p.status, p.body, p.took)
		}
		p = poll(p.header.Get(api.HeaderIndex))
		others(p)
		if <-p.done; p.status != http.StatusNotFound || p.took != time.Minute {
			t.Errorf("it stayed away, and who waits was told %d %s after %s", p.status, p.body, p.took)
		}
		// Whoever asks again with what it was told has missed nothing.
		p = poll(p.header.Get(api.HeaderIndex))
		if synctest.Wait(); !p.waiting() {
			t.Errorf("who asks again was told %d %s", p.status, p.body)
		}
		w.putVariable("default", "nomad/jobs/db", "third")
		if <-p.done; !strings.Contains(p.body, `"third"`) {
			t.Errorf("it came back, and who waits was told %d %s", p.status, p.body)
		}
	})
}

// TestWhoFollowsAVariableHearsOfARestore, though what came back is older than what
// was known.
func TestWhoFollowsAVariableHearsOfARestore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		const path = "/v1/var/default/nomad/jobs/db"
		w.putVariable("default", "nomad/jobs/db", "old")
		var saved bytes.Buffer
		if err := w.SaveState(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		w.putVariable("default", "nomad/jobs/db", "new")
		w.putVariable("default", "nomad/jobs/web", "new")
		const other = "/v1/var/default/nomad/jobs/web"
		p, gone := w.poll(path, w.index(path), "5m"), w.poll(other, w.index(other), "5m")
		synctest.Wait()
		if _, err := w.RestoreState(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		if <-p.done; !strings.Contains(p.body, `"old"`) || p.took >= time.Minute {
			t.Errorf("who follows it was told %d %s after %s", p.status, p.body, p.took)
		}
		if <-gone.done; gone.status != http.StatusNotFound || gone.took >= time.Minute {
			t.Errorf("who follows what did not come back was told %d %s after %s", gone.status, gone.body, gone.took)
		}
		if _, _, err := w.Cluster(t.Context(), client.Query{}); err != nil { // waits until it leads again
			t.Fatal(err)
		}
		again := w.poll(path, w.index(path), "5m")
		if synctest.Wait(); !again.waiting() {
			t.Errorf("who asks again was told %d %s at once", again.status, again.body)
		}
		w.putVariable("default", "nomad/jobs/db", "next")
		if <-again.done; !strings.Contains(again.body, `"next"`) {
			t.Errorf("after the restore it changed, and who follows it was told %d %s", again.status, again.body)
		}
	})
}

// opens counts how often something is opened.
type opens struct {
	httpapi.Keyring
	n atomic.Int64
}

func (o *opens) Open(keyID string, box []byte, purpose string) ([]byte, error) {
	o.n.Add(1)
	return o.Keyring.Open(keyID, box, purpose)
}

// TestVariableIsOpenedOnceForAllWhoReadIt, and again when it has changed.
func TestVariableIsOpenedOnceForAllWhoReadIt(t *testing.T) {
	t.Parallel()
	keys := ring(t)
	if err := keys.Generate(); err != nil {
		t.Fatal(err)
	}
	content := func(path, value string) string {
		id, box, err := keys.Seal([]byte(`{"key":"`+value+`"}`), "variable\x00default\x00"+path)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("variable {\"path\":%q}\ncontent {\"path\":%q,\"key_id\":%q,\"box\":%q}\n", path, path, id, base64.StdEncoding.EncodeToString(box))
	}
	counted := &opens{Keyring: keys}
	f := newFake(t, content("a", "first")+content("b", "second"), func(c *httpapi.Config) { c.Keyring = counted })
	var g sync.WaitGroup
	for range 50 {
		g.Go(func() {
			if got := f.get(http.MethodGet, "/v1/var/default/a"); !strings.Contains(got.body, `"first"`) {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	if g.Wait(); counted.n.Load() != 1 {
		t.Errorf("it was opened %d times for 50 who read it", counted.n.Load())
	}
	if got := f.get(http.MethodGet, "/v1/var/default/b"); !strings.Contains(got.body, `"second"`) || counted.n.Load() != 2 {
		t.Errorf("another one: %s, opened %d times", got.body, counted.n.Load())
	}
}

// TestVariablesWithoutTheirKeySaySo, and can be replaced.
func TestVariablesWithoutTheirKeySaySo(t *testing.T) {
	t.Parallel()
	keys := ring(t)
	if err := keys.Generate(); err != nil {
		t.Fatal(err)
	}
	f := newFake(t, `variable {"path":"a"}`+"\n"+`content {"path":"a","key_id":"gone"}`, func(c *httpapi.Config) { c.Keyring = keys })
	e := f.get(http.MethodGet, "/v1/var/default/a").refusal(t)
	if e.Code != api.CodeForbidden || !strings.Contains(e.Message, "variable a is sealed with key gone, which this server does not have: copy keyring.json") {
		t.Errorf("%+v", e)
	}
	none := newFake(t, `variable {"path":"a"}`+"\n"+`content {"path":"a"}`, nil)
	if e := none.get(http.MethodGet, "/v1/var/default/a").refusal(t); !strings.Contains(e.Message, "this server keeps no secrets") {
		t.Errorf("%+v", e)
	}
}
