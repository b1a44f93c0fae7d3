package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/opencontainers/runc/libcontainer"

	"github.com/berth-dev/berth/api"
)

// enter implements task: the command enters the namespaces and the cgroup of the
// task, and becomes its user.
func (t *isolated) enter(ctx context.Context, spec Spec, req *api.ExecRequest) (*entered, error) {
	user := spec.User
	if user == nil {
		user = &User{}
	}
	p := &libcontainer.Process{
		Args: req.Command, Env: environmentOf(spec, req), Cwd: spec.Cwd,
		UID: user.UID, GID: user.GID, AdditionalGroups: user.Groups,
	}
	var s *stdio
	var err error
	if req.Terminal == nil {
		s, err = pipes(nil, req.Input)
	} else {
		s = &stdio{}
	}
	if err != nil {
		return nil, err
	}
	if req.Terminal == nil {
		if s.theirs[0] != nil {
			p.Stdin = s.theirs[0]
		}
		p.Stdout, p.Stderr = s.theirs[1], s.theirs[2]
		err = s.follow(ctx, func() (int, func() (ending, error), error) { return t.start(p) })
		return &s.entered, err
	}
	ours, theirs, err := consoleSocket()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ours.Close() }()
	s.theirs[0] = theirs
	p.ConsoleSocket, p.ConsoleHeight, p.ConsoleWidth = theirs, uint16(req.Terminal.Rows), uint16(req.Terminal.Columns) //nolint:gosec // they are valid
	err = s.follow(ctx, func() (int, func() (ending, error), error) { return t.start(p) })
	if err != nil {
		return nil, err
	}
	master, err := receiveTerminal(ours)
	if err != nil {
		s.discard()
		return nil, err
	}
	s.visitOn(master, req.Input)
	return &s.entered, nil
}

func (t *isolated) start(p *libcontainer.Process) (int, func() (ending, error), error) {
	if err := t.container.Run(p); err != nil {
		return 0, nil, cannotRun(p.Args[0], cause(err))
	}
	pid, err := p.Pid()
	if err != nil {
		return 0, nil, fmt.Errorf("start command: %w", err)
	}
	return pid, func() (ending, error) {
		ps, err := p.Wait()
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			return ending{}, fmt.Errorf("wait for process: %w", err)
		}
		return endingOf(ps), nil
	}, nil
}

// cause is what is wrong with a command, without the words of who found it.
func cause(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		if _, is := errors.AsType[*exec.Error](inner); !is && !errors.Is(inner, os.ErrNotExist) {
			continue
		}
		err = inner
	}
	return err.Error()
}
