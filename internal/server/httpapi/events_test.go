package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// follower reads a stream of events by hand.
type follower struct {
	t     *testing.T
	resp  *http.Response
	lines chan api.EventFrame
}

// follow opens a stream. It ends with the test.
func (w *world) follow(query string) *follower {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/v1/events"+query, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.http.Do(req) //nolint:bodyclose // w.stop closes it
	if err != nil {
		w.t.Fatal(err)
	}
	f := &follower{t: w.t, resp: resp, lines: make(chan api.EventFrame, 1000)}
	go func() {
		defer close(f.lines)
		for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
			var frame api.EventFrame
			dec := json.NewDecoder(strings.NewReader(scan.Text()))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&frame); err != nil {
				w.t.Errorf("line %q: %v", scan.Text(), err)
			}
			f.lines <- frame
		}
	}()
	stop := w.stop
	w.stop = func() {
		cancel()
		_ = resp.Body.Close()
		stop()
	}
	return f
}

// next is the next frame that has events or an error.
func (f *follower) next() api.EventFrame {
	f.t.Helper()
	for frame := range f.lines {
		if len(frame.Events) > 0 || frame.Error != nil {
			return frame
		}
	}
	f.t.Fatal("the stream has ended")
	return api.EventFrame{}
}

// said is what has come so far: kinds, topics and keys.
func (f *follower) said() string {
	synctest.Wait()
	var all []string
	for {
		select {
		case frame, open := <-f.lines:
			if !open {
				return strings.Join(append(all, "the end"), "\n")
			}
			for _, e := range frame.Events {
				all = append(all, strings.TrimSuffix(fmt.Sprintf("%s %s %s %s", e.Kind, e.Topic, e.Namespace, e.Key), " "))
			}
			if frame.Error != nil {
				all = append(all, frame.Error.Error())
			}
		default:
			return strings.Join(all, "\n")
		}
	}
}

// TestEventsTellWhatIsCommitted, with the rows as the API lists them, and
// nothing that is nobody's business.
func TestEventsTellWhatIsCommitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer func() { w.stop() }()
		f := w.follow("")
		if kind := f.resp.Header.Get("Content-Type"); f.resp.StatusCode != http.StatusOK || kind != "application/x-ndjson" {
			t.Fatalf("answered %s, %s", f.resp.Status, kind)
		}
		first := <-f.lines
		if first.Index == 0 || first.Generation != 1 || len(first.Events) > 0 {
			t.Errorf("the stream begins with %+v, want where it stands", first)
		}
		n1 := w.join("n1")
		n1.provision("pg")
		if got := f.said(); !strings.Contains(got, "created node  n1\n") || !strings.Contains(got, "created instance  disk/n1\n") ||
			!strings.HasSuffix(got, "changed operation default create/default/pg@1\nchanged volume default pg") {
			t.Errorf("said\n%s", got)
		}
		if err := w.DeleteVolume(t.Context(), "default", "pg", 0); err != nil {
			t.Fatal(err)
		}
		changed := f.next()
		vol, _, err := w.Volume(t.Context(), "default", "pg", client.Query{})
		if err != nil {
			t.Fatal(err)
		}
		row := map[string]any{}
		if err := json.Unmarshal(changed.Events[0].Row, &row); err != nil || row["desired"] != "absent" || changed.Index > vol.ModifyIndex || changed.Time.IsZero() {
			t.Errorf("the deletion is told as %s at index %d, %s (%v)", changed.Events[0].Row, changed.Index, changed.Time, err)
		}
		n1.answerOperation()
		if got := f.said(); !strings.Contains(got, "deleted volume default pg") {
			t.Errorf("said\n%s", got)
		}
	})
}

