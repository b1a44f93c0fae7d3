package consensus_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// TestOverlay/IsWhatTheLogProduces: after any mix of plans, good and bad, what
// was planned is what was committed, row for row.
func TestOverlay(t *testing.T) {
	t.Parallel()
	const rounds, callers, plans = 12, 6, 25

	for seed := range seeds(3) {
		t.Run(fmt.Sprintf("IsWhatTheLogProduces/Seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := formed(t, 3)
				leader := c.leader()
				leader.disk.happens(func([]*raft.Log) error { time.Sleep(time.Millisecond); return nil }, nil)
				missing := []string{"allocations", "attachments", "instances", "operations", "publications", "volumes"}
				// What is drawn comes in no fixed order, and some of it seldom.
				for round := range uint64(10 * rounds) {
					if round >= rounds && len(missing) == 0 {
						break
					}
					var wg sync.WaitGroup
					for caller := range uint64(callers) {
						wg.Go(func() { live(t, leader, rand.New(rand.NewPCG(seed, round<<8+caller)), plans) })
					}
					wg.Wait()
					seen := sound(t, leader)
					missing = slices.DeleteFunc(missing, func(table string) bool { _, there := seen[table]; return there })
				}
				c.settled()
				replay(t, leader)
				if n := leader.Counters().Drops.Load(); n != 0 {
					t.Errorf("the overlay was dropped %d times", n)
				}
				if len(missing) > 0 {
					t.Errorf("there never was anything in tables %q", missing)
				}
			})
		})
	}

	// The same thing said in two ways: what is in memory differs, and what is
	// in the log does not.
	t.Run("EmptyIsNone", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 1)
			leader := c.leader()
			held := make(chan struct{})
			leader.disk.happens(func([]*raft.Log) error { <-held; return nil }, nil)
			var wg sync.WaitGroup
			propose := func(c command.Command) {
				wg.Go(func() {
					if _, err := leader.Propose(t.Context(), c); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			propose(job("other", 1)) // on its way, so that the overlay is not the committed state
			first := job("job", 1)
			first.Spec.Groups[0].Tasks[0].Config = map[string]any{"port": 80}
			first.Spec.Groups[0].Tasks[0].Env = map[string]string{}
			propose(first)
			again := job("job", 1)
			again.Spec.Groups[0].Tasks[0].Config = map[string]any{"port": 80.0}
			again.Spec.Groups[0].Tasks[0].Env = nil
			propose(again)
			settle := &command.SettleJob{Namespace: api.DefaultNamespace, ID: "job"}
			leader.InTurn(func(overlay state.View, _ int) {
				settle.Version = overlay.Job(api.DefaultNamespace, "job").Version
			})
			propose(settle)
			close(held)
			wg.Wait()
			if n := leader.Diverged(); n != 0 {
				t.Errorf("%d entries failed that had been planned", n)
			}
			sound(t, leader)
		})
	})

	// A plan that fails is undone while some entries are applied already and
	// not answered yet.
	t.Run("RepairWhileEntriesApply", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 1)
			leader := c.leader()
			fails := func(_ state.View, _ time.Time) (command.Plan, error) {
				return command.Plan{volume(-1), &command.DeleteVolume{Namespace: api.DefaultNamespace, ID: "none"}}, nil
			}
			answers := newAnswers()
			for i := range 100 {
				plan := func(state.View, time.Time) (command.Plan, error) { return command.Plan{volume(int64(i))}, nil }
				if _, err := leader.Decide(t.Context(), plan, answers.done(i)); err != nil {
					t.Fatal(err)
				}
				if _, err := leader.Decide(t.Context(), fails, nil); api.CodeOf(err) != api.CodeNotFound {
					t.Errorf("the plan that fails was answered with %v", err)
				}
				leader.InTurn(func(overlay state.View, _ int) {
					for n := range i + 1 {
						if overlay.Volume(api.DefaultNamespace, volume(int64(n)).ID) == nil {
							t.Errorf("volume %d is gone from the overlay", n)
						}
					}
				})
			}
			answers.wg.Wait()
			sound(t, leader)
		})
	})
}

// live makes n random plans, one after the other.
func live(tb testing.TB, s *server, rnd *rand.Rand, n int) {
	l := life{rnd}
	for range n {
		answered := make(chan error, 1)
		var plan command.Plan
		decide := func(v state.View, now time.Time) (command.Plan, error) {
			plan = l.plan(v, now)
			return plan, nil
		}
		_, err := s.Decide(tb.Context(), decide, func(_ uint64, err error) { answered <- err })
		if err == nil {
			if err = <-answered; err != nil {
				tb.Errorf("%s: %v", describe(plan), err)
			}
			continue
		}
		switch api.CodeOf(err) {
		case api.CodeInternal, api.CodeUnavailable, api.CodeUncertain:
			tb.Errorf("%s: %v", describe(plan), err)
		default: // it did not fit
		}
	}
}

func describe(p command.Plan) string {
	text := ""
	for _, c := range p {
		text += fmt.Sprintf("%s %s; ", c.Kind(), cmp.Diff(nil, c))
	}
	return text
}
