package consensus_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/consensus"
	"github.com/berth-dev/berth/internal/state"
)

// answers waits for what becomes of plans.
type answers struct {
	wg sync.WaitGroup
	mu sync.Mutex // guards errs
	// count is how often each plan was answered, and errs with which errors.
	count map[int]int
	errs  map[int]error
	index map[int]uint64
}

func newAnswers() *answers {
	return &answers{count: map[int]int{}, errs: map[int]error{}, index: map[int]uint64{}}
}

// done is what the n-th plan is answered with.
func (a *answers) done(n int) func(uint64, error) {
	a.wg.Add(1)
	return func(index uint64, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.count[n]++
		a.errs[n], a.index[n] = err, index
		if a.count[n] == 1 {
			a.wg.Done()
		}
	}
}

// never takes back done: the plan was refused at once.
func (a *answers) never() { a.wg.Done() }

// free is a volume that nobody has taken, or nil.
func free(v state.View) *api.Volume {
	for vol := range v.UnsettledVolumes() {
		return vol
	}
	return nil
}

// takeFree plans to take a volume that nobody has.
func takeFree(v state.View, _ time.Time) (command.Plan, error) {
	vol := free(v)
	if vol == nil {
		return nil, nil
	}
	return command.Plan{take(vol)}, nil
}

func TestBurst(t *testing.T) {
	t.Parallel()
	const volumes, takers, nodes, reports = 150, 200, 4, 12

	burst := func(t *testing.T) (*cluster, *server) {
		c := formed(t, 3)
		c.network.delay(5*time.Millisecond, rand.New(rand.NewPCG(1, 1)))
		leader := c.leader()
		answers := newAnswers()
		for i := range volumes {
			answers.wg.Go(func() {
				if _, err := leader.Propose(t.Context(), volume(int64(i))); err != nil {
					t.Errorf("propose volume %d: %v", i, err)
				}
			})
		}
		for i := range nodes {
			answers.wg.Go(func() {
				if _, err := leader.Propose(t.Context(), register(i)); err != nil {
					t.Errorf("register node %d: %v", i, err)
				}
				for seq := range uint64(reports) {
					if _, err := leader.Propose(t.Context(), report(i, seq+1)); err != nil {
						t.Errorf("report %d of node %d: %v", seq+1, i, err)
					}
				}
			})
		}
		for i := range takers {
			done := answers.done(i)
			answers.wg.Go(func() {
				if _, err := leader.Decide(t.Context(), takeFree, done); err != nil {
					t.Errorf("taker %d: %v", i, err)
					answers.never()
				}
			})
		}
		answers.wg.Wait()
		for i := range takers {
			if answers.count[i] != 1 || answers.errs[i] != nil {
				t.Errorf("taker %d got %d answers, the last %v", i, answers.count[i], answers.errs[i])
			}
		}
		// Some takers came before there was a volume. Take what is left.
		for free(leader.View()) != nil {
			done := answers.done(takers)
			if _, err := leader.Decide(t.Context(), takeFree, done); err != nil {
				t.Fatal(err)
			}
			answers.wg.Wait()
			answers.count[takers] = 0
		}
		return c, leader
	}

	t.Run("NothingIsTakenTwice", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, leader := burst(t)
			taken := map[api.VolumeID]int{}
			for op := range leader.View().Operations() {
				taken[op.VolumeID]++
			}
			if len(taken) != volumes {
				t.Errorf("%d volumes were taken, and there are %d", len(taken), volumes)
			}
			for vol, n := range taken {
				if n != 1 {
					t.Errorf("volume %s was taken %d times", vol, n)
				}
			}
			if n := leader.Counters().Conflicts.Load(); n != 0 {
				t.Errorf("%d conflicts among those who plan in turn", n)
			}
			c.settled()
			if _, most := replay(t, leader); most < 20 {
				t.Errorf("no entry has more than %d plans", most)
			}
		})
	})

	t.Run("NothingUselessIsLogged", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, leader := burst(t)
			c.settled()
			// One for the cluster's id, and one for each thing that happened.
			want := 1 + 2*volumes + nodes*(1+reports)
			if got, _ := replay(t, leader); got != want {
				t.Errorf("%d plans were logged for %d changes", got, want)
			}
		})
	})
}

