package controller

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// Log is what a runner needs of the consensus.
type Log interface {
	// View reads the committed state.
	View() state.View
	// Now is command time.
	Now() time.Time
	// Decide plans on the overlay, in turn with everybody who writes. It
	// returns when the plan is in the overlay, or with what kept it out, and
	// says whether the plan writes anything. done is called once, unless there
	// is an error, when the plan and all before it are committed, or are not;
	// it must not block.
	Decide(ctx context.Context, f func(state.View, time.Time) (command.Plan, error), done func(uint64, error)) (writes bool, err error)
}

// Stats counts what a runner did since it was made.
type Stats struct {
	// Reconciles counts calls of Reconcile, Plans those that wrote.
	Reconciles, Plans atomic.Int64
	// Errors counts faults of the controller, panics among them.
	Errors atomic.Int64
	// Conflicts counts plans that were refused. Plans are made in turn, so it
	// is zero unless Reconcile and Apply disagree.
	Conflicts atomic.Int64
	// Useless counts plans that would have changed nothing. Zero in health.
	Useless atomic.Int64
	// Waiting is the number of keys that are not settled.
	Waiting atomic.Int64
	// Backoffs counts how often a key had to wait after an error, or because its
	// plans led nowhere.
	Backoffs atomic.Int64
}

// Runner drives one controller while its server leads.
//
// A key is reconciled on the committed state first, noting what is read. If
// there is nothing to do, the key waits until any of that changes. If there
// is, it is reconciled again on the overlay, in its turn, and that plan is
// proposed; when it is committed, the key starts over. So what a key waits for
// has always been read from the committed state, whose watches fire, and what
// it plans always from the overlay, where nothing is chosen twice.
type Runner struct {
	name string
	// ctl is replaced between two steps, when replaced says so.
	ctl      Controller
	next     atomic.Pointer[Controller]
	replaced chan struct{} // capacity 1
	log      Log
	out      *slog.Logger
	// Measure is called before every Reconcile, and what it returns after it. It
	// is set before Run, or left nil.
	Measure func() (done func())
	Stats
}

// NewRunner returns a runner of ctl. It starts nothing.
func NewRunner(ctl Controller, log Log, out *slog.Logger) *Runner {
	return &Runner{name: ctl.Name(), ctl: ctl, replaced: make(chan struct{}, 1), log: log, out: out.With("controller", ctl.Name())}
}

// Name is the controller's.
func (r *Runner) Name() string { return r.name }

// Replace has another controller of the same name, with other settings, go on
// with all keys: now, or when its server leads.
func (r *Runner) Replace(ctl Controller) {
	r.next.Store(&ctl)
	select {
	case r.replaced <- struct{}{}:
	default:
	}
}

// change takes over the controller that was given last, if there is a new one.
func (r *Runner) change() {
	if next := r.next.Swap(nil); next != nil {
		r.ctl = *next
	}
}

// Run reconciles until ctx ends: a leadership.
func (r *Runner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	l := &loop{Runner: r, ctx: ctx, keys: map[Key]*item{}, inbox: newInbox(), rest: func() {}}
	defer l.end()
	defer cancel()
	defer r.Waiting.Store(0)
	r.change()
	l.inbox.post(event{kind: scan})
	for {
		for _, e := range l.inbox.take() {
			l.handle(e)
		}
		for len(l.queue) > 0 && ctx.Err() == nil {
			it := l.queue[0]
			l.queue = l.queue[1:]
			l.step(it)
		}
		r.Waiting.Store(int64(len(l.keys)))
		select {
		case <-l.inbox.signal:
		case <-r.replaced:
			r.change()
			l.again()
		case <-ctx.Done():
			return nil
		}
	}
}
