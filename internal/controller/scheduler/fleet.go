package scheduler

import (
	"fmt"
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
	usages    map[api.NodeID]*fit.Usage
	byID      map[api.NodeID]*api.Node
}

func newFleet(v state.View) *fleet {
	f := &fleet{
		v:         v,
		nodes:     slices.Collect(v.Nodes()),
		instances: map[api.PluginID]map[api.NodeID]*api.Instance{},
		usages:    map[api.NodeID]*fit.Usage{},
		byID:      map[api.NodeID]*api.Node{},
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
		for i := range f.v.Instances(plugin) {
			all[i.NodeID] = append(all[i.NodeID], i)
		}
		byNode = map[api.NodeID]*api.Instance{}
		for id, list := range all {
			byNode[id] = fit.NodeInstance(list)
		}
		f.instances[plugin] = byNode
	}
	return byNode[node]
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
	type place struct {
		ns  api.NamespaceID
		vol api.VolumeID
	}
	for _, a := range attachments {
		instance := f.instance(a.PluginID, node)
		if instance == nil || instance.MaxVolumes == 0 {
			continue
		}
		used := map[place]bool{}
		for p := range f.v.NodePublications(node, a.PluginID) {
			used[place{p.Namespace, p.VolumeID}] = true
		}
		for _, other := range slices.Concat(f.planned, attachments) {
			if other.NodeID == node && other.PluginID == a.PluginID {
				used[place{other.Namespace, other.VolumeID}] = true
			}
		}
		if int64(len(used)) > instance.MaxVolumes {
			return fmt.Sprintf("node %s has room for %d volumes of plugin %s", node, instance.MaxVolumes, a.PluginID)
		}
	}
	return ""
}
