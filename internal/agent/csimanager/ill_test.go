package csimanager_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/csimanager"
	"github.com/berth-dev/berth/internal/agent/dynamicplugins"
)

// turns is what a manager tells of the health of its plugins.
type turns struct {
	manager *csimanager.Manager
	mu      sync.Mutex // guards all
	all     []string
}

func (u *turns) told(id api.PluginID) {
	said := string(id) + " serves"
	if p := u.manager.Ill(id); p != nil {
		said = p.Message
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all = append(u.all, said)
}

// take is what was told since it was last asked.
func (u *turns) take() string {
	synctest.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	said := strings.Join(u.all, "; ")
	u.all = nil
	return said
}

// turning is a manager that is told on, and what it tells.
func turning(t *testing.T) (*turns, *dynamicplugins.Registry, func()) {
	t.Helper()
	registry := dynamicplugins.New()
	u := &turns{manager: csimanager.NewManager(registry, newLedger(), &facts{}, discard())}
	u.manager.Turned(u.told)
	stop := runManager(t, u.manager)
	t.Cleanup(func() { stop() })
	return u, registry, stop
}

// A plugin that does not answer any more is told of once, with the reason and
// since when, and once when it is back.
func TestIllPluginIsToldOfOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, registry, _ := turning(t)
		d, kill, p := driver(t, csitest.Everything(), csitest.Node{})
		d.SetStarting(true)
		registry.Register(p)
		if got := u.take(); !strings.Contains(got, "is not healthy on this node: it is still starting") {
			t.Errorf("of one that starts was told %q", got)
		}
		d.SetStarting(false)
		time.Sleep(6 * time.Second)
		if got := u.take(); got != "provider serves" {
			t.Errorf("of one that serves was told %q", got)
		}
		kill()
		time.Sleep(31 * time.Second)
		since := u.manager.Ill(plugin)
		if got := u.take(); since == nil || !strings.HasPrefix(got, "plugin provider is not healthy on this node: ") || !strings.Contains(got, "connection refused") {
			t.Errorf("of a dead one was told %q, since %+v", got, since)
		}
		time.Sleep(time.Hour)
		if diff := cmp.Diff(since, u.manager.Ill(plugin)); diff != "" {
			t.Errorf("an hour later it is another illness (-then +now):\n%s", diff)
		}
		if got := u.take(); got != "" {
			t.Errorf("told again: %q", got)
		}
		d.Start(t)
		time.Sleep(6 * time.Second)
		if got := u.take(); got != "provider serves" || u.manager.Ill(plugin) != nil {
			t.Errorf("back, told %q, and %+v is left of it", got, u.manager.Ill(plugin))
		}
	})
}

// What serves no node calls, what another instance makes up for, and the end of
// the agent say nothing of the volumes that are mounted.
func TestPluginIsNotIll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, registry, stop := turning(t)
		_, killFirst, first := driver(t, csitest.Everything(), csitest.Node{})
		_, _, second := driver(t, csitest.Everything(), csitest.Node{})

		_, killController, controller := driver(t, csitest.Everything(), csitest.Node{Role: csitest.ControllerOnly})
		first.AllocID, second.AllocID, controller.AllocID = "alloc-1", "alloc-2", "alloc-3"
		for _, p := range []dynamicplugins.Plugin{first, second, controller} {
			registry.Register(p)
		}
		u.take()
		killFirst()
		killController()
		time.Sleep(time.Minute)
		if got := u.take(); got != "" || u.manager.Ill(plugin) != nil {
			t.Errorf("with one healthy instance of two was told %q", got)
		}
		stop()
		if got := u.take(); got != "" || u.manager.Ill(plugin) != nil {
			t.Errorf("at the end of the agent was told %q", got)
		}
	})
}

// One that left the node is ill for those that have its volumes still.
func TestPluginThatLeftIsIll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, registry, _ := turning(t)
		_, _, p := driver(t, csitest.Everything(), csitest.Node{})
		registry.Register(p)
		u.take()
		registry.Deregister(p.Key())
		if got := u.take(); got != "plugin provider is not healthy on this node: this node does not run it any more" {
			t.Errorf("told %q", got)
		}
		registry.Register(p)
		if got := u.take(); got != "provider serves" {
			t.Errorf("back, told %q", got)
		}
	})
}

// An instance that is withdrawn is not called any more and stays, as one that is
// not healthy. Its calls come to their end.
func TestWithdrawnInstanceStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		backend := csitest.NewBackend(csitest.Everything())
		d := backend.Node(csitest.Node{ID: "n1", MaxVolumes: 7, Topology: map[string]string{"zone": "a"}})
		d.Start(t)
		p := dynamicplugins.Plugin{ID: plugin, Type: api.InstanceMonolith, AllocID: "alloc-1", Dial: d.Dialer()}
		f.registry.Register(p)
		synctest.Wait()
		client, err := f.manager.Controller(plugin)
		if err != nil {
			t.Fatal(err)
		}
		hang := backend.Script(csitest.Rule{Method: "Probe", Times: 1, Do: csitest.Hang()})
		ended := make(chan error, 1)
		go func() {
			_, err := client.Probe(t.Context())
			ended <- err
		}()
		synctest.Wait()
		withdrawn := p
		withdrawn.Withdrawn = "its task driver is being stopped: it was asked to"
		f.registry.Register(withdrawn)
		began, drained := time.Now(), make(chan time.Duration, 1)
		go func() {
			f.manager.Drained(context.Background(), p.Key())
			drained <- time.Since(began)
		}()
		time.Sleep(5 * time.Second)
		if got := f.facts.last(t); got.Gone || got.Healthy || got.Driver == "" || got.Reason != withdrawn.Withdrawn {
			t.Errorf("said of it: %+v, want all that it was, not healthy, and why", got)
		}
		if _, err := f.manager.Controller(plugin); err == nil || !strings.Contains(err.Error(), withdrawn.Withdrawn) {
			t.Errorf("handed out: %v", err)
		}
		hang.Release()
		if err := <-ended; err != nil {
			t.Errorf("the call on its way: %v", err)
		}
		if took := <-drained; took != 5*time.Second {
			t.Errorf("the calls had ended after %s", took)
		}
		for _, s := range f.facts.said() {
			if s.Gone {
				t.Error("it was said to be gone")
			}
		}
	})
}
