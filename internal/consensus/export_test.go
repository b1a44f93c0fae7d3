package consensus

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/internal/state"
)

// What tests see of the inside.

// MaxInFlight is how many entries may be on their way through raft.
const MaxInFlight = maxInFlight

// MaxPlanBytes is the largest plan.
const MaxPlanBytes = maxPlanBytes

// Append puts an entry into raft's log.
type Append func(entry []byte) raft.ApplyFuture

// interposed is raft with something between the proposer and its log.
type interposed struct {
	raftLog
	instead Append
}

func (i interposed) append(entry []byte) raft.ApplyFuture { return i.instead(entry) }

// Interpose puts what wrap answers between the proposer and raft's log. It is
// to be called before Run.
func (c *Consensus) Interpose(wrap func(Append) Append) {
	c.proposer.raft = interposed{c.proposer.raft, wrap(c.proposer.raft.append)}
}

// Drop drops the overlay, as an error of raft does.
func (c *Consensus) Drop() { c.proposer.dropCurrent() }

// InTurn runs f in turn with all plans, with the overlay and the number of
// entries that are on their way. It does nothing while there is no overlay.
func (c *Consensus) InTurn(f func(overlay state.View, onTheirWay int)) {
	c.proposer.mu.Lock()
	defer c.proposer.mu.Unlock()
	if o := c.proposer.overlay; o != nil {
		f(o.fork.View, len(o.drafts))
	}
}

// Grow counts so many bytes of log more than there are.
func (c *Consensus) Grow(bytes int64) { c.fsm.bytes.Add(bytes) }

// Snapshot cuts the log, as compaction does.
func (c *Consensus) Snapshot() error { return c.raft.Snapshot().Error() }

// Reading is one look at a machine's clocks.
type Reading struct {
	Wall   time.Time
	Passed time.Duration
}

// Clock is the clock of a leadership that goes on from last.
type Clock struct{ c *clock }

// NewClock returns a clock on the machine that read reads.
func NewClock(last time.Time, read func() Reading) Clock {
	return Clock{newClock(last, func() reading {
		r := read()
		return reading{wall: r.Wall, passed: r.Passed}
	})}
}

// Now is command time.
func (c Clock) Now() time.Time { return c.c.now() }

// Astray is how far the wall clock is ahead.
func (c Clock) Astray() time.Duration { return c.c.astray() }

// Slew is the part of the time that passes by which command time may run
// faster or slower.
const Slew = slew

// MaxFirstStep is how far command time may step between leaderships.
const MaxFirstStep = maxFirstStep
