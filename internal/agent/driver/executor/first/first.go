// Package first is process 1 of every isolated task. It owns what that process
// does: it runs the command, passes signals on to it, reaps the orphans, and ends
// with it; and the kernel ends the rest.
//
// To the kernel, process 1 is special: it hears no signal that it does not
// handle, not even its own, and it inherits every orphan. Few programs are made
// for it. So it is this program; but its part is C (first.c), and is over before
// Go begins. A Go program has a dozen threads, whose numbers are those of
// processes: a database that was killed and finds its old number in a file would
// take one of them for itself, and refuse to start. And a task waits for process
// 1, of which a Go program of this size takes ten milliseconds to begin.
//
// It never decides what to run. Invariants: it has the user and the capabilities
// of the task, and no more rights; the command is process 2.
package first

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Arg makes a program process 1 of an isolated task.
const Arg = "task-init"

// Descriptors of the process, after its standard ones: AssignmentDescriptor is
// what to run, ReportDescriptor where to say what came of it.
const (
	AssignmentDescriptor = 3 + iota
	ReportDescriptor
)

// Assignment is what the process is to run. Its environment is not the
// process's own: it could change how that one works.
type Assignment struct {
	Command string
	Args    []string
	Env     []string
}

// Bytes is the assignment as the process reads it: two counts, the command with
// its arguments, the environment; each with a zero behind it, which no argument
// can have in it.
func (a *Assignment) Bytes() []byte {
	all := append([]string{strconv.Itoa(1 + len(a.Args)), strconv.Itoa(len(a.Env)), a.Command}, a.Args...)
	return []byte(strings.Join(append(all, a.Env...), "\x00") + "\x00")
}

// Report is what the process says: once when the command runs or cannot be run,
// and once more when it has ended.
type Report struct {
	// Errno is why the command cannot be run, notFound if it is nowhere in PATH.
	Errno  int            `json:"errno,omitempty"`
	Code   int            `json:"code,omitempty"`
	Signal syscall.Signal `json:"signal,omitempty"`
}

const notFound = -1

// Err is why the command cannot be run, or nil.
func (r *Report) Err() error {
	switch r.Errno {
	case 0:
		return nil
	case notFound:
		return exec.ErrNotFound
	}
	return syscall.Errno(r.Errno)
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
