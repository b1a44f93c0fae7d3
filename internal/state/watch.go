package state

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/berth-dev/berth/internal/radix"
)

// Watch collects what was read, so that one can wait until any of it changes.
// It is for one goroutine.
type Watch struct {
	signals []*radix.Signal
	also    <-chan struct{}
}

// NewWatch returns an empty Watch.
func NewWatch() *Watch { return &Watch{} }

// manySignals is how far back a Watch looks whether it has a signal already.
const manySignals = 16

func (w *Watch) note(s *radix.Signal) {
	if !slices.Contains(w.signals[max(0, len(w.signals)-manySignals):], s) {
		w.signals = append(w.signals, s)
	}
}

// Also makes Wait return when ch is closed, too: for waiting on one thing that is
// not in the state.
func (w *Watch) Also(ch <-chan struct{}) { w.also = ch }

// Wait returns nil when anything that was read through the watch has changed,
// or ctx's error.
func (w *Watch) Wait(ctx context.Context) error {
	woken := make(chan struct{})
	stop := w.Notify(func() { close(woken) })
	defer stop()
	select {
	case <-woken:
		return nil
	case <-w.also:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Notify calls f once when anything that was read through the watch has changed,
// or has already. f must not block, nor read the state. After stop has returned
// f is not called any more.
func (w *Watch) Notify(f func()) (stop func()) {
	var called atomic.Bool
	once := func() {
		if called.CompareAndSwap(false, true) {
			f()
		}
	}
	links := make([]radix.Link, len(w.signals))
	for i, s := range w.signals {
		links[i].Woken = once
		if !s.Add(&links[i]) {
			once()
			break
		}
	}
	return func() {
		for i, s := range w.signals {
			s.Remove(&links[i])
		}
	}
}
