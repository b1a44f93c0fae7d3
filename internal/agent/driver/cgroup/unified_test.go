package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/opencontainers/cgroups"

	"github.com/berth-dev/berth/internal/agent/driver/cgroup"
)

// TestMain lets the library read files that are no kernel's: testdata/v2 is what
// machines with the unified hierarchy have.
func TestMain(m *testing.M) {
	cgroups.TestMode = true
	os.Exit(m.Run())
}

// TestUnifiedUsage reads what kernels write: with all controllers, with a limit
// and without, with none that a parent hands down, and where memory ran out.
func TestUnifiedUsage(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]cgroup.Usage{
		"limited":   {CPU: 1234567 * time.Microsecond, MemoryBytes: 104857600 - 20971520, MemoryLimitBytes: 268435456, Processes: 2},
		"unlimited": {CPU: 9 * time.Second, MemoryBytes: 4096, Processes: 1},
		"bare":      {CPU: 250 * time.Microsecond, Processes: 1},
		"oom":       {CPU: 2 * time.Second, MemoryBytes: 33554432, MemoryLimitBytes: 33554432},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := filepath.Abs(filepath.Join("testdata", "v2", name))
			if err != nil {
				t.Fatal(err)
			}
			g, err := cgroup.At(dir)
			if err != nil {
				t.Fatal(err)
			}
			got, err := g.Usage()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			kills := uint64(0)
			if name == "oom" {
				kills = 3
			}
			if n := g.OOMKills(); n != kills {
				t.Errorf("memory ran out %d times, not %d", n, kills)
			}
		})
	}
}

// TestUnifiedLimits are what the kernel is told.
func TestUnifiedLimits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("cpuset cpu io memory pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := cgroup.At(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Limit(cgroup.Limits{MemoryBytes: 64 << 20, CPUShares: 1024}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"memory.max": "67108864", "cpu.weight": "100"} {
		if b, err := os.ReadFile(filepath.Join(dir, file)); err != nil || strings.TrimSpace(string(b)) != want {
			t.Errorf("%s is %q (%v), not %s", file, b, err, want)
		}
	}
}

// unified is where this machine has the unified hierarchy, beside the first
// generation's or alone.
func unified(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
			return dir
		}
	}
	t.Fatal("this machine has no unified hierarchy of cgroups: mount one with mount -t cgroup2 none /sys/fs/cgroup/unified")
	return ""
}

// TestUnifiedKill: with one write, where the kernel has a file for it, all that is
// in a group is killed, whoever's child it is, and in groups below.
func TestUnifiedKill(t *testing.T) {
	t.Parallel()
	root := filepath.Join(unified(t), fmt.Sprintf("berth-unified-test-%d", os.Getpid()))
	dir := filepath.Join(root, "task")
	g, err := cgroup.At(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(root); err != nil {
			t.Error(err)
		}
	})
	// The library makes groups only where there is nothing but this hierarchy.
	enter := func(dir string) func(int) error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return func(pid int) error {
			return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		}
	}
	cmd := joinBy(t, enter(dir), "setsid sleep 1000 & (sleep 1000 & sleep 1000) & while :; do (sleep 0.001 &) ; done")
	// In the second generation, a group with processes hands no controllers on,
	// and may have groups below all the same.
	deep := joinBy(t, enter(filepath.Join(dir, "below")), "exec sleep 1000")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(time.Minute); ; {
		u, err := g.Usage()
		if err == nil && u.Processes >= 2 && u.CPU > 0 {
			break
		}
		select {
		case <-tick.C:
			continue
		case <-limit:
			t.Errorf("it uses %+v (%v)", u, err)
		}
		break
	}
	kill(t, g)
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process ended with %v", err)
	}
	if err := deep.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process below ended with %v", err)
	}
	for range 2 {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the group is left: %v", err)
	}
	kill(t, g) // of a group that is gone, nothing
}

// TestALimitWhoseControllerIsAbsent was not kept, and nobody was told, or the task
// was started again and again: both generations say which controller it is.
func TestALimitWhoseControllerIsAbsent(t *testing.T) {
	t.Parallel()
	unified := func(controllers string) *cgroup.Group {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte(controllers+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		g, err := cgroup.At(dir)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := func(controllers ...string) *cgroup.Group {
		paths := map[string]string{}
		for _, c := range controllers {
			paths[c] = filepath.Join(t.TempDir(), c, "berth", "task")
		}
		g, err := cgroup.AtFirst(paths)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	both := cgroup.Limits{MemoryBytes: 64 << 20, CPUShares: 1024}
	for name, c := range map[string]struct {
		group  *cgroup.Group
		limits cgroup.Limits
		want   []string
	}{
		"UnifiedAll":     {unified("cpu io memory pids"), both, nil},
		"UnifiedNone":    {unified("pids"), both, []string{"memory", "cpu"}},
		"UnifiedMemory":  {unified("cpuset cpu"), both, []string{"memory"}},
		"UnifiedUnasked": {unified("cpu"), cgroup.Limits{CPUShares: 2}, nil},
		"FirstAll":       {first("cpu", "memory", "freezer"), both, nil},
		"FirstMemory":    {first("cpu", "freezer"), both, []string{"memory"}},
		"FirstCPU":       {first("cpuset", "memory"), both, []string{"cpu"}},
		"FirstUnasked":   {first("freezer"), cgroup.Limits{}, nil},
	} {
		got, err := c.group.Lacking(c.limits)
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("%s lacks (-want +got, %v):\n%s", name, err, diff)
		}
	}
}
