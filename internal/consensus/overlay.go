package consensus

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// Bounds of one entry. It is one commit: what waits for it waits for all of it.
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
	term       uint64 // raft's, in which the overlay is true
	leadership string
	sequence   uint64
	last       state.EntryID // the newest entry's, or the last that was applied
	// drafts are the entries that are not committed, oldest first. The first
	// sent of them are with raft and take no more plans.
	drafts []*draft
	sent   int
	flush  chan struct{} // capacity 1: there may be something to send
	over   chan struct{} // closed when the overlay is dropped
}

// draft is an entry on its way. Without plans it is none: then somebody only
// waits to hear that this server still leads.
type draft struct {
	id, after state.EntryID
	time      time.Time
	plans     []planned
	bytes     int
	waiters   []Done
}

// planned is a plan as every server will read it from the log, in both forms.
type planned struct {
	plan    command.Plan
	encoded command.Encoded
}

func newOverlay(store *state.Store, term uint64, read func() reading) *overlay {
	log := store.View().Log()
	o := &overlay{
		clock:      newClock(log.Clock, read),
		term:       term,
		leadership: rand.Text(),
		last:       log.Last,
		flush:      make(chan struct{}, 1),
		over:       make(chan struct{}),
	}
	o.refork(store)
	return o
}

// now is the command time for a plan: that of the entry that it would be in.
func (o *overlay) now() time.Time {
	if d := o.open(); d != nil && len(d.plans) > 0 {
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

// add puts a plan, which the fork has seen, into the newest entry. now is the
// command time that it was planned with.
func (o *overlay) add(it planned, now time.Time, done Done) {
	d := o.open()
	if d == nil {
		d = o.draft()
	}
	if len(d.plans) == 0 {
		o.sequence++
		d.id, d.after, d.time = state.EntryID{Leadership: o.leadership, Sequence: o.sequence}, o.last, now
		o.last = d.id
	}
	d.plans = append(d.plans, it)
	d.bytes += len(it.encoded)
	d.waiters = append(d.waiters, done)
	o.writes = o.fork.Writes()
	o.wake()
}

// join lets done wait until all that the overlay holds is known to be true. An
// entry that raft has already does not tell: it may have been committed before
// another server took over, and the overlay be out of date since.
func (o *overlay) join(done Done) {
	d := o.open()
	if d == nil {
		d = o.draft()
	}
	d.waiters = append(d.waiters, done)
	o.wake()
}

// draft begins a new draft.
func (o *overlay) draft() *draft {
	d := &draft{}
	o.drafts = append(o.drafts, d)
	return d
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

// dirty reports whether a plan that was not added has written to the fork.
func (o *overlay) dirty() bool { return o.fork.Writes() != o.writes }

// repair undoes what a plan that failed has written. Commands check before
// they write, so that is rare: a plan whose second command was refused, or one
// that panicked. The fork is made again from the committed state and the plans
// that are on their way. It answers an error if they do not apply again, after
// which the overlay is of no use.
func (o *overlay) repair(store *state.Store) error {
	o.refork(store)
	last := o.fork.Log().Last
	// Of what is on its way, raft may have applied the first already.
	rest := o.drafts
	for i, d := range o.drafts {
		if len(d.plans) > 0 && d.id == last {
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
