package executor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/agent/driver/executor"
)

// standby has a supervisor stand by, as it does while a task is waited for.
func standby(t *testing.T, tasks *executor.Tasks) (pid int) {
	t.Helper()
	spec := script(t, tasks, "first/task", "sleep 1000")
	if err := tasks.Start(ctx(t), spec); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = tasks.Wait(waiting, spec.ID)
	}()
	defer func() { cancel(); <-done }()
	eventually(t, "a supervisor stands by", func() bool { return tasks.Spare() != 0 })
	pid = tasks.Spare()
	if pid < 2 { // what is not above that must not reach a kill
		t.Fatalf("the spare is process %d", pid)
	}
	return pid
}

func commandLine(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimRight(strings.ReplaceAll(string(b), "\x00", " "), " ")
}

func TestSpareSupervisesTheNextTask(t *testing.T) {
	t.Parallel()
	tasks, runDir := newTasks(t)
	pid := standby(t, tasks)
	if line := commandLine(t, pid); !strings.HasSuffix(line, " executor (waits for a task)") {
		t.Errorf("people see %q", line)
	}
	spec := script(t, tasks, "second/task", "echo said; echo $PPID; exit 3")
	s := run(t, tasks, spec)
	if s.ExitCode != 3 {
		t.Errorf("the task ended so: %+v", s)
	}
	if got, want := string(readLog(t, spec.Stdout)), fmt.Sprintf("said\n%d\n", pid); got != want {
		t.Errorf("the task wrote %q, not %q: its supervisor is another", got, want)
	}
	if again := tasks.Spare(); again == pid {
		t.Error("the spare stands by for a second task")
	}
	third := script(t, tasks, "third/task", "sleep 1000")
	next := standby(t, tasks)
	if err := tasks.Start(ctx(t), third); err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(runDir, "third-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("run directories %q, %v", dirs, err)
	}
	if line := commandLine(t, next); !strings.HasSuffix(line, " executor "+dirs[0]) {
		t.Errorf("of the task's supervisor, people see %q", line)
	}
	if err := tasks.Stop(ctx(t), third.ID, syscall.SIGKILL, time.Minute); err != nil {
		t.Fatal(err)
	}
}

func TestTaskStartsWithoutItsSpare(t *testing.T) {
	t.Parallel()
	tasks, _ := newTasks(t)
	pid := standby(t, tasks)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	untilDead(t, pid)
	if s := run(t, tasks, script(t, tasks, "second/task", "exit 3")); s.ExitCode != 3 {
		t.Errorf("the task ended so: %+v", s)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		t.Error("the spare that was killed is left as a zombie")
	}
}

func TestSpareEndsWithTheAgent(t *testing.T) {
	t.Parallel()
	tasks, _ := newTasks(t)
	pid := standby(t, tasks)
	tasks.Leave()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || !status.Exited() || status.ExitStatus() != 0 {
		t.Errorf("the spare ended so: %#x, %v", status, err)
	}
}

func TestSweepEndsTheSpare(t *testing.T) {
	t.Parallel()
	tasks, _ := newTasks(t)
	pid := standby(t, tasks)
	if err := tasks.Sweep(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		t.Error("the spare is there")
	}
}

// untilDead waits until a process has ended, be it that its parent has not heard.
func untilDead(t *testing.T, pid int) {
	t.Helper()
	eventually(t, "the process is dead", func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(b), ") Z ")
	})
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for c := ctx(t); !holds(); {
		select {
		case <-tick.C:
		case <-c.Done():
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
