package csimanager_test

import (
	"context"
	"errors"
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
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// fleet is a manager with the drivers that it manages.
type fleet struct {
	t        testing.TB
	registry *dynamicplugins.Registry
	memory   *ledger
	facts    *facts
	manager  *csimanager.Manager
	stop     func()
}

func newFleet(t testing.TB) *fleet {
	f := &fleet{t: t, registry: dynamicplugins.New(), memory: newLedger()}
	f.start()
	t.Cleanup(func() { f.stop() })
	return f
}

func (f *fleet) start() {
	f.facts = &facts{}
	f.manager = csimanager.NewManager(f.registry, f.memory, f.facts, discard())
	f.stop = runManager(f.t, f.manager)
}

// restart starts another agent, with the plugins that it is configured with.
func (f *fleet) restart(plugins ...dynamicplugins.Plugin) {
	f.stop()
	f.registry = dynamicplugins.New()
	for _, p := range plugins {
		f.registry.Register(p)
	}
	f.start()
}

// driver starts a driver and answers the plugin that it serves.
func driver(t testing.TB, o csitest.Options, n csitest.Node) (d *csitest.Driver, kill func(), p dynamicplugins.Plugin) {
	t.Helper()
	n.ID, n.MaxVolumes, n.Topology = "n1", 7, map[string]string{"zone": "a"}
	d = csitest.NewBackend(o).Node(n)
	kinds := map[csitest.Role]api.InstanceType{
		csitest.Monolith: api.InstanceMonolith, csitest.ControllerOnly: api.InstanceController, csitest.NodeOnly: api.InstanceNode,
	}
	kill = d.Start(t)
	return d, kill, dynamicplugins.Plugin{ID: plugin, Type: kinds[n.Role], Dial: d.Dialer()}
}

func (f *fleet) wantLast(want api.InstanceStatus) {
	f.t.Helper()
	if diff := cmp.Diff(api.InstanceFact{PluginID: plugin, InstanceStatus: want}, f.facts.last(f.t)); diff != "" {
		f.t.Errorf("the newest fact (-want +got):\n%s", diff)
	}
}

// full is what a driver with every capability tells.
func full() api.InstanceStatus {
	return api.InstanceStatus{
		Type: api.InstanceMonolith, Healthy: true, Driver: "csitest.berth.dev", VendorVersion: "1.0.0",
		PluginCapabilities: []string{"CONTROLLER_SERVICE", "VOLUME_ACCESSIBILITY_CONSTRAINTS"},
		ControllerCapabilities: []string{
			"CLONE_VOLUME", "CREATE_DELETE_SNAPSHOT", "CREATE_DELETE_VOLUME", "GET_CAPACITY", "GET_VOLUME", "LIST_VOLUMES", "LIST_VOLUMES_PUBLISHED_NODES",
			"PUBLISH_READONLY", "PUBLISH_UNPUBLISH_VOLUME", "SINGLE_NODE_MULTI_WRITER", "VOLUME_CONDITION",
		},
		NodeCapabilities: []string{"GET_VOLUME_STATS", "SINGLE_NODE_MULTI_WRITER", "STAGE_UNSTAGE_VOLUME", "VOLUME_CONDITION"},
		ExternalNodeID:   "n1", MaxVolumes: 7, Topology: api.Topology{"zone": "a"},
	}
}

// least is what a plain driver tells that serves no controller.
func least() api.InstanceStatus {
	return api.InstanceStatus{
		Type: api.InstanceMonolith, Healthy: true, Driver: "csitest.berth.dev", VendorVersion: "1.0.0",
		PluginCapabilities: []string{}, NodeCapabilities: []string{"GET_VOLUME_STATS"},
		ExternalNodeID: "n1", MaxVolumes: 7,
	}
}

func with(s api.InstanceStatus, change func(*api.InstanceStatus)) api.InstanceStatus {
	change(&s)
	return s
}

func TestFingerprint_SaysWhatTheDriverIs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		options csitest.Options
		node    csitest.Node
		want    api.InstanceStatus
	}{
		"Everything": {csitest.Everything(), csitest.Node{}, full()},
		"Least":      {csitest.Options{NoController: true}, csitest.Node{}, least()},
		"NodeOnly": {csitest.Everything(), csitest.Node{Role: csitest.NodeOnly}, with(full(), func(s *api.InstanceStatus) {
			s.Type, s.ControllerCapabilities = api.InstanceNode, nil
		})},
		"ControllerOnly": {csitest.Everything(), csitest.Node{Role: csitest.ControllerOnly}, with(full(), func(s *api.InstanceStatus) {
			s.Type, s.NodeCapabilities, s.ExternalNodeID, s.MaxVolumes, s.Topology = api.InstanceController, nil, "", 0, nil
		})},
		"UnknownCapabilities": {
			csitest.Options{NoController: true, UnknownPlugin: []int32{0, 90}, UnknownNode: []int32{91, 4}}, csitest.Node{},
			with(least(), func(s *api.InstanceStatus) {
				s.PluginCapabilities = []string{"UNKNOWN", "UNKNOWN(90)"}
				s.NodeCapabilities = []string{"GET_VOLUME_STATS", "UNKNOWN(91)", "VOLUME_CONDITION"}
			}),
		},
		"UnknownControllerCapabilities": {
			csitest.Options{UnknownController: []int32{92}}, csitest.Node{Role: csitest.ControllerOnly},
			api.InstanceStatus{
				Type: api.InstanceController, Healthy: true, Driver: "csitest.berth.dev", VendorVersion: "1.0.0",
				PluginCapabilities:     []string{"CONTROLLER_SERVICE"},
				ControllerCapabilities: []string{"CREATE_DELETE_VOLUME", "GET_CAPACITY", "LIST_VOLUMES", "UNKNOWN(92)"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				_, _, p := driver(t, tc.options, tc.node)
				f.registry.Register(p)
				synctest.Wait()
				f.wantLast(tc.want)
				time.Sleep(time.Hour)
				if n := len(f.facts.said()); n != 1 {
					t.Errorf("a driver that does not change was reported %d times in an hour, want once", n)
				}
			})
		})
	}
}

