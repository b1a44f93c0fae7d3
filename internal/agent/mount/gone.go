package mount

import (
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lookLimit bounds how long a file system may take to say that it is there.
const lookLimit = 2 * time.Second

// Gone reports whether path is a mount whose file system has gone: a process
// served it (FUSE), and has ended. Nothing below it can be used again before it
// is unmounted. One that does not answer is not gone: it may be busy.
func (k Kernel) Gone(path string) (bool, error) {
	m, mounted, err := k.At(path)
	if err != nil || !mounted || !strings.HasPrefix(m.FSType, "fuse") {
		return false, err
	}
	answer := make(chan error, 1)
	go func() {
		var st unix.Stat_t
		answer <- unix.Lstat(path, &st) // a process that hangs keeps it until it ends
	}()
	timer := time.NewTimer(lookLimit)
	defer timer.Stop()
	select {
	case err := <-answer:
		return errors.Is(err, unix.ENOTCONN), nil
	case <-timer.C:
		return false, nil
	}
}
