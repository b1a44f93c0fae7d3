// Package first is process 1 of every isolated task. It owns what that process
// does: it runs the command, passes signals on to it, reaps orphans, and ends
// with it.
//
// A program that links this package becomes that process before its main is
// called, and before most of its packages are initialized: a task starts with
// it, and a big program takes long to begin. So this package imports the standard
// library only, and little of it; Go initializes it among the first.
//
// It never decides what to run. Invariant: it has the user and the capabilities
// of the task, and no more rights.
package first

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// Arg makes a program process 1 of an isolated task.
const Arg = "task-init"

// Descriptors of the process, after its standard ones.
const (
	AssignmentDescriptor = 3 + iota
	ReportDescriptor
)

// Assignment is what the process is to run. Its environment is not the
// process's own: it could change how that one works.
type Assignment struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Env     []string `json:"env"`
	Cwd     string   `json:"cwd"`
}

// Report is what the process says: once when the command runs or cannot be run,
// and once more when it has ended.
type Report struct {
	Error  string         `json:"error,omitempty"`
	Code   int            `json:"code,omitempty"`
	Signal syscall.Signal `json:"signal,omitempty"`
}

//nolint:gochecknoinits // see the package's comment: main would be late
func init() {
	if len(os.Args) != 2 || os.Args[1] != Arg || os.Getpid() != 1 {
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "berth: task-init:", err)
		syscall.Exit(255)
	}
	syscall.Exit(0)
}

// run is the process. To the kernel, that one is
// special: it hears no signal that it does not handle, not even its own, and it
// inherits every orphan. Few programs are made for it. So it is berth, which
// runs the command, passes signals on to it, reaps the orphans, and ends with
// it; and the kernel ends the rest.
func run() error {
	syscall.CloseOnExec(AssignmentDescriptor)
	syscall.CloseOnExec(ReportDescriptor)
	f := os.NewFile(AssignmentDescriptor, "assignment")
	var a Assignment
	if err := json.NewDecoder(f).Decode(&a); err != nil {
		return fmt.Errorf("read assignment: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("read assignment: %w", err)
	}
	// No process of the task may look into this one, or take it over.
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0); errno != 0 {
		return fmt.Errorf("become opaque: %w", errno)
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT,
		syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2)
	reports := json.NewEncoder(os.NewFile(ReportDescriptor, "reports"))
	pid, err := a.start()
	if err != nil {
		return reports.Encode(Report{Error: err.Error()})
	}
	if err := reports.Encode(Report{}); err != nil {
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
func (a Assignment) start() (pid int, err error) {
	path, err := LookPath(a.Command, a.Cwd, a.Env)
	if err != nil {
		return 0, err
	}
	return syscall.ForkExec(path, append([]string{a.Command}, a.Args...), &syscall.ProcAttr{
		Env: a.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

// reapUntil reaps the children that have ended, and tells how the one did if it
// is among them.
func reapUntil(pid int) (r Report, ended bool) {
	for {
		var status syscall.WaitStatus
		child, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || child <= 0:
			return Report{}, false
		case child == pid && status.Signaled():
			return Report{Signal: status.Signal()}, true
		case child == pid:
			return Report{Code: status.ExitStatus()}, true
		}
	}
}

// LookPath finds a command in the task's PATH, not in this process's.
func LookPath(command, cwd string, env []string) (string, error) {
	if strings.Contains(command, "/") {
		if filepath.IsAbs(command) {
			return command, nil
		}
		return filepath.Join(cwd, command), nil
	}
	for _, kv := range env {
		path, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			if !filepath.IsAbs(dir) {
				continue // the current directory is nobody's intention
			}
			file := filepath.Join(dir, command)
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return file, nil
			}
		}
	}
	return "", exec.ErrNotFound
}