// TestFingerprint_Fault lets one call of the fingerprint fail.
func TestFingerprint_Fault(t *testing.T) {
	t.Parallel()
	attach, zones := csitest.Options{Attach: true}, csitest.Options{Topology: true}
	for name, tc := range map[string]struct {
		options csitest.Options
		rule    csitest.Rule
		healthy bool
		reason  string
	}{
		"ProbeFails":              {attach, csitest.Rule{Method: "Probe", Do: csitest.Fail("FAILED_PRECONDITION", "no licence")}, false, "no licence"},
		"ProbeUnimplemented":      {attach, csitest.Rule{Method: "Probe", Do: csitest.Fail("UNIMPLEMENTED", "")}, false, "UNIMPLEMENTED"},
		"ProbeHangs":              {attach, csitest.Rule{Method: "Probe", Do: csitest.Hang()}, false, "DEADLINE_EXCEEDED"},
		"InfoFails":               {attach, csitest.Rule{Method: "GetPluginInfo", Do: csitest.Fail("INTERNAL", "no name")}, false, "no name"},
		"CapabilitiesFail":        {attach, csitest.Rule{Method: "GetPluginCapabilities", Do: csitest.Fail("INTERNAL", "none")}, false, "none"},
		"ControllerFails":         {attach, csitest.Rule{Method: "ControllerGetCapabilities", Do: csitest.Fail("UNAVAILABLE", "no cloud")}, false, "no cloud"},
		"NodeFails":               {attach, csitest.Rule{Method: "NodeGetCapabilities", Do: csitest.Fail("INTERNAL", "no node")}, false, "no node"},
		"NodeInfoFails":           {csitest.Options{}, csitest.Rule{Method: "NodeGetInfo", Do: csitest.Fail("INTERNAL", "no id")}, false, "no id"},
		"NodeInfoUnneeded":        {csitest.Options{}, csitest.Rule{Method: "NodeGetInfo", Do: csitest.Fail("UNIMPLEMENTED", "")}, true, ""},
		"NodeInfoNeededToAttach":  {attach, csitest.Rule{Method: "NodeGetInfo", Do: csitest.Fail("UNIMPLEMENTED", "")}, false, "UNIMPLEMENTED"},
		"NodeInfoNeededForPlaces": {zones, csitest.Rule{Method: "NodeGetInfo", Do: csitest.Fail("UNIMPLEMENTED", "")}, false, "UNIMPLEMENTED"},
		"ConnectionCut":           {attach, csitest.Rule{Method: "GetPluginInfo", Do: csitest.Drop()}, false, "UNAVAILABLE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t)
				backend := csitest.NewBackend(tc.options)
				fault := backend.Script(tc.rule)
				d := backend.Node(csitest.Node{ID: "n1", Topology: map[string]string{"zone": "a"}})
				d.Start(t)
				f.registry.Register(dynamicplugins.Plugin{ID: plugin, Type: api.InstanceMonolith, Dial: d.Dialer()})
				time.Sleep(time.Minute)
				if got := f.facts.last(t); got.Healthy != tc.healthy || !strings.Contains(got.Reason, tc.reason) {
					t.Errorf("said %+v, want healthy %t because of %q", got, tc.healthy, tc.reason)
				}
				if tc.healthy {
					return
				}
				// It is looked at again soon, and for as long as it takes.
				fault.Release()
				time.Sleep(6 * time.Second)
				if got := f.facts.last(t); !got.Healthy || got.Reason != "" {
					t.Errorf("mended, it is %+v, want it healthy", got)
				}
			})
		})
	}
}

