package executor

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/tasklog"
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
	file           *tasklog.Writer
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
		return nil, errors.Join(err, o.reader.Close(), o.writer.Close(), o.file.Close())
	}
	go o.copy(log)
	go e.copy(log)
	return &output{stdout: o, stderr: e}, nil
}

func openStream(path string) (*stream, error) {
	file, err := tasklog.Create(path, tasklog.PartSize, tasklog.Parts)
	if err != nil {
		return nil, err
	}
	// Only our end may be non-blocking; programs do not expect it of theirs.
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, errors.Join(fmt.Errorf("make pipe: %w", err), file.Close())
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, errors.Join(fmt.Errorf("make pipe: %w", err), unix.Close(fds[0]), unix.Close(fds[1]), file.Close())
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
			_ = s.file.Close()
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
				log.Warn("output of task is lost", "file", s.file.Path(), "err", failed)
			}
			failing = failed != nil
		}
		if err != nil {
			return
		}
	}
}
