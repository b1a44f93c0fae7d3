package csimanager

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/dynamicplugins"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/telemetry"
)

// Facts is where the manager says how plugins are.
type Facts interface {
	SetInstance(f api.InstanceFact)
}

// Memory is what a manager keeps across restarts of the agent.
type Memory interface {
	Instances() ([]localdb.Instance, error)
	PutInstance(i *localdb.Instance) error
	DeleteInstance(i *localdb.Instance) error
	Allocations() ([]localdb.Allocation, error)
}

// Manager keeps an instance for every registered plugin.
type Manager struct {
	registry *dynamicplugins.Registry
	memory   Memory
	facts    Facts
	log      *slog.Logger
	calls    *telemetry.Durations
	// turned is told of every plugin of which an instance has become healthy, and
	// of every one that does not serve the node any more; nil for nobody.
	turned func(api.PluginID)

	mu        sync.Mutex // guards below
	told      map[dynamicplugins.Key]api.InstanceStatus
	instances map[dynamicplugins.Key]*instance
	calling   map[dynamicplugins.Key]int // instances that may have calls, also those that have ended
	ill       map[api.PluginID]api.Problem
	changed   chan struct{} // closed and replaced when an instance comes, goes, or changes its health
}

// NewManager returns a manager. It starts nothing.
func NewManager(registry *dynamicplugins.Registry, memory Memory, facts Facts, log *slog.Logger) *Manager {
	return &Manager{
		registry: registry, memory: memory, facts: facts, log: log,
		told:      map[dynamicplugins.Key]api.InstanceStatus{},
		instances: map[dynamicplugins.Key]*instance{}, calling: map[dynamicplugins.Key]int{}, changed: make(chan struct{}),
		ill: map[api.PluginID]api.Problem{},
	}
}

// Turned makes the manager tell of every plugin of which an instance has become
// healthy, and of every one that does not serve the node any more. It is called
// before Run.
func (m *Manager) Turned(tell func(api.PluginID)) { m.turned = tell }

// Measure makes the manager measure the calls of drivers, from its next instance
// on.
func (m *Manager) Measure(r *telemetry.Registry) {
	m.calls = r.Durations("berth_csi_call_seconds", "How long calls of CSI drivers took, by their gRPC codes", "plugin", "method", "code")
}

func (m *Manager) measure(id api.PluginID) func(method, code string, took time.Duration) {
	return func(method, code string, took time.Duration) { m.calls.Observe(took, string(id), method, code) }
}

// Run keeps instances until ctx ends: every registered plugin has one, and an
// instance whose plugin is gone ends.
func (m *Manager) Run(ctx context.Context) error {
	if err := m.remember(); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.registry.Watch(ctx, func(plugins []*dynamicplugins.Plugin) {
		wanted := map[dynamicplugins.Key]*dynamicplugins.Plugin{}
		for _, p := range plugins {
			wanted[p.Key()] = p
		}
		for _, i := range m.all() {
			if wanted[i.plugin.Key()] != i.plugin {
				i.stop()
			}
		}
		for key, p := range wanted {
			if i := m.add(ctx, key, p); i != nil {
				running.Go(i.run)
			}
		}
	})
	return nil
}

