package httpapi_test

import (
	"bytes"
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
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/frame"
)

// both polls for one stream that goes both ways, and serves it; the channel has
// what the servers answered in the end.
func (a *agent) both(serve func(o api.StreamOffer, in *frame.Reader, out *frame.Writer)) <-chan error {
	done := make(chan error, 1)
	go func() {
		for index := uint64(0); ; {
			work, err := a.Assignments(context.Background(), a.session, a.epoch, index, 5*time.Second)
			if err != nil {
				done <- err
				return
			}
			if index = work.Index; len(work.Streams) == 0 {
				continue
			}
			body, pipe := io.Pipe()
			in, said := io.Pipe()
			served := make(chan struct{})
			go func() {
				defer close(served)
				serve(work.Streams[0], frame.NewReader(in), frame.NewWriter(pipe))
				_ = in.Close()
				_ = pipe.Close()
			}()
			err = a.Stream(context.Background(), a.session, a.epoch, work.Streams[0].ID, directions{body, said})
			_ = said.Close() // the servers say no more
			_ = body.Close() // nor do they listen
			<-served
			done <- err
			return
		}
	}()
	return done
}

// TestExec: what is asked for reaches the agent, what each says reaches the
// other, and nothing of it the state.
func TestExec(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, n1, alloc := placed(t)
		defer w.stop()
		before := w.index("/v1/volumes")
		req := api.ExecRequest{Command: []string{"cat", "-n"}, Input: true, Terminal: &api.TerminalSize{Rows: 24, Columns: 80}, Term: "vt100"}
		var heard []string
		done := n1.both(func(o api.StreamOffer, in *frame.Reader, out *frame.Writer) {
			want := api.StreamOffer{ID: o.ID, Kind: api.StreamExec, Exec: &api.ExecOffer{AllocID: alloc.ID, Task: "t", Asker: api.Asker{From: o.Exec.From}, ExecRequest: req}}
			if diff := cmp.Diff(want, o); diff != "" {
				t.Errorf("the agent is asked for (-want +got):\n%s", diff)
			}
			say(out, frame.Begin, "")
			for {
				kind, payload, err := in.Next()
				if err != nil {
					t.Error(err)
					return
				}
				heard = append(heard, string(rune('0'+kind))+string(payload))
				if kind == frame.InputEnd {
					break
				}
			}
			say(out, frame.Taken, "\x00\x00\x00\x05", frame.Data, "1 hello", frame.Errors, "oh", frame.Exit, `{"code":3}`, frame.End, "")
		})
		var stdout, stderr bytes.Buffer
		exit, err := w.Exec(t.Context(), alloc.ID, "t", req, client.ExecIO{Input: strings.NewReader("hello"), Output: &stdout, Errors: &stderr})
		if err != nil || exit != (api.ExecExit{Code: 3}) || stdout.String() != "1 hello" || stderr.String() != "oh" {
			t.Errorf("it ended with %+v (%v), and wrote %q and %q", exit, err, stdout.String(), stderr.String())
		}
		if err := <-done; err != nil {
			t.Errorf("the agent was answered %v", err)
		}
		if diff := cmp.Diff([]string{"4hello", "5"}, heard); diff != "" {
			t.Errorf("the agent heard (-want +got):\n%s", diff)
		}
		if w.index("/v1/volumes") != before {
			t.Error("a stream changed the state")
		}
		if !strings.Contains(w.logs.String(), `command="[cat -n]"`) {
			t.Errorf("who ran what is not in the log:\n%s", w.logs.String())
		}
	})
}

