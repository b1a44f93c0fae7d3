package httpapi_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/frame"
)

// carry polls for one stream and serves it; the channel has what the servers
// answered in the end.
func (a *agent) carry(serve func(o api.StreamOffer, out *frame.Writer)) <-chan error {
	done := make(chan error, 1)
	go func() {
		for index := uint64(0); ; {
			work, err := a.Assignments(context.Background(), a.session, a.epoch, index, 5*time.Second)
			if err != nil {
				done <- err
				return
			}
			index = work.Index
			if len(work.Streams) == 0 {
				continue
			}
			body, pipe := io.Pipe()
			go func() {
				serve(work.Streams[0], frame.NewWriter(pipe))
				_ = pipe.Close()
			}()
			err = a.Stream(context.Background(), a.session, a.epoch, work.Streams[0].ID, directions{body, io.Discard})
			_ = body.Close() // nobody reads any more
			done <- err
			return
		}
	}()
	return done
}

// directions are the two of a stream.
type directions struct {
	io.ReadCloser
	io.Writer
}

// say puts frames until one of them is not taken.
func say(out *frame.Writer, frames ...any) {
	for i := 0; i+1 < len(frames); i += 2 {
		kind, _ := frames[i].(frame.Kind)
		text, _ := frames[i+1].(string)
		if out.Put(kind, []byte(text)) != nil {
			return
		}
	}
}

// placed is a world with an allocation on n1.
func placed(t *testing.T) (*world, *agent, *api.Allocation) {
	t.Helper()
	w := start(t)
	n1 := w.join("n1")
	n1.provision("pg")
	alloc := n1.run("db", "pg")
	return w, n1, alloc
}

func TestLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, n1, alloc := placed(t)
		defer w.stop()
		five := int64(5)
		for _, tc := range []struct {
			query api.LogQuery
			want  api.LogQuery
		}{
			{api.LogQuery{}, api.LogQuery{Type: api.LogStdout}},
			{api.LogQuery{Type: api.LogStderr, Offset: -100}, api.LogQuery{Type: api.LogStderr, Offset: -100}},
			{api.LogQuery{Tail: &five, Follow: true}, api.LogQuery{Type: api.LogStdout, Tail: &five, Follow: true}},
		} {
			before := w.index("/v1/volumes")
			done := n1.carry(func(o api.StreamOffer, out *frame.Writer) {
				want := api.StreamOffer{ID: o.ID, Kind: api.StreamLogs, Logs: &api.LogRequest{AllocID: alloc.ID, Task: "t", LogQuery: tc.want}}
				if diff := cmp.Diff(want, o); diff != "" {
					t.Errorf("the agent is asked for (-want +got):\n%s", diff)
				}
				say(out, frame.Begin, `{"offset":7}`, frame.Data, "one\n", frame.Data, "two\x00\n", frame.End, "")
			})
			l, err := w.Logs(t.Context(), alloc.ID, "t", tc.query)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(l)
			l.Close()
			if err != nil || string(text) != "one\ntwo\x00\n" || l.Offset != 7 || l.Next() != 16 {
				t.Errorf("got %q from %d to %d (%v)", text, l.Offset, l.Next(), err)
			}
			if err := <-done; err != nil {
				t.Errorf("the agent was answered %v", err)
			}
			if w.index("/v1/volumes") != before {
				t.Error("a stream changed the state")
			}
		}
	})
}