// remember reads what instances have told to earlier agents. The servers may
// still believe in those whose plugin was configured away in between, or whose
// allocation ended: it is said that they are gone until that is heard.
func (m *Manager) remember() error {
	known, err := m.memory.Instances()
	if err != nil {
		return err
	}
	plugins, _ := m.registry.All()
	registered := map[dynamicplugins.Key]bool{}
	for _, p := range plugins {
		registered[p.Key()] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range known {
		key := dynamicplugins.Key{ID: known[i].PluginID, AllocID: known[i].AllocID, Type: known[i].Status.Type}
		m.told[key] = known[i].Status
		if !registered[key] {
			m.facts.SetInstance(goneFact(key))
		}
	}
	return nil
}

// Heard notes that the servers know that an instance is gone. What it told is
// forgotten, unless it is to come back.
func (m *Manager) Heard(gone api.InstanceFact) {
	key := dynamicplugins.Key{ID: gone.PluginID, AllocID: gone.AllocID, Type: gone.Type}
	if err := m.forget(key); err != nil {
		m.log.Error("plugin instance could not be forgotten", "plugin", key.ID, "error", err)
	}
}

func (m *Manager) forget(key dynamicplugins.Key) error {
	allocations, err := m.memory.Allocations()
	if err != nil {
		return err
	}
	for i := range allocations {
		if a := &allocations[i]; a.Assignment.ID == key.AllocID && a.Phase == localdb.PhaseUp {
			return nil
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.instances[key] != nil {
		return nil
	}
	delete(m.told, key)
	return m.memory.DeleteInstance(&localdb.Instance{PluginID: key.ID, AllocID: key.AllocID, Status: api.InstanceStatus{Type: key.Type}})
}

// tells notes what a healthy instance has told. It is recorded before it is
// said: what the servers may know, a restarted agent can take back.
func (m *Manager) tells(key dynamicplugins.Key, s api.InstanceStatus) {
	m.mu.Lock()
	last, known := m.told[key]
	m.told[key] = s
	m.mu.Unlock()
	if known && same(&last, &s) {
		return
	}
	if err := m.memory.PutInstance(&localdb.Instance{PluginID: key.ID, AllocID: key.AllocID, Status: s}); err != nil {
		m.log.Error("plugin instance could not be recorded", "plugin", key.ID, "error", err)
	}
}

func (m *Manager) all() []*instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*instance
	for _, i := range m.instances {
		all = append(all, i)
	}
	return all
}

// add makes the instance of a plugin, or answers nil if there is one.
func (m *Manager) add(ctx context.Context, key dynamicplugins.Key, p *dynamicplugins.Plugin) *instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.instances[key]; old != nil && old.plugin == p {
		return nil
	}
	i := newInstance(ctx, p, m)
	if last, known := m.told[key]; known {
		i.believe(last)
	}
	m.instances[key] = i
	if p.Withdrawn == "" {
		m.calling[key]++
	}
	m.tell()
	return i
}

// gone forgets an instance that has ended, unless another took its place.
func (m *Manager) gone(i *instance) {
	m.mu.Lock()
	key, turned := i.plugin.Key(), false
	if m.instances[key] == i {
		delete(m.instances, key)
		m.facts.SetInstance(goneFact(key))
		turned = i.managed.Err() == nil && m.judge(key.ID)
		m.tell()
	}
	m.mu.Unlock()
	if turned && m.turned != nil {
		m.turned(key.ID)
	}
}

// drained notes that no call of an ended instance is on its way.
func (m *Manager) drained(i *instance) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := i.plugin.Key()
	if i.plugin.Withdrawn == "" {
		m.calling[key]--
	}
	if m.calling[key] == 0 {
		delete(m.calling, key)
	}
	m.tell()
}