func TestFingerprint_StartingDriverIsAwaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		d, _, p := driver(t, csitest.Everything(), csitest.Node{})
		d.SetStarting(true)
		f.registry.Register(p)
		time.Sleep(time.Hour)
		f.wantLast(api.InstanceStatus{Type: api.InstanceMonolith, Reason: "it is still starting"})
		if _, err := f.manager.Controller(plugin); err == nil || !strings.Contains(err.Error(), "still starting") {
			t.Errorf("the client of a starting driver: %v, want an error that says so", err)
		}
		d.SetStarting(false)
		time.Sleep(6 * time.Second)
		f.wantLast(full())
	})
}

// A driver that dies keeps its capabilities in what is said of it: what volumes
// need does not change with its health.
func TestDeadDriverKeepsItsCapabilities(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		d, kill, p := driver(t, csitest.Everything(), csitest.Node{})
		f.registry.Register(p)
		synctest.Wait()
		for range 3 {
			kill()
			time.Sleep(35 * time.Second)
			got := f.facts.last(t)
			if !strings.Contains(got.Reason, "connection refused") {
				t.Errorf("the reason is %q, want that nobody answers", got.Reason)
			}
			f.wantLast(with(full(), func(s *api.InstanceStatus) { s.Healthy, s.Reason = false, got.Reason }))
			kill = d.Start(t)
			time.Sleep(6 * time.Second)
			f.wantLast(full())
		}
	})
}

// A driver that was replaced behind its socket is called at once, although no
// fingerprint has seen it yet.
func TestRestartedDriverIsCalledAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		d, kill, p := driver(t, csitest.Everything(), csitest.Node{})
		f.registry.Register(p)
		synctest.Wait()
		kill()
		d.Start(t)
		synctest.Wait() // until the loss of the connection is seen
		client, err := f.manager.Controller(plugin)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Probe(t.Context()); err != nil {
			t.Errorf("call the driver that came back: %v", err)
		}
	})
}

// A plugin that is registered anew with another socket is another driver. The
// old one's connection goes, and it is never said that the plugin was gone.
func TestRegisteredAgainWithAnotherSocket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		_, _, old := driver(t, csitest.Options{Name: "old"}, csitest.Node{})
		_, _, replaced := driver(t, csitest.Options{Name: "new"}, csitest.Node{})
		f.registry.Register(old)
		synctest.Wait()
		client, err := f.manager.Controller(plugin)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			f.registry.Register(replaced)
		}
		synctest.Wait()
		if got := f.facts.last(t); !got.Healthy || got.Driver != "new" {
			t.Errorf("said %+v, want the new driver, healthy", got)
		}
		for _, s := range f.facts.said() {
			if s.Gone {
				t.Error("a plugin that was replaced was said to be gone")
			}
		}
		if _, err := client.Probe(t.Context()); err == nil {
			t.Error("the old driver can still be called")
		}
	})
}

func TestDeregisteredIsSaidToBeGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		_, _, p := driver(t, csitest.Everything(), csitest.Node{})
		f.registry.Register(p)
		synctest.Wait()
		f.registry.Deregister(p.Key())
		synctest.Wait()
		if diff := cmp.Diff(goneFact(), f.facts.last(t)); diff != "" {
			t.Errorf("the newest fact (-want +got):\n%s", diff)
		}
		if _, err := f.manager.Controller(plugin); err == nil || !strings.Contains(err.Error(), "does not run it") {
			t.Errorf("the client of a plugin that is gone: %v", err)
		}
		// It comes back as if it was new.
		f.registry.Register(p)
		synctest.Wait()
		f.wantLast(full())
	})
}

