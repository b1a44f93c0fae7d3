package driver_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// ignoreMoments leaves out of a comparison what differs each time.
func ignoreMoments() cmp.Option {
	return cmpopts.IgnoreFields(driver.Status{}, "PID", "Started", "Ended")
}

func TestTaskLifecycle(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script("trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done")
		if got := status(t, d, spec); got != (driver.Status{State: driver.StateUnknown}) {
			t.Errorf("before Start, the status is %+v", got)
		}
		before := time.Now()
		start(t, d, spec)
		running := status(t, d, spec)
		if running.State != driver.StateRunning || running.PID == 0 || running.Started.Before(before.Add(-time.Second)) {
			t.Errorf("after Start, the status is %+v", running)
		}
		said(t, spec, "ready")
		if err := d.Stop(ctx(t), spec.ID, "SIGTERM", time.Minute); err != nil {
			t.Fatal(err)
		}
		ended := status(t, d, spec)
		want := driver.Status{State: driver.StateEnded, ExitCode: 7}
		if diff := cmp.Diff(want, ended, ignoreMoments()); diff != "" {
			t.Errorf("after Stop, the status is wrong (-want +got):\n%s", diff)
		}
		if ended.PID != running.PID || !ended.Started.Equal(running.Started) || ended.Ended.Before(ended.Started) {
			t.Errorf("the end does not fit the start: %+v, %+v", running, ended)
		}
		if diff := cmp.Diff(ended, wait(t, d, spec)); diff != "" {
			t.Errorf("Wait differs from Status (-status +wait):\n%s", diff)
		}
		if err := d.Destroy(ctx(t), spec.ID); err != nil {
			t.Fatal(err)
		}
		if got := status(t, d, spec); got.State != driver.StateUnknown {
			t.Errorf("after Destroy, the status is %+v", got)
		}
	})
}

func TestCallsMayBeRepeated(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script("echo once; exec sleep 1000")
		for range 2 {
			if err := d.Stop(ctx(t), spec.ID, "", 0); err != nil {
				t.Errorf("stop a task that never was: %v", err)
			}
			if err := d.Destroy(ctx(t), spec.ID); err != nil {
				t.Errorf("destroy a task that never was: %v", err)
			}
		}
		start(t, d, spec)
		said(t, spec, "once")
		pid := status(t, d, spec).PID
		start(t, d, spec)
		if got := status(t, d, spec).PID; got != pid {
			t.Errorf("a second Start changed process %d to %d", pid, got)
		}
		for range 2 {
			if err := d.Stop(ctx(t), spec.ID, "SIGTERM", time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		start(t, d, spec)
		if got := status(t, d, spec); got.State != driver.StateEnded || got.PID != pid {
			t.Errorf("Start began an ended task again: %+v", got)
		}
		if got := output(t, spec, "stdout"); got != "once\n" {
			t.Errorf("the task ran more than once: %q", got)
		}
		for range 2 {
			if err := d.Destroy(ctx(t), spec.ID); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestDestroyedTaskMayRunAgain(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script("echo run")
		for range 2 {
			run(t, d, spec)
			if err := d.Destroy(ctx(t), spec.ID); err != nil {
				t.Fatal(err)
			}
		}
		if got := output(t, spec, "stdout"); got != "run\nrun\n" {
			t.Errorf("the log holds %q", got)
		}
	})
}

func TestEndIsReported(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script string
		want   driver.Status
	}{
		"Success":  {"exit 0", driver.Status{State: driver.StateEnded}},
		"Failure":  {"exit 42", driver.Status{State: driver.StateEnded, ExitCode: 42}},
		"Segfault": {"kill -SEGV $$; sleep 1000", driver.Status{State: driver.StateEnded, Signal: int(syscall.SIGSEGV)}},
		"Suicide":  {"kill -KILL $$; sleep 1000", driver.Status{State: driver.StateEnded, Signal: int(syscall.SIGKILL)}},
	}
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		for name, test := range tests {
			_, _, got := run(t, d, w.script(test.script))
			if diff := cmp.Diff(test.want, got, ignoreMoments()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

func TestStopEndsTaskThatHandlesNoSignals(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		for name, number := range map[string]syscall.Signal{
			"": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP, "SIGUSR1": syscall.SIGUSR1,
			"SIGKILL": syscall.SIGKILL,
		} {
			spec := w.spec("sleep", "1000")
			start(t, d, spec)
			if err := d.Stop(ctx(t), spec.ID, name, time.Minute); err != nil {
				t.Fatal(err)
			}
			want := driver.Status{State: driver.StateEnded, Signal: int(number)}
			if diff := cmp.Diff(want, status(t, d, spec), ignoreMoments()); diff != "" {
				t.Errorf("%q (-want +got):\n%s", name, diff)
			}
		}
	})
}

func TestStopKillsAfterTimeout(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script("trap '' TERM; echo ready; while :; do sleep 0.05; done")
		start(t, d, spec)
		said(t, spec, "ready")
		before := time.Now()
		if err := d.Stop(ctx(t), spec.ID, "SIGTERM", 300*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(before); took < 300*time.Millisecond {
			t.Errorf("the task got only %s of its 300ms", took)
		}
		want := driver.Status{State: driver.StateEnded, Signal: int(syscall.SIGKILL), Reason: "killed after its kill_timeout"}
		if diff := cmp.Diff(want, status(t, d, spec), ignoreMoments()); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})
}

func TestStopRepeatedSendsOneSignal(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script(`n=0; trap 'n=$((n+1)); echo got $n' TERM; echo ready; while :; do sleep 0.02; done`)
		start(t, d, spec)
		said(t, spec, "ready")
		short, cancel := context.WithTimeout(ctx(t), 100*time.Millisecond)
		defer cancel()
		if err := d.Stop(short, spec.ID, "SIGTERM", time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop that was given up: %v", err)
		}
		said(t, spec, "got 1")
		// The second Stop is in more of a hurry than the first, and counts.
		if err := d.Stop(ctx(t), spec.ID, "SIGTERM", 200*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if got, want := output(t, spec, "stdout"), "ready\ngot 1\n"; got != want {
			t.Errorf("the task was signalled twice: %q", got)
		}
	})
}

func TestSignalReachesTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.exec()
	spec := w.script(`trap 'echo reloaded' HUP; echo ready; while :; do sleep 0.02; done`)
	start(t, d, spec)
	said(t, spec, "ready")
	if err := d.Signal(ctx(t), spec.ID, "SIGHUP"); err != nil {
		t.Fatal(err)
	}
	said(t, spec, "reloaded")
	if got := status(t, d, spec).State; got != driver.StateRunning {
		t.Errorf("the task is %s", got)
	}
	if err := d.Signal(ctx(t), spec.ID, "SIGFOO"); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("an unknown signal is answered with %v", err)
	}
	if err := d.Signal(ctx(t), "never/was", "SIGHUP"); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a signal to no task is answered with %v", err)
	}
}

func TestStopKillsDaemonsOfTask(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		// One daemon in a session of its own that lets go of everything, one
		// that holds on to its output, and one in the background.
		spec := w.script(`setsid sleep 2001 </dev/null >/dev/null 2>&1 &
			setsid sleep 2002 &
			sleep 2003 & echo ready; exec sleep 2004`)
		start(t, d, spec)
		said(t, spec, "ready")
		eventually(t, "all four run", func() bool { return len(sleepers(w)) == 4 })
		if err := d.Stop(ctx(t), spec.ID, "SIGTERM", time.Minute); err != nil {
			t.Fatal(err)
		}
		if left := sleepers(w); len(left) > 0 {
			t.Errorf("after Stop, there is still %q", left)
		}
	})
}

func TestDaemonsEndWithTask(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script(`setsid sleep 2000 & setsid sleep 2000 >/dev/null 2>&1 & exit 3`)
		start(t, d, spec)
		if got := wait(t, d, spec); got.ExitCode != 3 {
			t.Errorf("the task ended so: %+v", got)
		}
		if left := sleepers(w); len(left) > 0 {
			t.Errorf("after the end, there is still %q", left)
		}
	})
}

// sleepers lists the world's processes named sleep.
func sleepers(w *world) []string {
	return processes(w.t, func(pid string) bool {
		n, err := strconv.Atoi(pid)
		return err == nil && comm(n) == "sleep" && inCgroup(n, w.config.CgroupParent)
	})
}

func TestWaitEndsWithContext(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.spec("sleep", "1000")
		if _, err := d.Wait(ctx(t), spec.ID); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("Wait for a task that never was: %v", err)
		}
		start(t, d, spec)
		short, cancel := context.WithTimeout(ctx(t), 50*time.Millisecond)
		defer cancel()
		if _, err := d.Wait(short, spec.ID); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait that was given up: %v", err)
		}
		if got := status(t, d, spec).State; got != driver.StateRunning {
			t.Errorf("giving up Wait left the task %s", got)
		}
	})
}

func TestBadCommandFailsStart(t *testing.T) {
	t.Parallel()
	files := map[string]struct {
		content string
		mode    os.FileMode
	}{
		"not-executable": {"#!/bin/sh\n", 0o644},
		"no-program":     {"just text\n", 0o755},
		"no-interpreter": {"#!/no/such/interpreter\n", 0o755},
		"private":        {"#!/bin/sh\n", 0o700},
	}
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		for _, command := range []string{"no-such-program", "/no/such/program", "/usr", "./not-executable", "./no-program", "./no-interpreter", "./private"} {
			spec := w.spec(command)
			spec.Task.User = "daemon"
			for name, file := range files {
				path := filepath.Join(spec.Dir, "local", name)
				if err := os.WriteFile(path, []byte(file.content), file.mode); err != nil {
					t.Fatal(err)
				}
			}
			err := d.Start(ctx(t), spec)
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.CodeInvalid || len(e.Fields) != 1 || e.Fields[0].Path != "config.command" {
				t.Errorf("%s: start says %v", command, err)
			}
			if got := status(t, d, spec); got.State != driver.StateUnknown {
				t.Errorf("%s: a task that could not be started is %+v", command, got)
			}
		}
	})
}

func TestFailedStartMayBeRepeated(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.spec("no-such-program")
		for range 2 {
			if err := d.Start(ctx(t), spec); api.CodeOf(err) != api.CodeInvalid {
				t.Fatalf("start of a program that does not exist: %v", err)
			}
		}
		spec.Task.Config["command"] = "true"
		if _, _, got := run(t, d, spec); got.State != driver.StateEnded || got.ExitCode != 0 {
			t.Errorf("with a better command, the task is %+v", got)
		}
	})
}
