package fit

import (
	"fmt"
	"slices"

	"github.com/berth-dev/berth/api"
)

// Plugin is what the instances of a plugin say together. Instances of one
// plugin are meant to say the same; a healthy one is believed first.
type Plugin struct {
	ID        api.PluginID
	instances []*api.Instance
}

// NewPlugin takes all instances of one plugin.
func NewPlugin(id api.PluginID, instances []*api.Instance) Plugin {
	return Plugin{ID: id, instances: instances}
}

// controller is an instance that speaks for the controller service: a healthy
// one if there is any.
func (p Plugin) controller() *api.Instance {
	var known *api.Instance
	for _, i := range p.instances {
		if !i.ServesController() {
			continue
		}
		if i.Healthy {
			return i
		}
		known = i
	}
	return known
}

// Known reports whether any instance has ever told its capabilities.
func (p Plugin) Known() bool {
	return slices.ContainsFunc(p.instances, func(i *api.Instance) bool { return i.Driver != "" })
}

// Unknown says why a plugin is not known.
func (p Plugin) Unknown() string {
	if len(p.instances) == 0 {
		return fmt.Sprintf("no node runs plugin %s", p.ID)
	}
	i := p.instances[0]
	reason := i.Reason
	if reason == "" {
		reason = "it has not answered yet"
	}
	return fmt.Sprintf("plugin %s has never been healthy: on node %s, %s", p.ID, i.NodeID, reason)
}

// ControllerMissing reports whether the plugin says that it has a controller
// service, and no instance that serves it was ever seen. Whether volumes must
// be attached is then not known.
func (p Plugin) ControllerMissing() bool {
	return p.controller() == nil && slices.ContainsFunc(p.instances, func(i *api.Instance) bool {
		return slices.Contains(i.PluginCapabilities, api.CapControllerService)
	})
}

// Can reports whether the plugin's controller has a capability.
func (p Plugin) Can(capability string) bool {
	c := p.controller()
	return c != nil && c.Can(capability)
}

// CannotCreate says why the plugin makes no volumes, or "".
func (p Plugin) CannotCreate() string {
	if !p.Known() {
		return p.Unknown()
	}
	if !p.Can(api.CapCreateDeleteVolume) {
		return fmt.Sprintf("plugin %s cannot create volumes: no controller instance of it has the capability %s", p.ID, api.CapCreateDeleteVolume)
	}
	return ""
}

// Attaches reports whether volumes must be published by the controller before
// a node can use them.
func (p Plugin) Attaches() bool { return p.Can(api.CapPublishUnpublish) }

// HasTopology reports whether the plugin's volumes may be out of some nodes'
// reach.
func (p Plugin) HasTopology() bool {
	return slices.ContainsFunc(p.instances, func(i *api.Instance) bool {
		return slices.Contains(i.PluginCapabilities, api.CapAccessibility)
	})
}

// Executors are the nodes whose agents may make a controller call: those with
// a healthy controller instance that are ready. The node named by prefer comes
// first, alone; then those from which one of the topologies can be reached,
// for drivers whose controllers only serve what is near them; then all. It
// answers none and a reason if there are none.
func (p Plugin) Executors(near []api.Topology, prefer api.NodeID, ready func(api.NodeID) bool) ([]api.NodeID, string) {
	var best []api.NodeID
	bestRank := 0
	for _, i := range p.instances {
		if !i.ServesController() || !i.Healthy || !ready(i.NodeID) {
			continue
		}
		rank := 1
		switch {
		case i.NodeID == prefer:
			rank = 3
		case i.ServesNode() && len(near) > 0 && Reachable(near, i.Topology):
			rank = 2
		}
		if rank > bestRank {
			best, bestRank = nil, rank
		}
		if rank == bestRank {
			best = append(best, i.NodeID)
		}
	}
	if len(best) == 0 {
		return nil, p.noController()
	}
	return best, ""
}

// Near are the nodes that are ready and whose healthy controllers serve what is
// near them, from which volumes with this topology can be reached.
func (p Plugin) Near(t api.Topology, ready func(api.NodeID) bool) (nodes []api.NodeID) {
	for _, i := range p.instances {
		if i.ServesController() && i.ServesNode() && i.Healthy && len(i.Topology) > 0 && len(t) > 0 && within(t, i.Topology) && ready(i.NodeID) {
			nodes = append(nodes, i.NodeID)
		}
	}
	return nodes
}

// TopologyOf is where an instance of the plugin says that its node is, or nil.
func (p Plugin) TopologyOf(node api.NodeID) api.Topology {
	for _, i := range p.instances {
		if i.NodeID == node && i.ServesNode() {
			return i.Topology
		}
	}
	return nil
}

// Choose is a number below n, always the same for the same name: it spreads
// what has names over what is equal.
func Choose(name string, n int) int { return int(spread(name) % uint32(n)) } //nolint:gosec // a small count

// Topologies are the distinct topologies of the nodes that the plugin serves
// and that are ready, in node order.
func (p Plugin) Topologies(ready func(api.NodeID) bool) []api.Topology {
	var all []api.Topology
	seen := map[api.RoomID]bool{}
	for _, i := range p.instances {
		if !i.ServesNode() || !i.Healthy || len(i.Topology) == 0 || !ready(i.NodeID) {
			continue
		}
		if id := api.NewRoomID(i.Topology, nil); !seen[id] {
			seen[id] = true
			all = append(all, i.Topology)
		}
	}
	return all
}

func (p Plugin) noController() string {
	switch c := p.controller(); {
	case len(p.instances) == 0:
		return fmt.Sprintf("no node runs plugin %s", p.ID)
	case c == nil:
		return fmt.Sprintf("plugin %s has no controller instance", p.ID)
	case !c.Healthy:
		return fmt.Sprintf("no controller instance of plugin %s is healthy: on node %s, %s", p.ID, c.NodeID, c.Reason)
	}
	return fmt.Sprintf("no node with a controller instance of plugin %s is ready", p.ID)
}

// NodeInstance is the instance that serves node calls among those of one node,
// a healthy one first, or nil.
func NodeInstance(instances []*api.Instance) *api.Instance {
	var known *api.Instance
	for _, i := range instances {
		if !i.ServesNode() {
			continue
		}
		if i.Healthy {
			return i
		}
		known = i
	}
	return known
}