// TestExecThatIsRefused: what is wrong is said before the agent is asked, and
// what the agent refuses is the answer.
func TestExecThatIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, n1, alloc := placed(t)
		defer w.stop()
		path := "/v1/allocation/" + string(alloc.ID) + "/exec/"
		for _, tc := range []struct{ path, body, want string }{
			{"/v1/allocation/ffff/exec/t", `{"command":["ls"]}`, "not_found: allocation ffff does not exist"},
			{path + "web", `{"command":["ls"]}`, "not_found: allocation " + alloc.ID.Short() + " has no task web, but t"},
			{path + "t", `{"command":[]}`, "invalid: the request has a problem\n  command is missing; give a program and its arguments"},
			{path + "t", `{"command":["ls"],"terminal":{"rows":-1,"columns":70000}}`, "invalid: the request has a problem\n  terminal is -1 by 70000; give numbers of characters"},
			{path + "t", `{"command":["ls"]}`, "invalid: a command needs a connection that is upgraded: send the headers Connection: Upgrade and Upgrade: berth-frames"},
		} {
			e := w.send(http.MethodPost, tc.path, tc.body).refusal(t)
			if got := string(e.Code) + ": " + e.Error(); got != tc.want {
				t.Errorf("%s %s: got %s\nwant %s", tc.path, tc.body, got, tc.want)
			}
		}
		refusal, err := json.Marshal(api.Errorf(api.CodeConflict, "the task does not run"))
		if err != nil {
			t.Fatal(err)
		}
		done := n1.both(func(_ api.StreamOffer, _ *frame.Reader, out *frame.Writer) { say(out, frame.End, string(refusal)) })
		_, err = w.Exec(t.Context(), alloc.ID, "t", api.ExecRequest{Command: []string{"ls"}}, client.ExecIO{})
		if api.CodeOf(err) != api.CodeConflict || err.Error() != "the task does not run" {
			t.Errorf("got %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("the agent was answered %v", err)
		}
	})
}

// TestExecBreaks: whoever goes, the other learns of it.
func TestExecBreaks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		agent func(in *frame.Reader, out *frame.Writer)
		leave bool
		code  api.Code
		want  string
	}{
		"AgentGoes": {func(*frame.Reader, *frame.Writer) {}, false, api.CodeUnavailable, "the agent of node n1 went away in the middle of the stream"},
		"AgentFails": {func(_ *frame.Reader, out *frame.Writer) {
			say(out, frame.End, `{"code":"conflict","message":"the task has ended"}`)
		}, false, api.CodeConflict, "the task has ended"},
		"PersonGoes": {func(in *frame.Reader, _ *frame.Writer) {
			for {
				if _, _, err := in.Next(); err != nil {
					return
				}
			}
		}, true, "", "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, n1, alloc := placed(t)
				defer w.stop()
				done := n1.both(func(_ api.StreamOffer, in *frame.Reader, out *frame.Writer) {
					say(out, frame.Begin, "")
					tc.agent(in, out)
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				x := client.ExecIO{}
				if tc.leave {
					x.Begun = cancel
				}
				_, err := w.Exec(ctx, alloc.ID, "t", api.ExecRequest{Command: []string{"ls"}}, x)
				if err == nil || tc.code != "" && api.CodeOf(err) != tc.code || err.Error() != tc.want {
					t.Errorf("got %v", err)
				}
				if err := <-done; err != nil {
					t.Logf("the agent was answered %v", err) // either is right
				}
			})
		})
	}
}

// TestExecIsQuiet: for as long as both live, a command may say and read nothing.
func TestExecIsQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, n1, alloc := placed(t)
		defer w.stop()
		done := n1.both(func(_ api.StreamOffer, in *frame.Reader, out *frame.Writer) {
			say(out, frame.Begin, "")
			for range 360 {
				if kind, _, err := in.Next(); err != nil || kind != frame.Ping {
					t.Errorf("heard %d (%v)", kind, err)
					return
				}
				say(out, frame.Ping, "")
			}
			say(out, frame.Exit, "{}", frame.End, "")
		})
		began := time.Now()
		if _, err := w.Exec(t.Context(), alloc.ID, "t", api.ExecRequest{Command: []string{"ls"}}, client.ExecIO{}); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < time.Hour {
			t.Errorf("it took %s", took)
		}
		if err := <-done; err != nil {
			t.Errorf("the agent was answered %v", err)
		}
	})
}
