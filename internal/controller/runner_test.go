package controller_test

import (
	"context"
	"iter"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// quiet is a log in which nothing happens.
type quiet struct{ store *state.Store }

func (q quiet) View() state.View { return q.store.View() }
func (quiet) Now() time.Time     { return statetest.Now() }
func (quiet) Decide(context.Context, func(state.View, time.Time) (command.Plan, error), func(uint64, error)) (bool, error) {
	return false, nil
}

// waits is a controller with one key, which waits for ever.
type waits struct{ asked *int }

func (waits) Name() string { return "waits" }

func (waits) Pending(state.View) iter.Seq[controller.Key] {
	return func(yield func(controller.Key) bool) { yield("key") }
}

func (w waits) Reconcile(v state.View, _ time.Time, _ controller.Key) (plan controller.Plan, err error) {
	*w.asked++
	v.Cluster()
	plan.Wait("key", "for nothing", statetest.Now(), time.Time{})
	return plan, nil
}

// What waits is looked at again with new settings, although nothing that it
// waits for has changed.
func TestReplacedControllerLooksAtWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var before, after, later int
		r := controller.NewRunner(waits{new(int)}, quiet{statetest.Load(t, "")}, slog.New(slog.DiscardHandler))
		r.Replace(waits{&before}) // before it runs
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		synctest.Wait()
		r.Replace(waits{&after})
		synctest.Wait()
		r.Replace(waits{new(int)})
		r.Replace(waits{&later})
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if before == 0 || after == 0 || later == 0 {
			t.Errorf("asked %d, %d and %d times", before, after, later)
		}
	})
}
