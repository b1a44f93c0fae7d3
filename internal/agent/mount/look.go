package mount

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lookLimit bounds how long a file system may take to say that it is there.
const lookLimit = 2 * time.Second

// SilentError says that a file system does not answer. One of the network whose
// server is away may never do so.
type SilentError struct{ Path string }

func (e *SilentError) Error() string {
	return fmt.Sprintf("look at %s: its file system has not answered for %s", e.Path, lookLimit)
}

// Stat is os.Stat, for a short time: then the error is a *SilentError.
func Stat(path string) (os.FileInfo, error) {
	g := looks.look(subject{path: path}, func(g *glance) { g.info, g.err = os.Stat(path) })
	if g == nil {
		return nil, &SilentError{path}
	}
	return g.info, g.err
}

// present is the error of looking at the mount m.
func present(m Mount) error {
	g := looks.look(subject{m.ID, m.Device, m.Path}, func(g *glance) {
		var st unix.Stat_t
		g.err = unix.Lstat(m.Path, &st)
	})
	if g == nil {
		return &SilentError{m.Path}
	}
	return g.err
}

// subject is what is looked at: a path, or just one mount there.
type subject struct {
	id     int
	device string
	path   string
}

// glance is a look that is out. It keeps a thread for as long as the file system
// says nothing, which may be for ever.
type glance struct {
	until time.Time
	done  chan struct{}
	info  os.FileInfo
	err   error
}

// glances are the looks that are out, one for each subject: who asks meanwhile
// waits for the same answer, and no longer.
type glances struct {
	mu  sync.Mutex // guards out
	out map[subject]*glance
}

var looks = glances{out: map[subject]*glance{}} //nolint:gochecknoglobals // threads that wait are the process's

// look is a look that has come back, or nil.
func (l *glances) look(at subject, do func(*glance)) *glance {
	l.mu.Lock()
	g := l.out[at]
	if g == nil {
		g = &glance{until: time.Now().Add(lookLimit), done: make(chan struct{})}
		l.out[at] = g
		go func() {
			do(g)
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.out, at)
			close(g.done)
		}()
	}
	l.mu.Unlock()
	timer := time.NewTimer(time.Until(g.until))
	defer timer.Stop()
	select {
	case <-g.done:
		return g
	case <-timer.C:
		return nil
	}
}