// TestLogsOfCurl: without any client, a log is text.
func TestLogsOfCurl(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, n1, alloc := placed(t)
		defer w.stop()
		done := n1.carry(func(_ api.StreamOffer, out *frame.Writer) {
			say(out, frame.Begin, `{"offset":0}`, frame.Data, "one", frame.End, "")
		})
		got := w.send(http.MethodGet, "/v1/allocation/"+string(alloc.ID[:4])+"/logs/t?follow=true", nil)
		if got.status != http.StatusOK || got.body != "one" || got.header.Get("Content-Type") != "text/plain; charset=utf-8" || got.header.Get(api.HeaderOffset) != "0" {
			t.Errorf("%d %v %q", got.status, got.header, got.body)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestLogsThatAreRefused: everything that is wrong is said before the agent is
// asked, and all of it.
func TestLogsThatAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, alloc := placed(t)
		defer w.stop()
		id, short := string(alloc.ID), alloc.ID.Short()
		for path, want := range map[string]string{
			"/v1/allocation/ffff/logs/t":         "not_found: allocation ffff does not exist",
			"/v1/allocation/" + id + "/logs/web": "not_found: allocation " + short + " has no task web, but t",
			"/v1/allocation/" + id + "/logs/t?type=stdin&offset=1k&tail=-1&follow=yes&lines=3": "invalid: the request has a problem\n" +
				"  lines is no parameter of this request; use one of type, offset, tail, follow",
			"/v1/allocation/" + id + "/logs/t?type=stdin&offset=1k&tail=-1&follow=yes": "invalid: the request has 4 problems\n" +
				"  offset is \"1k\"; give a number of bytes, from the beginning, or below 0 from the end\n" +
				"  follow is \"yes\"; use true or false\n" +
				"  type is \"stdin\"; use one of stdout, stderr\n" +
				"  tail is -1; give a number of lines from 0 to 1000000",
			"/v1/allocation/" + id + "/logs/t?offset=1&tail=many": "invalid: the request has a problem\n" +
				"  tail is \"many\"; give a number of lines",
			"/v1/allocation/" + id + "/logs/t?offset=1&tail=2": "invalid: the request has a problem\n" +
				"  offset is given, and so is tail; give one of them",
		} {
			e := w.send(http.MethodGet, path, nil).refusal(t)
			if got := said(&e); got != want {
				t.Errorf("%s:\n%s\nwant\n%s", path, got, want)
			}
		}
	})
}

// TestLogsOfANodeThatIsAway: it is said in words, and nobody waits.
func TestLogsOfANodeThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _, alloc := placed(t)
		defer w.stop()
		for _, tc := range []struct {
			after, took time.Duration
			want        string
		}{
			{0, time.Second, "unavailable: node n1 is not connected: its agent does not poll"},
			{time.Minute, 0, "unavailable: node n1 is down: only its agent can read what is on it"},
		} {
			time.Sleep(tc.after)
			began := time.Now()
			_, err := w.Logs(t.Context(), alloc.ID, "t", api.LogQuery{})
			if got, took := said(err), time.Since(began); got != tc.want || took != tc.took {
				t.Errorf("after %s: %s, want %s", took, got, tc.want)
			}
		}
	})
}

// TestLogsThatBreakOff: what the agent says before the first byte is the
// answer; afterwards it follows the log.
func TestLogsThatBreakOff(t *testing.T) {
	t.Parallel()
	refused, err := json.Marshal(api.Errorf(api.CodeNotFound, "there is no such file"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		frames []any
		text   string
		want   string
	}{
		"Refused":     {[]any{frame.End, string(refused)}, "", "not_found: there is no such file"},
		"NoBegin":     {[]any{frame.Data, "one"}, "", "internal: the agent begins the log with something else"},
		"AtOnce":      {nil, "", "unavailable: the agent of node n1 went away in the middle of the stream"},
		"InTheMiddle": {[]any{frame.Begin, `{"offset":0}`, frame.Data, "one"}, "one", "unavailable: the agent of node n1 went away in the middle of the stream"},
		"WithAnError": {[]any{frame.Begin, `{"offset":0}`, frame.Data, "one", frame.End, string(refused)}, "one", "not_found: there is no such file"},
		"OtherFrames": {[]any{frame.Begin, `{"offset":0}`, frame.Data, "one", frame.Kind(77), "?"}, "one", "internal: the agent sends frames of kind 77 in a log"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, n1, alloc := placed(t)
				defer w.stop()
				done := n1.carry(func(_ api.StreamOffer, out *frame.Writer) { say(out, tc.frames...) })
				var text []byte
				l, err := w.Logs(t.Context(), alloc.ID, "t", api.LogQuery{})
				if err == nil {
					text, err = io.ReadAll(l)
					l.Close()
				}
				if string(text) != tc.text || said(err) != tc.want {
					t.Errorf("%q, then %s; want %q, then %s", text, said(err), tc.text, tc.want)
				}
				if err := <-done; api.CodeOf(err) == api.CodeUnavailable {
					t.Errorf("the agent was answered %v", err)
				}
			})
		})
	}
}

