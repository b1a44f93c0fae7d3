package driver_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/agent/driver"
)

func TestLostRunDirectoryLeaksNothing(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.spec("sleep", "1000")
		start(t, d, spec)
		pid := status(t, d, spec).PID
		if err := os.RemoveAll(w.runDirs()[0]); err != nil {
			t.Fatal(err)
		}
		if got := status(t, d, spec).State; got != driver.StateUnknown {
			t.Errorf("without its run directory, the task is %s", got)
		}
		if err := d.Destroy(ctx(t), spec.ID); err != nil {
			t.Fatal(err)
		}
		if alive(pid) {
			t.Error("the task survives")
		}
		eventually(t, "its supervisor has given up", func() bool { return len(w.processes()) == 0 })
	})
}

func TestSweepLeavesOthersTasks(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.spec("sleep", "1000")
		start(t, d, spec)
		sweeper, ok := d.(interface{ Sweep() error })
		if !ok {
			t.Fatal("the driver cannot sweep")
		}
		if err := sweeper.Sweep(); err != nil {
			t.Fatal(err)
		}
		if got := status(t, d, spec).State; got != driver.StateRunning {
			t.Errorf("the task is %s after a sweep", got)
		}
		if len(w.cgroupDirs("supervisors")) == 0 {
			t.Error("a sweep has taken the cgroup of supervisors that run")
		}
		if err := d.Destroy(ctx(t), spec.ID); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a sweep leaves nothing", func() bool {
			if err := sweeper.Sweep(); err != nil {
				t.Error(err)
			}
			return len(w.cgroupDirs("")) == 0
		})
	})
}

// TestTasksShareOneCopyOfTheBinary: a copy for each filled the memory of a
// machine with hundreds of tasks.
func TestTasksShareOneCopyOfTheBinary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(driver.NameExec)
	copies := map[uint64]bool{}
	for range 3 {
		spec := w.spec("sleep", "1000")
		start(t, d, spec)
		// The task's parent is its supervisor, or the first process of its
		// namespace, whose parent that is.
		for pid := parent(t, status(t, d, spec).PID); pid > 1 && pid != os.Getpid(); pid = parent(t, pid) {
			exe := "/proc/" + strconv.Itoa(pid) + "/exe"
			name, err := os.Readlink(exe)
			if err != nil {
				t.Fatal(err)
			}
			var stat syscall.Stat_t
			if err := syscall.Stat(exe, &stat); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(name, "/memfd:") {
				t.Errorf("process %d above the task runs %s, want a sealed copy", pid, name)
			}
			copies[stat.Ino] = true
		}
	}
	if len(copies) != 1 {
		t.Errorf("three tasks have %d copies of the binary, want one", len(copies))
	}
}

// record is a run directory's state.json.
type record map[string]map[string]any

// rewrite changes the record of a dead task.
func (w *world) rewrite(change func(record)) {
	w.t.Helper()
	path := filepath.Join(w.runDirs()[0], "state.json")
	b, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		w.t.Fatal(err)
	}
	processes := record{}
	for _, name := range []string{"supervisor", "task"} {
		var p map[string]any
		if err := json.Unmarshal(all[name], &p); err != nil {
			w.t.Fatal(err)
		}
		processes[name] = p
	}
	change(processes)
	for name, p := range processes {
		if all[name], err = json.Marshal(p); err != nil {
			w.t.Fatal(err)
		}
	}
	if b, err = json.Marshal(all); err != nil {
		w.t.Fatal(err)
	}
	write(w.t, path, string(b))
}

// dead starts a task and kills it with its supervisor, unnoticed by a driver.
func (w *world) dead(d driver.Driver) driver.Spec {
	w.t.Helper()
	spec := w.spec("sleep", "1000")
	start(w.t, d, spec)
	pid := status(w.t, d, spec).PID
	kill(w.t, parent(w.t, pid), syscall.SIGKILL)
	eventually(w.t, "the task is dead", func() bool { return !alive(pid) })
	return spec
}

func TestReusedProcessNumberIsSpared(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.dead(d)
		stranger := exec.Command("sleep", "1000")
		if err := stranger.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = stranger.Process.Kill(), stranger.Wait() })
		w.rewrite(func(r record) {
			r["supervisor"]["pid"], r["task"]["pid"] = stranger.Process.Pid, stranger.Process.Pid
		})
		// Whoever holds the lock, it is not the stranger.
		lock, err := os.Open(filepath.Join(w.runDirs()[0], "lock"))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx(t), 100*time.Millisecond)
		defer cancel()
		if err := d.Destroy(short, spec.ID); err == nil || !strings.Contains(err.Error(), "wait for the supervisor to end") {
			t.Errorf("Destroy of a task whose lock is held: %v", err)
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
		if got := wait(t, d, spec); got.Reason != "its supervisor died" {
			t.Errorf("the task is %+v", got)
		}
		if err := d.Destroy(ctx(t), spec.ID); err != nil {
			t.Fatal(err)
		}
		if !alive(stranger.Process.Pid) {
			t.Error("a process that has nothing to do with the task was killed")
		}
	})
}

