package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// firstProcessArg makes berth's binary process 1 of an isolated task.
const firstProcessArg = "task-init"

// Descriptors of the first process, after its standard ones.
const (
	assignmentDescriptor = 3 + iota
	reportDescriptor
)

// assignment is what the first process is to run. Its environment is not the
// first process's own: it could change how that one works.
type assignment struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	Cwd     string   `json:"cwd"`
}

// report is what the first process says: once when the command runs or cannot
// be run, and once more when it has ended.
type report struct {
	Error  string         `json:"error,omitempty"`
	Code   int            `json:"code,omitempty"`
	Signal syscall.Signal `json:"signal,omitempty"`
}

// assign writes the assignment to a file in memory, for the first process to
// inherit.
func assign(spec Spec) (*os.File, error) {
	fd, err := unix.MemfdCreate("assignment", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make assignment: %w", err)
	}
	f := os.NewFile(uintptr(fd), "assignment")
	a := assignment{Command: spec.Command, Args: spec.Args, Env: spec.Env, Cwd: spec.Cwd}
	if err = json.NewEncoder(f).Encode(a); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("make assignment: %w", err)
	}
	return f, nil
}

// firstProcess is process 1 of an isolated task. To the kernel, that one is
// special: it hears no signal that it does not handle, not even its own, and it
// inherits every orphan. Few programs are made for it. So it is berth, which
// runs the command, passes signals on to it, reaps the orphans, and ends with
// it; and the kernel ends the rest.
//
// It has the user and the capabilities of the task, and no more rights.
func firstProcess() error {
	unix.CloseOnExec(assignmentDescriptor)
	unix.CloseOnExec(reportDescriptor)
	f := os.NewFile(assignmentDescriptor, "assignment")
	var a assignment
	if err := json.NewDecoder(f).Decode(&a); err != nil {
		return fmt.Errorf("read assignment: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("read assignment: %w", err)
	}
	// No process of the task may look into this one, or take it over.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("become opaque: %w", err)
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	reports := json.NewEncoder(os.NewFile(reportDescriptor, "reports"))
	pid, err := a.start()
	if err != nil {
		return reports.Encode(report{Error: err.Error()})
	}
	if err := reports.Encode(report{}); err != nil {
		return fmt.Errorf("report start: %w", err)
	}
	for sig := range signals {
		if n, ok := sig.(syscall.Signal); ok && n != syscall.SIGCHLD {
			// The number is the command's as long as it is not reaped, below.
			_ = syscall.Kill(pid, n)
		}
		// Whatever the signal was: a SIGCHLD too many for the channel is lost.
		if status, ended := reapUntil(pid); ended {
			return reports.Encode(status)
		}
	}
	return nil
}

// start runs the command in a session of its own.
func (a assignment) start() (pid int, err error) {
	path, err := lookPath(a.Command, a.Cwd, a.Env)
	if err != nil {
		return 0, err
	}
	return syscall.ForkExec(path, append([]string{a.Command}, a.Args...), &syscall.ProcAttr{
		Env: a.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

// reapUntil reaps the children that have ended, and tells how the one did if it
// is among them.
func reapUntil(pid int) (r report, ended bool) {
	for {
		var status syscall.WaitStatus
		child, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || child <= 0:
			return report{}, false
		case child == pid && status.Signaled():
			return report{Signal: status.Signal()}, true
		case child == pid:
			return report{Code: status.ExitStatus()}, true
		}
	}
}
