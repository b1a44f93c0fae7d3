package hook_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// TestALongKillTimeoutIsNamed: who waited for an allocation's end was told only
// that its tasks end. Of an end that is quick nothing is said.
func TestALongKillTimeoutIsNamed(t *testing.T) {
	t.Parallel()
	for name, took := range map[string]time.Duration{"Long": time.Minute, "Quick": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, a := newFake(), assignment()
				a.Group.Tasks[0].KillTimeout = api.Duration(5 * time.Minute)
				d.slow = took
				h, s := tasks(d, a)
				if err := h.Up(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				down := make(chan error, 1)
				go func() { down <- h.Down(t.Context(), s) }()
				time.Sleep(took / 2)
				synctest.Wait()
				p := s.Ending()
				if name == "Quick" && p != nil {
					t.Errorf("of an end that is quick it is said %q", p.Message)
				}
				if name == "Long" {
					want := "task pg was asked to end, and has until " + began.Add(5*time.Minute).UTC().Format(time.RFC3339) + " (kill_timeout 5m); 'berth alloc signal " + string(allocID[:8]) + " --task pg SIGKILL' ends it at once"
					if p == nil || p.Message != want || !p.Since.Equal(began) || p.Step != api.StepStop {
						t.Errorf("it is said %+v, not %q since %s", p, want, began)
					}
				}
				if err := <-down; err != nil {
					t.Error(err)
				}
				if p := s.Ending(); p != nil {
					t.Errorf("when it has ended it is said %q", p.Message)
				}
			})
		})
	}
}

// TestAPoststopTaskThatRunsIsNamed: it holds the volumes, and nobody could see it.
func TestAPoststopTaskThatRunsIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, a := newFake(), assignment()
		a.Group.Tasks = append(a.Group.Tasks, api.Task{Name: "tidy", Driver: "fake", Lifecycle: &api.Lifecycle{Hook: api.HookPoststop}})
		h, s := tasks(d, a)
		if err := h.Up(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if err := h.Down(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		down := make(chan error, 1)
		go func() { down <- hook.NewPoststop(h, nil).Down(t.Context(), s) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if p := s.Ending(); p == nil || !strings.HasPrefix(p.Message, "task tidy runs after the others, and has until ") || !strings.Contains(p.Message, " (5m); ") {
			t.Errorf("it is said %+v", p)
		}
		d.end(id("tidy"), driver.Status{})
		if err := <-down; err != nil {
			t.Error(err)
		}
		if p := s.Ending(); p != nil {
			t.Errorf("when it has ended it is said %q", p.Message)
		}
	})
}