// A hung driver does not keep the manager from ending, nor its plugin from
// being taken away.
func TestHungDriverLetsGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		backend := csitest.NewBackend(csitest.Options{})
		backend.Script(csitest.Rule{Do: csitest.Hang()})
		d := backend.Node(csitest.Node{ID: "n1"})
		d.Start(t)
		p := dynamicplugins.Plugin{ID: plugin, Type: api.InstanceNode, Dial: d.Dialer()}
		f.registry.Register(p)
		synctest.Wait()
		began := time.Now()
		f.registry.Deregister(p.Key())
		synctest.Wait()
		if !f.facts.last(t).Gone {
			t.Error("the plugin is not gone")
		}
		f.registry.Register(p)
		synctest.Wait()
		f.stop()
		if took := time.Since(began); took > 0 {
			t.Errorf("letting go took %s", took)
		}
	})
}

func TestSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		settled := func(limit time.Duration) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			f.manager.Settled(ctx)
			return time.Since(began)
		}
		if took := settled(time.Minute); took != 0 {
			t.Errorf("without plugins it took %s", took)
		}
		_, _, healthy := driver(t, csitest.Everything(), csitest.Node{})
		f.registry.Register(healthy)
		if took := settled(time.Minute); took != 0 {
			t.Errorf("with a healthy driver it took %s", took)
		}
		d, _, slow := driver(t, csitest.Everything(), csitest.Node{})
		slow.ID = "slow"
		d.SetStarting(true)
		f.registry.Register(slow)
		if took := settled(time.Minute); took != time.Minute {
			t.Errorf("with a driver that does not start it took %s, want the whole minute", took)
		}
		time.AfterFunc(20*time.Second, func() { d.SetStarting(false) })
		if took := settled(time.Minute); took < 20*time.Second || took > 26*time.Second {
			t.Errorf("with a driver that starts after 20s it took %s", took)
		}
		// One that is taken away is not waited for.
		d.SetStarting(true)
		time.Sleep(time.Minute)
		time.AfterFunc(time.Second, func() { f.registry.Deregister(slow.Key()) })
		if took := settled(time.Minute); took != time.Second {
			t.Errorf("with a driver that is taken away after a second it took %s", took)
		}
	})
}

// A restarted agent whose driver is not up yet told the servers that it can
// nothing.
func TestRestartedAgentKnowsWhatTheDriverCan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		d, kill, p := driver(t, csitest.Everything(), csitest.Node{})
		f.registry.Register(p)
		synctest.Wait()
		kill()
		f.restart(p)
		time.Sleep(time.Minute)
		got := f.facts.last(t)
		f.wantLast(with(full(), func(s *api.InstanceStatus) { s.Healthy, s.Reason = false, got.Reason }))
		if !strings.Contains(got.Reason, "connection refused") {
			t.Errorf("the reason is %q, want that nobody answers", got.Reason)
		}
		if _, err := f.manager.Controller(plugin); err == nil {
			t.Error("a driver that has not answered this agent can be called")
		}
		d.Start(t)
		time.Sleep(6 * time.Second)
		f.wantLast(full())
		// As another type of instance it is another thing.
		f.stop()
		p.Type = api.InstanceNode
		p.Dial = csitest.NewBackend(csitest.Options{}).Node(csitest.Node{ID: "n1"}).Dialer()
		f.restart(p)
		time.Sleep(time.Minute)
		f.wantLast(api.InstanceStatus{Type: api.InstanceNode, Reason: f.facts.last(t).Reason})
	})
}

// A plugin that was taken out of the configuration while the agent was down
// stayed healthy in the servers' state for ever.
func TestPluginConfiguredAwayIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		_, _, p := driver(t, csitest.Everything(), csitest.Node{})
		f.registry.Register(p)
		synctest.Wait()
		for range 2 {
			f.restart()
			synctest.Wait()
			if diff := cmp.Diff([]api.InstanceFact{goneFact()}, f.facts.said()); diff != "" {
				t.Errorf("facts of an agent without the plugin (-want +got):\n%s", diff)
			}
		}
		f.restart(p)
		synctest.Wait()
		if diff := cmp.Diff([]api.InstanceFact{{PluginID: plugin, InstanceStatus: full()}}, f.facts.said()); diff != "" {
			t.Errorf("facts of an agent that has it again (-want +got):\n%s", diff)
		}
	})
}

