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
