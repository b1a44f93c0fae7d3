package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/tasklog"
)

// copies are the logs that are being copied from the engine into the tasks' log
// files. Each container has two, which know nothing of each other.
type copies struct {
	mu      sync.Mutex // guards below
	running map[string]*logCopy
	waiting []*logCopy
	started chan struct{} // capacity 1: waiting has something
}

// logCopy copies the logs of one container.
type logCopy struct {
	id   string // of the container
	task string
	dir  string // of the task

	cancel chan struct{} // closed when the container is removed
	done   chan struct{} // closed when all is copied, or cancelled
	once   sync.Once
	begun  bool // guarded by copies.mu: Run has it
}

func (c *copies) init() {
	c.running, c.started = map[string]*logCopy{}, make(chan struct{}, 1)
}

// want sees to it that the logs of a container are copied.
func (c *copies) want(f *found) {
	dir, task := f.label(labelDir), f.label(labelTask)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[f.ID] != nil || dir == "" || task == "" {
		return
	}
	l := &logCopy{id: f.ID, dir: dir, task: task, cancel: make(chan struct{}), done: make(chan struct{})}
	c.running[f.ID] = l
	c.waiting = append(c.waiting, l)
	select {
	case c.started <- struct{}{}:
	default:
	}
}

// pick takes what is to be begun.
func (c *copies) pick() []*logCopy {
	c.mu.Lock()
	defer c.mu.Unlock()
	picked := c.waiting
	c.waiting = nil
	for _, l := range picked {
		l.begun = true
	}
	return picked
}

// drainLimit bounds how long an end waits for the last of a log: a full disk
// must not keep a task from ending.
const drainLimit = 5 * time.Second

// drained returns when the logs of a container that has ended are copied, or
// when that takes too long.
func (c *copies) drained(ctx context.Context, id string) {
	c.mu.Lock()
	l := c.running[id]
	c.mu.Unlock()
	if l == nil {
		return
	}
	timer := time.NewTimer(drainLimit)
	defer timer.Stop()
	select {
	case <-l.done:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// drop ends a copy, and returns when it has ended.
func (c *copies) drop(ctx context.Context, id string) error {
	c.mu.Lock()
	l := c.running[id]
	begun := l != nil && l.begun
	c.mu.Unlock()
	if l == nil {
		return nil
	}
	l.once.Do(func() { close(l.cancel) })
	if begun {
		select {
		case <-l.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the log of container %s to be copied: %w", id, ctx.Err())
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, id)
	return nil
}

// ids are the containers whose logs are being copied.
func (c *copies) ids() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.running))
}

// mark says how far a log is copied: the line of Time begins at Position of the
// task's log, and everything before it is there.
type mark struct {
	Container string `json:"container"`
	// Time is the engine's, of a line; "" is before the first.
	Time     string `json:"time,omitempty"`
	Position int64  `json:"position"`
	Done     bool   `json:"done,omitempty"`
}

func (d *Driver) markPath(id string, stream api.LogType) string {
	return filepath.Join(d.cfg.StateDir, short(id)+"."+string(stream)+".json")
}

func (d *Driver) readMark(id string, stream api.LogType) (mark, bool, error) {
	b, err := os.ReadFile(d.markPath(id, stream))
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, false, nil
	}
	var m mark
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return mark{}, false, fmt.Errorf("read how far a log is copied: %w", err)
	}
	return m, m.Container == id, nil
}

