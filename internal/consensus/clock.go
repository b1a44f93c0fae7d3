package consensus

import "time"

// Bounds on how command time follows the wall clock. Within a leadership the
// time that passes is known from the monotonic clock, and command time runs at
// most one part in slew faster or slower than that. Between leaderships nobody
// measured, and a longer step is believed: a cluster may have been switched off.
const (
	slew         = 8
	maxFirstStep = 30 * 24 * time.Hour
	// strayed is how far apart the two may be before somebody is told.
	strayed = time.Minute
)

// clock gives command time. It follows the wall clock, but never goes back and
// never leaps, and never stands still either: while the wall clock is behind
// it, it runs slower than time passes, so that whatever waits for a moment in
// command time gets there. It is guarded by its user.
type clock struct {
	read func() reading
	// At the reading at, command time was floor, or at most ceiling; a zero
	// ceiling is none.
	at             reading
	floor, ceiling time.Time
}

// reading is one look at the machine's clocks.
type reading struct {
	wall time.Time
	// passed is monotonic, from some moment on.
	passed time.Duration
}

// machine reads the clocks of this machine.
func machine() func() reading {
	began := time.Now()
	return func() reading {
		now := time.Now()
		return reading{wall: now.UTC().Round(0), passed: now.Sub(began)}
	}
}

// newClock returns the clock of a leadership, which goes on from last: the
// command time of the newest entry, or zero.
func newClock(last time.Time, read func() reading) *clock {
	c := &clock{read: read, at: read(), floor: last}
	if !last.IsZero() {
		c.ceiling = last.Add(maxFirstStep)
	}
	return c
}

// now is command time.
func (c *clock) now() time.Time {
	r := c.read()
	passed := r.passed - c.at.passed
	t := r.wall
	if latest := c.ceiling.Add(passed + passed/slew); !c.ceiling.IsZero() && t.After(latest) {
		t = latest
	}
	if earliest := c.floor.Add(passed - passed/slew); t.Before(earliest) {
		t = earliest
	}
	c.at, c.floor, c.ceiling = r, t, t
	return t
}

// astray is how far the wall clock was ahead of command time, or behind it if
// negative, when now was last called; 0 if that is not worth a word.
func (c *clock) astray() time.Duration {
	if d := c.at.wall.Sub(c.floor); d.Abs() > strayed {
		return d
	}
	return 0
}