// TestReaderOfLogsGoes: the agent's side ends with it, and no fault is logged.
func TestReaderOfLogsGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, n1, alloc := placed(t)
		defer w.stop()
		done := n1.carry(func(_ api.StreamOffer, out *frame.Writer) {
			say(out, frame.Begin, `{"offset":0}`)
			for out.Put(frame.Ping, nil) == nil {
				time.Sleep(api.StreamPing)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		l, err := w.Logs(ctx, alloc.ID, "t", api.LogQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		time.Sleep(time.Hour)
		cancel()
		began := time.Now()
		if err := <-done; api.CodeOf(err) == api.CodeInternal {
			t.Errorf("the agent was answered %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the agent's side ended %s later", took)
		}
		if strings.Contains(w.logs.String(), "level=ERROR") {
			t.Errorf("the server's log:\n%s", w.logs.String())
		}
		time.Sleep(api.StreamPing)
	})
}

// TestSlowReaderOfLogs: a reader that does not read keeps its agent waiting,
// and the server holds no more than a few frames.
func TestSlowReaderOfLogs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, n1, alloc := placed(t)
		defer w.stop()
		taken := make(chan int, 1000)
		text := strings.Repeat("x", frame.Max)
		const frames = 100
		done := n1.carry(func(_ api.StreamOffer, out *frame.Writer) {
			say(out, frame.Begin, `{"offset":0}`)
			for i := range frames {
				say(out, frame.Data, text)
				taken <- i
			}
			say(out, frame.End, "")
		})
		l, err := w.Logs(t.Context(), alloc.ID, "t", api.LogQuery{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		time.Sleep(time.Hour)
		if n := len(taken); n > 4 {
			t.Errorf("%d frames went to a reader that does not read", n)
		}
		if n, err := io.Copy(io.Discard, l); err != nil || n != frames*frame.Max {
			t.Errorf("%d bytes (%v), want %d", n, err, frames*frame.Max)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestStreamsOfStrangers: only the node's agent, in its session, serves what is
// wanted from the node.
func TestStreamsOfStrangers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1")
		for name, tc := range map[string]struct {
			headers []string
			want    string
		}{
			"NoSecret":     {[]string{api.HeaderNode, "n1", api.HeaderEpoch, "1"}, "forbidden: the request carries no node secret"},
			"WrongSecret":  {[]string{api.HeaderNode, "n1", api.HeaderEpoch, "1", "Authorization", "Bearer x"}, "forbidden: node n1 is registered with another secret"},
			"OldSession":   {[]string{api.HeaderNode, "n1", api.HeaderEpoch, "1", "Authorization", "Bearer n1-secret", api.HeaderSession, "old"}, "stale_session: the session of node n1 has ended: its agent registered again, or another one did"},
			"NoEpoch":      {[]string{api.HeaderNode, "n1"}, `invalid: header Berth-Epoch is "", not a number`},
			"NobodyWaits":  {[]string{api.HeaderNode, "n1", api.HeaderEpoch, "1", "Authorization", "Bearer n1-secret", api.HeaderSession, "session-of-n1"}, "not_found: nobody waits for this stream of node n1 any more"},
			"UnknownNode":  {[]string{api.HeaderNode, "n9", api.HeaderEpoch, "1", "Authorization", "Bearer n1-secret"}, "stale_session: node n9 is not registered"},
			"AnotherEpoch": {[]string{api.HeaderNode, "n1", api.HeaderEpoch, "7", "Authorization", "Bearer n1-secret", api.HeaderSession, "session-of-n1"}, "stale_session: epoch 7 of node n1 has ended; it is in epoch 1"},
		} {
			e := w.send(http.MethodPost, "/v1/agent/stream/abc", nil, tc.headers...).refusal(t)
			if got := said(&e); got != tc.want {
				t.Errorf("%s: %s, want %s", name, got, tc.want)
			}
		}
	})
}

// TestServerStopsInTheMiddle of a log: nothing waits for its reader, who is told.
func TestServerStopsInTheMiddle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, n1, alloc := placed(t)
		defer w.stop()
		done := n1.carry(func(_ api.StreamOffer, out *frame.Writer) {
			say(out, frame.Begin, `{"offset":0}`)
			for out.Put(frame.Ping, nil) == nil {
				time.Sleep(api.StreamPing)
			}
		})
		l, err := w.Logs(t.Context(), alloc.ID, "t", api.LogQuery{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadAll(l)
			read <- err
		}()
		began := time.Now()
		w.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the server took %s to stop", took)
		}
		if got := said(<-read); got != "unavailable: the server stops" {
			t.Errorf("the reader got %s", got)
		}
		if err := <-done; api.CodeOf(err) == api.CodeInternal {
			t.Errorf("the agent was answered %v", err)
		}
		time.Sleep(api.StreamPing)
	})
}

