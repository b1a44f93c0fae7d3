package controllertest_test

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// provider is a storage provider, with the plugin that speaks for it. It does
// what it is asked and fails the test if it is asked out of order.
type provider struct {
	t *rapid.T
	// attaches: volumes must be published by the controller before a node can
	// use them; readonly: it can be told that everybody reads.
	attaches, readonly bool
	// room is how many volumes a node takes, 0 for any number.
	room    int64
	volumes map[string]*stored // by external id
	names   map[string]string  // external ids by CSI name
	made    int
	shots   map[string]*shot // by external id
	// works is how many calls say that a snapshot is not ready; depends: a volume
	// is not deleted before its snapshots.
	works   int
	depends bool
	// oneTarget: it lacks SINGLE_NODE_MULTI_WRITER.
	oneTarget bool
	// troubled: it may fail.
	troubled bool
}

// stored is a volume at the provider.
type stored struct {
	name     string
	attached map[string]bool // by the provider's name of the node: read-only
	// mounted is what uses the volume on the nodes, as their kernels know it.
	mounted map[user]statetest.Hold
	staged  map[api.NodeID]bool
}

// user is one request of an allocation.
type user struct {
	alloc api.AllocID
	name  string
}

func newProvider(t *rapid.T) *provider {
	return &provider{
		t: t, attaches: !seldom(t, "attaches nothing", 4), readonly: rapid.Bool().Draw(t, "readonly"),
		room: oneOf[int64](t, "room", 0, 1, 2), volumes: map[string]*stored{}, names: map[string]string{}, troubled: true,
		shots: map[string]*shot{}, works: number(t, "works", 3), depends: rapid.Bool().Draw(t, "depends"),
		oneTarget: rapid.Bool().Draw(t, "one target"),
	}
}

func externalNode(node api.NodeID) string { return "i-" + string(node) }

// status is what an instance of the plugin says of itself.
func (p *provider) status(healthy bool, node api.NodeID) api.InstanceStatus {
	s := api.InstanceStatus{
		Type: api.InstanceMonolith, Healthy: healthy, Driver: "disk.example", ExternalNodeID: externalNode(node), MaxVolumes: p.room,
		PluginCapabilities:     []string{api.CapControllerService},
		ControllerCapabilities: []string{api.CapCreateDeleteVolume, api.CapCreateDeleteSnapshot},
	}
	if p.attaches {
		s.ControllerCapabilities = append(s.ControllerCapabilities, api.CapPublishUnpublish)
	}
	if p.readonly {
		s.ControllerCapabilities = append(s.ControllerCapabilities, api.CapPublishReadonly)
	}
	if !p.oneTarget {
		s.NodeCapabilities = append(s.NodeCapabilities, api.CapSingleNodeMultiWrite)
	}
	if !healthy {
		s.Reason = "drawn"
	}
	return s
}

// call makes one call, with an answer that need not tell what it did.
func (p *provider) call(op *api.Operation) api.OperationFact {
	f := api.OperationFact{ID: op.ID, Attempt: op.Status.Attempt, Code: "OK"}
	fate := "done"
	if p.troubled {
		fate = oneOf(p.t, "fate", "done", "done", "done", "refused", "lost", "dropped", "unsent", "final")
	}
	if fate == "done" && p.keeps(op) {
		fate = "kept"
	}
	switch fate {
	case "kept":
		f.Code = "FAILED_PRECONDITION"
	case "refused":
		f.Code = "RESOURCE_EXHAUSTED"
	case "dropped":
		f.Code = "UNAVAILABLE"
	case "unsent":
		f.Code, f.NotSent = "UNAVAILABLE", true
	case "lost":
		p.do(op)
		f.Code = "DEADLINE_EXCEEDED"
	case "final":
		// A plugin that made the volume before does not refuse to make it.
		refuses := op.Kind == api.OperationCreate && p.names[op.Request.Create.Name] == "" ||
			op.Kind == api.OperationSnapshot && p.shots[shotPrefix+op.Request.Snapshot.Name] == nil
		if refuses {
			f.Code = "INVALID_ARGUMENT"
			break
		}
		f.Result = p.do(op)
	default:
		f.Result = p.do(op)
	}
	return f
}

