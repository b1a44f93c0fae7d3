package executor

import (
	"fmt"
	"os"

	"github.com/opencontainers/runc/libcontainer/exeseal"
)

// program is what supervisors are started from: a sealed copy of the binary in
// memory, one for all tasks that this process starts. A task must not be able to
// reach the binary through its first process (CVE-2019-5736); a supervisor that
// is not sealed itself would make a copy for its task, and hundreds of tasks
// would fill a machine with copies.
func (t *Tasks) program() string {
	sealed, err := t.sealed()
	if err != nil {
		t.log.Warn("binary could not be sealed, and each task gets a copy", "error", err)
		return t.cfg.Executable
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), sealed.Fd())
}

// seal copies a program into memory that nobody can write to any more.
func seal(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	sealed, err := exeseal.CloneBinary(f, info.Size(), path, os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", path, err)
	}
	return sealed, nil
}
