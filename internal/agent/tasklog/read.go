package tasklog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/supervise"
)

// Between looks at a log that has nothing new.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// chunk is how much is read at once, in bytes. A follower needs no more memory.
const chunk = 32 << 10

// Reader reads one log from a position on.
type Reader struct {
	path string
	at   int64
	// file is the part that is read, and first the position of its first byte.
	file  *os.File
	first int64
}

// Open finds where to begin. Nobody needs to have written the log yet. The
// caller must close the reader.
func Open(path string, q api.LogQuery) (*Reader, error) {
	r := &Reader{path: path}
	begin, end, err := r.bounds()
	if err != nil {
		return nil, err
	}
	switch {
	case q.Tail != nil:
		r.at, err = lastLines(path, begin, end, *q.Tail)
	case q.Offset < 0:
		r.at = max(begin, end+q.Offset)
	default:
		r.at = max(begin, q.Offset)
	}
	return r, err
}

// Offset is the position of the byte that is read next.
func (r *Reader) Offset() int64 { return r.at }

// Close closes what is open.
func (r *Reader) Close() {
	if r.file != nil {
		_ = r.file.Close() // it was only read
		r.file = nil
	}
}

// Copy copies what there is to w, and then, until over answers true, what comes.
// What over says is asked before each look, so that nothing is missed which was
// written before. If the log was rotated away before it could be read, that is
// an api.CodeUnavailable, and reading again goes on with what is left.
func (r *Reader) Copy(ctx context.Context, w io.Writer, over func() bool) error {
	buf := make([]byte, chunk)
	for pause := firstLook; ; {
		last := over()
		n, err := r.drain(ctx, w, buf)
		if err != nil || last {
			return err
		}
		if n > 0 {
			pause = firstLook
		}
		if !supervise.Sleep(ctx, pause) {
			return ctx.Err()
		}
		pause = min(2*pause, lastLook)
	}
}

// drain copies until there is nothing new, or as much as there was in the
// beginning: a task that writes faster than it is read has no end.
func (r *Reader) drain(ctx context.Context, w io.Writer, buf []byte) (copied int64, err error) {
	_, end, err := r.bounds()
	if err != nil {
		return 0, err
	}
	for r.at < end {
		if ctx.Err() != nil {
			return copied, ctx.Err()
		}
		n, err := r.read(buf[:min(int64(len(buf)), end-r.at)])
		if err != nil {
			return copied, err
		}
		if n == 0 {
			return copied, nil // somebody cut the file
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return copied, err
		}
		copied += int64(n)
	}
	return copied, nil
}

// read reads from the position on, at most to the end of a part. It answers 0
// at the end of the log.
func (r *Reader) read(p []byte) (int, error) {
	for {
		if r.file == nil {
			if err := r.open(); err != nil || r.file == nil {
				return 0, err
			}
		}
		n, err := r.file.ReadAt(p, r.at-r.first)
		r.at += int64(n)
		switch {
		case n > 0:
			return n, nil
		case err != nil && !errors.Is(err, io.EOF):
			return 0, fmt.Errorf("read log: %w", err)
		}
		// Either this is the end, or another part follows.
		was := r.first
		r.Close()
		if err := r.open(); err != nil || r.file == nil || r.first == was {
			return 0, err
		}
	}
}

// open opens the part that has the position.
func (r *Reader) open() error {
	dir, parts, newest, err := look(r.path)
	if err != nil {
		return err
	}
	defer closeDir(dir)
	if first := after(parts); r.at >= first {
		r.file, r.first = newest, first
		return nil
	}
	if newest != nil {
		_ = newest.Close()
	}
	for _, p := range parts {
		if r.at < p.first {
			break
		}
		if r.at >= p.end() {
			continue
		}
		f, err := openPart(dir, p.name)
		if f == nil && err == nil {
			break
		}
		r.file, r.first = f, p.first
		return err
	}
	return api.Errorf(api.CodeUnavailable, "the log was rotated away at byte %d before it could be read", r.at)
}

// bounds is where the log begins and ends now.
func (r *Reader) bounds() (begin, end int64, err error) {
	dir, parts, newest, err := look(r.path)
	if err != nil {
		return 0, 0, err
	}
	closeDir(dir)
	end = after(parts)
	if len(parts) > 0 {
		begin = parts[0].first
	}
	if newest == nil {
		return begin, end, nil
	}
	defer func() { _ = newest.Close() }()
	info, err := newest.Stat()
	if err != nil {
		return 0, 0, fmt.Errorf("look at log: %w", err)
	}
	return begin, end + info.Size(), nil
}

// maxLooks bounds how often a log is looked at that is rotated meanwhile.
const maxLooks = 100

// look is the older parts of a log, the directory that they are in, and its
// newest part, which may be nil; so may the directory. The parts belong together:
// the newest is renamed when there is a newer one, so if the names are the same
// before and after it was opened, it is what follows them.
func look(path string) (dir *os.Root, parts []part, newest *os.File, err error) {
	dir, err = openDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	parts, newest, err = lookIn(dir, filepath.Base(path))
	if err != nil {
		closeDir(dir)
		return nil, nil, nil, err
	}
	return dir, parts, newest, nil
}

func lookIn(dir *os.Root, name string) ([]part, *os.File, error) {
	for range maxLooks {
		before, err := older(dir, name)
		if err != nil {
			return nil, nil, err
		}
		newest, err := openPart(dir, name)
		if err != nil {
			return nil, nil, err
		}
		now, err := older(dir, name)
		if err == nil && len(before) == len(now) && (len(now) == 0 || before[len(before)-1] == now[len(now)-1]) {
			return now, newest, nil
		}
		if newest != nil {
			_ = newest.Close()
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, api.Errorf(api.CodeUnavailable, "the log is rotated faster than it can be looked at")
}

func closeDir(dir *os.Root) {
	if dir != nil {
		_ = dir.Close() // it was only read
	}
}

// openPart opens a part for reading, or answers nil if it is not there. It
// follows no link out of the directory, waits for nobody, and reads nothing but
// files: the directory belongs to the task's user where there is no isolation.
func openPart(dir *os.Root, name string) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // it is not there
	}
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", name)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open log: %w", err), f.Close())
	}
	return f, nil
}

// lastLines is where the last lines of a log begin, between begin and end. A
// last line without an end is a line too. It reads backwards, no further than
// it has to.
func lastLines(path string, begin, end, lines int64) (int64, error) {
	if lines == 0 {
		return end, nil
	}
	buf := make([]byte, chunk)
	for to := end; to > begin; {
		from := max(begin, to-chunk)
		r := &Reader{path: path, at: from}
		p := buf[:to-from]
		err := r.fill(p)
		r.Close()
		if err != nil {
			return 0, err
		}
		for rest := p; ; {
			i := bytes.LastIndexByte(rest, '\n')
			if i < 0 {
				break
			}
			if at := from + int64(i) + 1; at < end {
				if lines--; lines == 0 {
					return at, nil
				}
			}
			rest = rest[:i]
		}
		to = from
	}
	return begin, nil
}

// fill reads all of p.
func (r *Reader) fill(p []byte) error {
	for len(p) > 0 {
		n, err := r.read(p)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("read log: %w", io.ErrUnexpectedEOF)
		}
		p = p[n:]
	}
	return nil
}