// do has the effect of a call.
func (p *provider) do(op *api.Operation) (r api.OperationResult) {
	switch op.Kind {
	case api.OperationCreate:
		r.ExternalID = p.create(op.Request.Create)
		r.Capacity = 1 << 30
	case api.OperationDelete:
		p.delete(op.Request.Delete)
	case api.OperationPublish:
		p.publish(op.Request.Publish)
		r.PublishContext = map[string]string{"device": op.Request.Publish.ExternalNodeID}
	case api.OperationUnpublish:
		p.unpublish(op.Request.Unpublish, op.NodeID)
	case api.OperationSnapshot:
		r.Snapshot = p.snapshot(op.Request.Snapshot)
	case api.OperationDeleteSnapshot:
		p.deleteSnapshot(op.Request.DeleteSnapshot)
	case api.OperationExpand, api.OperationModify, api.OperationNodeExpand: // the random lives have none
	}
	return r
}

func (p *provider) create(r *api.CreateRequest) string {
	if id := p.names[r.Name]; id != "" {
		return id
	}
	p.from(r.SnapshotID)
	p.made++
	id := fmt.Sprintf("ext-%d", p.made)
	p.names[r.Name] = id
	p.volumes[id] = &stored{name: r.Name, attached: map[string]bool{}, mounted: map[user]statetest.Hold{}, staged: map[api.NodeID]bool{}}
	return id
}

func (p *provider) delete(r *api.DeleteRequest) {
	vol := p.volumes[r.ExternalID]
	if vol == nil {
		return
	}
	if len(vol.attached)+len(vol.mounted) > 0 {
		p.t.Fatalf("volume %s is deleted while it is attached to %v and mounted for %v", r.ExternalID,
			slices.Collect(maps.Keys(vol.attached)), slices.Collect(maps.Keys(vol.mounted)))
	}
	delete(p.names, vol.name)
	delete(p.volumes, r.ExternalID)
}

func (p *provider) publish(r *api.PublishRequest) {
	vol := p.volumes[r.ExternalID]
	if vol == nil {
		p.t.Fatalf("volume %q is attached, and the provider has no such volume", r.ExternalID)
	}
	if !p.attaches {
		p.t.Fatalf("volume %s is attached, and the plugin does not attach", r.ExternalID)
	}
	if readOnly, ok := vol.attached[r.ExternalNodeID]; ok && readOnly != r.ReadOnly {
		p.t.Fatalf("volume %s is attached to %s with read-only = %v, and then with %v", r.ExternalID, r.ExternalNodeID, readOnly, r.ReadOnly)
	}
	vol.attached[r.ExternalNodeID] = r.ReadOnly
}

func (p *provider) unpublish(r *api.UnpublishRequest, node api.NodeID) {
	vol := p.volumes[r.ExternalID]
	if vol == nil {
		p.t.Fatalf("volume %q is detached, and the provider has no such volume", r.ExternalID)
	}
	if r.ExternalNodeID != externalNode(node) {
		p.t.Fatalf("volume %s is detached from %q, and node %s is called %s", r.ExternalID, r.ExternalNodeID, node, externalNode(node))
	}
	if vol.staged[node] {
		p.t.Fatalf("volume %s is detached from node %s while it is staged there", r.ExternalID, node)
	}
	for u, h := range vol.mounted {
		if h.Node == node {
			p.t.Fatalf("volume %s is detached from node %s while %s has it mounted", r.ExternalID, node, u.alloc.Short())
		}
	}
	delete(vol.attached, r.ExternalNodeID)
}

// mount is a node's NodeStageVolume and NodePublishVolume.
func (p *provider) mount(id string, u user, h statetest.Hold) {
	vol := p.volumes[id]
	if vol == nil {
		p.t.Fatalf("volume %q is mounted, and the provider has no such volume", id)
	}
	readOnly, attached := vol.attached[externalNode(h.Node)]
	if p.attaches && (!attached || readOnly && h.Writes()) {
		p.t.Fatalf("volume %s is mounted on node %s: attached %v, read-only %v, to write %v", id, h.Node, attached, readOnly, h.Writes())
	}
	for other, held := range vol.mounted {
		if other != u && h.Excludes(held) {
			p.t.Fatalf("volume %s is mounted for %+v beside %+v", id, h, held)
		}
	}
	vol.mounted[u] = h
	vol.staged[h.Node] = true
}

// unmount is a node's NodeUnpublishVolume and, for the last user there, its
// NodeUnstageVolume.
func (p *provider) unmount(id string, u user, node api.NodeID) (staged bool) {
	vol := p.volumes[id]
	if vol == nil {
		return false
	}
	delete(vol.mounted, u)
	for _, h := range vol.mounted {
		if h.Node == node {
			return true
		}
	}
	delete(vol.staged, node)
	return false
}
