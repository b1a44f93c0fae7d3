package executor

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What is kept of a task's stdout, and as much of its stderr: the file that is
// written, and two older ones.
const (
	logSize  = 10 << 20
	logParts = 3
)

// output copies what a task writes to its log files. It holds the reading ends
// of the task's pipes: they break with the supervisor, and so does the task.
type output struct {
	stdout, stderr *stream
	once           sync.Once
}

// stream is one of the two.
type stream struct {
	reader, writer *os.File
	file           *rotated
	done           chan struct{}
}

// openOutput opens the logs and begins to copy. The caller must close it.
func openOutput(stdout, stderr string, log *slog.Logger) (*output, error) {
	o, err := openStream(stdout)
	if err != nil {
		return nil, err
	}
	e, err := openStream(stderr)
	if err != nil {
		return nil, errors.Join(err, o.reader.Close(), o.writer.Close(), o.file.close())
	}
	go o.copy(log)
	go e.copy(log)
	return &output{stdout: o, stderr: e}, nil
}

func openStream(path string) (*stream, error) {
	file, err := openRotated(path, logSize, logParts)
	if err != nil {
		return nil, err
	}
	// Only our end may be non-blocking; programs do not expect it of theirs.
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, errors.Join(fmt.Errorf("make pipe: %w", err), file.close())
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(fmt.Errorf("make pipe: %w", err), unix.Close(fds[0]), unix.Close(fds[1]), file.close())
	}
	return &stream{
		reader: os.NewFile(uintptr(fds[0]), path), writer: os.NewFile(uintptr(fds[1]), path),
		file: file, done: make(chan struct{}),
	}, nil
}

// closeWriters gives up the writing ends, when the task has its own.
func (o *output) closeWriters() {
	_ = o.stdout.writer.Close()
	_ = o.stderr.writer.Close()
}

// close returns when the rest of the output is in the logs. A process that
// escaped may hold a pipe open: it is not waited for.
func (o *output) close() {
	o.once.Do(func() {
		o.closeWriters()
		for _, s := range []*stream{o.stdout, o.stderr} {
			_ = s.reader.SetReadDeadline(time.Now().Add(time.Second))
			<-s.done
			_ = s.reader.Close()
			_ = s.file.close()
		}
	})
}

// copy runs until the pipe ends. What cannot be written is lost: a full disk
// must not stop a task that only wants to say something.
func (s *stream) copy(log *slog.Logger) {
	defer close(s.done)
	buf := make([]byte, 32<<10)
	failing := false
	for {
		n, err := s.reader.Read(buf)
		if n > 0 {
			_, failed := s.file.Write(buf[:n])
			if failed != nil && !failing {
				log.Warn("output of task is lost", "file", s.file.path, "err", failed)
			}
			failing = failed != nil
		}
		if err != nil {
			return
		}
	}
}

// rotated is a log file of bounded size. Its older parts are path.1, path.2.
type rotated struct {
	path  string
	limit int64
	parts int

	file *os.File
	size int64
}

var _ io.Writer = (*rotated)(nil)

func openRotated(path string, limit int64, parts int) (*rotated, error) {
	r := &rotated{path: path, limit: limit, parts: parts}
	return r, r.open()
}

// open opens the file to append. It follows no link: the directory belongs to
// the task's user where there is no isolation.
func (r *rotated) open() error {
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o640)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("open log: %w", err), f.Close())
	}
	r.file, r.size = f, info.Size()
	return nil
}

// Write appends p, to a new part if it does not fit the current one.
func (r *rotated) Write(p []byte) (int, error) {
	if r.size > 0 && r.size+int64(len(p)) > r.limit {
		if err := r.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := r.file.Write(p)
	r.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("write log: %w", err)
	}
	return n, nil
}

// rotate begins a new part. If it fails, the current one stays in use.
func (r *rotated) rotate() error {
	for i := r.parts - 1; i > 0; i-- {
		err := os.Rename(r.part(i-1), r.part(i))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("rotate log: %w", err)
		}
	}
	old := r.file
	if err := r.open(); err != nil {
		return err
	}
	return old.Close()
}

func (r *rotated) part(i int) string {
	if i == 0 {
		return r.path
	}
	return r.path + "." + strconv.Itoa(i)
}

func (r *rotated) close() error { return r.file.Close() }
