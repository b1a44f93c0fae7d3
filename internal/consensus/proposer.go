package consensus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

const (
	// maxQueued is how many plans may wait for their commit. Who comes then waits.
	maxQueued = 8192
	// maxPlanBytes bounds one plan in the log's form. The log takes 64 MiB an
	// entry, and an error of the log would cost the leadership.
	maxPlanBytes = 32 << 20
)

// Decision plans with the overlay in its turn: nothing is written between what
// it reads and what it answers. now is the command time of the entry that the
// plan will be in. An empty plan writes nothing. It must not keep the view.
type Decision func(overlay state.View, now time.Time) (command.Plan, error)

// Done is called once with what became of a plan: the index of its commit, or
// the error that kept it out. It must not block.
type Done func(index uint64, err error)

// proposer is the one way to the log. Every plan is applied to a fork of the
// state first, in the order in which it will stand in the log.
type proposer struct {
	proposerConfig
	slots chan struct{} // one for each plan that waits for its commit
	room  room          // for the log

	mu      sync.Mutex // guards all below, and whatever overlay holds
	overlay *overlay   // nil while this server does not lead
	astray  bool       // the wall clock is far from command time, and that was said
	Counters
}

type proposerConfig struct {
	log   *slog.Logger
	codec *command.Codec
	store *state.Store
	raft  raftLog
	clock func() reading
	sent  *sentEntries
	measures
}

// raftLog is what the proposer needs of raft.
type raftLog interface {
	// append puts an entry into the log. Entries keep the order of the calls.
	append(entry []byte) raft.ApplyFuture
	// verify asks the other servers whether this one still leads.
	verify() raft.Future
	// barrier waits until all entries so far are applied.
	barrier() error
	// term is the number of the current leadership among all servers.
	term() uint64
}

func newProposer(cfg proposerConfig) *proposer {
	return &proposer{
		proposerConfig: cfg,
		slots:          make(chan struct{}, maxQueued),
	}
}

// propose proposes commands that do not depend on the overlay. What can be
// done before their turn is.
func (p *proposer) propose(ctx context.Context, plan command.Plan, done Done) error {
	var it planned
	err := recovered(func() (err error) {
		it, err = p.prepare(plan)
		return err
	})
	if err != nil {
		return p.refused(err)
	}
	_, err = p.enqueue(ctx, func(state.View, time.Time) (planned, error) { return it, nil }, done, true)
	return err
}

// unsettled is why a plan was refused on an overlay that holds what may never be
// written. When that is known, known says so, with an error if it was not: then
// nobody knows whether the plan would have been refused.
type unsettled struct {
	error
	known <-chan error
}

func (u *unsettled) Unwrap() error { return u.error }

// settled waits until it is known that what a plan was refused on is true. Else
// who asks would be told of what never came to be.
func settled(ctx context.Context, refusal error) error {
	u, ok := errors.AsType[*unsettled](refusal)
	if !ok {
		return refusal
	}
	select {
	case err := <-u.known:
		if err != nil {
			return errNotLeading() // nothing was written
		}
		return u.error
	case <-ctx.Done():
		return api.Errorf(api.CodeUnavailable, "nothing was written, and why is not known yet: %v", context.Cause(ctx))
	}
}

// decide proposes what f plans with the overlay.
func (p *proposer) decide(ctx context.Context, f Decision, done Done) (writes bool, err error) {
	return p.enqueue(ctx, func(v state.View, now time.Time) (planned, error) {
		plan, err := f(v, now)
		if err != nil || len(plan) == 0 {
			return planned{}, err
		}
		return p.prepare(plan)
	}, done, false)
}

// prepare checks a plan, brings it into the log's form, and reads it back: the
// overlay must see what every server will read, where an empty list may have
// become none, and a plan that cannot be read must never get into the log.
func (p *proposer) prepare(plan command.Plan) (planned, error) {
	if err := plan.Validate(); err != nil {
		return planned{}, err
	}
	encoded, err := plan.Encode()
	if err != nil {
		return planned{}, err
	}
	if len(encoded) > maxPlanBytes {
		return planned{}, api.Errorf(api.CodeTooLarge,
			"what is to be written has %d bytes, more than the %d that are possible", len(encoded), maxPlanBytes)
	}
	plan, err = p.codec.DecodePlan(encoded)
	if err != nil {
		return planned{}, err
	}
	return planned{plan: plan, encoded: encoded}, nil
}

