package executor

import (
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/driver/process"
)

// A program that links this package becomes a supervisor here, before its main:
// until that is called, a big program initializes hundreds of packages of which a
// supervisor needs few, once for each task that starts.
//
//nolint:gochecknoinits // see above
func init() {
	if len(os.Args) == 3 && os.Args[1] == "executor" {
		// os.Exit would let a race detector linger for a second.
		if isSpare(os.Args[2]) {
			syscall.Exit(standBy(os.Args[2]))
		}
		syscall.Exit(Main(os.Args[2]))
	}
	if len(os.Args) == 2 && os.Args[1] == enterArg {
		syscall.Exit(enter())
	}
}

// Main is the whole life of a supervisor, and what the hidden sub-command
// `berth executor DIR` calls. It returns the exit status when the task has
// ended. Only Tasks can start it: it inherits the task's lock and socket, or was sent them.
func Main(dir string) int {
	// The kernel ties a parent's death to the thread that forked, so the thread
	// that starts the task must live as long as the supervisor.
	runtime.LockOSThread()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := newSupervisor(runDir(dir), log)
	if err == nil {
		err = s.run()
	}
	if err != nil {
		log.Error("supervisor ends", "err", err)
		return 1
	}
	return 0
}

// newSupervisor takes over what the agent passed on.
func newSupervisor(dir runDir, log *slog.Logger) (*supervisor, error) {
	// Nothing of the supervisor's may reach the task, nor what the agent itself
	// was started with; least of all the lock, which a daemon would hold on to.
	if err := closeOnExec(); err != nil {
		return nil, fmt.Errorf("keep descriptors from the task: %w", err)
	}
	// The lock stays a bare descriptor. Nothing but the kernel ever closes it,
	// when this process is dead.
	if !dir.isLock(lockDescriptor) {
		return nil, fmt.Errorf("take over lock of %s: only an agent starts a supervisor", dir)
	}
	socket := os.NewFile(listenerDescriptor, socketFile)
	listener, err := net.FileListener(socket)
	if err != nil {
		return nil, fmt.Errorf("take over socket: %w", err)
	}
	if err := socket.Close(); err != nil {
		return nil, fmt.Errorf("take over socket: %w", err)
	}
	s := &supervisor{
		dir: dir, log: log, listener: listener,
		orders:  make(chan order),
		started: make(chan struct{}), ended: make(chan struct{}), exited: make(chan struct{}),
	}
	if found, err := dir.read(specFile, &s.spec); err != nil || !found {
		return nil, fmt.Errorf("read spec (found: %t): %w", found, err)
	}
	self, err := process.Self()
	if err != nil {
		return nil, err
	}
	s.state = state{Supervisor: self}
	return s, dir.write(stateFile, s.state)
}

// closeOnExec marks every descriptor but the standard ones. libcontainer's
// function for it takes milliseconds, because it mounts a proc of its own.
func closeOnExec() error {
	err := unix.CloseRange(lockDescriptor, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Before Linux 5.11, one by one.
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd >= lockDescriptor {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// outlive makes the supervisor deaf to signals that are meant for the agent,
// or for every process of the binary's name. They are caught, not ignored: the
// task would inherit that they are ignored.
func outlive() {
	unheard := make(chan os.Signal, 1)
	signal.Notify(unheard, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGPIPE)
}