// Drained returns when no call is on its way to an instance that was withdrawn,
// or taken out of the registry, or ctx ends.
func (m *Manager) Drained(ctx context.Context, key dynamicplugins.Key) {
	for {
		m.mu.Lock()
		changed, quiet := m.changed, m.calling[key] == 0
		m.mu.Unlock()
		if quiet {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Instance is how a registered instance is, with a channel that is closed when
// any instance comes, goes, or changes.
func (m *Manager) Instance(key dynamicplugins.Key) (s api.InstanceStatus, changed <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.instances[key]; i != nil {
		return i.status(), m.changed
	}
	return api.InstanceStatus{Type: key.Type, Reason: "it is not registered yet"}, m.changed
}

// stranger is the error of an allocation's instance that answers with another
// driver's name than the others of its plugin on this node: volumes are one
// driver's.
func (m *Manager) stranger(i *instance, name string) error {
	if i.plugin.AllocID == "" {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, other := range m.instances {
		if key.ID != i.plugin.ID {
			continue
		}
		s := other.status()
		switch {
		case s.Driver == "" || s.Driver == name:
		case other == i:
			return fmt.Errorf("it answers as driver %q, and was driver %q before: another program has taken its socket", name, s.Driver)
		case s.Healthy:
			return fmt.Errorf("it answers as driver %q, and plugin %s is driver %q on this node already, run by %s: "+
				"give each driver a csi_plugin id of its own", name, key.ID, s.Driver, runner(key))
		}
	}
	return nil
}

// runner is who runs an instance, in words.
func runner(key dynamicplugins.Key) string {
	if key.AllocID == "" {
		return "the host"
	}
	return "allocation " + key.AllocID.Short()
}

func goneFact(key dynamicplugins.Key) api.InstanceFact {
	return api.InstanceFact{PluginID: key.ID, AllocID: key.AllocID, Gone: true, InstanceStatus: api.InstanceStatus{Type: key.Type}}
}

// tell wakes who waits for a plugin. The caller holds mu.
func (m *Manager) tell() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// fingerprinted is called by an instance whose status has changed. What one
// says whose place another has taken counts no more. It reports whether the plugin
// has ceased to serve the node, or serves it again.
func (m *Manager) fingerprinted(i *instance, s api.InstanceStatus) (turned bool) {
	key := i.plugin.Key()
	if s.Healthy {
		m.tells(key, s)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.instances[key] != i {
		return false
	}
	m.facts.SetInstance(api.InstanceFact{PluginID: key.ID, AllocID: key.AllocID, InstanceStatus: s})
	m.tell()
	return m.judge(key.ID)
}

// Settled returns when every registered plugin is healthy, or ctx ends.
func (m *Manager) Settled(ctx context.Context) {
	for {
		m.mu.Lock()
		changed := m.changed
		plugins, registered := m.registry.All()
		settled := true
		for _, p := range plugins {
			i := m.instances[p.Key()]
			settled = settled && i != nil && i.status().Healthy
		}
		m.mu.Unlock()
		if settled {
			return
		}
		select {
		case <-changed:
		case <-registered:
		case <-ctx.Done():
			return
		}
	}
}

// Controller is the client of a healthy instance that serves controller calls,
// or an error that says why there is none.
func (m *Manager) Controller(id api.PluginID) (*csi.Client, error) {
	i, err := m.find(id, func(s *api.InstanceStatus) bool { return s.ServesController() }, "controller")
	if err != nil {
		return nil, err
	}
	return i.client(), nil
}

// node is a healthy instance that serves node calls, or an error that says why
// there is none.
func (m *Manager) node(id api.PluginID) (*instance, error) {
	return m.find(id, func(s *api.InstanceStatus) bool { return s.ServesNode() }, "node")
}

// find is the newest healthy instance that serves: while a plugin is exchanged
// there are two, and the older one is about to go.
func (m *Manager) find(id api.PluginID, serves func(*api.InstanceStatus) bool, service string) (*instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reason := "this node does not run it"
	var found *instance
	for key, i := range m.instances {
		s := i.status()
		switch {
		case key.ID != id:
		case s.Healthy && serves(&s):
			if found == nil || i.plugin.Newer(found.plugin) {
				found = i
			}
		case s.Healthy:
			reason = "its instance here does not serve " + service + " calls"
		default:
			reason = "it is not healthy: " + s.Reason
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, api.Errorf(api.CodeUnavailable, "plugin %s cannot be used: %s", id, reason)
}

// await is node, waiting for the instance to be healthy for a while: at a
// restart a plugin may not be there yet.
func (m *Manager) await(ctx context.Context, id api.PluginID, limit time.Duration) (*instance, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		m.mu.Lock()
		changed := m.changed
		m.mu.Unlock()
		i, err := m.node(id)
		if err == nil {
			return i, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, err
		case <-ctx.Done():
			return nil, err
		}
	}
}