// writeMark replaces the mark whole. It is not synced: after a power cut nothing
// of the container runs, and the engine still has its log.
func (d *Driver) writeMark(stream api.LogType, m mark) error {
	b, err := json.Marshal(m)
	if err == nil {
		err = os.MkdirAll(d.cfg.StateDir, 0o700)
	}
	path := d.markPath(m.Container, stream)
	if err == nil {
		err = os.WriteFile(path+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("record how far a log is copied: %w", err)
	}
	return nil
}

// forgetLogs ends the copies of a container that is gone.
func (d *Driver) forgetLogs(ctx context.Context, id string) error {
	if err := d.copies.drop(ctx, id); err != nil {
		return err
	}
	for _, stream := range []api.LogType{api.LogStdout, api.LogStderr} {
		if err := os.Remove(d.markPath(id, stream)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// copyLogs copies both logs of a container to their ends.
func (d *Driver) copyLogs(ctx context.Context, l *logCopy) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var streams sync.WaitGroup
	for _, stream := range []api.LogType{api.LogStdout, api.LogStderr} {
		streams.Go(func() { d.copyStream(ctx, l, stream) })
	}
	all := make(chan struct{})
	go func() {
		streams.Wait()
		close(all)
	}()
	select {
	case <-l.cancel:
		cancel()
	case <-all:
	}
	<-all
	close(l.done)
}

// copyStream copies one log until the container has ended and all of it is
// there. An engine that goes away, and a disk that is full, are waited for: the
// engine keeps what was not copied.
func (d *Driver) copyStream(ctx context.Context, l *logCopy, stream api.LogType) {
	complained := ""
	for ctx.Err() == nil {
		over, err := d.copyOnce(ctx, l, stream)
		if over {
			return
		}
		if err == nil {
			continue
		}
		if err.Error() != complained && ctx.Err() == nil {
			complained = err.Error()
			d.log.Warn("a task's log is not copied", "container", l.id, "log", stream, "error", err)
		}
		sleep(ctx, retryEngine)
	}
}

// copyOnce copies until the engine says no more. The log is over if the
// container had ended before.
func (d *Driver) copyOnce(ctx context.Context, l *logCopy, stream api.LogType) (over bool, err error) {
	m, known, err := d.readMark(l.id, stream)
	if err != nil {
		return false, err
	}
	if m.Done && known {
		return true, nil
	}
	bounded, cancel := context.WithTimeout(ctx, answerLimit)
	res, err := d.engine().ContainerInspect(bounded, l.id, client.ContainerInspectOptions{})
	cancel()
	if errdefs.IsNotFound(err) {
		return true, nil
	}
	if err != nil || res.Container.State == nil {
		return false, d.problem(err)
	}
	ended := !(&found{res.Container}).lives()
	w, err := tasklog.Create(tasklog.Path(l.dir, l.task, stream), tasklog.PartSize, tasklog.Parts)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	position, err := w.Position()
	if err != nil {
		return false, err
	}
	if known && position < m.Position {
		// Somebody made the log shorter. The line of the mark is copied again.
		d.log.Warn("a task's log is shorter than it was", "container", l.id, "log", stream, "was", m.Position, "is", position)
		m.Position = position
		if err := d.writeMark(stream, m); err != nil {
			return false, err
		}
	}
	if !known {
		m = mark{Container: l.id, Position: position}
		if err := d.writeMark(stream, m); err != nil {
			return false, err
		}
	}
	answer, err := d.engine().ContainerLogs(ctx, l.id, client.ContainerLogsOptions{
		ShowStdout: stream == api.LogStdout, ShowStderr: stream == api.LogStderr,
		Since: m.Time, Timestamps: true, Follow: !ended,
	})
	if err != nil {
		return errdefs.IsNotFound(err), d.problem(err)
	}
	defer func() { _ = answer.Close() }() // it was only read
	c := &copier{mark: m, position: m.Position, skip: position - m.Position, at: position, save: func(m mark) error { return d.writeMark(stream, m) }}
	copyAll := c.copy
	if res.Container.Config != nil && res.Container.Config.Tty {
		copyAll = c.copyRaw
	}
	if err := copyAll(answer, w); err != nil || !ended {
		return false, err
	}
	c.mark.Done = true
	return true, d.writeMark(stream, c.mark)
}

// copier copies what follows a mark, without what is there already.
type copier struct {
	mark mark
	// position is where the next byte of the engine's belongs, at where the log
	// ends, and skip how many bytes lie between.
	position, at, skip int64
	lines              int
	saved              time.Time
	save               func(mark) error
}

// saveEvery bounds how much is read again after a restart.
const saveEvery = 2 * time.Second

// Of the engine's frames (Engine API, "Attach to a container"): a byte of
// kind, three of nothing, four of length.
const (
	headerSize = 8
	maxFrame   = 16 << 20
)

// copy copies frames until they end. Each is a line, or a part of a long one,
// and begins with its time.
func (c *copier) copy(r io.Reader, w io.Writer) error {
	in := bufio.NewReader(r)
	var header [headerSize]byte
	var frame []byte
	for {
		if _, err := io.ReadFull(in, header[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		size := binary.BigEndian.Uint32(header[4:])
		if size > maxFrame {
			return fmt.Errorf("read log: the engine sends a line of %d bytes", size)
		}
		if uint32(cap(frame)) < size { //nolint:gosec // it fits
			frame = make([]byte, size)
		}
		frame = frame[:size]
		if _, err := io.ReadFull(in, frame); err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		at, line := splitTime(frame)
		if err := c.line(at, line, w); err != nil {
			return err
		}
	}
}

// Of what the engine says without frames, where the task has a terminal: each
// piece begins with its time, and ends with its line, or with as much as the
// engine takes for one.
const (
	maxPiece = 16 << 10
	maxTime  = 64
)

// copyRaw copies pieces until they end. All of it is the standard output's.
func (c *copier) copyRaw(r io.Reader, w io.Writer) error {
	in := bufio.NewReaderSize(r, maxTime)
	piece := make([]byte, 0, maxPiece)
	for {
		word, err := in.ReadSlice(' ')
		if errors.Is(err, io.EOF) && len(word) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log: the engine sends a line without a time: %w", err)
		}
		at := string(word[:len(word)-1])
		for piece = piece[:0]; len(piece) < maxPiece; {
			b, err := in.ReadByte()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("read log: %w", err)
			}
			if piece = append(piece, b); b == '\n' {
				break
			}
		}
		if err := c.line(at, piece, w); err != nil {
			return err
		}
	}
}

func (c *copier) line(at string, line []byte, w io.Writer) error {
	if c.lines == 0 && c.mark.Time != "" && at != c.mark.Time {
		// The engine has forgotten the line that was marked: what comes is new.
		c.position, c.skip = c.at, 0
	}
	c.lines++
	if at != "" && at != c.mark.Time {
		c.mark.Time, c.mark.Position = at, c.position
		if time.Since(c.saved) > saveEvery {
			c.saved = time.Now()
			if err := c.save(c.mark); err != nil {
				return err
			}
		}
	}
	c.position += int64(len(line))
	passed := min(c.skip, int64(len(line)))
	c.skip -= passed
	line = line[passed:]
	n, err := w.Write(line)
	c.at += int64(n)
	return err
}

// splitTime takes the engine's time off a line.
func splitTime(frame []byte) (at string, line []byte) {
	for i, b := range frame {
		if b == ' ' {
			return string(frame[:i]), frame[i+1:]
		}
		if i > len(time.RFC3339Nano)+1 {
			break
		}
	}
	return "", frame
}
