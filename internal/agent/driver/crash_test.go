package driver_test

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/agent/driver"
)

func TestNextAgentAdopts(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script("trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done")
		start(t, d, spec)
		said(t, spec, "ready")
		running := status(t, d, spec)
		d = w.driver(d.Name())
		if diff := cmp.Diff(running, status(t, d, spec)); diff != "" {
			t.Errorf("the next agent sees another task (-first +next):\n%s", diff)
		}
		// What would be refused today does not keep it from being adopted.
		changed := spec
		changed.Task.User = "nosuchuser"
		start(t, d, changed)
		if err := w.driver(d.Name()).Stop(ctx(t), spec.ID, "SIGTERM", time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := wait(t, w.driver(d.Name()), spec); got.ExitCode != 5 || got.PID != running.PID {
			t.Errorf("the task ended so: %+v", got)
		}
		if got := output(t, spec, "stdout"); got != "ready\n" {
			t.Errorf("it was not only adopted: %q", got)
		}
	})
}

func TestTaskOutlivesKilledAgent(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script(`trap 'exit 5' TERM; echo ready; while [ ! -e "$GO" ]; do sleep 0.02; done; echo still here; while :; do sleep 0.02; done`)
		flag := filepath.Join(spec.Dir, "local", "go")
		spec.Env["GO"] = flag
		if d.Name() == driver.NameExec {
			spec.Env["GO"] = "/local/go"
		}
		agent := w.agent(errand{Raw: d.Name() == driver.NameRawExec, Calls: []string{"start"}, Spec: spec})
		// Of its own process group, so that not even a terminal spares it.
		agent.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := agent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "done\n" {
			t.Fatalf("the agent says %q, %v", line, err)
		}
		kill(t, -agent.Process.Pid, syscall.SIGKILL)
		_ = agent.Wait()
		said(t, spec, "ready")
		write(t, flag, "")
		said(t, spec, "still here")
		if got := status(t, d, spec); got.State != driver.StateRunning {
			t.Errorf("after its agent's death, the task is %+v", got)
		}
		if err := d.Stop(ctx(t), spec.ID, "SIGTERM", time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := status(t, d, spec); got.ExitCode != 5 {
			t.Errorf("the task ended so: %+v", got)
		}
	})
}

// TestAgentKilledAtAnyMoment kills agents a little later each time, so that
// every step of Start, Stop and Destroy is the last one once.
func TestAgentKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		for round := range 24 {
			spec := w.script("echo ready; sleep 1000")
			calls := [][]string{{"start"}, {"start", "stop"}, {"start", "destroy"}, {"start", "stop", "destroy"}}[round%4]
			agent := w.agent(errand{Raw: d.Name() == driver.NameRawExec, Calls: calls, Spec: spec})
			out, err := agent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := agent.Start(); err != nil {
				t.Fatal(err)
			}
			killer := time.AfterFunc(time.Duration(round)*5*time.Millisecond, func() { _ = agent.Process.Kill() })
			_, _ = io.Copy(io.Discard, out)
			_ = agent.Wait()
			killer.Stop()

			start(t, d, spec)
			if got := status(t, d, spec); got.State == driver.StateUnknown {
				t.Errorf("round %d: after Start, the task is %+v", round, got)
			}
			if round%2 == 0 {
				if err := d.Stop(ctx(t), spec.ID, "SIGTERM", time.Minute); err != nil {
					t.Fatal(err)
				}
				if got := status(t, d, spec); got.State != driver.StateEnded {
					t.Errorf("round %d: after Stop, the task is %+v", round, got)
				}
			}
			if err := d.Destroy(ctx(t), spec.ID); err != nil {
				t.Fatal(err)
			}
			if left := w.runDirs(); len(left) > 0 {
				t.Errorf("round %d leaves %q", round, left)
			}
			w.rest()
		}
	})
}

