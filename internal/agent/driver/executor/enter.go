package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/driver/cgroup"
	"github.com/berth-dev/berth/internal/agent/driver/executor/first"
)

// enterArg makes a program enter a task's cgroup, become its user, and execute a
// command. A supervisor that entered the group itself, to fork there, could be
// killed with it.
const enterArg = "executor-enter"

// Descriptors of a process that enters, after its standard ones: what to do, and
// where to say what is in the way.
const (
	entryDescriptor = 3 + iota
	obstacleDescriptor
)

// entry is what a process that enters is to do.
type entry struct {
	Parent int // who started it
	Cgroup string
	User   *User
	Path   string
	Args   []string
	Env    []string
	Cwd    string
}

// enter is the whole life of such a process, unless its command takes over.
func enter() int {
	// The kernel ties a parent's death to the thread.
	runtime.LockOSThread()
	unix.CloseOnExec(obstacleDescriptor)
	var e entry
	err := readEntry(&e)
	if err == nil {
		err = e.run()
	}
	_, _ = io.WriteString(os.NewFile(obstacleDescriptor, "obstacle"), err.Error()) // who listens is gone
	return 1
}

func readEntry(e *entry) error {
	f := os.NewFile(entryDescriptor, "entry")
	defer func() { _ = f.Close() }() // it was only read
	if err := json.NewDecoder(f).Decode(e); err != nil {
		return fmt.Errorf("read what to run: %w", err)
	}
	return nil
}

// run returns only if the command cannot be run.
func (e *entry) run() error {
	if e.Cgroup != "" {
		group, err := cgroup.Open(e.Cgroup)
		if err == nil {
			err = group.Join(os.Getpid())
		}
		if err != nil {
			return err
		}
	}
	if u := e.User; u != nil {
		err := syscall.Setgroups(u.Groups)
		if err == nil {
			err = syscall.Setgid(u.GID)
		}
		if err == nil {
			err = syscall.Setuid(u.UID)
		}
		if err != nil {
			return fmt.Errorf("become user %d: %w", u.UID, err)
		}
	}
	// It is lost with a change of user.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with the supervisor: %w", err)
	}
	if os.Getppid() != e.Parent {
		return errors.New("the supervisor is gone")
	}
	if err := os.Chdir(e.Cwd); err != nil {
		return err
	}
	return fmt.Errorf("%q in %s: %w", e.Args[0], e.Cwd, syscall.Exec(e.Path, e.Args, e.Env))
}

// enterDirect starts a process that enters a task of the host. stdio are its
// standard descriptors; with a terminal, they are that.
func enterDirect(spec Spec, args, env []string, stdio [3]*os.File, terminal bool) (*exec.Cmd, error) {
	path, err := first.LookPath(args[0], spec.Cwd, env)
	if err != nil {
		return nil, cannotRun(args[0], err.Error())
	}
	e := entry{Parent: os.Getpid(), Cgroup: spec.Cgroup, User: spec.User, Path: path, Args: args, Env: env, Cwd: spec.Cwd}
	assignment, err := e.file()
	if err != nil {
		return nil, err
	}
	defer func() { _ = assignment.Close() }()
	obstacle, report, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	defer func() { _ = obstacle.Close() }()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"berth", enterArg}, Env: []string{}, Dir: "/",
		Stdin: stdio[0], Stdout: stdio[1], Stderr: stdio[2], ExtraFiles: []*os.File{assignment, report},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: terminal, Pdeathsig: syscall.SIGKILL},
	}
	err = cmd.Start()
	_ = report.Close()
	if err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	// Its end is closed when the command runs, or when it has ended before.
	words, err := io.ReadAll(io.LimitReader(obstacle, maxBody))
	if err == nil && len(words) == 0 {
		return cmd, nil
	}
	_, _ = cmd.Process.Kill(), cmd.Wait() // it ends by itself
	if err != nil {
		return nil, fmt.Errorf("wait for process: %w", err)
	}
	return nil, cannotRun(args[0], string(words))
}

// file writes the entry to a file in memory, for the process to inherit.
func (e *entry) file() (*os.File, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode what to run: %w", err)
	}
	fd, err := unix.MemfdCreate("entry", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make file for what to run: %w", err)
	}
	f := os.NewFile(uintptr(fd), "entry")
	if _, err = f.Write(b); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make file for what to run: %w", err), f.Close())
	}
	return f, nil
}
