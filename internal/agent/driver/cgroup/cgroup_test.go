package cgroup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/agent/driver/cgroup"
)

var groups atomic.Int64

// newGroup names a group that is removed when the test ends.
func newGroup(t *testing.T) (*cgroup.Group, string) {
	t.Helper()
	name := fmt.Sprintf("berth-cgroup-test-%d-%d", os.Getpid(), groups.Add(1))
	g, err := cgroup.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := dirs(t, name); len(left) > 0 {
			t.Errorf("the test leaves %q", left)
		}
	})
	return g, name
}

// dirs lists the group's directories in all hierarchies.
func dirs(t *testing.T, name string) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		found, err := filepath.Glob(pattern + name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// join starts a script in the group.
func join(t *testing.T, g *cgroup.Group, text string) *exec.Cmd {
	t.Helper()
	return joinBy(t, g.Join, text)
}

func joinBy(t *testing.T, enter func(pid int) error, text string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "read go; "+text)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	if err := enter(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func kill(t *testing.T, g *cgroup.Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := g.Kill(ctx); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	g, err := cgroup.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
}

func TestKillReachesEveryDescendant(t *testing.T) {
	t.Parallel()
	g, name := newGroup(t)
	cmd := join(t, g, "setsid sleep 1000 & (sleep 1000 & sleep 1000) & while :; do (sleep 0.001 &) ; done")
	kill(t, g)
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process ended with %v", err)
	}
	remove(t, name)
}

// TestKillReachesWhatLeftOneHierarchy is about cgroup v1, where root can move a
// process out of one hierarchy and leave it in the others.
func TestKillReachesWhatLeftOneHierarchy(t *testing.T) {
	t.Parallel()
	const unified = "/sys/fs/cgroup/unified/cgroup.procs"
	g, name := newGroup(t)
	cmd := join(t, g, "exec sleep 1000")
	if err := os.WriteFile(unified, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	kill(t, g)
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process ended with %v", err)
	}
	remove(t, name)
}

func TestKillReachesGroupsBelow(t *testing.T) {
	t.Parallel()
	g, name := newGroup(t)
	if err := g.Create(); err != nil {
		t.Fatal(err)
	}
	below, err := cgroup.Open(name + "/below")
	if err != nil {
		t.Fatal(err)
	}
	cmd := join(t, below, "exec sleep 1000")
	kill(t, g)
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process ended with %v", err)
	}
	remove(t, name)
}

func TestAbsentGroupIsEmpty(t *testing.T) {
	t.Parallel()
	g, name := newGroup(t)
	kill(t, g)
	if n := g.OOMKills(); n != 0 {
		t.Errorf("%d processes of no group were killed", n)
	}
	remove(t, name)
}

func TestKillGivesUpWithContext(t *testing.T) {
	t.Parallel()
	g, name := newGroup(t)
	cmd := join(t, g, "sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := g.Kill(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), strconv.Itoa(cmd.Process.Pid)) {
		t.Errorf("Kill that was given up says %v", err)
	}
	kill(t, g)
	remove(t, name)
}

func TestCreateSaysWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	g, err := cgroup.Open("cgroup.procs/below-a-file")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Create(); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("Create says %v", err)
	}
}

func TestWakeMovesNothing(t *testing.T) {
	t.Parallel()
	own := func() string {
		b, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := own()
	cgroup.Wake()
	if after := own(); after != before {
		t.Errorf("the process was in\n%s, and is in\n%s", before, after)
	}
}
