package executor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/executor/first"
)

// direct is a task that runs on the host, in a session of its own.
type direct struct {
	process *os.Process
}

// startDirect starts the command and reports its process to record.
func startDirect(spec Spec, output *output, record func(pid int) error) (task, error) {
	path, err := first.LookPath(spec.Command, spec.Cwd, spec.Env)
	if err != nil {
		return nil, badCommand(spec, err)
	}
	cmd := exec.Cmd{
		Path: path, Args: append([]string{spec.Command}, spec.Args...),
		Env: spec.Env, Dir: spec.Cwd,
		Stdout: output.stdout.writer, Stderr: output.stderr.writer,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	if u := spec.User; u != nil {
		cmd.SysProcAttr.Credential = credential(u)
		if err := output.chown(u.UID); err != nil {
			return nil, err
		}
	}
	if err := cmd.Start(); err != nil {
		return nil, badCommand(spec, err)
	}
	if err := record(cmd.Process.Pid); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill())
	}
	return direct{process: cmd.Process}, nil
}

func credential(u *User) *syscall.Credential {
	c := &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)} //nolint:gosec // 32 bits are what the kernel has for ids
	for _, g := range u.Groups {
		c.Groups = append(c.Groups, uint32(g)) //nolint:gosec // as above
	}
	return c
}

// chown gives the pipes to the user, who may want to open /dev/stdout.
func (o *output) chown(uid int) error {
	for _, s := range []*stream{o.stdout, o.stderr} {
		if err := s.writer.Chown(uid, -1); err != nil {
			return fmt.Errorf("give output to user: %w", err)
		}
	}
	return nil
}

// badCommand tells the user which command, and what is wrong with it.
func badCommand(spec Spec, cause error) error {
	if path, ok := errors.AsType[*os.PathError](cause); ok {
		cause = path.Err
	}
	return &api.Error{
		Code: api.CodeInvalid, Message: "the command cannot be run",
		Fields: []api.Field{{
			Path: "config.command", Message: fmt.Sprintf("%q in %s: %v", spec.Command, spec.Cwd, cause),
			Mend: "the task's user must be able to enter the directory, and to find and execute the program",
		}},
	}
}

func (d direct) signal(sig syscall.Signal) error { return d.process.Signal(sig) }

func (d direct) wait() (ending, error) {
	ps, err := d.process.Wait()
	if err != nil {
		return ending{}, fmt.Errorf("wait for process: %w", err)
	}
	return endingOf(ps), nil
}

func endingOf(ps *os.ProcessState) ending {
	if ws, ok := ps.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return ending{signal: ws.Signal()}
	}
	return ending{code: ps.ExitCode()}
}
