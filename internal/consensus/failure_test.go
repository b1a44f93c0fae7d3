package consensus_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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

// ledger is what writers of volumes were told, by volume.
type ledger struct {
	mu   sync.Mutex // guards told
	told map[int64][]error
}

func newLedger() *ledger { return &ledger{told: map[int64][]error{}} }

func (l *ledger) note(n int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[n] = append(l.told[n], err)
}

// writes makes writers write volumes through s, each its own, and waits until
// all have been answered. Half of them propose, half decide.
func (l *ledger) writes(tb testing.TB, s *server, first int64, writers, each int) {
	tb.Helper()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				n := first + int64(w*each+i)
				if w%2 == 0 {
					_, err := s.Propose(tb.Context(), volume(n))
					l.note(n, err)
					continue
				}
				answered := make(chan struct{}, 2)
				plan := func(state.View, time.Time) (command.Plan, error) { return command.Plan{volume(n)}, nil }
				_, err := s.Decide(tb.Context(), plan, func(_ uint64, err error) {
					l.note(n, err)
					answered <- struct{}{}
				})
				if err != nil {
					l.note(n, err)
					continue
				}
				<-answered
			}
		})
	}
	wg.Wait()
}

// check compares what was told with what is, and counts the answers by code.
func (l *ledger) check(tb testing.TB, v state.View) map[api.Code]int {
	tb.Helper()
	codes := map[api.Code]int{}
	for n, told := range l.told {
		if len(told) != 1 {
			tb.Errorf("volume %d: %d answers: %v", n, len(told), told)
		}
		there := v.Volume(api.DefaultNamespace, volume(n).ID) != nil
		code := api.CodeOf(told[0])
		codes[code]++
		switch {
		case code == "" && !there:
			tb.Errorf("volume %d: was told written, and is not there", n)
		case code == api.CodeUnavailable && there:
			tb.Errorf("volume %d: was told not written (%v), and is there", n, told[0])
		case code != "" && code != api.CodeUnavailable && code != api.CodeUncertain:
			tb.Errorf("volume %d: %v", n, told[0])
		}
	}
	return codes
}

// sound checks that the overlay is the committed state, once nothing is on its
// way, and answers what is in it.
func sound(tb testing.TB, s *server) (all map[string][]map[string]any) {
	tb.Helper()
	eventually(tb, "the overlay to be drained", func() bool {
		s.InTurn(func(overlay state.View, onTheirWay int) {
			if onTheirWay > 0 {
				return
			}
			all = rows(tb, overlay)
			if diff := cmp.Diff(rows(tb, s.View()), all); diff != "" {
				tb.Errorf("the overlay is not what was committed:\n%s", diff)
			}
		})
		return all != nil
	})
	return all
}

// answer is a future that is answered by hand.
type answer struct {
	raft.ApplyFuture
	err   error
	after time.Duration
}

func (a answer) Error() error {
	time.Sleep(a.after)
	return a.err
}

// late answers with err after a while in which more entries are sent.
func late(err error) raft.ApplyFuture { return answer{err: err, after: 50 * time.Millisecond} }

// TestFailedEntry: one entry in the middle of a pipeline comes to grief, while
// others are behind it.
func TestFailedEntry(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// fate is what happens to the entry instead of next.
		fate func(entry []byte, next consensus.Append) raft.ApplyFuture
		// told is how those are answered whose entry it is; "" if they are not
		// to notice.
		told api.Code
		// voids is whether the entries behind it must be void.
		voids bool
	}{
		"Refused": {
			fate: func([]byte, consensus.Append) raft.ApplyFuture { return late(raft.ErrNotLeader) },
			told: api.CodeUnavailable, voids: true,
		},
		"Lost": {
			fate: func([]byte, consensus.Append) raft.ApplyFuture { return late(raft.ErrLeadershipLost) },
			told: api.CodeUncertain, voids: true,
		},
		"LostByTheLogStore": {
			fate: func([]byte, consensus.Append) raft.ApplyFuture { return late(errors.New("input/output error")) },
			told: api.CodeUncertain, voids: true,
		},
		"CommittedAndNotHeardOf": {
			fate: func(entry []byte, next consensus.Append) raft.ApplyFuture {
				_ = next(entry)
				return late(raft.ErrLeadershipLost)
			},
			told: api.CodeUncertain,
		},
		"Delayed": {
			fate: func(entry []byte, next consensus.Append) raft.ApplyFuture {
				time.Sleep(time.Second)
				return next(entry)
			},
		},
		"CommittedTwice": {
			fate: func(entry []byte, next consensus.Append) raft.ApplyFuture {
				first := next(entry)
				_ = next(entry)
				return first
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var count atomic.Int64
				c := newCluster(t, 1)
				c.interpose = func(next consensus.Append) consensus.Append {
					return func(entry []byte) raft.ApplyFuture {
						if count.Add(1) == 10 {
							return test.fate(entry, next)
						}
						return next(entry)
					}
				}
				c.start()
				leader := c.leader()
				leader.disk.happens(func([]*raft.Log) error { time.Sleep(time.Millisecond); return nil }, nil)
				l := newLedger()
				l.writes(t, leader, 0, 40, 10)
				codes := l.check(t, leader.View())
				if n := codes[api.CodeUncertain]; (n > 0) != (test.told == api.CodeUncertain) {
					t.Errorf("%d writes are uncertain", n)
				}
				if n := codes[api.CodeUnavailable]; (n > 0) != (test.told != "") {
					t.Errorf("%d writes were told that nothing was written", n)
				}
				if n := voids(t, leader); (n > 0) != test.voids && name != "CommittedTwice" {
					t.Errorf("%d entries are void", n)
				}
				if drops := leader.Counters().Drops.Load(); (drops > 0) != (test.told != "") {
					t.Errorf("the overlay was dropped %d times", drops)
				}

				c.leader() // takes plans again
				again := newLedger()
				again.writes(t, leader, 1000, 40, 5)
				if codes := again.check(t, leader.View()); codes[""] != 200 {
					t.Errorf("afterwards: %v", codes)
				}
				sound(t, leader)
				replay(t, leader)
			})
		})
	}
}

