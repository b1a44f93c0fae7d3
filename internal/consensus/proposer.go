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

// maxQueued is how many plans may wait for their commit. Who comes then waits.
const maxQueued = 8192

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

	mu      sync.Mutex // guards all below, and whatever overlay holds
	overlay *overlay   // nil while this server does not lead
	Counters
}

type proposerConfig struct {
	log    *slog.Logger
	codec  *command.Codec
	store  *state.Store
	append func([]byte) raft.ApplyFuture
}

func newProposer(cfg proposerConfig) *proposer {
	return &proposer{
		proposerConfig: cfg,
		slots:          make(chan struct{}, maxQueued),
	}
}

// decide plans with f. It answers an error if the plan is not on its way; else
// done is called. encoded is the plan in the log's form where the caller has
// it already.
func (p *proposer) decide(ctx context.Context, f Decision, encoded command.Encoded, done Done) (writes bool, err error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return false, api.Errorf(api.CodeUnavailable, "the queue of writes is full: %v", context.Cause(ctx))
	}
	answer := func(index uint64, err error) {
		<-p.slots
		done(index, err)
	}
	fate, err := p.plan(f, encoded, answer)
	if err != nil {
		<-p.slots
		return false, p.refused(err)
	}
	if fate == settled {
		answer(p.store.View().Index(), nil)
	}
	return fate == written, nil
}

// fate is where a plan went.
type fate int

const (
	written fate = iota // into an entry
	joined              // it writes nothing; the answer comes with what it rests on
	settled             // it writes nothing, and all that it rests on is committed
)

// plan runs f on the overlay and keeps what it answers. done is called, sooner
// or later, unless the plan's fate is settled or there is an error.
func (p *proposer) plan(f Decision, encoded command.Encoded, done Done) (fate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.overlay
	if o == nil {
		return settled, errNotLeading()
	}
	var it planned
	err := recovered(func() (err error) {
		it, err = p.try(o, f, encoded)
		return err
	})
	switch {
	case err != nil:
		if broken := o.repair(p.store); broken != nil {
			p.log.Error("overlay is broken", "error", broken)
			p.dropLocked(o)
		}
		return settled, err
	case it.encoded != nil:
		p.Plans.Add(1)
		o.add(it, done)
		return written, nil
	case o.join(done):
		return joined, nil
	}
	return settled, nil
}

// try plans, and applies the plan to the fork. The answer has no encoded form
// if nothing was written.
func (p *proposer) try(o *overlay, f Decision, encoded command.Encoded) (planned, error) {
	now := o.now()
	o.fork.At(now)
	plan, err := f(o.fork.View, now)
	if err != nil || len(plan) == 0 {
		return planned{}, err
	}
	if err := p.codec.Allowed(plan, o.fork.View); err != nil {
		return planned{}, err
	}
	if encoded == nil {
		if encoded, err = plan.Encode(); err != nil {
			return planned{}, err
		}
	}
	before := o.fork.Writes()
	if err := plan.Apply(o.fork); err != nil {
		return planned{}, err
	}
	if o.fork.Writes() == before {
		p.Unchanged.Add(1)
		return planned{}, nil
	}
	return planned{plan: plan, encoded: encoded, time: now}, nil
}

// refused counts the error of a plan, and keeps a panic's text in the log.
func (p *proposer) refused(err error) error {
	var fault *panicError
	if errors.As(err, &fault) {
		p.Panics.Add(1)
		p.log.Error("plan panicked", "error", fault, "stack", fault.stack)
		return api.Errorf(api.CodeInternal, "a fault of Berth kept this from being written; the server's log says more")
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

// begin starts a leadership: the overlay is the committed state, and the first
// entry will be planned on the last one that was applied. The caller has put a
// barrier into the log, so nothing older can still come.
func (p *proposer) begin() *overlay {
	o := newOverlay(p.store)
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
