// Package dynamicplugins is the registry of the CSI drivers on a node: those
// that the host runs, by the agent's configuration, and those that run as
// tasks. It owns who is registered, and tells who listens.
//
// It never talks to a driver. Invariant: who watches sees every change, in
// order, though not every state between two looks.
package dynamicplugins

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
)

// Plugin is one registered instance of a driver.
type Plugin struct {
	ID   api.PluginID
	Type api.InstanceType
	// AllocID is the allocation that runs the driver, empty for the host.
	AllocID api.AllocID
	// Dial connects to the driver.
	Dial csi.Dialer
	// AllowUnmounted accepts that the driver publishes a volume without a
	// mount at the target path.
	AllowUnmounted bool
	// HostDir is where the plugin's volumes are on the host, and Dir where the
	// driver finds them; both are empty if that is the same.
	HostDir, Dir string
	// Withdrawn is why nothing is called on the driver any more, although it still
	// runs; empty if it may be called.
	Withdrawn string
	// Since is when the driver was started; zero if nobody knows.
	Since time.Time
}

// Newer reports whether the plugin's driver was started after another's.
func (p *Plugin) Newer(than *Plugin) bool {
	if !p.Since.Equal(than.Since) {
		return p.Since.After(than.Since)
	}
	return p.AllocID > than.AllocID
}

// Key tells instances on a node apart. A driver may be two programs, one for
// each service, that have one id.
type Key struct {
	ID      api.PluginID
	AllocID api.AllocID
	Type    api.InstanceType
}

// Key is the plugin's.
func (p *Plugin) Key() Key { return Key{p.ID, p.AllocID, p.Type} }

// Registry is the plugins of one node. It is safe for concurrent use.
type Registry struct {
	mu      sync.Mutex // guards below
	plugins map[Key]*Plugin
	changed chan struct{} // closed and replaced at every change
}

// New returns an empty registry.
func New() *Registry {
	return &Registry{plugins: map[Key]*Plugin{}, changed: make(chan struct{})}
}

// Register adds a plugin, or replaces the one with its key.
func (r *Registry) Register(p Plugin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plugins[p.Key()] = &p
	r.tell()
}

// Deregister removes a plugin.
func (r *Registry) Deregister(k Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.plugins[k]; ok {
		delete(r.plugins, k)
		r.tell()
	}
}

// tell wakes who waits for a change. The caller holds mu.
func (r *Registry) tell() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// All lists the plugins by id and allocation, with a channel that is closed
// at the next change.
func (r *Registry) All() ([]*Plugin, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Plugin, 0, len(r.plugins))
	for _, p := range r.plugins {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *Plugin) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.AllocID, b.AllocID), cmp.Compare(a.Type, b.Type))
	})
	return all, r.changed
}

// Watch calls see with the plugins at once and after every change, until ctx
// ends.
func (r *Registry) Watch(ctx context.Context, see func([]*Plugin)) {
	for ctx.Err() == nil {
		all, changed := r.All()
		see(all)
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
