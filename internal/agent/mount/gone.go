package mount

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Gone reports whether path is a mount whose file system has gone: a process
// served it (FUSE), and has ended. Nothing below it can be used again before it
// is unmounted. One that does not answer is not gone: it may be busy.
func (k Kernel) Gone(path string) (bool, error) {
	m, mounted, err := k.At(path)
	if err != nil || !mounted || !m.Served() {
		return false, err
	}
	return errors.Is(present(m), unix.ENOTCONN), nil
}