// TestEventsAreFiltered by topic, key and namespace.
func TestEventsAreFiltered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer func() { w.stop() }()
		volumes, one := w.follow("?topic=volume"), w.follow("?topic=volume:pg&topic=node&namespace=default")
		elsewhere, both := w.follow("?namespace=other"), w.follow("?topic=volume&topic=job&namespace=*")
		w.join("n1")
		for _, ns := range []api.NamespaceID{"default", "other"} {
			for _, id := range []api.VolumeID{"pg", "web"} {
				spec := volume()
				spec.PluginID = "tape" // which nobody has
				if _, err := w.ApplyVolume(t.Context(), ns, id, spec, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		idle := job("pg")
		idle.Groups[0].Count = 0
		if _, err := w.ApplyJob(t.Context(), "other", "idle", idle, 0); err != nil {
			t.Fatal(err)
		}
		// A job is settled, and then found healthy.
		for what, tc := range map[string]struct {
			f    *follower
			want string
		}{
			"volumes":   {volumes, "created volume default pg\ncreated volume default web\ncreated volume other pg\ncreated volume other web"},
			"one":       {one, "created node  n1\ncreated volume default pg"},
			"elsewhere": {elsewhere, "created node  n1\ncreated instance  disk/n1\ncreated volume other pg\ncreated volume other web\ncreated job other idle\nchanged job other idle\nchanged job other idle"},
			"both":      {both, "created volume default pg\ncreated volume default web\ncreated volume other pg\ncreated volume other web\ncreated job other idle\nchanged job other idle\nchanged job other idle"},
		} {
			if diff := cmp.Diff(tc.want, tc.f.said()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
	})
}

// TestEventsGoOn after any index that was said, also one of a heartbeat, and
// nothing is told twice or left out.
func TestEventsGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer func() { w.stop() }()
		all := w.follow("")
		w.join("n1").provision("pg")
		synctest.Wait()
		time.Sleep(12 * time.Second) // a heartbeat, and the node is not missed yet
		synctest.Wait()
		var frames []api.EventFrame
		for len(all.lines) > 0 {
			frames = append(frames, <-all.lines)
		}
		if last := frames[len(frames)-1]; len(last.Events) > 0 || last.Index < frames[len(frames)-2].Index {
			t.Errorf("after 12s of silence: %+v", last)
		}
		for i, from := range frames {
			later := w.follow(fmt.Sprintf("?index=%d&generation=1", from.Index))
			synctest.Wait()
			var got []uint64
			for len(later.lines) > 0 {
				if f := <-later.lines; len(f.Events) > 0 {
					got = append(got, f.Index)
				}
			}
			var want []uint64
			for _, f := range frames[i+1:] {
				if len(f.Events) > 0 {
					want = append(want, f.Index)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("after %d (-want +got):\n%s", from.Index, diff)
			}
		}
	})
}

func TestWrongStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		const problem = "the request has a problem\n  "
		const topics = "use one of cluster, node, instance, volume, publication, attachment, operation, job, allocation, snapshot, finding, room, variable"
		for query, want := range map[string]string{
			"?topic=volumes":         "invalid: " + problem + `topic is "volumes"; ` + topics,
			"?topic=*":               "invalid: " + problem + `topic is "*"; ` + topics,
			"?topic=volume:":         "invalid: " + problem + `topic is "volume:", which names no id; write volume for all, or volume:ID`,
			"?index=x&topic=x":       "invalid: the request has 2 problems\n  " + `topic is "x"; ` + topics + "\n  " + `index is "x"; give a number`,
			"?index=5&generation=2":  "gone: the cluster is in generation 1, and the index is of generation 2: its state was put back; read what there is, and follow from now on",
			"?wait=5s":               "invalid: " + problem + "wait is no parameter of this request; use one of topic, namespace, index, generation",
			"?index=99999&topic=job": "gone: the state has not come to index 99999: it is another one, or an older copy; read what there is, and follow from now on\n  index is 99999; use 0 to ",
		} {
			got := w.send(http.MethodGet, "/v1/events"+query, nil)
			e := got.refusal(t)
			if text := fmt.Sprintf("%s: %s", e.Code, e.Error()); !strings.HasPrefix(text, want) {
				t.Errorf("%s: %d %s\nwant %s", query, got.status, text, want)
			}
		}
	})
}

