package agent_test

import (
	"context"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// keeper is a driver that finds itself healthy, and whose answer to any other
// look is too late.
type keeper struct{ *tasks }

func (keeper) Fingerprint(context.Context) api.Driver {
	return api.Driver{Reason: "it does not answer"}
}

func (keeper) Run(ctx context.Context, _ func(api.AllocID) bool, saw func(api.Driver)) error {
	for ctx.Err() == nil {
		saw(api.Driver{Healthy: true})
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

// One look at a slow driver, made for a registration, had the servers believe for
// ever that it is not healthy.
func TestDriverIsSaidToBeWhatItSeesItself(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.config.Drivers = []driver.Driver{keeper{w.tasks}}
		a, stop := w.start()
		defer stop()
		for _, when := range []string{"at first", "after another registration"} {
			w.server.mu.Lock()
			is := w.server.drivers["fake"]
			w.server.mu.Unlock()
			if !is.Healthy {
				t.Errorf("%s the servers hear %+v", when, is)
			}
			a.Describe(api.Profile{Class: "big"}, nil)
			after(time.Minute)
		}
	})
}

// returning is a driver whose engine is away for a while.
type returning struct{ *tasks }

func (returning) Run(ctx context.Context, _ func(api.AllocID) bool, saw func(api.Driver)) error {
	for _, healthy := range []bool{true, false, true} {
		saw(api.Driver{Healthy: healthy})
		select {
		case <-time.After(10 * time.Minute):
		case <-ctx.Done():
		}
	}
	return nil
}

// When an engine came back, its tasks were looked at when the next try was due, up
// to a minute later.
func TestTasksAreLookedAtWhenTheirEngineIsBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.config.Drivers = []driver.Driver{returning{w.tasks}}
		var r *scripted
		w.config.Runners = scripts(func(s *scripted) { r = s })
		w.server.place("a")
		_, stop := w.start()
		defer stop()
		for _, c := range []struct {
			when string
			want int32
		}{{"at first", 0}, {"while it is away", 0}, {"when it is back", 1}} {
			if n := r.retried.Load(); n != c.want {
				t.Errorf("%s it was looked %d times, want %d", c.when, n, c.want)
			}
			after(10 * time.Minute)
		}
	})
}
