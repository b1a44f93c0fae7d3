package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/cgroup"
	"github.com/berth-dev/berth/internal/agent/driver/process"
	"github.com/berth-dev/berth/internal/agent/driver/visit"
	"github.com/berth-dev/berth/internal/frame"
)

// Config says where supervisors live.
type Config struct {
	// RunDir holds the run directories. It should be on a file system that is
	// gone after a reboot, because specs hold the environment. Its path must be
	// short: see the limit of unix socket addresses, unix(7).
	RunDir string
	// Executable is the program that serves `executor DIR`.
	Executable string
	// CgroupParent is the cgroup below which tasks get theirs.
	CgroupParent string
}

// Tasks is the agent's hold on the tasks of one node. Its methods may be called
// at once, for one task or many, and by several agents' processes; whatever
// was cut short by a crash, repeating it brings to its end.
type Tasks struct {
	cfg    Config
	log    *slog.Logger
	sealed func() (*os.File, error) // made when it is first needed

	mu sync.Mutex
	// children are the supervisors that this process started and has yet to
	// reap, by run directory. A restarted agent's are init's to reap.
	children map[runDir]int
	// spare waits for the next task; nil if there is none.
	spare *spare
}

// maxSocketPath is what sun_path holds, with its terminating zero.
const maxSocketPath = 108