// TestSignal: the agent hears who asks, by the caller's word, and its answer is the
// answer. A name that cannot be kept is refused before anybody is asked.
func TestSignal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, n1, alloc := placed(t)
		defer w.stop()
		want := api.Signalled{AllocID: alloc.ID, Signal: "SIGHUP", Tasks: []string{"t"}}
		answer, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			ask    api.SignalRequest
			answer []any
			want   string
		}{
			{api.SignalRequest{Signal: "SIGHUP"}, []any{frame.Data, string(answer), frame.End, ""}, ""},
			{api.SignalRequest{Signal: "SIGHUP"}, []any{frame.Data, "{}", frame.End, ""}, "internal: the agent of node n1 answers with something else"},
			{api.SignalRequest{Signal: "SIGHUP"}, []any{frame.End, `{"code":"conflict","message":"no task runs"}`}, "conflict: no task runs"},
		} {
			done := n1.carry(func(o api.StreamOffer, out *frame.Writer) {
				if o.Kind != api.StreamSignal || o.Signal == nil || o.Signal.AllocID != alloc.ID || o.Signal.SignalRequest != tc.ask || o.Signal.By != "" || o.Signal.From == "" {
					t.Errorf("the agent is asked for %+v", o.Signal)
				}
				say(out, tc.answer...)
			})
			got, err := w.SignalAllocation(t.Context(), alloc.ID, tc.ask)
			if said(err) != tc.want {
				t.Errorf("%q: got %s, want %s", tc.answer, said(err), tc.want)
			}
			if tc.want == "" {
				if diff := cmp.Diff(&want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if err := <-done; api.CodeOf(err) == api.CodeUnavailable {
				t.Errorf("the agent was answered %v", err)
			}
		}
		for _, tc := range []struct {
			ask  api.SignalRequest
			want string
		}{
			{api.SignalRequest{Signal: "SIGFOO"}, "signal"},
			{api.SignalRequest{Signal: "SIGHUP", Task: "none"}, "has no task none"},
		} {
			if _, err := w.SignalAllocation(t.Context(), alloc.ID, tc.ask); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%+v is answered with %v", tc.ask, err)
			}
		}
	})
}

// TestFigures: an agent's answer is the answer, and what is none is said.
func TestFigures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, n1, alloc := placed(t)
		defer w.stop()
		want := api.AllocFigures{AllocID: alloc.ID, NodeID: "n1", Tasks: map[string]api.TaskFigures{"t": {CPUPercent: 50, MemoryBytes: 7}}}
		answer, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			frames []any
			want   string
		}{
			{[]any{frame.Data, string(answer[:10]), frame.Data, string(answer[10:]), frame.End, ""}, ""},
			{[]any{frame.Data, "{}", frame.End, ""}, "internal: the agent of node n1 answers with something else"},
			{[]any{frame.Begin, "{}"}, "internal: the agent of node n1 answers with something else"},
			{[]any{frame.End, `{"code":"unavailable","message":"not here"}`}, "unavailable: not here"},
		} {
			done := n1.carry(func(o api.StreamOffer, out *frame.Writer) {
				if o.Kind != api.StreamFigures || o.Figures != alloc.ID {
					t.Errorf("the agent is asked for %+v", o)
				}
				say(out, tc.frames...)
			})
			got, err := w.AllocFigures(t.Context(), alloc.ID)
			if said(err) != tc.want {
				t.Errorf("%q: got %s, want %s", tc.frames, said(err), tc.want)
			}
			if tc.want == "" {
				if diff := cmp.Diff(&want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if err := <-done; api.CodeOf(err) == api.CodeUnavailable {
				t.Errorf("the agent was answered %v", err)
			}
		}
	})
}
