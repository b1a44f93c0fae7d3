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
	loads     map[api.NodeID]int
}

func newFleet(v state.View) *fleet {
	return &fleet{
		v:         v,
		nodes:     slices.Collect(v.Nodes()),
		instances: map[api.PluginID]map[api.NodeID]*api.Instance{},
		loads:     map[api.NodeID]int{},
	}
}

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

// load is how many allocations a node has, those of this plan included.
func (f *fleet) load(node api.NodeID) int {
	if n, ok := f.loads[node]; ok {
		return n
	}
	n := 0
	for a := range f.v.Quiet().NodeAllocations(node) {
		if !a.Terminal() {
			n++
		}
	}
	f.loads[node] = n
	return n
}

// take notes a placement of this plan.
func (f *fleet) take(node api.NodeID, attachments []*api.Attachment) {
	f.loads[node] = f.load(node) + 1
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
