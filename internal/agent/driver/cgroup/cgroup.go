// Package cgroup keeps the processes of a task together. It owns the control
// groups below the agent's own; it never decides on a limit, and never touches a
// group that it was not given.
//
// Invariant: a process that was started inside a group can be found and killed
// through it until the group is removed, whatever it forks, and whoever's
// child it becomes.
//
// Both generations of cgroups are served by github.com/opencontainers/cgroups,
// the library that libcontainer uses, so that both see the same paths.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/driver/process"
)

// Group is one control group: in cgroup v1 the one of that name in every
// hierarchy. It need not exist.
type Group struct {
	name    string
	manager cgroups.Manager
}

// Open names a group by its path below the root of the hierarchy, /berth/db-1.
// It creates nothing.
func Open(name string) (*Group, error) {
	name = path.Join("/", name)
	below, err := hierarchies()
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", name, err)
	}
	dirs := make(map[string]string, len(below))
	for controller, dir := range below {
		dirs[controller] = path.Join(dir, name)
	}
	m, err := manager.NewWithPaths(&cgroups.Cgroup{Path: name, Resources: &cgroups.Resources{}}, dirs)
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", name, err)
	}
	return &Group{name: name, manager: m}, nil
}

// known are the roots of the hierarchies, once they were found: to look for them
// is fifty system calls, and a task's group is opened a dozen times.
//
//nolint:gochecknoglobals // it is the machine's, and the same for all of the process
var known atomic.Pointer[map[string]string]

// hierarchies is where the root of each hierarchy is, by controller; the one of
// cgroup v2 has no name.
func hierarchies() (map[string]string, error) {
	if found := known.Load(); found != nil {
		return *found, nil
	}
	m, err := manager.New(&cgroups.Cgroup{Path: "/", Resources: &cgroups.Resources{}})
	if err != nil {
		return nil, err
	}
	found := m.GetPaths()
	known.Store(&found)
	return found, nil
}

// Create makes the group, and those above it, and makes sure that this process
// may make others in it. Nothing is moved.
func (g *Group) Create() error {
	for _, dir := range g.manager.GetPaths() {
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK, unix.AT_EACCESS)
		}
		if err != nil {
			return fmt.Errorf("create cgroup %s: %s: %w", g.name, dir, err)
		}
	}
	return nil
}

// Wake has the kernel ready to move processes between groups. The first move after
// a pause waits until every processor has noticed (an RCU grace period, ten
// milliseconds), and those that come soon after it wait for nothing. So who is
// about to start a task calls this beside what it does first. This process is
// moved to where it is; where that is not to be seen, nothing is done.
func Wake() {
	own, err := cgroups.ParseCgroupFile("/proc/self/cgroup")
	if err != nil {
		return
	}
	below, err := hierarchies()
	if err != nil {
		return
	}
	for controller, inner := range own {
		if root, ok := below[controller]; ok && cgroups.WriteFile(path.Join(root, inner), "cgroup.procs", "0") == nil {
			return // the kernel has one lock for all hierarchies
		}
	}
}

// Join creates the group if need be and moves the process into it.
func (g *Group) Join(pid int) error {
	if err := g.manager.Apply(pid); err != nil {
		return fmt.Errorf("join cgroup %s: %w", g.name, err)
	}
	return nil
}

// Kill kills every process in the group, and returns when none is left or ctx
// ends. A group that does not exist is empty.
func (g *Group) Kill(ctx context.Context) error {
	const first, longest = time.Millisecond, 50 * time.Millisecond
	for attempt, pause := 0, first; ; attempt, pause = attempt+1, min(2*pause, longest) {
		pids, err := g.pids()
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		// One write is enough where the kernel offers it. It need not reach
		// what moved itself out of one of v1's hierarchies.
		if attempt > 0 || !g.killAtOnce() {
			if err := g.killEach(); err != nil {
				return err
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("wait for processes %v of cgroup %s to die: %w", pids, g.name, ctx.Err())
		}
	}
}

// killAtOnce uses cgroup.kill (cgroup v2, Linux 5.14).
func (g *Group) killAtOnce() bool {
	dir := g.manager.Path("")
	return dir != "" && cgroups.WriteFile(dir, "cgroup.kill", "1") == nil
}

// killEach signals one process after the other. The group is frozen meanwhile
// so that nothing forks; one that does not freeze, because a process waits for
// a dead disk, is killed all the same.
func (g *Group) killEach() error {
	if g.manager.Freeze(cgroups.Frozen) == nil {
		defer func() { _ = g.manager.Freeze(cgroups.Thawed) }()
	}
	members, err := g.members()
	if err != nil {
		return err
	}
	for _, id := range members {
		if err := id.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill cgroup %s: %w", g.name, err)
		}
	}
	return nil
}

// members names the processes of the group. A number that is listed before and
// after its process was named was the group's in between.
func (g *Group) members() ([]process.ID, error) {
	before, err := g.pids()
	if err != nil {
		return nil, err
	}
	var ids []process.ID
	for _, pid := range before {
		if id, err := process.Of(pid); err == nil {
			ids = append(ids, id)
		}
	}
	after, err := g.pids()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ids, func(id process.ID) bool { return !slices.Contains(after, id.PID) }), nil
}

// OOMKills counts the processes of the group that the kernel killed because
// memory ran out; 0 where that cannot be known.
func (g *Group) OOMKills() uint64 {
	n, err := g.manager.OOMKillCount()
	if err != nil {
		return 0
	}
	return n
}

// Remove removes the group, which must be empty. The Group is of no use
// afterwards.
func (g *Group) Remove() error {
	if err := g.manager.Destroy(); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", g.name, err)
	}
	return nil
}

// RemoveEmpty removes the group where nothing is in it, neither a process nor
// another group, and leaves it elsewhere.
func (g *Group) RemoveEmpty() error {
	for _, dir := range g.manager.GetPaths() {
		err := unix.Rmdir(dir)
		if err != nil && !gone(err) && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.ENOTEMPTY) {
			return fmt.Errorf("remove cgroup %s: %s: %w", g.name, dir, err)
		}
	}
	return nil
}

func (g *Group) pids() ([]int, error) {
	pids, err := g.manager.GetAllPids()
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", g.name, err)
	}
	return pids, nil
}

// gone reports whether the group does not exist, or ceased to while it was
// being read.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV)
}
