package process

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Await returns when the process has ended, or after limit at the latest, or
// soon after ctx. It says nothing of why: whoever waits looks again. Where it
// cannot tell, it takes its time: limit.
func (id ID) Await(ctx context.Context, limit time.Duration) {
	late := time.Now().Add(limit)
	fd, err := -1, error(unix.ESRCH)
	if id.PID > 0 {
		fd, err = unix.PidfdOpen(id.PID, 0)
	}
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
		err = id.verify()
	}
	if err != nil {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return
	}
	// In turns, so that the end of ctx is heard.
	const turn = 50 * time.Millisecond
	for ctx.Err() == nil {
		left := min(time.Until(late), turn)
		if left <= 0 {
			return
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, max(int(left/time.Millisecond), 1)) //nolint:gosec // descriptors are small
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
