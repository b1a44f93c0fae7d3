package consensus_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// TestShutdown: synctest and goleak see to it that no goroutine is left.
func TestShutdown(t *testing.T) {
	t.Parallel()

	t.Run("AnswersWhatIsOnItsWay", func(t *testing.T) {
		t.Parallel()
		for seed := range seeds(5) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 10))
				c := formed(t, 3)
				c.network.delay(20*time.Millisecond, rand.New(rand.NewPCG(seed, 11)))
				leader := c.leader()
				answers := newAnswers()
				refused := 0
				began := time.Now()
				stop := began.Add(time.Duration(rnd.IntN(50)) * time.Millisecond)
				for i := 0; time.Now().Before(stop); i++ {
					plan := func(state.View, time.Time) (command.Plan, error) { return command.Plan{volume(int64(i))}, nil }
					if _, err := leader.Decide(t.Context(), plan, answers.done(i)); err != nil {
						answers.never()
						refused++
					}
					time.Sleep(100 * time.Microsecond)
				}
				c.stopServer(leader)
				answers.wg.Wait()
				if took := time.Since(stop); took > 2*time.Second {
					t.Errorf("it took %s", took)
				}
				settled := c.settled().View()
				for i, n := range answers.count {
					there := settled.Volume(api.DefaultNamespace, volume(int64(i)).ID) != nil
					if code := api.CodeOf(answers.errs[i]); n != 1 || code == "" && !there || code == api.CodeUnavailable && there {
						t.Errorf("volume %d: %d answers, the last %v; it is there: %t", i, n, answers.errs[i], there)
					}
				}
			})
		}
	})

	t.Run("WhileTheNetworkIsCut", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 3)
			leader := c.leader()
			c.network.isolate(leader)
			answers := newAnswers()
			plan := func(state.View, time.Time) (command.Plan, error) { return command.Plan{volume(1)}, nil }
			if _, err := leader.Decide(t.Context(), plan, answers.done(1)); err != nil {
				t.Fatal(err)
			}
			c.stop()
			answers.wg.Wait()
			if api.CodeOf(answers.errs[1]) != api.CodeUncertain {
				t.Errorf("a write that no other server has was answered with %v", answers.errs[1])
			}
		})
	})

	t.Run("BeforeItFormed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3)
			c.startServer(c.servers[0])
			time.Sleep(time.Second)
			c.stop()
		})
	})

	t.Run("FilesAreClosed", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		for range 3 {
			a := single(t, dir)
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestLead: what only a leader runs.
func TestLead(t *testing.T) {
	t.Parallel()

	t.Run("OneAtATime", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var leaders, terms atomic.Int64
			c := newCluster(t, 3)
			c.lead = func(ctx context.Context, _ *server) error {
				terms.Add(1)
				if n := leaders.Add(1); n > 1 {
					t.Errorf("%d lead at once", n)
				}
				defer leaders.Add(-1)
				<-ctx.Done()
				return nil
			}
			c.start()
			for range 5 {
				c.network.isolate(c.leader())
				time.Sleep(5 * time.Second)
				c.network.heal()
			}
			if n := terms.Load(); n < 5 {
				t.Errorf("the leader was cut off five times, and there were %d leaderships", n)
			}
			c.settled()
		})
	})

	t.Run("WhatFailsGoesToAnother", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var first atomic.Pointer[server]
			var tries atomic.Int64
			c := newCluster(t, 3)
			c.lead = func(ctx context.Context, s *server) error {
				if first.CompareAndSwap(nil, s) || first.Load() == s {
					tries.Add(1)
					return errors.New("no luck")
				}
				<-ctx.Done()
				return nil
			}
			c.start()
			eventually(t, "another server to lead", func() bool {
				l := c.leader()
				return first.Load() != nil && l != first.Load()
			})
			time.Sleep(10 * time.Second)
			if n := tries.Load(); n > 3 {
				t.Errorf("the first leader tried %d times, and others could", n)
			}
			propose(t, c.leader(), volume(1))
		})
	})

	t.Run("AloneTriesAgain", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var tries atomic.Int64
			c := newCluster(t, 1)
			c.lead = func(ctx context.Context, _ *server) error {
				if tries.Add(1) < 3 {
					return errors.New("no luck")
				}
				<-ctx.Done()
				return nil
			}
			c.start()
			eventually(t, "the third try", func() bool { return tries.Load() == 3 })
			propose(t, c.leader(), volume(1))
		})
	})

	// A leader whose disk hangs cannot keep the others from going on.
	t.Run("DiskHangs", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 3)
			old := c.leader()
			hang := make(chan struct{})
			old.disk.happens(func([]*raft.Log) error { <-hang; return nil }, nil)
			answers := newAnswers()
			for i := range 10 {
				plan := func(state.View, time.Time) (command.Plan, error) { return command.Plan{volume(int64(i))}, nil }
				if _, err := old.Decide(t.Context(), plan, answers.done(i)); err != nil {
					t.Fatal(err)
				}
			}
			c.network.isolate(old)
			eventually(t, "another leader", func() bool {
				for _, s := range c.servers {
					if s != old && s.Ready() {
						return true
					}
				}
				return false
			})
			close(hang)
			c.network.heal()
			answers.wg.Wait()
			settled := c.settled().View()
			for i, err := range answers.errs {
				there := settled.Volume(api.DefaultNamespace, volume(int64(i)).ID) != nil
				if code := api.CodeOf(err); code == "" && !there || code == api.CodeUnavailable && there {
					t.Errorf("volume %d was told %v, and is there: %t", i, err, there)
				}
			}
		})
	})
}
