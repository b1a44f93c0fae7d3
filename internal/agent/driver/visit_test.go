package driver_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/frame"
)

// visitor is a person's side of a command in a task.
type visitor struct {
	t    testing.TB
	say  *frame.Writer
	hang func()
	done <-chan error

	mu          sync.Mutex // guards below
	out, errors bytes.Buffer
	taken       int
	exit        *api.ExecExit
	begun       chan struct{}
}

// visitTask runs a command in a task.
func visitTask(t testing.TB, d driver.Driver, id string, req api.ExecRequest) *visitor {
	t.Helper()
	host, ok := d.(driver.Host)
	if !ok {
		t.Fatalf("driver %s has no visitors", d.Name())
	}
	toTask, fromUs := io.Pipe()
	toUs, fromTask := io.Pipe()
	v := &visitor{t: t, say: frame.NewWriter(fromUs), begun: make(chan struct{})}
	c, cancel := context.WithCancel(ctx(t))
	v.hang = func() { cancel(); _ = fromUs.Close() }
	done := make(chan error, 1)
	v.done = done
	heard := make(chan struct{})
	go func() { defer close(heard); v.listen(frame.NewReader(toUs)) }()
	go func() {
		err := host.Visit(c, id, &req, driver.VisitConn{
			In: frame.NewReader(toTask), Out: frame.NewWriter(fromTask),
			Close: func() { _ = toTask.CloseWithError(io.ErrClosedPipe) },
		})
		_ = fromTask.Close()
		<-heard
		done <- err
	}()
	t.Cleanup(v.hang)
	return v
}

func (v *visitor) listen(r *frame.Reader) {
	for {
		kind, payload, err := r.Next()
		if err != nil {
			return
		}
		v.mu.Lock()
		switch kind {
		case frame.Begin:
			close(v.begun)
		case frame.Data:
			v.out.Write(payload)
		case frame.Errors:
			v.errors.Write(payload)
		case frame.Taken:
			v.taken += int(binary.BigEndian.Uint32(payload))
		case frame.Exit:
			v.exit = &api.ExecExit{}
			if err := json.Unmarshal(payload, v.exit); err != nil {
				v.t.Error(err)
			}
		case frame.Ping, frame.End, frame.Input, frame.InputEnd, frame.Resize, frame.Signal:
			v.t.Errorf("a frame of kind %d for a visitor", kind)
		}
		v.mu.Unlock()
	}
}

func (v *visitor) put(kind frame.Kind, payload string) {
	v.t.Helper()
	if err := v.say.Put(kind, []byte(payload)); err != nil {
		v.t.Error(err)
	}
}

func (v *visitor) output() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.out.String()
}

// end waits for the command, and answers what it wrote and how it ended.
func (v *visitor) end() (out, errs string, exit api.ExecExit) {
	v.t.Helper()
	if err := <-v.done; err != nil {
		v.t.Fatalf("the visit: %v", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.exit == nil {
		v.t.Fatal("the command's end was not told")
	}
	return v.out.String(), v.errors.String(), *v.exit
}

// sleeper is a task that runs.
func sleeper(t testing.TB, w *world, d driver.Driver) driver.Spec {
	t.Helper()
	spec := w.script("exec sleep 100000")
	spec.Env["COLOUR"] = "blue"
	if err := d.Start(ctx(t), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestVisit: a command finds what the task finds, and says what it wrote, on
// which of the two, and how it ended.
func TestVisit(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		t.Helper()
		spec := sleeper(t, w, d)
		v := visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"sh", "-c", `echo "$COLOUR $(id -u) $(pwd)"; echo oops >&2; exit 7`}})
		out, errs, exit := v.end()
		want := "blue 0 " + spec.Dir + "/local\n"
		if d.Name() == driver.NameExec {
			want = "blue 65534 /local\n"
		}
		if out != want || errs != "oops\n" || exit != (api.ExecExit{Code: 7}) {
			t.Errorf("it wrote %q and %q, and ended with %+v; want %q", out, errs, exit, want)
		}
		// In its namespaces, and in its cgroup.
		v = visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"cat", "/proc/self/cgroup", "/proc/1/cmdline"}})
		out, _, _ = v.end()
		isolated := strings.Contains(out, "task-init")
		if isolated != (d.Name() == driver.NameExec) {
			t.Errorf("it sees\n%s", out)
		}
		v = visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"sh", "-c", "kill -KILL $$"}})
		if _, _, exit := v.end(); exit != (api.ExecExit{Signal: 9}) || exit.Status() != 137 {
			t.Errorf("it ended with %+v", exit)
		}
		v = visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"no-such-program"}})
		if err := <-v.done; api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), "no-such-program") {
			t.Errorf("of a command that is nowhere: %v", err)
		}
		if status, err := d.Status(ctx(t), spec.ID); err != nil || status.State != driver.StateRunning {
			t.Errorf("the task is %+v (%v)", status, err)
		}
	})
}