// replay applies the log of a server to an empty state, which must give the
// server's own, and counts the plans in it, and how many an entry has at most.
// It fails the test for a plan that changed nothing, and for leaderships that
// interleave.
func replay(tb testing.TB, s *server) (plans, most int) {
	tb.Helper()
	store, err := state.New()
	if err != nil {
		tb.Fatal(err)
	}
	leaderships := map[string]uint64{}
	for index, entry := range s.log(tb) {
		if entry.After != store.View().Log().Last {
			continue // void
		}
		most = max(most, len(entry.Plans))
		fork := store.Fork()
		fork.At(entry.Time)
		for i, p := range entry.Plans {
			plans++
			before := fork.Writes()
			if err := p.Apply(fork); err != nil {
				tb.Errorf("entry %d, plan %d: %v", index, i, err)
			}
			if fork.Writes() == before {
				tb.Errorf("entry %d, plan %d changes nothing", index, i)
			}
		}
		if last, known := leaderships[entry.ID.Leadership]; entry.ID.Sequence != last+1 ||
			known && store.View().Log().Last.Leadership != entry.ID.Leadership {
			tb.Errorf("entry %d is number %d of its leadership, after %d and after %v", index, entry.ID.Sequence, last, store.View().Log().Last)
		}
		leaderships[entry.ID.Leadership] = entry.ID.Sequence
		if err := entry.Apply(store, index); err != nil {
			tb.Errorf("entry %d: %v", index, err)
		}
	}
	if diff := cmp.Diff(rows(tb, store.View()), rows(tb, s.View())); diff != "" {
		tb.Errorf("the log gives another state than %s has:\n%s", s.id, diff)
	}
	return plans, most
}

// log yields the entries in a server's log.
func (s *server) log(tb testing.TB) func(yield func(uint64, *command.Entry) bool) {
	tb.Helper()
	codec := command.NewCodec()
	first, err := s.disk.FirstIndex()
	if err != nil {
		tb.Fatal(err)
	}
	last, err := s.disk.LastIndex()
	if err != nil {
		tb.Fatal(err)
	}
	return func(yield func(uint64, *command.Entry) bool) {
		for i := first; i <= last; i++ {
			var l raft.Log
			if err := s.disk.GetLog(i, &l); err != nil {
				tb.Fatal(err)
			}
			if l.Type != raft.LogCommand {
				continue
			}
			entry, err := codec.Decode(l.Data)
			if err != nil {
				tb.Fatalf("entry %d: %v", i, err)
			}
			if !yield(i, entry) {
				return
			}
		}
	}
}

// TestPipeline/PlansWhileEntriesCommit: while followers take their time, raft
// gets as many entries as it may have, and no more.
func TestPipeline(t *testing.T) {
	t.Parallel()
	t.Run("PlansWhileEntriesCommit", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			sent, committed, most := 0, 0, 0
			c := newCluster(t, 3)
			c.interpose = func(next consensus.Append) consensus.Append {
				return func(entry []byte) raft.ApplyFuture {
					mu.Lock()
					defer mu.Unlock()
					sent++
					most = max(most, sent-committed)
					return counted{next(entry), func() {
						mu.Lock()
						defer mu.Unlock()
						committed++
					}}
				}
			}
			c.start()
			leader := c.leader()
			c.network.delay(100*time.Millisecond, rand.New(rand.NewPCG(2, 2)))
			var wg sync.WaitGroup
			for caller := range 64 {
				wg.Go(func() {
					for i := range 10 {
						if _, err := leader.Propose(t.Context(), volume(int64(100*caller+i))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if most != consensus.MaxInFlight {
				t.Errorf("at most %d entries were on their way, and %d may be", most, consensus.MaxInFlight)
			}
		})
	})

	t.Run("FullQueueAnswersWhoGivesUp", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 3)
			leader := c.leader()
			release := make(chan struct{})
			leader.disk.happens(func([]*raft.Log) error { <-release; return nil }, nil)
			const queue = 8192
			answers := newAnswers()
			for i := range queue {
				plan := func(state.View, time.Time) (command.Plan, error) { return command.Plan{volume(int64(i))}, nil }
				if _, err := leader.Decide(t.Context(), plan, answers.done(i)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := leader.Propose(ctx, volume(queue)); api.CodeOf(err) != api.CodeUnavailable {
				t.Errorf("a write beyond the queue was answered with %v", err)
			}
			close(release)
			answers.wg.Wait()
			if _, err := leader.Propose(t.Context(), volume(queue)); err != nil {
				t.Errorf("a write after the queue had emptied: %v", err)
			}
		})
	})
}

// counted is a future that tells when it is answered.
type counted struct {
	raft.ApplyFuture
	answered func()
}

func (c counted) Error() error {
	err := c.ApplyFuture.Error()
	c.answered()
	return err
}
