package executor

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/driver/executor/first"
)

// assign writes the assignment to a file in memory, for the first process to
// inherit.
func assign(spec Spec) (*os.File, error) {
	fd, err := unix.MemfdCreate("assignment", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make assignment: %w", err)
	}
	f := os.NewFile(uintptr(fd), "assignment")
	a := first.Assignment{Command: spec.Command, Args: spec.Args, Env: spec.Env}
	if _, err = f.Write(a.Bytes()); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("make assignment: %w", err)
	}
	return f, nil
}