func TestTaskDiesWithItsSupervisor(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		for _, user := range []string{"root", "daemon"} {
			spec := w.script("setsid sleep 1000 >/dev/null 2>&1 & echo ready; sleep 1000")
			spec.Task.User = user
			start(t, d, spec)
			said(t, spec, "ready")
			pid := status(t, d, spec).PID
			kill(t, parent(t, pid), syscall.SIGKILL)
			// It is the kernel that kills it: no agent need be there.
			eventually(t, "the task is dead", func() bool { return !alive(pid) })
			// The first of the supervisor's threads has ended, not yet the last.
			eventually(t, "it has ended", func() bool { return status(t, d, spec).State == driver.StateEnded })
			got := status(t, d, spec)
			want := driver.Status{State: driver.StateEnded, Signal: int(syscall.SIGKILL), Reason: "its supervisor died"}
			if diff := cmp.Diff(want, got, ignoreMoments()); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if left := sleepers(w); len(left) > 0 {
				t.Errorf("a task that has ended leaves %q", left)
			}
			if diff := cmp.Diff(got, status(t, w.driver(d.Name()), spec)); diff != "" {
				t.Errorf("the next agent is told otherwise (-first +next):\n%s", diff)
			}
		}
	})
}

func TestWaitNoticesDeadSupervisor(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.spec("sleep", "1000")
		start(t, d, spec)
		supervisor := parent(t, status(t, d, spec).PID)
		ended := make(chan driver.Status, 1)
		go func() {
			s, err := d.Wait(ctx(t), spec.ID)
			if err != nil {
				t.Error(err)
			}
			ended <- s
		}()
		kill(t, supervisor, syscall.SIGKILL)
		if got := <-ended; got.Reason != "its supervisor died" {
			t.Errorf("Wait answers %+v", got)
		}
	})
}

func TestSupervisorIsDeafToSignalsForTheAgent(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script("grep -E '^Sig(Ign|Blk)' /proc/self/status; echo ready; sleep 1000")
		start(t, d, spec)
		said(t, spec, "ready")
		pid := status(t, d, spec).PID
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT} {
			kill(t, parent(t, pid), sig)
		}
		if err := d.Stop(ctx(t), spec.ID, "SIGTERM", time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := status(t, d, spec); got.Reason != "" || got.Signal != int(syscall.SIGTERM) {
			t.Errorf("the task ended so: %+v", got)
		}
		// What started these tests may ignore the C library's own two signals,
		// 32 and 33, which no program can ask for.
		const libc = 0b11 << 31
		for name, set := range signalSets(t, output(t, spec, "stdout")) {
			if set &^= libc; set != 0 {
				t.Errorf("the task inherits how signals are treated: %s is %016x", name, set)
			}
		}
	})
}

// signalSets reads the two lines that a task has printed of its status.
func signalSets(t *testing.T, text string) map[string]uint64 {
	t.Helper()
	sets := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, hex, found := strings.Cut(strings.TrimSpace(line), ":\t")
		if !found {
			continue
		}
		set, err := strconv.ParseUint(hex, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		sets[name] = set
	}
	if len(sets) != 2 {
		t.Fatalf("the task printed %q", text)
	}
	return sets
}

// TestSupervisorLeavesTheAgentsCgroup is about service managers, which kill
// every process in the cgroup of a service that they stop.
func TestSupervisorLeavesTheAgentsCgroup(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.spec("sleep", "1000")
		start(t, d, spec)
		pid := status(t, d, spec).PID
		supervisor := parent(t, pid)
		groups, err := os.ReadFile("/proc/" + strconv.Itoa(supervisor) + "/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		joined := strings.Count(string(groups), ":/"+w.config.CgroupParent+"/supervisors\n")
		if mounted := len(w.cgroupDirs("supervisors")); joined == 0 || joined != mounted {
			t.Errorf("in %d hierarchies of %d, the supervisor has left:\n%s", joined, mounted, groups)
		}
		if !inCgroup(pid, w.config.CgroupParent) {
			t.Error("the task is not in a cgroup of its own")
		}
	})
}

func TestHungSupervisorIsDestroyed(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.spec("sleep", "1000")
		start(t, d, spec)
		pid := status(t, d, spec).PID
		kill(t, parent(t, pid), syscall.SIGSTOP)
		if err := d.Destroy(ctx(t), spec.ID); err != nil {
			t.Fatal(err)
		}
		if alive(pid) {
			t.Error("the task survives")
		}
	})
}

func TestTaskWithoutSocketIsStopped(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.spec("sleep", "1000")
		start(t, d, spec)
		if err := os.Remove(filepath.Join(w.runDirs()[0], "sock")); err != nil {
			t.Fatal(err)
		}
		if got := status(t, d, spec).State; got != driver.StateRunning {
			t.Errorf("without its socket, the task is %s", got)
		}
		start(t, d, spec)
		if err := d.Stop(ctx(t), spec.ID, "SIGTERM", time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := status(t, d, spec); got.State != driver.StateEnded {
			t.Errorf("after Stop, the task is %+v", got)
		}
	})
}
