package agent_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/agent/runner"
	"github.com/berth-dev/berth/internal/agent/runner/runnertest"
)

// scripted is a runner that is down when it is stopped, and gone when it may be.
type scripted struct {
	runner.Runner
	node    runner.Node
	stopped chan struct{}
	mayGo   chan struct{}
	serves  []api.PluginID
	needs   api.PluginID
	retried atomic.Int32
}

func (r *scripted) Work(ctx context.Context) (rests bool, err error) {
	for _, wait := range []chan struct{}{r.stopped, r.mayGo} {
		select {
		case <-wait:
		case <-ctx.Done():
			return false, nil
		}
		if wait == r.stopped {
			r.node.Down(r.ID())
		}
	}
	return false, nil
}

func (r *scripted) Stop() {
	select {
	case <-r.stopped:
	default:
		close(r.stopped)
	}
}

func (r *scripted) Again()                         {}
func (r *scripted) Retry()                         { r.retried.Add(1) }
func (r *scripted) Serves() []api.PluginID         { return r.serves }
func (r *scripted) Needs(plugin api.PluginID) bool { return r.needs == plugin }

// scripts makes scripted runners, which prepare changes.
func scripts(prepare func(*scripted)) runner.Factory {
	return func(n runner.Node, record localdb.Allocation) runner.Runner {
		r := &scripted{Runner: runnertest.New(n, record), node: n, stopped: make(chan struct{}), mayGo: make(chan struct{})}
		prepare(r)
		return r
	}
}

// An allocation that is being forgotten when the node is fenced kept it from ever
// saying that nothing is left.
func TestNodeOwesNothingOfAnAllocationThatWasAtItsVeryEnd(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		mayGo := make(chan struct{})
		w.config.Runners = scripts(func(r *scripted) { r.mayGo = mayGo })
		w.server.place("a")
		_, stop := w.start()
		defer stop()
		w.server.change(func(a *api.Assignments) { a.Allocations = nil })
		after(time.Minute)
		w.server.fence()
		after(time.Minute)
		if undone, _ := w.server.cleared(); undone != 0 {
			t.Error("it is said to be undone, and an allocation is not gone yet")
		}
		close(mayGo)
		after(5 * time.Minute)
		if undone, _ := w.server.cleared(); undone != 2 {
			t.Errorf("epoch %d is said to be undone, want 2", undone)
		}
	})
}

// While a plugin is exchanged the newer instance is healthy first, and mounts go
// with the older one's process: who has them looks when that has ended.
func TestEndOfAPluginHasItsVolumesLookedAt(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		users := map[api.AllocID]*scripted{}
		w.config.Runners = scripts(func(r *scripted) {
			switch r.ID() {
			case "plugin":
				r.serves = []api.PluginID{"fuse"}
			case "user":
				r.needs = "fuse"
			default:
				r.needs = "other"
			}
			users[r.ID()] = r
		})
		for _, id := range []api.AllocID{"plugin", "user", "stranger"} {
			w.server.place(id)
		}
		_, stop := w.start()
		defer stop()
		w.server.change(func(a *api.Assignments) { a.Allocations = a.Allocations[1:] })
		after(time.Minute)
		if n, other := users["user"].retried.Load(), users["stranger"].retried.Load(); n == 0 || other > 0 {
			t.Errorf("its user looked %d times, and another allocation %d times", n, other)
		}
	})
}
