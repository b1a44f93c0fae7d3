package localdb

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
)

// How much room is set aside. A report has at most 500 facts; it and what goes
// with it are written many times over before that is used up, since pages that
// became free are written again.
const (
	// reserveSize is what is kept behind the last page in use.
	reserveSize = 4 << 20
	// reserveAhead is what is asked for beyond that, so that few writes ask.
	reserveAhead = 1 << 20
	// reserveStep is the least that is asked for where there is little left.
	reserveStep = 64 << 10
)

// reserveRetry is how long a file system that had no room is left alone, unless
// something is to begin.
const reserveRetry = time.Second

// reserve is room in the database's own file that the file system has promised
// (fallocate(2)) and nobody else can take: behind the pages in use, and beyond
// the end of the file, which stays where it is. Pages that are written there
// later need none, but where every write takes new blocks (btrfs). It belongs to who writes: to one transaction at a time.
type reserve struct {
	file    *os.File
	end     int64     // up to here there is room
	refused time.Time // when the file system last had none
	why     error     // what it said then
	none    bool      // it promises nothing
}

// FullError says that something was not begun because the file system is full.
type FullError struct {
	Path string
	// Err is what the file system said.
	Err error
}

func (e *FullError) Error() string {
	return fmt.Sprintf("the file system of %s is full, and what is set aside there is for what has begun: %v", e.Path, e.Err)
}

func (e *FullError) Unwrap() error { return e.Err }

// keep sees to it that there is a reserve behind the pages in use. Where there is
// none any more, what is to begin gets a *FullError: what has begun must be able
// to end, and the servers to be told.
func (r *reserve) keep(tx *bbolt.Tx, begins bool) error {
	used := tx.Size()
	if r.none || r.end >= used+reserveSize {
		return nil
	}
	if begins || time.Since(r.refused) >= reserveRetry {
		r.take(used + reserveSize + reserveAhead)
	}
	if begins && !r.none && r.end < used+reserveSize {
		return &FullError{Path: tx.DB().Path(), Err: r.why}
	}
	return nil
}

// take asks for room up to an end, or for as much of that as there is. At the
// first time that includes the holes in the file.
func (r *reserve) take(end int64) {
	for step := end - r.end; step > 0; step = min(step, end-r.end) {
		err := fallocate(r.file, r.end, step)
		switch {
		case err == nil:
			r.end += step
		case !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT):
			r.none = true
			return
		case step <= reserveStep:
			r.refused, r.why = time.Now(), err
			return
		default:
			step /= 2
		}
	}
}

// keepSize is FALLOC_FL_KEEP_SIZE: room beyond the end of a file does not move it.
const keepSize = 1

func fallocate(f *os.File, from, length int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), keepSize, from, length)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
