package driver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

func TestOutOfMemoryIsReported(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script("echo ready; while [ ! -e go ]; do sleep 0.02; done; exec tail /dev/zero")
		start(t, d, spec)
		said(t, spec, "ready")
		w.limitMemory("32M")
		write(t, filepath.Join(spec.Dir, "local", "go"), "")
		want := driver.Status{State: driver.StateEnded, Signal: int(syscall.SIGKILL), Reason: "out of memory"}
		if diff := cmp.Diff(want, wait(t, d, spec), ignoreMoments()); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})
}

func TestTaskIsLimitedToItsResources(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script("echo ready; exec tail /dev/zero")
		spec.Task.Resources = &api.Resources{CPU: 500, MemoryMB: 16, MemoryMaxMB: 32}
		start(t, d, spec)
		want := driver.Status{State: driver.StateEnded, Signal: int(syscall.SIGKILL), Reason: "out of memory"}
		if diff := cmp.Diff(want, wait(t, d, spec), ignoreMoments()); diff != "" {
			t.Errorf("status (-want +got):\n%s", diff)
		}
	})
}

func TestLimitsAreTheCgroups(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script("echo ready; exec sleep 1000")
		spec.Task.Resources = &api.Resources{CPU: 512, MemoryMB: 64}
		start(t, d, spec)
		said(t, spec, "ready")
		found := map[string]string{}
		for _, dir := range w.cgroups() {
			for file, limit := range map[string]string{
				"memory.max": "memory", "memory.limit_in_bytes": "memory", "cpu.weight": "weight", "cpu.shares": "shares",
			} {
				if b, err := os.ReadFile(filepath.Join(dir, file)); err == nil {
					found[limit] = strings.TrimSpace(string(b))
				}
			}
		}
		if found["memory"] != "67108864" {
			t.Errorf("memory is limited to %q", found["memory"])
		}
		if found["shares"] != "512" && found["weight"] == "" {
			t.Errorf("processors: shares %q, weight %q", found["shares"], found["weight"])
		}
	})
}

// limitMemory limits the world's only task, in either generation of cgroups.
func (w *world) limitMemory(bytes string) {
	w.t.Helper()
	for _, dir := range w.cgroups() {
		for _, name := range []string{"memory.max", "memory.limit_in_bytes"} {
			file := filepath.Join(dir, name)
			if _, err := os.Stat(file); err == nil {
				write(w.t, file, bytes)
				return
			}
		}
	}
	w.t.Fatalf("none of %q has a memory controller", w.cgroups())
}

// TestTaskThatChangedItsUserEndsWithSupervisor is about a task that the kernel
// does not kill with its supervisor, because it changed its user since.
func TestTaskThatChangedItsUserEndsWithSupervisor(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.spec("setpriv", "--reuid", "1", "--regid", "1", "--clear-groups", "sleep", "1000")
		spec.Task.User = "root"
		start(t, d, spec)
		eventually(t, "sleep runs", func() bool { return len(sleepers(w)) == 1 })
		pid := status(t, d, spec).PID
		kill(t, parent(t, pid), syscall.SIGKILL)
		if got := wait(t, d, spec); got.Reason != "its supervisor died" {
			t.Errorf("the task ended so: %+v", got)
		}
		if alive(pid) {
			t.Error("a task that has ended is alive")
		}
	})
}

// unprivileged is set in the environment of a test that runs without root.
const unprivileged = "BERTH_TEST_UNPRIVILEGED"

// TestWithoutRoot runs TestRawExecWithoutRoot as nobody.
func TestWithoutRoot(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "berth-driver")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "test")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Were it written by this process, its children would keep it open for
	// writing, and it could not be run.
	if out, err := exec.Command("cp", self, binary).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	cmd := exec.Command(binary, "-test.run=^TestRawExecWithoutRoot$", "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{unprivileged + "=" + dir, "TMPDIR=" + dir, "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestRawExecWithoutRoot") {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

// TestRawExecWithoutRoot has no cgroups to rely on.
func TestRawExecWithoutRoot(t *testing.T) {
	t.Parallel()
	root := os.Getenv(unprivileged)
	if root == "" {
		return // TestWithoutRoot runs it
	}
	w := &world{t: t, root: root, config: driver.Config{RunDir: filepath.Join(root, "run")}}
	d := w.rawExec()
	got := w.exec().Fingerprint(ctx(t))
	if got.Healthy || got.Reason != "the agent does not run as root" {
		t.Errorf("without root, exec says %+v", got)
	}
	spec := w.script("id -u; sleep 1001 & echo ready; wait")
	start(t, d, spec)
	said(t, spec, "ready")
	if err := d.Stop(ctx(t), spec.ID, "SIGTERM", time.Minute); err != nil {
		t.Fatal(err)
	}
	if got := output(t, spec, "stdout"); got != "65534\nready\n" {
		t.Errorf("the task says %q", got)
	}
	spec = w.script("sleep 1001 & echo ready; wait")
	start(t, w.rawExec(), spec)
	said(t, spec, "ready")
	kill(t, parent(t, status(t, d, spec).PID), syscall.SIGKILL)
	if got := wait(t, d, spec); got.Reason != "its supervisor died" {
		t.Errorf("the task ended so: %+v", got)
	}
	limited := w.script("true")
	limited.Task.Resources = &api.Resources{MemoryMB: 16}
	if err := d.Start(ctx(t), limited); api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), `resources.memory needs the cgroup controller "memory"`) {
		t.Errorf("a limit that cannot be kept is answered with %v", err)
	}
	spec.Task.User = "daemon"
	if err := d.Check(spec.Task); err == nil || !strings.Contains(err.Error(), "the agent does not run as root") {
		t.Errorf("a task of another user is answered with %v", err)
	}
	for _, id := range w.ids {
		if err := d.Destroy(ctx(t), id); err != nil {
			t.Error(err)
		}
	}
	left := processes(t, func(pid string) bool {
		line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		return string(line) == "sleep\x001001\x00" || strings.Contains(string(line), w.config.RunDir)
	})
	if left = append(left, w.runDirs()...); len(left) > 0 {
		t.Errorf("the tasks leave %q", left)
	}
}

// TestUsage: what a task uses can be measured, with what its children do.
func TestUsage(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		m, ok := d.(driver.Measurer)
		if !ok {
			t.Fatalf("driver %s measures nothing", d.Name())
		}
		spec := w.script("(while :; do :; done) & echo ready; while :; do :; done")
		spec.Task.Resources = &api.Resources{MemoryMB: 64}
		start(t, d, spec)
		said(t, spec, "ready")
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for c := ctx(t); ; {
			u, err := m.Usage(c, spec.ID)
			if err != nil {
				t.Fatal(err)
			}
			if u.CPU > 100*time.Millisecond && u.Processes >= 2 && u.MemoryBytes > 0 {
				if u.MemoryLimitBytes != 64<<20 {
					t.Errorf("the limit is %d", u.MemoryLimitBytes)
				}
				break
			}
			select {
			case <-tick.C:
			case <-c.Done():
				t.Fatalf("it is said to use %+v", u)
			}
		}
		if _, err := m.Usage(ctx(t), "nobody/knows"); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("an unknown task is measured: %v", err)
		}
	})
}
