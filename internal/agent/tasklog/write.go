package tasklog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// What is kept of one log: the part that is written, and two older ones.
const (
	PartSize = 10 << 20 // bytes
	Parts    = 3
)

// Writer appends to a log, and forgets its oldest parts. It has one user.
type Writer struct {
	path  string
	dir   *os.Root
	name  string
	limit int64
	parts int

	file *os.File
	size int64
}

var _ io.WriteCloser = (*Writer)(nil)

// Create opens the log to append, in parts of limit bytes, of which it keeps so
// many, two at least. The caller must close it.
func Create(path string, limit int64, parts int) (*Writer, error) {
	dir, err := openDir(path)
	if err != nil {
		return nil, err
	}
	w := &Writer{path: path, dir: dir, name: filepath.Base(path), limit: limit, parts: parts}
	if err := w.open(); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return w, nil
}

// Path is the newest part.
func (w *Writer) Path() string { return w.path }

// open opens the newest part. It follows no link out of the directory, waits for
// nobody, and writes nothing but files: the directory belongs to the task's user
// where there is no isolation.
func (w *Writer) open() error {
	f, err := w.dir.OpenFile(w.name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o640)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", w.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open log: %w", err), f.Close())
	}
	w.file, w.size = f, info.Size()
	return nil
}

// Position is where the next byte goes: how many were ever written.
func (w *Writer) Position() (int64, error) {
	parts, err := older(w.dir, w.name)
	return after(parts) + w.size, err
}

// Write appends p, to a new part if it does not fit the newest.
func (w *Writer) Write(p []byte) (int, error) {
	if w.size > 0 && w.size+int64(len(p)) > w.limit {
		if err := w.rotate(); err != nil {
			return 0, err
		}
	}
	n, err := w.file.Write(p)
	w.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("write log: %w", err)
	}
	return n, nil
}

// rotate begins a new part. If it fails, the newest stays in use. The oldest go
// last, and one older part at least stays: from it the position of the newest
// is known.
func (w *Writer) rotate() error {
	parts, err := older(w.dir, w.name)
	if err != nil {
		return err
	}
	numbered := w.name + "." + strconv.FormatInt(after(parts), 10)
	if err := w.dir.Rename(w.name, numbered); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	old := w.file
	if err := w.open(); err != nil {
		return errors.Join(err, w.dir.Rename(numbered, w.name))
	}
	for _, p := range parts[:max(0, len(parts)-w.parts+2)] {
		if err := w.dir.Remove(p.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(fmt.Errorf("rotate log: %w", err), old.Close())
		}
	}
	return old.Close()
}

// Close closes the newest part.
func (w *Writer) Close() error { return errors.Join(w.file.Close(), w.dir.Close()) }