// enqueue plans when there is room. It answers an error if the plan is not on
// its way, an unsettled one if that is asked for; else done is called.
func (p *proposer) enqueue(ctx context.Context, f func(state.View, time.Time) (planned, error), done Done, settle bool) (writes bool, err error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return false, api.Errorf(api.CodeUnavailable, "the queue of writes is full: %v", context.Cause(ctx))
	}
	writes, err = p.plan(f, func(index uint64, err error) {
		<-p.slots
		done(index, err)
	}, settle)
	if err != nil {
		<-p.slots
		return false, p.refused(err)
	}
	return writes, nil
}

// plan runs f on the overlay and keeps what it answers. done is called, sooner
// or later, unless there is an error.
func (p *proposer) plan(f func(state.View, time.Time) (planned, error), done Done, settle bool) (writes bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.overlay
	if o == nil {
		return false, errNotLeading()
	}
	now := o.now()
	o.fork.At(now)
	var it planned
	err = recovered(func() (err error) {
		it, err = p.try(o, f, now)
		return err
	})
	if err != nil {
		p.undo(o, err)
		if settle && p.overlay == o {
			known := make(chan error, 1)
			o.join(func(_ uint64, err error) { known <- err })
			err = &unsettled{err, known}
		}
		return false, err
	}
	if !o.dirty() {
		if len(it.plan) > 0 {
			p.Unchanged.Add(1)
		}
		o.join(done)
		return false, nil
	}
	p.Plans.Add(1)
	o.add(it, now, done)
	p.tellTime(o)
	return true, nil
}

// try plans, and applies the plan to the fork.
func (p *proposer) try(o *overlay, f func(state.View, time.Time) (planned, error), now time.Time) (planned, error) {
	it, err := f(o.fork.View, now)
	if err != nil {
		return planned{}, err
	}
	if len(it.plan) > 0 {
		if err := p.room.errNoRoom(); err != nil {
			return planned{}, err
		}
	}
	if err := p.codec.Allowed(it.plan, o.fork.View); err != nil {
		return planned{}, err
	}
	return it, it.plan.Apply(o.fork)
}

// undo takes out of the fork what a plan that failed has written. After a
// panic nobody knows what it has.
func (p *proposer) undo(o *overlay, err error) {
	var fault *panicError
	if !o.dirty() && !errors.As(err, &fault) {
		return
	}
	if broken := o.repair(p.store); broken != nil {
		p.log.Error("overlay is broken", "error", broken)
		p.dropLocked(o)
	}
}

// tellTime says once when the wall clock and command time part, and when they
// are together again.
func (p *proposer) tellTime(o *overlay) {
	ahead := o.clock.astray()
	if (ahead != 0) == p.astray {
		return
	}
	p.astray = ahead != 0
	if p.astray {
		p.log.Error("wall clock has moved, and command time follows slowly", "ahead", ahead)
		return
	}
	p.log.Info("wall clock and command time agree again")
}

// refused counts the error of a plan, and keeps a panic's text in the log.
func (p *proposer) refused(err error) error {
	if fault, ok := errors.AsType[*panicError](err); ok {
		p.Panics.Add(1)
		p.log.Error("plan panicked", "error", fault, "stack", fault.stack)
		return errFault()
	}
	if api.CodeOf(err) == api.CodeConflict {
		p.Conflicts.Add(1)
	}
	return err
}

func (p *proposer) leading() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.overlay != nil
}

// now is the command time that a plan would be made with.
func (p *proposer) now() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.overlay != nil {
		return p.overlay.now()
	}
	wall, last := p.clock().wall, p.store.View().Log().Clock
	if last.After(wall) {
		return last
	}
	return wall
}

// begin starts a leadership: the overlay is the committed state, and the first
// entry will be planned on the last one that was applied. The caller has put a
// barrier into the log, so nothing older can still come.
func (p *proposer) begin(term uint64) *overlay {
	o := newOverlay(p.store, term, p.clock)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.overlay = o
	return o
}

// drop forgets the overlay: what it holds may never come true. Who reads it is
// told, and starts again from the committed state. Plans that were not sent
// are answered here; those that raft has are answered by raft.
func (p *proposer) drop(o *overlay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(o)
}

func (p *proposer) dropLocked(o *overlay) {
	if o == nil || p.overlay != o {
		return
	}
	p.overlay = nil
	p.Drops.Add(1)
	close(o.over)
	for _, d := range o.unsent() {
		d.answer(0, errNotLeading())
	}
}

// dropCurrent drops whatever overlay there is.
func (p *proposer) dropCurrent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(p.overlay)
}

func errNotLeading() error {
	return api.Errorf(api.CodeUnavailable, "nothing was written: this server does not lead the cluster")
}

func errFault() error {
	return api.Errorf(api.CodeInternal, "a fault of Berth kept this from being written; the server's log says more")
}
