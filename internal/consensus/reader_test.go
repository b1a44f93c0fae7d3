package consensus_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// TestReader/SeesWholeEntriesOnly: plans write two jobs and their revisions
// together, on a leader that changes, while somebody on each server reads
// whenever anything changes. The two always agree, and nothing goes back.
func TestReader(t *testing.T) {
	t.Parallel()
	t.Run("SeesWholeEntriesOnly", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 3)
			c.network.delay(5*time.Millisecond, rand.New(rand.NewPCG(6, 6)))
			ctx, cancel := context.WithCancel(t.Context())
			var readers, writers sync.WaitGroup
			for _, s := range c.servers {
				readers.Go(func() { readPairs(ctx, t, s) })
			}
			end := time.Now().Add(8 * time.Second)
			for range 4 {
				writers.Go(func() {
					for time.Now().Before(end) {
						writePair(ctx, t, c)
					}
				})
			}
			rnd := rand.New(rand.NewPCG(7, 7))
			for time.Now().Before(end) {
				disturb(c, rnd)
			}
			writers.Wait()
			leader := c.settled()
			cancel()
			readers.Wait()
			if n := look(leader.View(), "left").value; n < 100 {
				t.Errorf("only %d pairs were written", n)
			}
		})
	})
}

// writePair counts both jobs up.
func writePair(ctx context.Context, tb testing.TB, c *cluster) {
	plan := func(v state.View, _ time.Time) (command.Plan, error) {
		n := look(v, "left").value + 1
		return command.Plan{job("left", n), job("right", n)}, nil
	}
	for _, s := range c.servers {
		answered := make(chan error, 1)
		if _, err := s.Decide(ctx, plan, func(_ uint64, err error) { answered <- err }); err != nil {
			continue
		}
		if err := <-answered; err != nil && api.CodeOf(err) != api.CodeUnavailable && api.CodeOf(err) != api.CodeUncertain {
			tb.Error(err)
		}
	}
	time.Sleep(5 * time.Millisecond)
}

// readPairs looks at a server's state whenever it changes.
func readPairs(ctx context.Context, tb testing.TB, s *server) {
	var last uint64
	var before cell
	for ctx.Err() == nil {
		w := state.NewWatch()
		v := s.View().Watching(w)
		left, right := look(v, "left"), look(v, "right")
		if left != right {
			tb.Errorf("%s: left is %+v and right is %+v", s.id, left, right)
		}
		if left.version < before.version || left.value < before.value {
			tb.Errorf("%s: went back from %+v to %+v", s.id, before, left)
		}
		if v.Index() < last {
			tb.Errorf("%s: went back from index %d to %d", s.id, last, v.Index())
		}
		if j := v.Job(api.DefaultNamespace, "left"); j != nil {
			if r := v.Revision(j.UID, j.Revision); r == nil || valueOf(&r.Spec) != left.value || j.ModifyIndex > v.Index() {
				tb.Errorf("%s: at index %d, job %+v has revision %+v", s.id, v.Index(), j, r)
			}
		}
		last, before = v.Index(), left
		_ = w.Wait(ctx) // its end is the loop's
	}
}