// TestStreamWithoutABody ends at once.
func TestStreamWithoutABody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		began := time.Now()
		if got := w.send(http.MethodHead, "/v1/events", nil); got.status != http.StatusOK || time.Since(began) > time.Second {
			t.Errorf("HEAD answered %d after %s", got.status, time.Since(began))
		}
	})
}

// TestSlowReaderIsDropped, with a word, and delays nobody.
func TestSlowReaderIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer func() { w.stop() }()
		conn, err := w.wire.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, "GET /v1/events HTTP/1.1\r\nHost: server\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for i := range 10 {
			if _, err := w.ApplyVolume(t.Context(), "default", api.VolumeID(fmt.Sprint("v", i)), volume(), 0); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("writes took %s while somebody did not read", took)
		}
		time.Sleep(2 * time.Minute)
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		if text, err := io.ReadAll(conn); err != nil || len(text) > 1000 {
			t.Errorf("after two minutes without reading: %d bytes, %v; want a connection that was closed", len(text), err)
		}
	})
}

// TestStreamEndsWithItsServer, at once.
func TestStreamEndsWithItsServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		stop := w.stop
		f := w.follow("")
		began := time.Now()
		stop()
		if got := f.said(); got != "the end" && !strings.Contains(got, "no longer leads") {
			t.Errorf("said %q", got)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the server took %s to stop", took)
		}
		w.stop()
	})
}

// TestEventsOfARestoredState: who follows is told that what it knows is of
// another past, and so is who waits for a list.
func TestEventsOfARestoredState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer func() { w.stop() }()
		w.join("n1").provision("pg")
		var saved strings.Builder
		if err := w.SaveState(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		f := w.follow("")
		before := <-f.lines
		p := w.poll("/v1/volumes", w.index("/v1/volumes"), "5m")
		if _, err := w.RestoreState(t.Context(), strings.NewReader(saved.String())); err != nil {
			t.Fatal(err)
		}
		if p.waiting() {
			t.Error("who waited for the list of volumes waits on")
		}
		if got := f.next(); got.Error == nil || got.Error.Code != api.CodeGone {
			t.Errorf("the stream goes on with %+v", got)
		}
		for _, query := range []string{"?index=%d", "?index=%d&generation=1", "?index=%d&topic=volume"} {
			got := w.send(http.MethodGet, fmt.Sprintf("/v1/events"+query, before.Index), nil)
			if e := got.refusal(t); e.Code != api.CodeGone || got.status != http.StatusGone {
				t.Errorf("%s: %d %s", query, got.status, got.body)
			}
		}
	})
}

// TestClientFollows: the iterator of the Go client goes on by itself.
func TestClientFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		q := client.EventQuery{Topics: []api.TopicFilter{{Topic: api.TopicVolume}, {Topic: api.TopicNode, Key: "n1"}}}
		for f, err := range w.Events(ctx, q) {
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				break
			}
			for _, e := range f.Events {
				got = append(got, fmt.Sprint(e.Kind, " ", e.Key))
			}
			switch {
			case len(f.Events) == 0 && len(got) == 0:
				go func() {
					w.join("n1").provision("pg")
					w.wire.cut() // every connection
					_ = w.DeleteVolume(t.Context(), "default", "pg", 0)
				}()
			case len(got) >= 5:
				cancel()
			}
		}
		if ctx.Err() == nil {
			t.Error("the stream ended by itself")
		}
		cancel()
		want := []string{"created n1", "created pg", "changed pg", "changed pg", "changed pg"}
		if diff := cmp.Diff(want, got[:min(len(got), len(want))]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for _, err := range w.Events(t.Context(), client.EventQuery{Index: 7, Generation: 3}) {
			if api.CodeOf(err) != api.CodeGone {
				t.Errorf("an index of another generation: %v", err)
			}
		}
	})
}
