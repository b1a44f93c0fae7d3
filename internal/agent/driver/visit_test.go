package driver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/executor"
	"github.com/berth-dev/berth/internal/agent/driver/visit/visittest"
	"github.com/berth-dev/berth/internal/frame"
)

// visitTask runs a command in a task.
func visitTask(t testing.TB, d driver.Driver, id string, req api.ExecRequest) *visittest.Visitor {
	t.Helper()
	host, ok := d.(driver.Host)
	if !ok {
		t.Fatalf("driver %s has no visitors", d.Name())
	}
	return visittest.Begin(t, func(ctx context.Context, conn driver.VisitConn) error { return host.Visit(ctx, id, &req, conn) })
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
		out, errs, exit := v.End()
		want := "blue 0 " + spec.Dir + "/local\n"
		if d.Name() == driver.NameExec {
			want = "blue 65534 /local\n"
		}
		if out != want || errs != "oops\n" || exit != (api.ExecExit{Code: 7}) {
			t.Errorf("it wrote %q and %q, and ended with %+v; want %q", out, errs, exit, want)
		}
		// In its namespaces, and in its cgroup.
		v = visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"cat", "/proc/self/cgroup", "/proc/1/cmdline"}})
		out, _, _ = v.End()
		isolated := strings.Contains(out, "task-init")
		if isolated != (d.Name() == driver.NameExec) {
			t.Errorf("it sees\n%s", out)
		}
		v = visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"sh", "-c", "kill -KILL $$"}})
		if _, _, exit := v.End(); exit != (api.ExecExit{Signal: 9}) || exit.Status() != 137 {
			t.Errorf("it ended with %+v", exit)
		}
		v = visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"no-such-program"}})
		if err := <-v.Done; api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), "no-such-program") {
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
				return i*frame.Max+frame.Max-v.Taken() <= frame.Window
			})
			v.Put(frame.Input, part)
		}
		v.Put(frame.InputEnd, "")
		if out, _, exit := v.End(); strings.TrimSpace(out) != fmt.Sprint(40*frame.Max) || exit.Code != 0 {
			t.Errorf("it counted %q, and ended with %+v", out, exit)
		}
		deaf := visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"sleep", "100000"}, Input: true})
		<-deaf.Begun
		for range frame.Window / frame.Max {
			deaf.Put(frame.Input, part)
		}
		deaf.Put(frame.Signal, "SIGTERM")
		if _, _, exit := deaf.End(); exit.Signal != 15 {
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
		v.Put(frame.Input, "stty size; echo \"=$TERM=\"\n")
		eventually(t, "the shell has a terminal", func() bool {
			return v.Shows("31 97") && v.Shows("=vt220=")
		})
		v.Put(frame.Resize, `{"rows":20,"columns":60}`)
		v.Put(frame.Input, "stty size\n")
		eventually(t, "the size has changed", func() bool { return v.Shows("20 60") })
		// A key that comes before the sleep would be the shell's, which heeds it after.
		v.Put(frame.Input, "trap 'echo caught' INT; sleep "+napOf(d, "998")+"\n")
		eventually(t, "it sleeps", func() bool { return len(commands(t, napOf(d, "998"))) > 0 })
		v.Put(frame.Input, "\x03")
		eventually(t, "the key was heard", func() bool { return v.Shows("caught\r\n") })
		v.Put(frame.Input, "exit 3\n")
		if _, errs, exit := v.End(); exit.Code != 3 || errs != "" {
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
				return len(commands(t, napOf(d, marker))) == 0
			}
		}
		stubborn := func(marker string) api.ExecRequest {
			return api.ExecRequest{Input: true, Command: []string{"sh", "-c", "trap '' HUP; sleep " + napOf(d, marker) + " & echo on; wait"}}
		}
		v := visitTask(t, d, spec.ID, stubborn("991"))
		eventually(t, "it runs", func() bool { return v.Output() == "on\n" })
		v.Hang()
		if err := <-v.Done; err == nil {
			t.Error("nobody was told that the visitor left")
		}
		eventually(t, "nothing of it is left", left("991"))
		v = visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"sh", "-c", "sleep " + napOf(d, "992") + " & echo on"}})
		if out, _, exit := v.End(); out != "on\n" || exit.Code != 0 {
			t.Errorf("it wrote %q and ended with %+v", out, exit)
		}
		if !left("992")() {
			t.Error("a process of a command that has ended is left")
		}
		v = visitTask(t, d, spec.ID, stubborn("993"))
		eventually(t, "it runs", func() bool { return v.Output() == "on\n" })
		if err := d.Stop(ctx(t), spec.ID, "SIGKILL", 0); err != nil {
			t.Fatal(err)
		}
		// It may have ended before it was known why.
		if err := <-v.Done; api.CodeOf(err) != api.CodeConflict && (err != nil || v.Exit() == nil || v.Exit().Signal != 9) {
			t.Errorf("the task has ended, and the visitor is told %v, %+v", err, v.Exit())
		}
		if !left("993")() {
			t.Error("a process is left of a task that has ended")
		}
		v = visitTask(t, d, spec.ID, stubborn("994"))
		if err := <-v.Done; api.CodeOf(err) != api.CodeConflict {
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
		var all []*visittest.Visitor
		for range 8 {
			v := visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"sleep", "99995"}})
			<-v.Begun
			all = append(all, v)
		}
		more := visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"true"}})
		if err := <-more.Done; api.CodeOf(err) != api.CodeUnavailable {
			t.Errorf("one too many: %v", err)
		}
		all[0].Put(frame.Input, "nobody asked")
		if err := <-all[0].Done; api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("input that nobody reads: %v", err)
		}
		for _, v := range all[1:] {
			v.Put(frame.Signal, "SIGTERM")
			if _, _, exit := v.End(); exit.Signal != 15 {
				t.Errorf("it ended with %+v", exit)
			}
		}
		if err := <-visitTask(t, d, "unknown/task", api.ExecRequest{Command: []string{"true"}}).Done; api.CodeOf(err) != api.CodeConflict {
			t.Errorf("of no task: %v", err)
		}
		var e *api.Error
		if err := <-visitTask(t, d, spec.ID, api.ExecRequest{}).Done; !errors.As(err, &e) || e.Code != api.CodeInvalid {
			t.Errorf("of no command: %v", err)
		}
	})
}

