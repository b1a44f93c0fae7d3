package consensus

import "time"

// Bounds on how far command time may move in one step. Within a leadership,
// time that has passed is known from the monotonic clock, and the wall clock
// may only correct it a little. Between leaderships nobody measured, and a
// longer step is believed: a cluster may have been switched off.
const (
	maxCorrection = time.Minute
	maxFirstStep  = 30 * 24 * time.Hour
)

// clock stamps entries with command time. It never goes backwards, and a wall
// clock that leaps cannot take it along. It is guarded by its user.
type clock struct {
	last time.Time // of the newest entry
	read time.Time // when that was stamped, with monotonic reading; zero at first
	// bounded is set while the wall clock is further away than believed.
	bounded bool
}

func newClock(last time.Time) *clock { return &clock{last: last} }

// now is the time for an entry that is planned now.
func (c *clock) now() time.Time {
	wall := time.Now()
	limit := c.last.Add(maxFirstStep)
	if !c.read.IsZero() {
		limit = c.last.Add(wall.Sub(c.read) + maxCorrection)
	}
	t := wall.UTC().Round(0)
	c.bounded = !c.last.IsZero() && t.After(limit)
	if c.bounded {
		t = limit
	}
	if t.Before(c.last) {
		t = c.last
	}
	return t
}

// stamp notes that an entry has been given the time t.
func (c *clock) stamp(t time.Time) {
	c.last, c.read = t, time.Now()
}