// That an allocation's instance is gone was forgotten before the servers had
// heard it, and of one that had ended it was not forgotten before the next start.
func TestGoneIsSaidUntilItIsHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		_, _, p := driver(t, csitest.Everything(), csitest.Node{})
		p.AllocID = "alloc-1"
		f.registry.Register(p)
		synctest.Wait()
		gone := goneFact()
		gone.AllocID = p.AllocID
		f.memory.up = []api.AllocID{p.AllocID}
		f.registry.Deregister(p.Key())
		synctest.Wait()
		f.manager.Heard(gone)
		if known, _ := f.memory.Instances(); len(known) != 1 {
			t.Errorf("of an instance that is to come back is known: %+v", known)
		}
		f.memory.up = nil
		for range 2 {
			f.restart()
			synctest.Wait()
			if diff := cmp.Diff([]api.InstanceFact{gone}, f.facts.said()); diff != "" {
				t.Errorf("said before it was heard (-want +got):\n%s", diff)
			}
		}
		f.manager.Heard(gone)
		if known, _ := f.memory.Instances(); len(known) > 0 {
			t.Errorf("after it was heard is known: %+v", known)
		}
		f.restart()
		synctest.Wait()
		if said := f.facts.said(); len(said) > 0 {
			t.Errorf("said again: %+v", said)
		}
	})
}

// Of several instances of one plugin, one that can serve is found.
func TestHealthyInstanceIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		_, kill, dead := driver(t, csitest.Everything(), csitest.Node{})
		_, _, node := driver(t, csitest.Everything(), csitest.Node{Role: csitest.NodeOnly})
		node.AllocID = "alloc-1"
		kill()
		f.registry.Register(dead)
		f.registry.Register(node)
		time.Sleep(time.Minute)
		if _, err := f.manager.Controller(plugin); api.CodeOf(err) != api.CodeUnavailable {
			t.Errorf("a controller client: %v, want unavailable", err)
		}
		_, _, controller := driver(t, csitest.Everything(), csitest.Node{Role: csitest.ControllerOnly})
		controller.AllocID = "alloc-2"
		f.registry.Register(controller)
		synctest.Wait()
		client, err := f.manager.Controller(plugin)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.ControllerCapabilities(t.Context()); err != nil {
			t.Error(err)
		}
		// The two say who they are by their allocation.
		seen := map[api.AllocID]bool{}
		for _, s := range f.facts.said() {
			seen[s.AllocID] = s.Healthy
		}
		if diff := cmp.Diff(map[api.AllocID]bool{"": false, "alloc-1": true, "alloc-2": true}, seen); diff != "" {
			t.Errorf("health by allocation (-want +got):\n%s", diff)
		}
	})
}

func TestMemoryThatCannotBeReadEndsTheManager(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	m := csimanager.NewManager(dynamicplugins.New(), badMemory{newLedger(), broken}, &facts{}, discard())
	if err := m.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("the manager ended with %v, want the memory's error", err)
	}
}

// badMemory can be written and not be read.
type badMemory struct {
	*ledger
	err error
}

func (b badMemory) Instances() ([]localdb.Instance, error) { return nil, b.err }

// Many plugins that come and go leave nothing behind.
func TestManyPluginsComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		_, _, p := driver(t, csitest.Everything(), csitest.Node{})
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				own := p
				own.AllocID = api.AllocID([]string{"a", "b", "c", "d"}[i%4])
				for range 10 {
					f.registry.Register(own)
					time.Sleep(time.Duration(i) * time.Millisecond)
					f.registry.Deregister(own.Key())
				}
			})
		}
		all.Wait()
		synctest.Wait()
		last := map[api.AllocID]api.InstanceFact{}
		for _, s := range f.facts.said() {
			last[s.AllocID] = s
		}
		for id, s := range last {
			if !s.Gone {
				t.Errorf("the instance of allocation %s was last said to be %+v, want it gone", id, s)
			}
		}
	})
}

// goneFact is what is said of the plugin when the node has it no more.
func goneFact() api.InstanceFact {
	return api.InstanceFact{PluginID: plugin, Gone: true, InstanceStatus: api.InstanceStatus{Type: api.InstanceMonolith}}
}
