package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/cgroup"
)

// Start runs the task, and returns when its command runs. A task of that ID
// that runs or has ended already is left as it is. The error is an api.Error
// if the command is at fault.
//
// If ctx ends or the agent dies in between, the task may still come up: Start
// again to adopt it, or Destroy it.
func (t *Tasks) Start(ctx context.Context, spec Spec) error {
	dir := t.dir(spec.ID)
	for {
		lock, err := dir.lock(true)
		if err == nil {
			if err = t.launch(ctx, dir, lock, spec); errors.Is(err, errSpareGone) {
				continue // with a supervisor of its own, once
			}
			return err
		}
		if !errors.Is(err, errHeld) {
			return fmt.Errorf("start task %s: %w", spec.ID, err)
		}
		if err := newClient(dir).wait(ctx, started); err == nil {
			if settled, err := dir.outcome(); settled && err != nil {
				return fmt.Errorf("start task %s: %w", spec.ID, err)
			} else if settled {
				return nil
			}
		}
		// The holder has no supervisor yet, or none any more: look again.
		select {
		case <-time.After(pollLongest):
		case <-ctx.Done():
			return fmt.Errorf("adopt task %s: %w", spec.ID, ctx.Err())
		}
	}
}

// launch looks, and starts a supervisor if there is none. It takes over the
// lock, and passes it on to the supervisor.
func (t *Tasks) launch(ctx context.Context, dir runDir, lock *os.File, spec Spec) error {
	defer func() { _ = lock.Close() }()
	var waking sync.WaitGroup
	defer waking.Wait()
	waking.Go(cgroup.Wake)
	status, err := t.settle(ctx, dir)
	if err != nil {
		return fmt.Errorf("start task %s: %w", spec.ID, err)
	}
	if status.State == StateEnded {
		return nil
	}
	if err := t.prepare(dir, spec); err != nil {
		return fmt.Errorf("start task %s: %w", spec.ID, err)
	}
	ahead, err := t.spawn(dir, lock)
	if err != nil {
		return fmt.Errorf("start supervisor of task %s: %w", spec.ID, err)
	}
	// From here on, the lock is the supervisor's.
	_ = lock.Close()
	if err := t.awaitStart(ctx, dir, ahead); err != nil {
		return fmt.Errorf("start task %s: %w", spec.ID, err)
	}
	return nil
}

// errSpareGone: the spare was dying when it was sent its task.
var errSpareGone = errors.New("the supervisor that stood by is gone")

// awaitStart returns when the supervisor has started the task, or given up. One
// that was started ahead may have been killed before it ever heard of the task.
func (t *Tasks) awaitStart(ctx context.Context, dir runDir, ahead bool) error {
	answer := newClient(dir).wait(ctx, started)
	if answer != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	settled, err := dir.outcome()
	switch {
	case settled:
	case ahead:
		err = errSpareGone
	default:
		err = errors.New("its supervisor ended before it was started" + dir.lastWords())
	}
	if err != nil {
		t.reap(ctx, dir)
	}
	return err
}

// prepare clears what a failed start left, and records what will be run.
func (t *Tasks) prepare(dir runDir, spec Spec) error {
	if err := t.clear(dir); err != nil {
		return err
	}
	spec.Cgroup, spec.SupervisorCgroup = t.cgroupPath(key(spec.ID)), t.cgroupPath(supervisorsGroup)
	err := t.CheckCgroups()
	switch {
	case err == nil:
		err = limitable(spec)
	case spec.Root != nil:
		err = fmt.Errorf("isolate it: %w", err)
	case spec.Limits != (cgroup.Limits{}):
		err = Unlimited(spec.Limits.Controllers(), err.Error())
	default:
		t.log.Warn("task runs without a cgroup", "task", spec.ID, "err", err)
		spec.Cgroup, spec.SupervisorCgroup = "", ""
		err = nil
	}
	if err != nil {
		return err
	}
	return dir.write(specFile, spec)
}

// limitable says which of the task's limits cannot be kept here, if so: a task
// that runs without one that was asked for takes its neighbours' memory.
func limitable(spec Spec) error {
	group, err := cgroup.Open(spec.Cgroup)
	if err != nil {
		return err
	}
	lacking, err := group.Lacking(spec.Limits)
	if err != nil || len(lacking) == 0 {
		return err
	}
	return Unlimited(lacking, "this machine does not give it to tasks")
}

// Unlimited is the error of a task whose limits need controllers that it cannot
// have.
func Unlimited(controllers []string, why string) error {
	e := &api.Error{Code: api.CodeInvalid, Message: "its resources cannot be limited"}
	for _, c := range controllers {
		e.Fields = append(e.Fields, api.Field{
			Path: "resources." + c, Message: fmt.Sprintf("needs the cgroup controller %q: %s", c, why),
			Mend: "switch the controller on (kernel command line, or Delegate= of the agent's unit), or leave the limit out",
		})
	}
	return e
}

// Descriptors that a supervisor inherits after its standard ones.
const (
	lockDescriptor = 3 + iota
	listenerDescriptor
)

// spawn starts the supervisor, or sends the spare, one that was started ahead.
// It gets the lock, and a socket that listens already, so that it can be asked from this moment on.
func (t *Tasks) spawn(dir runDir, lock *os.File) (ahead bool, err error) {
	listener, err := listen(dir)
	if err != nil {
		return false, err
	}
	defer func() { _ = listener.Close() }()
	words, err := os.OpenFile(dir.path(logFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, err
	}
	defer func() { _ = words.Close() }()
	// The map is locked so that Destroy finds what was started.
	t.mu.Lock()
	defer t.mu.Unlock()
	if pid, heard := t.send(dir, lock, listener, words); heard {
		t.children[dir] = pid
		return true, nil
	}
	cmd := t.command(string(dir), words, lock, listener)
	if err := cmd.Start(); err != nil {
		return false, err
	}
	t.children[dir] = cmd.Process.Pid
	return false, cmd.Process.Release()
}

func listen(dir runDir) (*os.File, error) {
	path := dir.path(socketFile)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	defer func() { _ = l.Close() }()
	return l.File()
}

// outcome is what became of a start: settled is false if that is not recorded.
func (d runDir) outcome() (settled bool, err error) {
	status, st, err := d.recorded()
	switch {
	case err != nil:
		return true, err
	case status.State != StateUnknown:
		return true, nil
	case st.Failure != nil:
		return true, st.Failure
	}
	return false, nil
}

// lastWords quotes the end of the supervisor's log, for an error message. One
// that says nothing may have had no room to: that is told instead.
func (d runDir) lastWords() string {
	const most = 1 << 10
	b, err := os.ReadFile(d.path(logFile))
	if b = bytes.TrimSpace(b); err == nil && len(b) > 0 {
		return "; it said: " + string(b[max(0, len(b)-most):])
	}
	probe := d.path("probe")
	err = writeSynced(probe, make([]byte, 4*most))
	_ = os.Remove(probe) // with its directory, if not now
	if err != nil {
		return fmt.Sprintf("; nothing can be written there: %v", err)
	}
	return ""
}

// failure is err as it is recorded: an api.Error keeps its code.
func failure(err error) *api.Error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	return api.Errorf(api.CodeInternal, "%v", err)
}
