// Package clone makes one file hold what another holds: by sharing its blocks
// where the file system can do that, else by copying what is not a hole.
//
// It owns the copying of single files and the progress of it. It never decides
// whether the source stands still meanwhile, and leaves an unfinished copy
// where it is.
//
// Invariant: when File returns nil, the copy is on the disk, and has the
// source's size and content.
package clone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Progress is how far a copy is, in bytes that are not holes. It may be read
// while the copy goes on. The zero value is that of one that has not begun.
type Progress struct{ done, total atomic.Int64 }

// Get is what was copied, of how much. The total is 0 until it is known.
func (p *Progress) Get() (done, total int64) { return p.done.Load(), p.total.Load() }

// step is how much is copied between two looks at the context.
const step = 4 << 20

// Share makes the file at target hold the content of source without copying
// it: both share their blocks until one is written to. It is atomic. shared is
// false where the file system cannot do that, and the target is then empty.
func Share(source, target string) (shared bool, err error) {
	from, to, err := open(source, target)
	if err != nil {
		return false, fmt.Errorf("clone %s: %w", source, err)
	}
	defer from.Close()
	err = unix.IoctlFileClone(int(to.Fd()), int(from.Fd()))
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EXDEV),
		errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return false, to.Close()
	case err == nil:
		err = to.Sync()
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return false, fmt.Errorf("clone %s to %s: %w", source, target, err)
	}
	return true, nil
}

// Copy copies the content of source to the file at target, holes as holes.
// What the target held before is gone.
func Copy(ctx context.Context, source, target string, p *Progress) error {
	from, to, err := open(source, target)
	if err != nil {
		return fmt.Errorf("copy %s: %w", source, err)
	}
	defer from.Close()
	err = copyFile(ctx, from, to, p)
	if err == nil {
		err = to.Sync()
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("copy %s to %s: %w", source, target, err)
	}
	return nil
}

// Allocated is how many bytes a file takes on the disk, without its holes.
func Allocated(path string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("look at %s: %w", path, err)
	}
	return st.Blocks * 512, nil
}

func open(source, target string) (from, to *os.File, err error) {
	if from, err = os.Open(source); err != nil {
		return nil, nil, err
	}
	if to, err = os.OpenFile(target, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, nil, errors.Join(err, from.Close())
	}
	return from, to, nil
}

func copyFile(ctx context.Context, from, to *os.File, p *Progress) error {
	st, err := from.Stat()
	if err != nil {
		return err
	}
	p.done.Store(0)
	allocated, err := Allocated(from.Name())
	if err != nil {
		return err
	}
	p.total.Store(allocated)
	if err := to.Truncate(st.Size()); err != nil {
		return err
	}
	for offset := int64(0); offset < st.Size(); {
		start, end, err := data(from, offset, st.Size())
		if err != nil {
			return err
		}
		for offset = start; offset < end; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := copyAt(from, to, offset, min(step, end-offset))
			if err != nil {
				return err
			}
			offset += n
			p.done.Add(n)
		}
	}
	return nil
}

// data is the next range from offset on that is no hole; start is size if
// there is none.
func data(f *os.File, offset, size int64) (start, end int64, err error) {
	start, err = unix.Seek(int(f.Fd()), offset, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return size, size, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("find data: %w", err)
	}
	end, err = unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, fmt.Errorf("find hole: %w", err)
	}
	return start, min(end, size), nil
}

// copyAt copies some bytes from an offset on to the same place.
func copyAt(from, to *os.File, offset, count int64) (int64, error) {
	n, err := io.Copy(io.NewOffsetWriter(to, offset), io.NewSectionReader(from, offset, count))
	if err == nil && n == 0 {
		err = fmt.Errorf("read at %d: %w", offset, io.ErrUnexpectedEOF)
	}
	return n, err
}
