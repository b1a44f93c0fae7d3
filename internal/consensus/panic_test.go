package consensus_test

import (
	"math"
	"strings"
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

// bad is a command that is wrong in every way that its fields ask for.
type bad struct {
	kind                             command.Kind
	panicsInValidate, panicsInEncode bool
	Number                           float64 `json:"number"`
}

func (b *bad) Kind() command.Kind { return b.kind }

func (b *bad) Validate() error {
	if b.panicsInValidate {
		panic("validate")
	}
	return nil
}

func (b *bad) MarshalText() ([]byte, error) {
	if b.panicsInEncode {
		panic("encode")
	}
	return []byte("bad"), nil
}

func (*bad) Apply(*state.Tx) error { panic("apply") }

// badPlans are plans that must be refused, whatever comes before the bad part.
// ended is an operation that has ended.
func badPlans(ended api.OperationID) map[string]command.Plan {
	first := volume(math.MaxInt32)
	return map[string]command.Plan{
		"NoCommand":       {first, nil},
		"NilCommand":      {first, (*command.ApplyVolume)(nil)},
		"PanicInValidate": {first, &bad{kind: "volume.apply", panicsInValidate: true}},
		"PanicInEncode":   {first, &bad{kind: "volume.apply", panicsInEncode: true}},
		"WrongBody":       {first, &bad{kind: "volume.apply"}},
		"UnknownKind":     {first, &bad{kind: "volume.explode"}},
		"RefusedSecond":   {first, &command.DeleteVolume{Namespace: api.DefaultNamespace, ID: "none"}},
		"RefusedByItself": {first, take(&api.Volume{Namespace: api.DefaultNamespace, ID: first.ID, Meta: api.Meta{Version: 99}})},
		// To collect a row twice panics in the middle of Apply, or is refused.
		"PanicInApply": {first, &command.Collect{Before: time.Now().AddDate(1, 0, 0), Operations: []api.OperationID{ended, ended}}},
	}
}

// endedOperation makes an operation that has ended.
func endedOperation(t *testing.T, s *server) api.OperationID {
	t.Helper()
	propose := func(c command.Command) {
		t.Helper()
		if _, err := s.Propose(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	v := volume(math.MaxInt32 - 1)
	propose(v)
	propose(take(s.View().Volume(v.Namespace, v.ID)))
	for op := range s.View().Operations() {
		propose(&command.CancelOperation{ID: op.ID, Version: op.Version, Reason: "test"})
		return op.ID
	}
	t.Fatal("there is no operation")
	return ""
}

func TestBadPlan(t *testing.T) {
	t.Parallel()

	t.Run("LeavesNothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 1)
			s := c.leader()
			ended := endedOperation(t, s)
			for name, plan := range badPlans(ended) {
				before := overlayRows(t, s)
				last, err := s.disk.LastIndex()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Propose(t.Context(), plan...); err == nil {
					t.Errorf("%s: Propose took it", name)
				}
				decide := func(state.View, time.Time) (command.Plan, error) { return plan, nil }
				writes, err := s.Decide(t.Context(), decide, func(uint64, error) { t.Errorf("%s: two answers", name) })
				if err == nil || writes {
					t.Errorf("%s: Decide took it", name)
				}
				synctest.Wait()
				if diff := cmp.Diff(before, overlayRows(t, s)); diff != "" {
					t.Errorf("%s: the overlay has changed:\n%s", name, diff)
				}
				if now, _ := s.disk.LastIndex(); now != last {
					t.Errorf("%s: something was logged", name)
				}
			}
			panics := func(state.View, time.Time) (command.Plan, error) { panic("decide") }
			if _, err := s.Decide(t.Context(), panics, nil); api.CodeOf(err) != api.CodeInternal {
				t.Errorf("a decision that panics was answered with %v", err)
			}
			if s.Counters().Panics.Load() == 0 {
				t.Error("no panic was counted")
			}
			if _, err := s.Propose(t.Context(), volume(math.MaxInt32)); err != nil {
				t.Errorf("a good plan afterwards: %v", err)
			}
			sound(t, s)
		})
	})

	// The others go on, with entries on their way that rest on each other.
	t.Run("HarmsNoOther", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c := formed(t, 1)
			s := c.leader()
			ended := endedOperation(t, s)
			s.disk.happens(func([]*raft.Log) error { time.Sleep(time.Millisecond); return nil }, nil)
			l := newLedger()
			var wg sync.WaitGroup
			wg.Go(func() { l.writes(t, s, 0, 30, 10) })
			for range 3 {
				wg.Go(func() {
					for name, plan := range badPlans(ended) {
						if _, err := s.Propose(t.Context(), plan...); err == nil {
							t.Errorf("%s: was taken", name)
						}
						time.Sleep(500 * time.Microsecond)
					}
				})
			}
			wg.Wait()
			if codes := l.check(t, s.View()); codes[""] != 300 {
				t.Errorf("good plans among bad ones: %v", codes)
			}
			if n := s.Counters().Drops.Load(); n != 0 {
				t.Errorf("the overlay was dropped %d times", n)
			}
			sound(t, s)
			replay(t, s)
		})
	})
}

// TestPlanTooLarge: raft's log does not take an entry of any size, and an error
// there would cost the leadership.
func TestPlanTooLarge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := formed(t, 1)
		s := c.leader()
		large := &command.StopJob{ID: api.JobID(strings.Repeat("x", consensus.MaxPlanBytes))}
		plan := func(state.View, time.Time) (command.Plan, error) { return command.Plan{large}, nil }
		if _, err := s.Decide(t.Context(), plan, nil); api.CodeOf(err) != api.CodeTooLarge {
			t.Errorf("it was answered with %.200v", err)
		}
	})
}

// overlayRows is what the overlay has.
func overlayRows(tb testing.TB, s *server) (all map[string][]map[string]any) {
	tb.Helper()
	s.InTurn(func(overlay state.View, _ int) { all = rows(tb, overlay) })
	if all == nil {
		tb.Fatal("there is no overlay")
	}
	return all
}
