package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/cgroup"
	"github.com/berth-dev/berth/internal/agent/driver/process"
)

// supervisor runs one task, from the start to the record of its end.
type supervisor struct {
	dir      runDir
	log      *slog.Logger
	listener net.Listener
	spec     Spec
	state    state

	orders chan order
	// started is closed when the task's command runs or cannot be started,
	// ended when there is nothing left to wait for.
	started, ended chan struct{}
	// exited is closed when the task's first process has exited.
	exited chan struct{}
	visits visits
}

// task is the first process of a started task.
type task interface {
	// signal may come too late: the error wraps os.ErrProcessDone then.
	signal(sig syscall.Signal) error
	// wait tells how the process ended.
	wait() (ending, error)
	// enter starts a command beside it, for a visitor.
	enter(ctx context.Context, spec Spec, req *api.ExecRequest) (*entered, error)
}

// ending is how a process ended.
type ending struct {
	code   int
	signal syscall.Signal
}

// run supervises the task and serves the socket meanwhile.
func (s *supervisor) run() error {
	outlive()
	unix.Umask(0o022)
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.listener) }()
	err := s.supervise()
	close(s.ended)
	// Whoever waits gets an answer; who does not read it is not waited for.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if e := server.Shutdown(ctx); e != nil {
		s.log.Debug("close socket", "err", e)
	}
	if e := <-served; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve socket: %w", e))
	}
	return err
}

// supervise returns when the task's end is recorded, or that it could not be
// started. What it took is for Tasks to remove.
func (s *supervisor) supervise() error {
	if err := s.dir.reserve(); err != nil {
		return s.fail(err)
	}
	output, err := openOutput(s.spec.Stdout, s.spec.Stderr, s.log)
	if err != nil {
		return s.fail(err)
	}
	defer output.close()
	t, err := s.start(output)
	output.closeWriters()
	if err != nil {
		return s.fail(err)
	}
	s.visits.host(t)
	close(s.started)
	escalated := make(chan bool, 1)
	go func() { escalated <- s.obey(t) }()
	end, err := t.wait()
	close(s.exited)
	reason := s.reason(end, <-escalated)
	s.visits.end()
	err = errors.Join(err, s.killAll())
	s.visits.going.Wait()
	// A visitor's command may have been on its way into the group meanwhile.
	if err := errors.Join(err, s.killAll()); err != nil {
		return err
	}
	output.close()
	return s.dir.end(exit{
		Ended: time.Now().UTC(), ExitCode: end.code, Signal: int(end.signal), Reason: reason,
	})
}

// reason says how the task ended, if not by itself.
func (s *supervisor) reason(end ending, escalated bool) string {
	switch {
	case end.signal != syscall.SIGKILL:
		return ""
	case escalated:
		return ReasonKilled
	case s.ranOutOfMemory():
		return ReasonOOM
	}
	return ""
}

// start puts the supervisor into its place and starts the task.
func (s *supervisor) start(output *output) (task, error) {
	if s.spec.Root != nil {
		if err := s.retreat(); err != nil {
			return nil, err
		}
		return startIsolated(s.spec, s.dir, output, s.record)
	}
	return s.startDirect(output)
}

// startDirect starts a task on the host. A process can be born in its parent's
// cgroup only, so the supervisor enters the task's for that moment: no fork of
// the task is ever outside.
func (s *supervisor) startDirect(output *output) (task, error) {
	if s.spec.Cgroup == "" {
		t, err := startDirect(s.spec, output, s.record)
		if e := s.retreat(); e != nil {
			return nil, errors.Join(err, e)
		}
		return t, err
	}
	group, err := cgroup.Open(s.spec.Cgroup)
	if err == nil {
		err = group.Join(os.Getpid())
	}
	if err == nil {
		// Once the task runs it may use more already, and a limit below that is
		// refused. What the supervisor uses in that moment is little.
		err = group.Limit(s.spec.Limits)
	}
	if err != nil {
		return nil, errors.Join(err, s.retreat())
	}
	t, err := startDirect(s.spec, output, s.record)
	if e := s.retreat(); e != nil {
		return nil, errors.Join(err, e)
	}
	return t, err
}

// retreat moves the supervisor out of the agent's cgroup, and of the task's.
func (s *supervisor) retreat() error {
	if s.spec.SupervisorCgroup == "" {
		return nil
	}
	group, err := cgroup.Open(s.spec.SupervisorCgroup)
	if err != nil {
		return err
	}
	return group.Join(os.Getpid())
}

// record writes down the task's first process. Only afterwards is the start
// reported to anybody.
func (s *supervisor) record(pid int) error {
	id, err := process.Of(pid)
	if err != nil {
		return err
	}
	s.state.Task, s.state.Started = id, time.Now().UTC()
	return s.dir.write(stateFile, s.state)
}

// fail records that the task could not be started, once nothing is left of the
// attempt.
func (s *supervisor) fail(cause error) error {
	defer close(s.started)
	s.log.Info("task cannot be started", "err", cause)
	if err := s.killAll(); err != nil {
		return err
	}
	s.state.Task, s.state.Started = process.ID{}, time.Time{}
	s.state.Failure = failure(cause)
	return s.dir.write(stateFile, s.state)
}

// obey signals the task as ordered until it has exited, and reports whether it
// came to SIGKILL. A repeated order to stop is not a second signal, which some
// programs would take as a wish to hurry; but an earlier deadline counts.
func (s *supervisor) obey(t task) (escalated bool) {
	var (
		sent     syscall.Signal
		deadline time.Time
		kill     <-chan time.Time
	)
	send := func(sig syscall.Signal) {
		if err := t.signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			s.log.Warn("signal task", "signal", int(sig), "err", err)
		}
	}
	for {
		select {
		case <-s.exited:
			return escalated
		case <-kill:
			escalated = true
			send(syscall.SIGKILL)
		case o := <-s.orders:
			if !o.stop {
				send(o.Signal)
				continue
			}
			if o.Signal != sent {
				sent = o.Signal
				send(sent)
			}
			if at := time.Now().Add(time.Duration(o.Timeout)); deadline.IsZero() || at.Before(deadline) {
				deadline = at
				kill = time.After(time.Duration(o.Timeout))
			}
		}
	}
}

// killAll kills what is left of the task. It does not give up: until the last
// process is dead, the task has not ended.
func (s *supervisor) killAll() error {
	ctx := context.Background()
	if s.spec.Cgroup == "" {
		return process.KillSession(ctx, s.state.Task)
	}
	group, err := cgroup.Open(s.spec.Cgroup)
	if err != nil {
		return err
	}
	return group.Kill(ctx)
}

func (s *supervisor) ranOutOfMemory() bool {
	if s.spec.Cgroup == "" {
		return false
	}
	group, err := cgroup.Open(s.spec.Cgroup)
	return err == nil && group.OOMKills() > 0
}
