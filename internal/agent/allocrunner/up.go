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
		if err != nil && r.unwanted() {
			break // what it saw was the end
		}
		var fatal *Fatal
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &fatal):
			r.turn(api.AllocFailed, fatal.Error())
			return
		case waiting(err):
			r.setProblem(failing, err, time.Time{})
			r.pause(ctx, checkPeriod)
		case err != nil:
			r.setProblem(failing, err, time.Now().Add(delay))
			r.log.Warn("hook failed", "hook", failing, "error", err, "retry", delay)
			r.pause(ctx, delay)
			delay = min(2*delay, lastRetry)
		default:
			r.setRunning()
			end, err := r.watch(ctx)
			if end != "" {
				r.turn(end, "")
				return
			}
			if err == nil {
				delay = firstRetry
				continue
			}
			r.setProblem("watch", err, time.Now().Add(delay))
			r.pause(ctx, delay)
			delay = min(2*delay, lastRetry)
		}
	}
	if ctx.Err() == nil {
		r.turn(api.AllocComplete, "")
	}
}

// up calls every hook's Up in order, when what they work with is recorded. It
// names the one that failed.
func (r *Runner) up(ctx context.Context) (failing string, err error) {
	if err := r.save(); err != nil {
		return "record", err
	}
	for _, h := range r.cfg.Hooks {
		if err := r.call(h, "up", func() error { return h.Up(ctx, r.step) }); err != nil {
			return h.Name(), err
		}
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
// assignment changes, or it is time for a health check. It answers how the allocation ended, or "".
func (r *Runner) watch(ctx context.Context) (end api.AllocState, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkPeriod)
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
		switch {
		case o.err != nil:
			return "", o.err
		case o.news == Failed:
			return api.AllocFailed, nil
		case o.news == Complete:
			return api.AllocComplete, nil
		}
	case <-r.changed:
	case <-ctx.Done():
	}
	return "", nil
}
