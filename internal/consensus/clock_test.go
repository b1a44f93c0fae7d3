package consensus_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/internal/consensus"
)

// machine is a machine whose wall clock anybody may set.
type machine struct {
	wall   time.Time
	passed time.Duration
}

func newMachine() *machine {
	return &machine{wall: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
}

func (m *machine) read() consensus.Reading {
	return consensus.Reading{Wall: m.wall, Passed: m.passed}
}

// pass lets time pass.
func (m *machine) pass(d time.Duration) {
	m.wall, m.passed = m.wall.Add(d), m.passed+d
}

const year = 365 * 24 * time.Hour

func TestClock(t *testing.T) {
	t.Parallel()

	t.Run("FollowsTheWallClock", func(t *testing.T) {
		t.Parallel()
		m := newMachine()
		c := consensus.NewClock(time.Time{}, m.read)
		for range 10 {
			if got := c.Now(); !got.Equal(m.wall) {
				t.Errorf("it is %s, and the clock says %s", m.wall, got)
			}
			m.pass(time.Hour)
		}
	})

	t.Run("LeapForwardWithinALeadership", func(t *testing.T) {
		t.Parallel()
		m := newMachine()
		c := consensus.NewClock(m.wall, m.read)
		began := c.Now()
		m.wall = m.wall.Add(year)
		// However many entries there are.
		for range 100_000 {
			m.pass(time.Millisecond)
			c.Now()
		}
		if got, most := c.Now().Sub(began), 113*time.Second; got > most {
			t.Errorf("100s have passed, and the clock went %s", got)
		}
		if c.Astray() < year-time.Hour {
			t.Errorf("the wall clock is a year ahead, and the clock says %s", c.Astray())
		}
	})

	t.Run("LeapBackWithinALeadership", func(t *testing.T) {
		t.Parallel()
		m := newMachine()
		c := consensus.NewClock(m.wall, m.read)
		began := c.Now()
		m.wall = m.wall.Add(-year)
		m.pass(80 * time.Second)
		// What waits for a moment in command time must get there.
		if got, least := c.Now().Sub(began), 70*time.Second; got < least {
			t.Errorf("80s have passed, and the clock went %s", got)
		}
		if c.Astray() > -year+time.Hour {
			t.Errorf("the wall clock is a year behind, and the clock says %s", c.Astray())
		}
	})

	t.Run("IsRightAgainAfterAnHoursLeap", func(t *testing.T) {
		t.Parallel()
		for _, leap := range []time.Duration{time.Hour, -time.Hour} {
			m := newMachine()
			c := consensus.NewClock(m.wall, m.read)
			c.Now()
			m.wall = m.wall.Add(leap)
			for range 10 * 60 {
				m.pass(time.Minute)
				c.Now()
			}
			if got := c.Now(); !got.Equal(m.wall) || c.Astray() != 0 {
				t.Errorf("ten hours after a leap of %s the clock is %s away", leap, m.wall.Sub(got))
			}
		}
	})

	t.Run("BetweenLeaderships", func(t *testing.T) {
		t.Parallel()
		m := newMachine()
		last := m.wall
		tests := map[string]struct{ leap, want time.Duration }{
			"Back":         {-year, 0},
			"Same":         {0, 0},
			"SwitchedOff":  {7 * 24 * time.Hour, 7 * 24 * time.Hour},
			"Unbelievable": {year, consensus.MaxFirstStep},
		}
		for name, test := range tests {
			m := &machine{wall: last.Add(test.leap)}
			c := consensus.NewClock(last, m.read)
			if got := c.Now().Sub(last); got != test.want {
				t.Errorf("%s: the clock went %s, and should %s", name, got, test.want)
			}
		}
	})

	// A leadership that has not written anything yet must not stand still.
	t.Run("IdleLeadershipBehind", func(t *testing.T) {
		t.Parallel()
		m := newMachine()
		c := consensus.NewClock(m.wall.Add(year), m.read)
		m.pass(8 * time.Hour)
		if got := c.Now().Sub(m.wall.Add(-8 * time.Hour).Add(year)); got < 7*time.Hour {
			t.Errorf("8h have passed, and the clock went %s", got)
		}
	})

	t.Run("NeverGoesBackAndNeverLeaps", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			m := newMachine()
			last := m.wall.Add(time.Duration(rapid.Int64Range(-int64(year), int64(year)).Draw(t, "ahead")))
			c := consensus.NewClock(last, m.read)
			first := true
			for range rapid.IntRange(1, 50).Draw(t, "steps") {
				d := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "passes"))
				m.pass(d)
				if rapid.Bool().Draw(t, "set") {
					m.wall = m.wall.Add(time.Duration(rapid.Int64Range(-int64(year), int64(year)).Draw(t, "leap")))
				}
				now := c.Now()
				least, most := d-d/consensus.Slew, d+d/consensus.Slew
				if first {
					most += consensus.MaxFirstStep
				}
				if step := now.Sub(last); step < least || step > most {
					t.Fatalf("%s have passed, and the clock went %s", d, step)
				}
				if again := c.Now(); !again.Equal(now) {
					t.Fatalf("no time has passed, and the clock went from %s to %s", now, again)
				}
				last, first = now, false
			}
		})
	})
}
