package scheduler

import (
	"iter"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// fleet is the nodes as one pass sees them, with what the pass has already
// planned laid over. Each list is read once, so that a pass that waits watches
// a few lists and not every node.
type fleet struct {
	v         state.View
	nodes     []*api.Node
	instances map[api.PluginID]map[api.NodeID]*api.Instance
	planned   []*api.Attachment
	plugins   map[api.PluginID]fit.Plugin
	usages    map[api.NodeID]*fit.Usage
	byID      map[api.NodeID]*api.Node
	told      map[api.PluginID]map[api.RoomID]*api.Room
	rooms     map[*api.VolumeRequest]map[api.NodeID]*api.Room
	refusals  map[api.PluginID]*fit.Refusals
	unmade    map[*api.VolumeRequest]map[api.NodeID]*api.Operation
	promised  map[promise]int64 // bytes
}

func newFleet(v state.View) *fleet {
	f := &fleet{
		v:         v,
		nodes:     slices.Collect(v.Nodes()),
		instances: map[api.PluginID]map[api.NodeID]*api.Instance{},
		plugins:   map[api.PluginID]fit.Plugin{},
		usages:    map[api.NodeID]*fit.Usage{},
		byID:      map[api.NodeID]*api.Node{},
		told:      map[api.PluginID]map[api.RoomID]*api.Room{},
		rooms:     map[*api.VolumeRequest]map[api.NodeID]*api.Room{},
		refusals:  map[api.PluginID]*fit.Refusals{},
		unmade:    map[*api.VolumeRequest]map[api.NodeID]*api.Operation{},
		promised:  map[promise]int64{},
	}
	for _, n := range f.nodes {
		f.byID[n.ID] = n
	}
	return f
}

// node is one node, or nil.
func (f *fleet) node(id api.NodeID) *api.Node { return f.byID[id] }

// from yields all nodes, beginning at a place that differs from slot to slot.
func (f *fleet) from(serial uint64) iter.Seq[*api.Node] {
	return func(yield func(*api.Node) bool) {
		n := uint64(len(f.nodes))
		for i := range n {
			if !yield(f.nodes[(serial+i)%n]) {
				return
			}
		}
	}
}

// instance is the plugin's instance that serves node calls on the node, or nil.
func (f *fleet) instance(plugin api.PluginID, node api.NodeID) *api.Instance {
	byNode := f.instances[plugin]
	if byNode == nil {
		all := map[api.NodeID][]*api.Instance{}
		list := slices.Collect(f.v.Instances(plugin))
		for _, i := range list {
			all[i.NodeID] = append(all[i.NodeID], i)
		}
		f.plugins[plugin] = fit.NewPlugin(plugin, list)
		byNode = map[api.NodeID]*api.Instance{}
		for id, list := range all {
			byNode[id] = fit.NodeInstance(list)
		}
		f.instances[plugin] = byNode
	}
	return byNode[node]
}

// sharing is an instance of the plugin that publishes a volume several times on
// its node, or nil.
func (f *fleet) sharing(plugin api.PluginID) *api.Instance {
	for _, n := range f.nodes {
		if i := f.instance(plugin, n.ID); i != nil && slices.Contains(i.NodeCapabilities, api.CapSingleNodeMultiWrite) {
			return i
		}
	}
	return nil
}

// plugin is what the plugin's instances say together.
func (f *fleet) plugin(id api.PluginID) fit.Plugin {
	if f.instances[id] == nil {
		f.instance(id, "")
	}
	return f.plugins[id]
}

// anew is the fleet without what was planned. What was read of nodes and
// plugins is not read again.
func (f *fleet) anew() *fleet {
	next := *f
	next.planned, next.usages, next.promised = nil, map[api.NodeID]*fit.Usage{}, map[promise]int64{}
	return &next
}

// usage is what a node's allocations take of it, those of this plan included.
func (f *fleet) usage(node api.NodeID) *fit.Usage {
	if u := f.usages[node]; u != nil {
		return u
	}
	u := fit.NewUsage()
	for a := range f.v.Quiet().NodeAllocations(node) {
		u.Add(a)
	}
	f.usages[node] = u
	return u
}

// load is how many allocations a node has.
func (f *fleet) load(node api.NodeID) int { return f.usage(node).Allocations }

// room says why a node has not the ports and the resources of a group, or "",
// and which ports it would give.
func (f *fleet) room(node *api.Node, group *api.TaskGroup, name string) (ports []int, reason string) {
	want := group.Resources()
	if len(group.Ports) == 0 && want == (api.Resources{}) {
		return nil, ""
	}
	u := f.usage(node.ID)
	if reason = u.Resources(node, want); reason != "" {
		return nil, reason
	}
	return u.Ports(node, group.Ports, name)
}

// take notes a placement of this plan.
func (f *fleet) take(a *api.Allocation, attachments []*api.Attachment) {
	f.usage(a.NodeID).Add(a)
	f.planned = append(f.planned, attachments...)
}

// held are the holds on a volume that this plan takes.
func (f *fleet) held(vol *api.Volume) []*api.Attachment {
	var all []*api.Attachment
	for _, a := range f.planned {
		if a.VolumeID == vol.ID && a.Namespace == vol.Namespace {
			all = append(all, a)
		}
	}
	return all
}

// full says that a plugin's maximum of volumes on the node would be exceeded.
func (f *fleet) full(node api.NodeID, attachments []*api.Attachment) string {
	for i, a := range attachments {
		if slices.ContainsFunc(attachments[:i], func(b *api.Attachment) bool { return b.PluginID == a.PluginID }) {
			continue
		}
		limit := fit.VolumeLimit(f.instance(a.PluginID, node), func() fit.Plugin { return f.plugin(a.PluginID) })
		if limit == 0 {
			continue
		}
		if reason := fit.VolumeRoom(node, a.PluginID, limit, f.v.NodePublications(node, a.PluginID), slices.Concat(f.planned, attachments)); reason != "" {
			return reason
		}
	}
	return ""
}
