package dynamicplugins_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/dynamicplugins"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// names renders plugins as id:allocation:type.
func names(plugins []*dynamicplugins.Plugin) []string {
	out := []string{}
	for _, p := range plugins {
		out = append(out, fmt.Sprintf("%s:%s:%s", p.ID, p.AllocID, p.Type))
	}
	return out
}

func plugin(id api.PluginID, alloc api.AllocID, kind api.InstanceType) dynamicplugins.Plugin {
	return dynamicplugins.Plugin{ID: id, AllocID: alloc, Type: kind}
}

func TestAll_IsInOrder(t *testing.T) {
	t.Parallel()
	r := dynamicplugins.New()
	for _, p := range []dynamicplugins.Plugin{
		plugin("b", "", api.InstanceNode), plugin("a", "2", api.InstanceNode),
		plugin("a", "", api.InstanceMonolith), plugin("a", "1", api.InstanceController),
	} {
		r.Register(p)
	}
	all, _ := r.All()
	if diff := cmp.Diff([]string{"a::monolith", "a:1:controller", "a:2:node", "b::node"}, names(all)); diff != "" {
		t.Errorf("plugins (-want +got):\n%s", diff)
	}
}

// TestAll_TellsOfTheNextChange looks at the channel that comes with a list.
func TestAll_TellsOfTheNextChange(t *testing.T) {
	t.Parallel()
	known := plugin("a", "", api.InstanceNode)
	for name, tc := range map[string]struct {
		change func(*dynamicplugins.Registry)
		told   bool
	}{
		"Register":   {func(r *dynamicplugins.Registry) { r.Register(plugin("b", "", api.InstanceNode)) }, true},
		"Replace":    {func(r *dynamicplugins.Registry) { r.Register(known) }, true},
		"Deregister": {func(r *dynamicplugins.Registry) { r.Deregister(known.Key()) }, true},
		"DeregisterUnknown": {func(r *dynamicplugins.Registry) {
			r.Deregister(dynamicplugins.Key{ID: "a", AllocID: "x", Type: api.InstanceNode})
		}, false},
		"Nothing": {func(*dynamicplugins.Registry) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := dynamicplugins.New()
			r.Register(known)
			_, changed := r.All()
			tc.change(r)
			told := false
			select {
			case <-changed:
				told = true
			default:
			}
			if told != tc.told {
				t.Errorf("the list told of a change: %t, want %t", told, tc.told)
			}
		})
	}
}

// A plugin that is registered again is another one, even if it looks the same:
// its driver may have been replaced behind the same socket.
func TestReplaced_IsAnotherPlugin(t *testing.T) {
	t.Parallel()
	r := dynamicplugins.New()
	p := plugin("a", "", api.InstanceNode)
	r.Register(p)
	before, _ := r.All()
	r.Register(p)
	after, _ := r.All()
	if len(after) != 1 || before[0] == after[0] {
		t.Errorf("registered again, the plugins are %v, want one that is not the old one", names(after))
	}
}

func TestWatch_SeesEveryChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := dynamicplugins.New()
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var seen [][]string
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Watch(ctx, func(plugins []*dynamicplugins.Plugin) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, names(plugins))
			})
		}()
		step := func(change func()) {
			change()
			synctest.Wait()
		}
		step(func() {})
		step(func() { r.Register(plugin("a", "", api.InstanceNode)) })
		step(func() { r.Register(plugin("b", "1", api.InstanceController)) })
		step(func() { r.Register(plugin("a", "", api.InstanceController)) })
		step(func() {
			r.Deregister(dynamicplugins.Key{ID: "b", AllocID: "1", Type: api.InstanceController})
		})
		step(cancel)
		<-ended
		step(func() { r.Register(plugin("c", "", api.InstanceNode)) })
		want := [][]string{
			{}, {"a::node"}, {"a::node", "b:1:controller"}, {"a::controller", "a::node", "b:1:controller"}, {"a::controller", "a::node"},
		}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("seen (-want +got):\n%s", diff)
		}
	})
}

// What changes while a watcher looks is seen at its next look, however much
// that was.
func TestWatch_SeesWhatChangedWhileItLooked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := dynamicplugins.New()
		ctx, cancel := context.WithCancel(t.Context())
		looking, goOn := make(chan []string), make(chan struct{})
		var watcher sync.WaitGroup
		watcher.Go(func() {
			r.Watch(ctx, func(plugins []*dynamicplugins.Plugin) {
				looking <- names(plugins)
				<-goOn
			})
		})
		<-looking
		const many = 20
		var writers sync.WaitGroup
		for i := range many {
			writers.Go(func() { r.Register(plugin(api.PluginID(fmt.Sprintf("p%02d", i)), "", api.InstanceNode)) })
		}
		writers.Wait()
		r.Deregister(dynamicplugins.Key{ID: "p07", Type: api.InstanceNode})
		goOn <- struct{}{}
		got := <-looking
		if len(got) != many-1 || slices.Contains(got, "p07::node") {
			t.Errorf("the next look shows %v, want all but p07", got)
		}
		cancel()
		goOn <- struct{}{}
		watcher.Wait()
	})
}

func TestWatch_EndedContextSeesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dynamicplugins.New().Watch(ctx, func(plugins []*dynamicplugins.Plugin) {
		t.Errorf("a watch that has ended was shown %v", names(plugins))
	})
}
