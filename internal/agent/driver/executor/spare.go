package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unsafe"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/driver/cgroup"
	"github.com/berth-dev/berth/internal/agent/driver/process"
)

// spare is a supervisor that waits for a task: what it takes a process to get
// there, a third of a start, is done. It ends with the agent.
type spare struct {
	pid int
	// errand is the agent's end of the socket on which the spare is told of its
	// task. Nobody else has it, so that it closes with the agent.
	errand *os.File
}

// spareName is what people see in place of a run directory.
const spareName = "(waits for a task)"

// Descriptors that a spare inherits after its standard ones. They are where the
// lock and the listener will be.
const (
	errandDescriptor = lockDescriptor
	emptyDescriptor  = listenerDescriptor
)

// ready sees to it that there is a spare. That there is none is nobody's problem:
// the next task has its supervisor started then.
func (t *Tasks) ready() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.spare != nil {
		return
	}
	s, err := t.startSpare()
	if err != nil {
		t.log.Debug("no supervisor is started ahead of its task", "err", err)
		return
	}
	t.spare = s
}

func (t *Tasks) startSpare() (*spare, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	errand, theirs := os.NewFile(uintptr(pair[0]), "errand"), os.NewFile(uintptr(pair[1]), "errand")
	defer func() { _ = theirs.Close() }()
	empty, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = errand.Close()
		return nil, err
	}
	defer func() { _ = empty.Close() }()
	// There the name of the run directory will be.
	room := len(t.cfg.RunDir) + len("/") + keySize
	cmd := t.command(spareName+strings.Repeat(" ", max(0, room-len(spareName))), empty, theirs, empty)
	if err := cmd.Start(); err != nil {
		_ = errand.Close()
		return nil, err
	}
	// Release sets the number to -1, which as a target of kill is every process
	// of the machine: it is taken before.
	s := &spare{pid: cmd.Process.Pid, errand: errand}
	return s, cmd.Process.Release()
}

// command is a supervisor's.
func (t *Tasks) command(name string, words *os.File, inherited ...*os.File) *exec.Cmd {
	return &exec.Cmd{
		Path:       t.program(),
		Args:       []string{t.cfg.Executable, "executor", name},
		Env:        []string{}, // nothing of the agent's
		Dir:        "/",
		Stdout:     words,
		Stderr:     words,
		ExtraFiles: inherited,
		// Of its own session, no terminal's signal reaches it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
}

// send has the spare supervise a task, and reports whether it was there to hear
// of it. What it is sent is its own from then on, lock included, also if the
// agent dies before it has looked. The caller holds mu.
func (t *Tasks) send(dir runDir, lock, listener, words *os.File) (pid int, heard bool) {
	s := t.spare
	if s == nil {
		return 0, false
	}
	t.spare = nil
	rights := unix.UnixRights(int(lock.Fd()), int(listener.Fd()), int(words.Fd()))
	if err := unix.Sendmsg(int(s.errand.Fd()), []byte(dir), rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != nil {
		t.log.Debug("the supervisor that was started ahead is gone", "err", err)
		s.end()
		return 0, false
	}
	_ = s.errand.Close()
	return s.pid, true
}

// end ends a spare that has no task.
func (s *spare) end() {
	_ = s.errand.Close()
	collect(s.pid)
}

// collect ends a process of this one's, and takes its exit status. Until then
// the number is its own. Numbers below 1 name no process but groups of them, to
// kill(2) even all that there are.
func collect(pid int) {
	if pid < 1 {
		return
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// dismiss ends the spare.
func (t *Tasks) dismiss() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.spare != nil {
		t.spare.end()
		t.spare = nil
	}
}

// isSpare reports whether a supervisor is to wait for its task.
func isSpare(name string) bool { return strings.HasPrefix(name, spareName) }

// standBy is the life of a spare until it hears of a task, and as that task's
// supervisor from then on.
func standBy(name string) int {
	rehearse()
	dir, err := hear()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if dir == "" {
		return 0 // the agent has ended
	}
	// People, and whoever looks for supervisors, find the task's by its directory.
	// The string is the kernel's copy of the command line, which may be written to.
	args := unsafe.Slice(unsafe.StringData(name), len(name))
	clear(args[copy(args, dir):])
	return Main(dir)
}

// hear waits for a task, and puts what belongs to it where a supervisor has it.
// There is no task if the agent ends before it sends one.
func hear() (dir string, err error) {
	var (
		name   [maxSocketPath]byte
		rights = make([]byte, unix.CmsgSpace(3*4)) // bytes of three descriptors
		n, of  int
	)
	for {
		n, of, _, _, err = unix.Recvmsg(errandDescriptor, name[:], rights, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil || n == 0 {
		return "", err
	}
	fds, err := descriptors(rights[:of])
	if err != nil {
		return "", fmt.Errorf("hear of a task: %w", err)
	}
	lock, listener, words := fds[0], fds[1], fds[2]
	for _, place := range []struct{ from, to int }{
		{lock, lockDescriptor}, {listener, listenerDescriptor}, {words, unix.Stdout}, {words, unix.Stderr},
	} {
		if err := unix.Dup3(place.from, place.to, 0); err != nil {
			return "", fmt.Errorf("hear of a task: %w", err)
		}
	}
	for _, fd := range fds {
		_ = unix.Close(fd) // it has another number now
	}
	return string(name[:n]), nil
}

// descriptors are the three that come with a task.
func descriptors(rights []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, fmt.Errorf("%d messages with descriptors", len(messages))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err == nil && len(fds) != 3 {
		err = fmt.Errorf("%d descriptors", len(fds))
	}
	return fds, err
}

// rehearse does what is slow the first time and not again: packages build their
// tables of types, and look for the hierarchies of cgroups. Nothing comes of it.
func rehearse() {
	for _, v := range []any{&Spec{}, &state{}, &exit{}, &Status{}, &configs.Config{}, &libcontainer.State{}} {
		if b, err := json.Marshal(v); err == nil {
			_ = json.Unmarshal(b, v)
		}
	}
	_, _ = cgroup.Open("/")
	_, _ = process.Self()
}