// TestVisitReads: a command reads what it is sent, to its end, however much that
// is, and what it does not read holds up nothing else.
func TestVisitReads(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		t.Helper()
		spec := sleeper(t, w, d)
		v := visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"wc", "-c"}, Input: true})
		part := strings.Repeat("x", frame.Max)
		for i := range 40 {
			eventually(t, "input is taken", func() bool {
				v.mu.Lock()
				defer v.mu.Unlock()
				return i*frame.Max+frame.Max-v.taken <= frame.Window
			})
			v.put(frame.Input, part)
		}
		v.put(frame.InputEnd, "")
		if out, _, exit := v.end(); strings.TrimSpace(out) != fmt.Sprint(40*frame.Max) || exit.Code != 0 {
			t.Errorf("it counted %q, and ended with %+v", out, exit)
		}
		deaf := visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"sleep", "100000"}, Input: true})
		<-deaf.begun
		for range frame.Window / frame.Max {
			deaf.put(frame.Input, part)
		}
		deaf.put(frame.Signal, "SIGTERM")
		if _, _, exit := deaf.end(); exit.Signal != 15 {
			t.Errorf("it ended with %+v", exit)
		}
	})
}

// TestVisitWithTerminal: a shell finds a terminal of the size that it is given,
// and hears its keys.
func TestVisitWithTerminal(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		t.Helper()
		spec := sleeper(t, w, d)
		v := visitTask(t, d, spec.ID, api.ExecRequest{
			Command: []string{"sh"}, Input: true, Terminal: &api.TerminalSize{Rows: 31, Columns: 97}, Term: "vt220",
		})
		v.put(frame.Input, "stty size; echo \"=$TERM=\"\n")
		eventually(t, "the shell has a terminal", func() bool {
			return strings.Contains(v.output(), "31 97") && strings.Contains(v.output(), "=vt220=")
		})
		v.put(frame.Resize, `{"rows":20,"columns":60}`)
		v.put(frame.Input, "stty size\n")
		eventually(t, "the size has changed", func() bool { return strings.Contains(v.output(), "20 60") })
		v.put(frame.Input, "trap 'echo caught' INT; echo ready-$((40+2)); sleep 100000\n")
		eventually(t, "it sleeps", func() bool { return strings.Contains(v.output(), "ready-42") })
		v.put(frame.Input, "\x03")
		eventually(t, "the key was heard", func() bool { return strings.Contains(v.output(), "caught\r\n") })
		v.put(frame.Input, "exit 3\n")
		if _, errs, exit := v.end(); exit.Code != 3 || errs != "" {
			t.Errorf("it ended with %+v, and wrote %q apart", exit, errs)
		}
	})
}

// TestVisitEnds: with its visitor, and with the task, a command ends, and all of
// its session. So does what is left when it has ended itself.
func TestVisitEnds(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		t.Helper()
		spec := sleeper(t, w, d)
		left := func(marker string) func() bool {
			return func() bool {
				return len(processes(t, func(pid string) bool {
					line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
					return strings.Contains(string(line), marker)
				})) == 0
			}
		}
		stubborn := func(marker string) api.ExecRequest {
			return api.ExecRequest{Input: true, Command: []string{"sh", "-c", "trap '' HUP; sleep " + marker + " & echo on; wait"}}
		}
		v := visitTask(t, d, spec.ID, stubborn("99991"))
		eventually(t, "it runs", func() bool { return v.output() == "on\n" })
		v.hang()
		if err := <-v.done; err == nil {
			t.Error("nobody was told that the visitor left")
		}
		eventually(t, "nothing of it is left", left("99991"))
		v = visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"sh", "-c", "sleep 99992 & echo on"}})
		if out, _, exit := v.end(); out != "on\n" || exit.Code != 0 {
			t.Errorf("it wrote %q and ended with %+v", out, exit)
		}
		if !left("99992")() {
			t.Error("a process of a command that has ended is left")
		}
		v = visitTask(t, d, spec.ID, stubborn("99993"))
		eventually(t, "it runs", func() bool { return v.output() == "on\n" })
		if err := d.Stop(ctx(t), spec.ID, "SIGKILL", 0); err != nil {
			t.Fatal(err)
		}
		// It may have ended before it was known why.
		if err := <-v.done; api.CodeOf(err) != api.CodeConflict && (err != nil || v.exit == nil || v.exit.Signal != 9) {
			t.Errorf("the task has ended, and the visitor is told %v, %+v", err, v.exit)
		}
		if !left("99993")() {
			t.Error("a process is left of a task that has ended")
		}
		v = visitTask(t, d, spec.ID, stubborn("99994"))
		if err := <-v.done; api.CodeOf(err) != api.CodeConflict {
			t.Errorf("of a task that has ended: %v", err)
		}
	})
}

// TestVisitsAreBounded: one task, so many commands; and frames that make no
// sense end the one that they are for.
func TestVisitsAreBounded(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		t.Helper()
		spec := sleeper(t, w, d)
		var all []*visitor
		for range 8 {
			v := visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"sleep", "99995"}})
			<-v.begun
			all = append(all, v)
		}
		more := visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"true"}})
		if err := <-more.done; api.CodeOf(err) != api.CodeUnavailable {
			t.Errorf("one too many: %v", err)
		}
		all[0].put(frame.Input, "nobody asked")
		if err := <-all[0].done; api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("input that nobody reads: %v", err)
		}
		for _, v := range all[1:] {
			v.put(frame.Signal, "SIGTERM")
			if _, _, exit := v.end(); exit.Signal != 15 {
				t.Errorf("it ended with %+v", exit)
			}
		}
		if err := <-visitTask(t, d, "unknown/task", api.ExecRequest{Command: []string{"true"}}).done; api.CodeOf(err) != api.CodeConflict {
			t.Errorf("of no task: %v", err)
		}
		var e *api.Error
		if err := <-visitTask(t, d, spec.ID, api.ExecRequest{}).done; !errors.As(err, &e) || e.Code != api.CodeInvalid {
			t.Errorf("of no command: %v", err)
		}
	})
}
