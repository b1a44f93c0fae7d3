package controller

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// loop is one run of a runner. One goroutine owns all but the inbox.
type loop struct {
	*Runner
	ctx      context.Context //nolint:containedctx // it is the run itself
	keys     map[Key]*item
	queue    []*item
	failures int    // of the query for what is pending, in a row
	rest     func() // ends the wait for what is pending
	inbox    *inbox
	watchers sync.WaitGroup
}

// item is one key that is not settled.
type item struct {
	key Key
	// busy: queued, or with the proposer.
	busy     bool
	failures int // in a row
	// read is the index of the committed state that it was last reconciled
	// on, and idle that its plan of then would have changed nothing.
	read uint64
	idle bool
	// stop ends the wait for the key, if there is one.
	stop func()
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
	l.rest()
	w := state.NewWatch()
	v := l.log.View().Watching(w)
	if v.Recovering() {
		l.forgetAll()
		l.rest = l.await(w, 0, event{kind: scan})
		return
	}
	if err := l.pending(v); err != nil {
		l.failures++
		if l.fault() {
			l.out.Error("query for pending keys failed", "failures", l.failures, "error", err)
		}
		l.rest = l.await(nil, backoff(l.failures), event{kind: scan})
		return
	}
	l.failures = 0
	l.rest = l.await(w, 0, event{kind: scan})
}

// pending takes in what is pending and not known yet. A panic is an error, and
// costs only the keys behind it.
func (l *loop) pending(v state.View) error {
	return recovered(func() error {
		for k := range l.ctl.Pending(v) {
			if l.keys[k] == nil {
				it := &item{key: k}
				l.keys[k] = it
				l.enqueue(it)
			}
		}
		return nil
	})
}

// again reconciles all keys that wait once more, and looks for others.
func (l *loop) again() {
	for _, it := range l.keys {
		if !it.busy {
			l.enqueue(it)
		}
	}
	l.inbox.post(event{kind: scan})
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
	now := l.log.Now()
	it.read = v.Quiet().Index()
	plan, err := l.reconcile(v, now, it.key)
	switch {
	case err != nil:
		l.failed(it, err)
	case len(plan.Commands) > 0:
		l.propose(it)
	case len(plan.Waits) == 0 && plan.Wake.IsZero():
		delete(l.keys, it.key)
	case plan.Wake.IsZero():
		it.failures = 0
		l.wait(it, w, 0)
	case plan.Wake.After(now):
		it.failures = 0
		l.wait(it, w, plan.Wake.Sub(now))
	default:
		// It says that it is time, and has nothing to do: go slowly.
		it.failures++
		l.Backoffs.Add(1)
		l.wait(it, w, backoff(it.failures))
	}
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
	writes, err := l.log.Decide(l.ctx, decide, func(index uint64, err error) {
		l.inbox.post(event{kind: proposed, key: key, index: index, err: err})
	})
	if err != nil {
		l.inbox.post(event{kind: proposed, key: key, err: err})
		return
	}
	it.idle = !writes && planned > 0
	if writes {
		l.Plans.Add(1)
		it.failures = 0
	}
	if it.idle {
		l.Useless.Add(1)
	}
}

// proposed hears what became of a plan. Whatever it was, the key starts over:
// there may be a next step. If others have settled it meanwhile, that is to be
// seen now.
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
	if it.idle || e.index <= it.read {
		// The plan on the committed state and that on the overlay differ, and
		// nobody's write explains it: go slowly from the second time on.
		it.failures++
	}
	if it.failures > 1 {
		l.Backoffs.Add(1)
		l.wait(it, nil, backoff(it.failures))
		return
	}
	l.enqueue(it)
}

// failed tries the key again with backoff. What fails is a fault, or the end
// of leadership, in which case the loop ends anyway.
func (l *loop) failed(it *item, err error) {
	it.failures++
	switch api.CodeOf(err) {
	case api.CodeUnavailable, api.CodeUncertain:
	default:
		if l.fault() {
			l.out.Error("reconciliation failed", "key", string(it.key), "failures", it.failures, "error", err)
		}
	}
	l.Backoffs.Add(1)
	l.wait(it, nil, backoff(it.failures))
}

// fault counts an error, unless it comes of the run's end: then it is none, and
// the answer is false.
func (l *loop) fault() bool {
	if l.ctx.Err() != nil {
		return false
	}
	l.Errors.Add(1)
	return true
}

// Between tries of a key that fails.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// backoff is how long to wait after that many failures in a row.
func backoff(failures int) time.Duration {
	if failures >= 12 {
		return lastRetry
	}
	return min(lastRetry, firstRetry<<failures)
}

// wait wakes the key when what was read through w changes, or after d.
func (l *loop) wait(it *item, w *state.Watch, d time.Duration) {
	it.stop = l.await(w, d, event{kind: wake, key: it.key})
}

// await posts e when something that was read through w changes, or after d,
// whatever comes first. A nil w does not change, and a d of 0 does not pass.
// After stop was called it is silent. Only who waits for time takes a goroutine.
func (l *loop) await(w *state.Watch, d time.Duration, e event) (stop func()) {
	if w != nil && d == 0 {
		return w.Notify(func() { l.inbox.post(e) })
	}
	ctx, stop := context.WithCancel(l.ctx)
	l.watchers.Go(func() {
		limited, cancel := ctx, context.CancelFunc(func() {})
		if d > 0 {
			limited, cancel = context.WithTimeout(ctx, d)
		}
		defer cancel()
		if w != nil {
			_ = w.Wait(limited) // the end of d is a reason to look, too
		} else {
			<-limited.Done()
		}
		if ctx.Err() == nil {
			l.inbox.post(e)
		}
	})
	return stop
}

// end ends all waits.
func (l *loop) end() {
	l.rest()
	for _, it := range l.keys {
		it.unwatch()
	}
	l.watchers.Wait()
}

// reconcile calls the controller and turns a panic into an error.
func (l *loop) reconcile(v state.View, now time.Time, k Key) (plan Plan, err error) {
	l.Reconciles.Add(1)
	if l.Measure != nil {
		defer l.Measure()()
	}
	err = recovered(func() (err error) {
		plan, err = l.ctl.Reconcile(v, now, k)
		return err
	})
	if err != nil {
		plan = Plan{}
	}
	return plan, err
}

// recovered runs f and turns a panic into an error.
func recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