// voids counts the entries in a server's log that changed nothing, because the
// one that they were planned on is not there.
func voids(tb testing.TB, s *server) (n int) {
	tb.Helper()
	var last state.EntryID
	for _, entry := range s.log(tb) {
		if entry.After != last {
			n++
			continue
		}
		last = entry.ID
	}
	return n
}

// TestFailedEntry/DoesNotApply is in a test of its own: it counts as a fault.
func TestEntryThatDoesNotApply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var count atomic.Int64
		codec := command.NewCodec()
		c := newCluster(t, 1)
		c.interpose = func(next consensus.Append) consensus.Append {
			return func(entry []byte) raft.ApplyFuture {
				if count.Add(1) != 10 {
					return next(entry)
				}
				// The log has something else than was planned.
				e, err := codec.Decode(entry)
				if err != nil {
					t.Error(err)
				}
				wrong, err := command.Plan{&command.DeleteVolume{Namespace: api.DefaultNamespace, ID: "none"}}.Encode()
				if err != nil {
					t.Error(err)
				}
				entry, err = command.EncodeEntry(e.ID, e.After, e.Time, []command.Encoded{wrong})
				if err != nil {
					t.Error(err)
				}
				return next(entry)
			}
		}
		c.start()
		leader := c.leader()
		leader.disk.happens(func([]*raft.Log) error { time.Sleep(time.Millisecond); return nil }, nil)
		l := newLedger()
		l.writes(t, leader, 0, 40, 10)
		for n, told := range l.told {
			there := leader.View().Volume(api.DefaultNamespace, volume(n).ID) != nil
			if len(told) != 1 || there != (told[0] == nil) {
				t.Errorf("volume %d: was told %v, and is there: %t", n, told, there)
			}
		}
		if n := leader.Diverged(); n != 1 {
			t.Errorf("%d entries failed after they were planned, and one did", n)
		}
		c.leader()
		again := newLedger()
		again.writes(t, leader, 1000, 40, 5)
		if codes := again.check(t, leader.View()); codes[""] != 200 {
			t.Errorf("afterwards: %v", codes)
		}
	})
}

// TestFailingDisk: the leader's log store fails in the middle of a burst. The
// leader steps down, and who wrote must be told the truth.
func TestFailingDisk(t *testing.T) {
	t.Parallel()
	broken := errors.New("input/output error")

	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprintf("Stored=%t", stored), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := formed(t, 3)
				c.network.delay(2*time.Millisecond, rand.New(rand.NewPCG(3, 3)))
				leader := c.leader()
				var count atomic.Int64
				fail := func([]*raft.Log) error {
					if count.Add(1) == 10 {
						return broken
					}
					return nil
				}
				if stored {
					leader.disk.happens(nil, fail)
				} else {
					leader.disk.happens(fail, nil)
				}
				l := newLedger()
				l.writes(t, leader, 0, 40, 10)
				if codes := l.check(t, c.settled().View()); codes[api.CodeUncertain] == 0 || codes[""] == 0 {
					t.Errorf("answers: %v", codes)
				}
				again := newLedger()
				leader = c.leader()
				again.writes(t, leader, 1000, 20, 5)
				if codes := again.check(t, c.settled().View()); codes[""] != 100 {
					t.Errorf("afterwards: %v", codes)
				}
				sound(t, c.leader())
			})
		})
	}

	// An entry that the disk has, and said that it has not, comes back.
	t.Run("FoundAfterRestart", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 1)
			s := c.servers[0]
			s.disk.happens(nil, func([]*raft.Log) error { return broken })
			_, err := s.Propose(t.Context(), volume(1))
			if api.CodeOf(err) != api.CodeUncertain {
				t.Errorf("a write that the disk failed to make was answered with %v", err)
			}
			s.disk.happens(nil, nil)
			c.stopServer(s)
			c.startServer(s)
			if c.leader().View().Volume(api.DefaultNamespace, volume(1).ID) == nil {
				t.Error("the write did not come back; this test needs another way to make it")
			}
		})
	})
}