// NewTasks checks the Config and makes RunDir.
func NewTasks(cfg Config, log *slog.Logger) (*Tasks, error) {
	if err := os.MkdirAll(cfg.RunDir, 0o700); err != nil {
		return nil, fmt.Errorf("make run directory: %w", err)
	}
	// A root file system must be named by its real path.
	dir, err := filepath.EvalSymlinks(cfg.RunDir)
	if err != nil {
		return nil, fmt.Errorf("resolve run directory: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("resolve run directory: %w", err)
	}
	cfg.RunDir = dir
	if longest := maxSocketPath - 1 - len("/"+"/"+socketFile) - keySize; len(dir) > longest {
		return nil, fmt.Errorf("run directory %s is longer than the %d bytes that leave room for a socket's name", dir, longest)
	}
	return &Tasks{
		cfg: cfg, log: log, children: map[runDir]int{},
		sealed: sync.OnceValues(func() (*os.File, error) { return seal(cfg.Executable) }),
	}, nil
}

func (t *Tasks) dir(id string) runDir { return runDir(filepath.Join(t.cfg.RunDir, key(id))) }

// settleLimit bounds how long Status waits for the processes that a dead
// supervisor left. Only one that the kernel cannot kill takes longer.
const settleLimit = 10 * time.Second

// Status tells how the task is, and clears up after a supervisor that died.
func (t *Tasks) Status(ctx context.Context, id string) (Status, error) {
	dir := t.dir(id)
	status, _, err := dir.recorded()
	if err != nil {
		return Status{}, fmt.Errorf("status of task %s: %w", id, err)
	}
	if status.State != StateRunning {
		return status, nil
	}
	lock, err := dir.lock(false)
	if errors.Is(err, errHeld) {
		return status, nil
	}
	if errors.Is(err, os.ErrNotExist) {
		return Status{State: StateUnknown}, nil
	}
	if err != nil {
		return Status{}, fmt.Errorf("status of task %s: %w", id, err)
	}
	defer func() { _ = lock.Close() }()
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	if status, err = t.settle(ctx, dir); err != nil {
		return Status{}, fmt.Errorf("status of task %s: %w", id, err)
	}
	return status, nil
}

// Wait returns when the task has ended, or ctx. The error is an
// api.CodeNotFound if there is no such task.
//
// While a task is waited for, a supervisor stands by for the next one.
func (t *Tasks) Wait(ctx context.Context, id string) (Status, error) {
	dir := t.dir(id)
	for {
		status, err := t.Status(ctx, id)
		if err != nil {
			return Status{}, err
		}
		switch status.State {
		case StateEnded:
			t.reap(ctx, dir)
			return status, nil
		case StateUnknown:
			return status, api.Errorf(api.CodeNotFound, "task %s was not started here", id)
		case StateRunning:
			t.ready()
		}
		if err := newClient(dir).wait(ctx, ended); err == nil {
			continue
		}
		// Its supervisor is on its way out, or cannot be asked: look again.
		select {
		case <-time.After(pollLongest):
		case <-ctx.Done():
			return Status{}, fmt.Errorf("wait for task %s: %w", id, ctx.Err())
		}
	}
}

// stopGrace is how much longer than the task's own timeout a supervisor may
// take over a Stop before it counts as hung.
const stopGrace = 10 * time.Second

// lastMoments is how long a supervisor is waited for that has nothing left to do.
const lastMoments = 2 * time.Second

// Stop sends the signal, and SIGKILL when timeout has passed, and returns when
// no process of the task is left. Only the first of several equal signals is
// sent, and the earliest of several timeouts counts, so that it may be repeated.
// The supervisor goes on with it if the agent dies or ctx ends.
func (t *Tasks) Stop(ctx context.Context, id string, sig syscall.Signal, timeout time.Duration) error {
	dir := t.dir(id)
	lock, err := dir.lock(false)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if errors.Is(err, errHeld) {
		if lock, err = t.stopSupervised(ctx, dir, sig, timeout); lock == nil && err == nil {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("stop task %s: %w", id, err)
	}
	defer func() { _ = lock.Close() }()
	if _, err := t.settle(ctx, dir); err != nil {
		return fmt.Errorf("stop task %s: %w", id, err)
	}
	return nil
}

// stopSupervised asks the supervisor, and returns no lock if the task has ended
// so. If it does not answer, the lock is returned, for settling, once it has
// ended by itself or was killed, and the task with it.
func (t *Tasks) stopSupervised(ctx context.Context, dir runDir, sig syscall.Signal, timeout time.Duration) (*os.File, error) {
	asked, cancel := context.WithTimeout(ctx, timeout+stopGrace)
	defer cancel()
	answer := newClient(dir).stop(asked, sig, timeout)
	if answer == nil {
		return nil, nil // its supervisor is reaped by Destroy, or by who waits for it
	}
	if ctx.Err() != nil || asked.Err() == nil && !unreachable(answer) {
		return nil, answer
	}
	// Most probably the task ended at this moment, and the supervisor is going.
	going, cancel := context.WithTimeout(ctx, lastMoments)
	defer cancel()
	lock, err := dir.waitLock(going)
	if err != nil && going.Err() != nil {
		t.log.Warn("supervisor does not stop its task, so both are killed", "dir", string(dir), "err", answer)
		lock, err = dir.seizeLock(ctx, false)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return lock, err
}

// Signal sends a signal to the task's command. The error is an api.CodeNotFound
// if it does not run.
func (t *Tasks) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	err := newClient(t.dir(id)).signal(ctx, sig)
	if err != nil && unreachable(err) {
		return api.Errorf(api.CodeNotFound, "task %s does not run here", id)
	}
	if err != nil {
		return fmt.Errorf("signal task %s: %w", id, err)
	}
	return nil
}

// Visit runs a command in a task that runs, and carries it on the visitor's
// connection until either has ended.
func (t *Tasks) Visit(ctx context.Context, id string, req *api.ExecRequest, visitor visit.Conn) error {
	conn, err := newClient(t.dir(id)).visit(ctx, req)
	if err != nil {
		visitor.Close()
	}
	if err != nil && unreachable(err) {
		return api.Errorf(api.CodeConflict, "task %s does not run", id)
	}
	if err != nil {
		return err
	}
	hangUp := sync.OnceFunc(func() { _ = conn.Close() }) // that ends the command
	defer context.AfterFunc(ctx, hangUp)()
	err = visit.Relay(visitor, visit.Conn{In: frame.NewReader(conn), Out: frame.NewWriter(conn), Close: hangUp})
	if errors.Is(err, visit.ErrServerGone) && ctx.Err() == nil {
		// It was killed, and the kernel ends the task and the command with it.
		return api.Errorf(api.CodeConflict, "the task has ended, for its supervisor is gone: the command ended with it")
	}
	return err
}

// settle tells the status of a task without a supervisor. The caller holds the
// lock. What a dead supervisor left running is killed, and its end recorded.
func (t *Tasks) settle(ctx context.Context, dir runDir) (Status, error) {
	t.reapDead(dir)
	status, st, err := dir.recorded()
	if err != nil || status.State == StateEnded {
		return status, err
	}
	if err := t.killAll(ctx, dir, st); err != nil {
		return Status{}, err
	}
	if status.State == StateUnknown {
		return status, nil
	}
	boot, err := process.Boot()
	if err != nil {
		return Status{}, err
	}
	e := exit{Ended: time.Now().UTC(), Signal: int(syscall.SIGKILL), Reason: ReasonSupervisor}
	if boot != st.Supervisor.Boot {
		e.Reason = ReasonRestart
	}
	t.log.Info("task ended without a supervisor", "dir", string(dir), "reason", e.Reason)
	if err := dir.end(e); err != nil {
		// The next look finds the same, so a full disk hides no end.
		t.log.Warn("end of task cannot be recorded", "dir", string(dir), "err", err)
	}
	return status.with(e), nil
}

// killAll kills every process of the task, and returns when none is left.
func (t *Tasks) killAll(ctx context.Context, dir runDir, st state) error {
	name := t.cgroupOf(dir)
	if name == "" {
		return process.KillSession(ctx, st.Task)
	}
	group, err := cgroup.Open(name)
	if err != nil {
		return err
	}
	return group.Kill(ctx)
}

// cgroupOf is the task's cgroup. What the spec says counts, because an older
// agent may have been configured otherwise.
func (t *Tasks) cgroupOf(dir runDir) string {
	var spec Spec
	found, err := dir.read(specFile, &spec)
	if err != nil {
		t.log.Warn("spec of task cannot be read", "err", err)
	}
	if found || !t.hasCgroups() {
		return spec.Cgroup
	}
	return t.cgroupPath(filepath.Base(string(dir)))
}

// supervisorsGroup is where the supervisors are, below the parent.
const supervisorsGroup = "supervisors"

func (t *Tasks) cgroupPath(name string) string {
	return filepath.Join("/", t.cfg.CgroupParent, name)
}

// hasCgroups reports whether tasks can be kept in cgroups here.
func (t *Tasks) hasCgroups() bool { return t.CheckCgroups() == nil }

// CheckCgroups says why tasks cannot be kept in cgroups here, if so.
func (t *Tasks) CheckCgroups() error {
	group, err := cgroup.Open(t.cgroupPath(""))
	if err != nil {
		return err
	}
	return group.Create()
}

// Sweep removes the cgroups that all tasks have in common, unless somebody's
// tasks are in them. It is for agents that leave their machine for good.
func (t *Tasks) Sweep() error {
	t.dismiss()
	for _, name := range []string{supervisorsGroup, ""} {
		group, err := cgroup.Open(t.cgroupPath(name))
		if err != nil {
			return err
		}
		if err := group.RemoveEmpty(); err != nil {
			return err
		}
	}
	return nil
}

// reap collects the supervisor's exit status if this process started it, so
// that no zombie stays. It waits for the supervisor's last moments, but not for
// one that does not end.
func (t *Tasks) reap(ctx context.Context, dir runDir) {
	t.mu.Lock()
	_, mine := t.children[dir]
	t.mu.Unlock()
	if !mine {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastMoments)
	defer cancel()
	lock, err := dir.waitLock(ctx)
	if err != nil {
		return // left for the next call on this task
	}
	defer func() { _ = lock.Close() }()
	t.reapDead(dir)
}

// reapDead is reap for a caller that holds the lock. The supervisor has closed
// its files and is a zombie in a moment, or its directory was removed from
// under it: then nobody can reach it any more, and it is killed.
func (t *Tasks) reapDead(dir runDir) {
	t.mu.Lock()
	pid, mine := t.children[dir]
	delete(t.children, dir)
	t.mu.Unlock()
	if mine {
		collect(pid)
	}
}

// Usage measures a task that runs, with all of its processes.
func (t *Tasks) Usage(id string) (cgroup.Usage, error) {
	var spec Spec
	found, err := t.dir(id).read(specFile, &spec)
	switch {
	case err != nil:
		return cgroup.Usage{}, fmt.Errorf("measure task %s: %w", id, err)
	case !found:
		return cgroup.Usage{}, api.Errorf(api.CodeNotFound, "task %s was not started here", id)
	case spec.Cgroup == "":
		return cgroup.Usage{}, api.Errorf(api.CodeUnavailable, "task %s has no cgroup, in which it could be measured", id)
	}
	group, err := cgroup.Open(spec.Cgroup)
	if err != nil {
		return cgroup.Usage{}, err
	}
	return group.Usage()
}
