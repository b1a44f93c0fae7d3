package consensus

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// Bounds of one entry. go-memdb's notifications get expensive beyond some
// thousand rows a commit, and a plan writes a few.
const (
	maxEntryPlans = 256
	maxEntryBytes = 1 << 20
)

// maxInFlight is how many entries may be on their way through raft while the
// next one is planned.
const maxInFlight = 4

// overlay is a fork of the state in which everything that was planned has
// happened, and the entries that carry it, until they are committed. The
// proposer's mutex guards it.
type overlay struct {
	fork       *state.Tx
	writes     int // of fork when the last plan was in it
	clock      *clock
	leadership string
	sequence   uint64
	last       state.EntryID // the newest draft's, or the last that was applied
	// drafts are the entries that are not committed, oldest first. The first
	// sent of them are with raft and take no more plans.
	drafts []*draft
	sent   int
	flush  chan struct{} // capacity 1: there may be something to send
	over   chan struct{} // closed when the overlay is dropped
}

// draft is an entry on its way.
type draft struct {
	id, after state.EntryID
	time      time.Time
	plans     []planned
	bytes     int
	waiters   []Done
}

// planned is a plan that the fork has seen.
type planned struct {
	plan    command.Plan
	encoded command.Encoded
	time    time.Time
}

func newOverlay(store *state.Store) *overlay {
	log := store.View().Log()
	return &overlay{
		fork:       store.Fork(),
		clock:      newClock(log.Clock),
		leadership: rand.Text(),
		last:       log.Last,
		flush:      make(chan struct{}, 1),
		over:       make(chan struct{}),
	}
}

// now is the command time for a plan: that of the entry that it would be in.
func (o *overlay) now() time.Time {
	if d := o.open(); d != nil {
		return d.time
	}
	return o.clock.now()
}

// open is the draft that takes more plans, or nil.
func (o *overlay) open() *draft {
	if len(o.drafts) == o.sent {
		return nil
	}
	d := o.drafts[len(o.drafts)-1]
	if len(d.plans) >= maxEntryPlans || d.bytes >= maxEntryBytes {
		return nil
	}
	return d
}

// add puts a plan, which the fork has seen, into the newest entry.
func (o *overlay) add(it planned, done Done) {
	d := o.open()
	if d == nil {
		o.sequence++
		d = &draft{id: state.EntryID{Leadership: o.leadership, Sequence: o.sequence}, after: o.last, time: it.time}
		o.last = d.id
		o.clock.stamp(it.time)
		o.drafts = append(o.drafts, d)
	}
	d.plans = append(d.plans, it)
	d.bytes += len(it.encoded)
	o.writes = o.fork.Writes()
	d.waiters = append(d.waiters, done)
	o.wake()
}

// join lets done wait for the newest entry. It answers false if there is none.
func (o *overlay) join(done Done) bool {
	if len(o.drafts) == 0 {
		return false
	}
	d := o.drafts[len(o.drafts)-1]
	d.waiters = append(d.waiters, done)
	return true
}

// next takes the oldest draft that can be sent now, or nil.
func (o *overlay) next() *draft {
	if o.sent == len(o.drafts) || o.sent >= maxInFlight {
		return nil
	}
	d := o.drafts[o.sent]
	o.sent++
	return d
}

// finished takes out the oldest draft. When nothing is on its way any more,
// the committed state is the overlay, and the fork starts afresh from it: the
// two would otherwise drift apart in memory, row for row the same.
func (o *overlay) finished(store *state.Store, sound bool) {
	o.drafts = o.drafts[1:]
	o.sent--
	if sound && len(o.drafts) == 0 {
		o.drafts = nil
		o.refork(store)
	}
	o.wake()
}

// repair undoes what a plan that failed has written, if anything. Commands
// check before they write, so that is rare: a plan whose second command was
// refused, or one that panicked. The fork is made again from the committed
// state and the plans that are on their way. It answers an error if they do
// not apply again, after which the overlay is of no use.
func (o *overlay) repair(store *state.Store) error {
	if o.fork.Writes() == o.writes {
		return nil
	}
	o.refork(store)
	last := o.fork.Log().Last
	// Of what is on its way, raft may have applied the first already.
	rest := o.drafts
	for i, d := range o.drafts {
		if d.id == last {
			rest = o.drafts[i+1:]
		}
	}
	for _, d := range rest {
		o.fork.At(d.time)
		for _, it := range d.plans {
			if err := recovered(func() error { return it.plan.Apply(o.fork) }); err != nil {
				return fmt.Errorf("apply plans again: %w", err)
			}
		}
	}
	o.writes = o.fork.Writes()
	return nil
}

// refork starts the fork afresh from the committed state.
func (o *overlay) refork(store *state.Store) {
	o.fork = store.Fork()
	o.writes = o.fork.Writes()
}

// unsent takes out the drafts that raft has not got.
func (o *overlay) unsent() []*draft {
	rest := o.drafts[o.sent:]
	o.drafts = o.drafts[:o.sent]
	return rest
}

func (o *overlay) wake() {
	select {
	case o.flush <- struct{}{}:
	default:
	}
}

// answer tells everybody who waits for the draft.
func (d *draft) answer(index uint64, err error) {
	for _, done := range d.waiters {
		done(index, err)
	}
}
