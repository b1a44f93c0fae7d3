package controller

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// Log is what a runner needs of the consensus.
type Log interface {
	// View reads the committed state.
	View() state.View
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
	// Waiting is the number of keys that wait.
	Waiting atomic.Int64
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
	ctl Controller
	log Log
	out *slog.Logger
	Stats
}

// NewRunner returns a runner of ctl. It starts nothing.
func NewRunner(ctl Controller, log Log, out *slog.Logger) *Runner {
	return &Runner{ctl: ctl, log: log, out: out.With("controller", ctl.Name())}
}

// Name is the controller's.
func (r *Runner) Name() string { return r.ctl.Name() }

// Run reconciles until ctx ends: a leadership.
func (r *Runner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	l := &loop{Runner: r, ctx: ctx, keys: map[Key]*item{}, inbox: newInbox()}
	defer l.watchers.Wait()
	defer cancel()
	defer r.Waiting.Store(0)
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
		case <-ctx.Done():
			return nil
		}
	}
}

// loop is one run of a runner. One goroutine owns all but the inbox.
type loop struct {
	*Runner
	ctx      context.Context //nolint:containedctx // it is the run itself
	keys     map[Key]*item
	queue    []*item
	inbox    *inbox
	watchers sync.WaitGroup
}

// item is one key that is not settled.
type item struct {
	key Key
	// busy: queued, or with the proposer.
	busy     bool
	failures int
	// stop ends the goroutine that waits for the key, if one does.
	stop context.CancelFunc
}

// handle takes one event.
func (l *loop) handle(e event) {
	switch e.kind {
	case scan:
		l.scan()
	case wake:
		if it := l.keys[e.key]; it != nil && !it.busy {
			l.enqueue(it)
		}
	case proposed:
		l.proposed(e)
	}
}

// scan looks for keys that are new, and for the next time that there may be any.
func (l *loop) scan() {
	w := state.NewWatch()
	v := l.log.View().Watching(w)
	if v.Recovering() {
		l.forgetAll()
	} else {
		for k := range l.ctl.Pending(v) {
			if l.keys[k] == nil {
				it := &item{key: k}
				l.keys[k] = it
				l.enqueue(it)
			}
		}
	}
	l.watchers.Go(func() {
		if w.Wait(l.ctx) == nil {
			l.inbox.post(event{kind: scan})
		}
	})
}

func (l *loop) forgetAll() {
	for k, it := range l.keys {
		if !it.busy {
			it.unwatch()
			delete(l.keys, k)
		}
	}
}

func (l *loop) enqueue(it *item) {
	it.unwatch()
	it.busy = true
	l.queue = append(l.queue, it)
}

func (it *item) unwatch() {
	if it.stop != nil {
		it.stop()
		it.stop = nil
	}
}

// step reconciles one key.
func (l *loop) step(it *item) {
	it.busy = false
	w := state.NewWatch()
	v := l.log.View().Watching(w)
	if v.Recovering() {
		delete(l.keys, it.key)
		return
	}
	now := commandTime(v)
	plan, err := l.reconcile(v, now, it.key)
	switch {
	case err != nil:
		l.failed(it, err)
	case len(plan.Commands) > 0:
		l.propose(it)
	case len(plan.Waits) == 0 && plan.Wake.IsZero():
		delete(l.keys, it.key)
	default:
		it.failures = 0
		l.wait(it, w, plan.Wake, now)
	}
}

// commandTime is the time to reconcile with outside of an entry.
func commandTime(v state.View) time.Time {
	now := time.Now().UTC().Round(0)
	if clock := v.Log().Clock; clock.After(now) {
		return clock
	}
	return now
}

// propose plans the key on the overlay.
func (l *loop) propose(it *item) {
	it.busy = true
	planned := 0
	decide := func(v state.View, now time.Time) (command.Plan, error) {
		if v.Recovering() {
			return nil, nil
		}
		plan, err := l.reconcile(v, now, it.key)
		planned = len(plan.Commands)
		return plan.Commands, err
	}
	key := it.key
	writes, err := l.log.Decide(l.ctx, decide, func(_ uint64, err error) {
		l.inbox.post(event{kind: proposed, key: key, err: err})
	})
	switch {
	case err != nil:
		l.inbox.post(event{kind: proposed, key: key, err: err})
	case writes:
		l.Plans.Add(1)
		it.failures = 0
	default:
		// What is on its way has settled the key, or will. done comes when it
		// is committed; if that is not the end of it, go slowly.
		it.failures++
		if planned > 0 {
			l.Useless.Add(1)
		}
	}
}

// proposed hears what became of a plan. Whatever it was, the key starts over:
// there may be a next step.
func (l *loop) proposed(e event) {
	it := l.keys[e.key]
	if it == nil {
		return
	}
	it.busy = false
	if e.err != nil {
		if api.CodeOf(e.err) == api.CodeConflict {
			l.Conflicts.Add(1)
		}
		l.failed(it, e.err)
		return
	}
	if it.failures > 1 {
		l.later(it)
		return
	}
	l.enqueue(it)
}

// failed tries the key again with backoff. What fails is a fault, or the end
// of leadership, in which case the loop ends anyway.
func (l *loop) failed(it *item, err error) {
	it.failures++
	if l.ctx.Err() == nil && api.CodeOf(err) != api.CodeUnavailable {
		l.Errors.Add(1)
		l.out.Error("reconciliation failed", "key", string(it.key), "failures", it.failures, "error", err)
	}
	l.later(it)
}

// Between tries of a key that fails.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = 30 * time.Second
)

func (l *loop) later(it *item) {
	d := lastRetry
	if it.failures < 12 {
		d = min(lastRetry, firstRetry<<it.failures)
	}
	l.wait(it, nil, time.Time{}.Add(d), time.Time{})
}

// wait wakes the key when what was read changes, or at wake; now is the
// present in the same clock.
func (l *loop) wait(it *item, w *state.Watch, until, now time.Time) {
	ctx, stop := context.WithCancel(l.ctx)
	it.stop = stop
	if !until.IsZero() {
		ctx, stop = context.WithTimeout(ctx, max(0, until.Sub(now)))
		first := it.stop
		it.stop = func() { stop(); first() }
	}
	key := it.key
	l.watchers.Go(func() {
		if w != nil {
			_ = w.Wait(ctx) // the end of ctx is a reason to look, too
		} else {
			<-ctx.Done()
		}
		l.inbox.post(event{kind: wake, key: key})
	})
}

// reconcile calls the controller and turns a panic into an error.
func (l *loop) reconcile(v state.View, now time.Time, k Key) (plan Plan, err error) {
	l.Reconciles.Add(1)
	defer func() {
		if p := recover(); p != nil {
			plan, err = Plan{}, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return l.ctl.Reconcile(v, now, k)
}
