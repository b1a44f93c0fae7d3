package allocrunner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// servers are what the agent of a world talks with: they forget an allocation
// when they have heard of its end.
type servers struct {
	w      *world
	runner *allocrunner.Runner
	forgot bool
}

func (s *servers) forget() {
	s.forgot = true
	s.runner.Stop()
}

// lives are the ways in which an allocation can end.
func lives() map[string]func(*servers) {
	return map[string]func(*servers){
		"EndsByItself": func(s *servers) {
			s.w.watch = func(context.Context, *allocrunner.Step) (allocrunner.News, error) { return allocrunner.Complete, nil }
		},
		"Stopped": func(s *servers) {
			s.w.watch = func(ctx context.Context, _ *allocrunner.Step) (allocrunner.News, error) {
				s.runner.Update(unwanted())
				<-ctx.Done()
				return allocrunner.Again, ctx.Err()
			}
		},
		"Forgotten": func(s *servers) {
			s.w.watch = func(ctx context.Context, _ *allocrunner.Step) (allocrunner.News, error) {
				s.forget()
				<-ctx.Done()
				return allocrunner.Again, ctx.Err()
			}
		},
		"FailsHalfway": func(s *servers) {
			s.w.fail = func(step string) error {
				if step == "up c" {
					return &allocrunner.Fatal{Err: errors.New("no such command")}
				}
				return nil
			}
		},
	}
}

// life runs an allocation to its end. The agent is killed in each of the given
// moments, counted from its own start, and if the machine goes down with it,
// the effects go too. It reports whether each of the kills happened.
func life(t *testing.T, script func(*servers), reboot bool, kills ...int) (all bool) {
	t.Helper()
	w := newWorld(t)
	s := &servers{w: w}
	script(s)
	w.heard = func(st api.AllocStatus) {
		if st.State.Terminal() {
			s.forget()
		}
	}
	run, died := 0, 0
	for ; w.record != nil || !s.forgot; run++ {
		w.moment, w.dieAt = 0, 0
		if run < len(kills) {
			w.dieAt = kills[run]
		}
		if run > len(kills) {
			t.Fatalf("killed in %v: the allocation has not ended: %s", kills, w.steps())
		}
		if w.record == nil && len(w.effects) > 0 {
			t.Fatalf("killed in %v: nothing is recorded, and %v is there: %s", kills, w.effects, w.steps())
		}
		record := localdb.Allocation{Assignment: wanted()}
		if w.record != nil {
			record = *w.record
		}
		s.runner = w.runner(record)
		if s.forgot {
			s.runner.Stop()
		}
		if dies(t, s.runner) {
			died++
			if reboot {
				clear(w.effects)
			}
		}
		w.journal = append(w.journal, "-")
	}
	if len(w.effects) > 0 || w.directory {
		t.Errorf("killed in %v: %v is left, directory %v: %s", kills, w.effects, w.directory, w.steps())
	}
	if t.Failed() {
		t.Fatalf("killed in %v, reboot %v: %s", kills, reboot, w.steps())
	}
	return died == len(kills)
}

func dies(t *testing.T, r *allocrunner.Runner) (died bool) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			if _, ours := p.(killed); !ours {
				panic(p)
			}
			died = true
		}
	}()
	if err := r.Run(t.Context()); err != nil {
		t.Errorf("Run: %v", err)
	}
	return false
}

// TestKilledInEveryMomentLeavesNothingBehind kills the agent before and after
// every effect, every record and every word to the servers, and the next agent
// in every moment of its recovery, with the machine and without. The world
// judges: order, record before effect, no end said early, nothing left.
func TestKilledInEveryMomentLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, script := range lives() {
		for _, reboot := range []bool{false, true} {
			title := name
			if reboot {
				title += "WithTheMachine"
			}
			t.Run(title, func(t *testing.T) {
				t.Parallel()
				runs := 0
				synctest.Test(t, func(t *testing.T) {
					life(t, script, reboot)
					for first := 1; life(t, script, reboot, first); first++ {
						for second := 1; life(t, script, reboot, first, second); second++ {
							runs++
						}
					}
				})
				if runs < 200 {
					t.Errorf("%d runs with two kills, want hundreds", runs)
				}
				t.Logf("%d runs with two kills", runs)
			})
		}
	}
}