// TestVisitOfAKilledSupervisor: the visitor is told what happened, the task ends
// as it does without a visitor, and nothing is left of either.
func TestVisitOfAKilledSupervisor(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		t.Helper()
		spec := sleeper(t, w, d)
		v := visitTask(t, d, spec.ID, api.ExecRequest{Input: true, Command: []string{"sh", "-c", "trap '' HUP; setsid sleep " + napOf(d, "996") + " & sleep " + napOf(d, "996") + " & echo on; wait"}})
		eventually(t, "it runs", func() bool { return v.Output() == "on\n" })
		running := status(t, d, spec)
		kill(t, parent(t, running.PID), syscall.SIGKILL)
		if err := <-v.Done; api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "its supervisor is gone") {
			t.Errorf("the visitor is told %v", err)
		}
		if v.Exit() != nil {
			t.Errorf("an end is told that nobody saw: %+v", v.Exit())
		}
		if got := wait(t, d, spec); got.Reason != executor.ReasonSupervisor {
			t.Errorf("the task ended so: %+v", got)
		}
		if left := commands(t, napOf(d, "996")); len(left) > 0 {
			t.Errorf("processes %q are left", left)
		}
		if err := <-visitTask(t, d, spec.ID, api.ExecRequest{Command: []string{"true"}}).Done; api.CodeOf(err) != api.CodeConflict {
			t.Errorf("of a task that has ended: %v", err)
		}
		if err := d.Destroy(ctx(t), spec.ID); err != nil {
			t.Fatal(err)
		}
		// What entered a pid namespace is init's to reap now, and the namespace's first
		// process stays until that has happened.
		eventually(t, "init has reaped what is left", func() bool { return len(w.processes()) == 0 })
	})
}

// napOf is how long a command sleeps in a test with one driver, for it to be known
// by that: tests with the other run at the same time. With a fraction it is in no
// name of a directory, whose numbers are random.
func napOf(d driver.Driver, which string) string {
	if d.Name() == driver.NameExec {
		return "99" + which + ".25"
	}
	return "88" + which + ".25"
}

// commands are the processes that have a word in their command line.
func commands(t testing.TB, word string) []string {
	t.Helper()
	return processes(t, func(pid string) bool {
		line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		return strings.Contains(string(line), word)
	})
}

// TestTaskEndsWhetherOrNotItsVisitorReads: somebody's stopped terminal keeps no
// task from ending, and from being known to have ended.
func TestTaskEndsWhetherOrNotItsVisitorReads(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		t.Helper()
		spec := sleeper(t, w, d)
		host, ok := d.(driver.Host)
		if !ok {
			t.Fatal("it has no visitors")
		}
		toTask, fromUs := io.Pipe()
		toUs, fromTask := io.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- host.Visit(ctx(t), spec.ID, &api.ExecRequest{Command: []string{"sh", "-c", "while :; do echo yes; done"}}, driver.VisitConn{
				In: frame.NewReader(toTask), Out: frame.NewWriter(fromTask), Close: func() { _ = toTask.CloseWithError(io.ErrClosedPipe) },
			})
		}()
		reads := frame.NewReader(toUs)
		for kind, want := range []frame.Kind{frame.Begin, frame.Data} {
			if got, _, err := reads.Next(); got != want || err != nil {
				t.Fatalf("frame %d is of kind %d (%v)", kind, got, err)
			}
		}
		if err := d.Stop(ctx(t), spec.ID, "SIGTERM", time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := wait(t, d, spec); got.Reason != "" || got.Signal != int(syscall.SIGTERM) {
			t.Errorf("the task ended so: %+v", got)
		}
		_ = toUs.Close()
		_ = fromUs.Close()
		if err := <-done; err == nil {
			t.Error("nobody was told that the task has ended")
		}
	})
}

// TestVisitEndsWhoeverHoldsItsInput open: what began a session of its own goes
// with the task, and the visit before.
func TestVisitEndsWhoeverHoldsItsInput(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		t.Helper()
		spec := sleeper(t, w, d)
		for _, terminal := range []*api.TerminalSize{nil, {Rows: 20, Columns: 60}} {
			v := visitTask(t, d, spec.ID, api.ExecRequest{Input: true, Terminal: terminal, Command: []string{
				"sh", "-c", "exec 3<&0; setsid sleep " + napOf(d, "997") + " >/dev/null 2>&1 & trap 'exit 4' TERM; echo on; while :; do sleep 0.05; done",
			}})
			eventually(t, "it runs", func() bool { return v.Shows("on") })
			for range frame.Window / frame.Max {
				v.Put(frame.Input, strings.Repeat("x", frame.Max))
			}
			v.Put(frame.Signal, "SIGTERM")
			if _, _, exit := v.End(); exit.Code != 4 {
				t.Errorf("it ended with %+v", exit)
			}
		}
		if err := d.Stop(ctx(t), spec.ID, "SIGKILL", 0); err != nil {
			t.Fatal(err)
		}
		if left := commands(t, napOf(d, "997")); len(left) > 0 {
			t.Errorf("processes %q are left", left)
		}
	})
}
