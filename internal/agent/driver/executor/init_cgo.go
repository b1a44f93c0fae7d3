//go:build cgo

package executor

import (
	"os"
	"runtime"

	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // its C code enters namespaces before Go starts
	"golang.org/x/sys/unix"
)

// CanIsolate tells whether this program can run isolated tasks: entering a pid
// namespace takes C code that runs before Go does.
const CanIsolate = true

// A supervisor started this process to prepare an isolated task.
//
//nolint:gochecknoinits // see become
func init() {
	if len(os.Args) == 2 && os.Args[1] == "init" && os.Getenv("_LIBCONTAINER_INITPIPE") != "" {
		prepareTask()
	}
}

// prepareTask enters the task's namespaces and its root, becomes its user, and
// executes its first process.
func prepareTask() {
	// The task must not run on without its supervisor. libcontainer's own
	// setting is lost in its second fork; this one is the process's that will
	// execute the first process. It belongs to the thread, so that must not
	// change. If the supervisor is dead already, its end of the pipes is too, and
	// libcontainer gives up.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		os.Exit(255)
	}
	libcontainer.Init()
}