func TestTaskOfEarlierBootHasEnded(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.dead(d)
		w.rewrite(func(r record) {
			r["supervisor"]["boot"], r["task"]["boot"] = "another", "another"
		})
		want := driver.Status{State: driver.StateEnded, Signal: int(syscall.SIGKILL), Reason: "the machine was restarted"}
		if diff := cmp.Diff(want, wait(t, d, spec), ignoreMoments()); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})
}

func TestUnreadableRecordsAreDestroyed(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		for _, file := range []string{"spec.json", "state.json", "exit.json"} {
			spec := w.dead(d)
			wait(t, d, spec) // writes exit.json
			write(t, filepath.Join(w.runDirs()[0], file), `{"`)
			w.destroy(t, d, spec)
		}
	})
}

// TestHalfStartIsFinishedOrUndone puts together what a crash can leave at every
// point of a start, and of a removal.
func TestHalfStartIsFinishedOrUndone(t *testing.T) {
	t.Parallel()
	points := map[string][]string{
		"Directory":         {},
		"Lock":              {"lock"},
		"Root":              {"lock", "root"},
		"HalfWrittenSpec":   {"lock", "root", "spec.json.new"},
		"Spec":              {"lock", "root", "spec.json"},
		"Socket":            {"lock", "root", "spec.json", "sock"},
		"SupervisorNamed":   {"lock", "root", "spec.json", "sock", "supervisor.log", "state.json"},
		"Container":         {"lock", "root", "spec.json", "sock", "supervisor.log", "state.json", "container", "cgroup"},
		"StrayProcess":      {"lock", "root", "spec.json", "sock", "supervisor.log", "state.json", "container", "cgroup", "process"},
		"RemovalHalfDone":   {"lock", "spec.json"},
		"RemovalNearlyDone": {"lock"},
	}
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		for name, keep := range points {
			t.Run(name, func(t *testing.T) {
				spec := w.half(d, keep)
				if got := status(t, d, spec); got.State != driver.StateUnknown {
					t.Errorf("a task that never ran is %+v", got)
				}
				start(t, d, spec)
				if got := wait(t, d, spec); got.ExitCode != 3 || output(t, spec, "stdout") != "ran\n" {
					t.Errorf("the task ended so: %+v", got)
				}
				w.destroy(t, d, spec)
				w.destroy(t, d, w.half(d, keep))
			})
		}
	})
}

// destroy destroys a task and looks for remains.
func (w *world) destroy(t *testing.T, d driver.Driver, spec driver.Spec) {
	t.Helper()
	if err := d.Destroy(ctx(t), spec.ID); err != nil {
		t.Error(err)
	}
	for _, left := range [][]string{w.runDirs(), w.cgroups(), w.processes()} {
		if len(left) > 0 {
			t.Errorf("the task leaves %q", left)
		}
	}
}

// half makes a task that was started no further than to what is kept.
func (w *world) half(d driver.Driver, keep []string) driver.Spec {
	t := w.t
	t.Helper()
	spec := w.script("echo ran; exit 3")
	// The command is at fault first, so that nothing of it has run.
	spec.Task.Config["command"] = "no-such-program"
	if err := d.Start(ctx(t), spec); err == nil {
		t.Fatal("a program that does not exist was started")
	}
	spec.Task.Config["command"] = "/bin/sh"
	dir := w.runDirs()[0]
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(keep, e.Name()) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if slices.Contains(keep, "spec.json.new") {
		write(t, filepath.Join(dir, "spec.json.new"), `{"id":`)
	}
	if slices.Contains(keep, "state.json") {
		write(t, filepath.Join(dir, "state.json"), `{"supervisor":{"pid":1,"start":1,"boot":"x"}}`)
	}
	if slices.Contains(keep, "container") {
		if err := os.MkdirAll(filepath.Join(dir, "container"), 0o711); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "container", "state.json"), "{}")
	}
	if slices.Contains(keep, "cgroup") {
		w.strayCgroup(filepath.Base(dir), slices.Contains(keep, "process"))
	}
	return spec
}

// strayCgroup makes a task's cgroup, with a process in it if asked for.
func (w *world) strayCgroup(name string, process bool) {
	t := w.t
	t.Helper()
	stray := exec.Command("sleep", "1000")
	if process {
		if err := stray.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { _ = stray.Wait() }()
	}
	for _, parent := range w.cgroupDirs("") {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
		if !process || strings.Contains(dir, "/cpuset/") {
			continue // a cpuset takes nobody before it has CPUs
		}
		write(t, filepath.Join(dir, "cgroup.procs"), strconv.Itoa(stray.Process.Pid))
	}
}
