package collector

import (
	"iter"
	"time"

	"github.com/berth-dev/berth/api"
)

// batch bounds what one plan removes.
const batch = 256

// recheck is when to look again at what is old enough and still in use.
const recheck = 10 * time.Minute

// sweep goes through history, oldest first, up to what is too young.
type sweep struct {
	now, before time.Time
	keep        time.Duration
	taken       int
	wake        time.Time
}

func newSweep(now time.Time, keep time.Duration) sweep {
	return sweep{now: now, before: now.Add(-keep), keep: keep}
}

// stamped is a row that knows when it last changed.
type stamped[T any] interface {
	*T
	GetMeta() *api.Meta
}

// each offers the rows that are old enough to take, until a batch is full. It
// notes when the first of the others will be.
func each[T any, P stamped[T]](s *sweep, rows iter.Seq[*T], take func(*T) bool) {
	for row := range rows {
		changed := P(row).GetMeta().ModifyTime
		if !changed.Before(s.before) {
			s.wakeAt(changed.Add(s.keep + time.Nanosecond))
			return
		}
		if !take(row) {
			s.wakeAt(s.now.Add(recheck))
			continue
		}
		if s.taken++; s.taken == batch {
			return
		}
	}
}

func (s *sweep) wakeAt(t time.Time) {
	if s.wake.IsZero() || t.Before(s.wake) {
		s.wake = t
	}
}
