package allocrunner

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
)

// runUp brings the hooks up and keeps them up until the allocation ends, or is
// to end.
func (r *Runner) runUp(ctx context.Context) {
	if r.unwanted() {
		r.turn(api.AllocComplete, "")
		return
	}
	delay := firstRetry
	for ctx.Err() == nil && !r.unwanted() {
		failing, err := r.up(ctx)
		switch {
		case err != nil && r.unwanted(): // what it saw was the end
		case ctx.Err() != nil:
			return
		case err == nil || partial(err):
			var over bool
			if over, delay = r.stay(ctx, failing, err, delay); over {
				return
			}
		default:
			if r.failed(err) {
				return
			}
			delay = r.later(ctx, failing, err, delay)
		}
	}
	if ctx.Err() == nil {
		r.turn(api.AllocComplete, "")
	}
}

// stay watches while all hooks are up, but for what err says, and reports
// whether the allocation is over. If it is not, the hooks are to look again.
func (r *Runner) stay(ctx context.Context, failing string, err error, delay time.Duration) (over bool, next time.Duration) {
	period, waits := checkPeriod, waiting(err)
	var retry time.Time
	if err != nil && !waits {
		r.log.Warn("hook failed", "hook", failing, "error", err, "retry", delay)
		period = min(period, delay)
		retry = time.Now().Add(period)
	}
	r.setRunning(failing, err, retry)
	end, lost := r.watch(ctx, period)
	switch {
	case end != "":
		r.turn(end, "")
		return true, 0
	case errors.Is(lost, errChanged):
		return false, firstRetry
	case lost != nil:
		r.setProblem("watch", lost, time.Now().Add(delay))
		return false, r.retryAfter(ctx, delay)
	case err == nil:
		return false, firstRetry
	case waits:
		return false, delay
	}
	return false, min(2*delay, lastRetry)
}

// failed reports whether the allocation is over although a hook is not up: it
// can never be, or what ran of it has ended.
func (r *Runner) failed(err error) bool {
	if fatal, ok := errors.AsType[*Fatal](err); ok {
		r.turn(api.AllocFailed, OneLine(fatal))
		return true
	}
	for _, h := range r.cfg.Hooks {
		if j, ok := h.(Judge); ok {
			if end := ended(j.Outcome(r.step)); end != "" {
				r.turn(end, "")
				return true
			}
		}
	}
	return false
}

// later waits until the hooks are to be tried again.
func (r *Runner) later(ctx context.Context, failing string, err error, delay time.Duration) (next time.Duration) {
	if waiting(err) {
		r.setProblem(failing, err, time.Time{})
		r.pause(ctx, checkPeriod)
		return delay
	}
	r.setProblem(failing, err, time.Now().Add(delay))
	r.log.Warn("hook failed", "hook", failing, "error", err, "retry", delay)
	return r.retryAfter(ctx, delay)
}

// up calls every hook's Up in order, when what they work with is recorded. It
// names the one that failed: the first, where others cannot do without it.
func (r *Runner) up(ctx context.Context) (failing string, err error) {
	if err := r.save(); err != nil {
		return "record", err
	}
	var noted *Partial
	for _, h := range r.cfg.Hooks {
		err := r.call(h, "up", func() error { return h.Up(ctx, r.step) })
		p, ok := errors.AsType[*Partial](err)
		switch {
		case err == nil:
		case !ok && noted != nil && errors.Is(err, noted.Err):
			return failing, err
		case !ok:
			return h.Name(), err
		case noted == nil:
			failing, noted = h.Name(), p
		}
	}
	if noted != nil {
		return failing, noted
	}
	return "", nil
}

// call calls a hook, and tells who measures it.
func (r *Runner) call(h Hook, direction string, do func() error) error {
	began := time.Now()
	err := do()
	if r.cfg.Called != nil {
		r.cfg.Called(h.Name(), direction, err, time.Since(began))
	}
	return err
}

// watch waits until the allocation has ended, a hook has something to do, the
// assignment changes, or it is time for a health check, after period. It answers
// how the allocation ended, or "".
func (r *Runner) watch(ctx context.Context, period time.Duration) (end api.AllocState, err error) {
	ctx, cancel := context.WithTimeout(ctx, period)
	type outcome struct {
		news News
		err  error
	}
	outcomes := make(chan outcome, len(r.cfg.Hooks))
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel()
	for _, h := range r.cfg.Hooks {
		w, ok := h.(Watcher)
		if !ok {
			continue
		}
		watchers.Go(func() {
			news, err := w.Watch(ctx, r.step)
			if ctx.Err() == nil {
				outcomes <- outcome{news, err}
			}
		})
	}
	select {
	case o := <-outcomes:
		return ended(o.news), o.err
	case <-r.changed:
		return "", errChanged
	case <-ctx.Done():
	}
	return "", nil
}

// errChanged ends a watch: there are news.
var errChanged = errors.New("there are news")

// ended is how the allocation has ended by a hook's word, or "".
func ended(news News) api.AllocState {
	switch news {
	case Failed:
		return api.AllocFailed
	case Complete:
		return api.AllocComplete
	case Again:
	}
	return ""
}
