package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errHeld: a supervisor lives, or somebody is starting or clearing one.
var errHeld = errors.New("the task's lock is held")

// lock takes the directory's lock, or answers errHeld at once. The lock is the
// open file: whoever inherits the file holds the lock too, which is how it
// passes from an agent to a supervisor without a moment in between. It ends
// with the last process that has the file open.
//
// Without create, the error wraps os.ErrNotExist if there is no such directory.
func (d runDir) lock(create bool) (*os.File, error) {
	for {
		f, err := d.openLock(create)
		if create && errors.Is(err, os.ErrNotExist) {
			continue // destroyed since it was made
		}
		if err != nil {
			return nil, fmt.Errorf("open lock: %w", err)
		}
		current, err := d.flock(f)
		if current && err == nil {
			return f, nil
		}
		_ = f.Close()
		if err != nil {
			return nil, err
		}
	}
}

func (d runDir) openLock(create bool) (*os.File, error) {
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
		if err := os.MkdirAll(string(d), 0o700); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(d.path(lockFile), flags, 0o600)
}

// flock locks the file. It is not current if the file was replaced before it
// could be locked: then the lock means nothing.
func (d runDir) flock(f *os.File) (current bool, err error) {
	fd := int(f.Fd())
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, errHeld
	}
	if err != nil {
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return d.isLock(fd), nil
}

// isLock reports whether the descriptor is the directory's lock file.
func (d runDir) isLock(fd int) bool {
	var mine, now unix.Stat_t
	if unix.Fstat(fd, &mine) != nil || unix.Stat(d.path(lockFile), &now) != nil {
		return false
	}
	return mine.Dev == now.Dev && mine.Ino == now.Ino
}

// How often a held lock is tried again, where nothing tells that it was given
// up: often at first, because most holders are about to end. That a supervisor
// has ended, the kernel tells.
const (
	pollFirst   = time.Millisecond
	pollLongest = 50 * time.Millisecond
)

// waitLock takes the lock when its holder ends.
func (d runDir) waitLock(ctx context.Context) (*os.File, error) {
	return d.wait(ctx, false, func() error { return nil })
}

// seizeLock kills the supervisor and takes the lock.
func (d runDir) seizeLock(ctx context.Context, create bool) (*os.File, error) {
	return d.wait(ctx, create, func() error {
		var st state
		if _, err := d.read(stateFile, &st); err != nil {
			return err
		}
		// A supervisor that has not named itself yet will do so presently.
		err := st.Supervisor.Signal(syscall.SIGKILL)
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		return err
	})
}

// wait tries the lock until it is free, and calls held whenever it is not.
func (d runDir) wait(ctx context.Context, create bool, held func() error) (*os.File, error) {
	for pause := pollFirst; ; pause = min(2*pause, pollLongest) {
		f, err := d.lock(create)
		if !errors.Is(err, errHeld) {
			return f, err
		}
		if err := held(); err != nil {
			return nil, err
		}
		d.await(ctx, pause)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for the supervisor to end: %w", ctx.Err())
		}
	}
}

// await returns when the supervisor has ended, or after pause, or soon after
// ctx. A dead supervisor has let go of its lock.
func (d runDir) await(ctx context.Context, pause time.Duration) {
	var st state
	_, _ = d.read(stateFile, &st) // what cannot be read names nobody
	st.Supervisor.Await(ctx, pause)
}
