package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
)

// Nodes that fit are compared, the first found from a place in the fleet that
// differs from slot to slot.
const (
	enough = 8
	// enoughToSpread is how many, where it matters what else they have.
	enoughToSpread = 256
)

// place puts one instance of a group on a node, or says why none will do.
func (p *pass) place(at place, after successor) {
	serial := p.job.Status.Serial + uint64(len(p.placed)) + 1
	requests, lack := p.volumes(at, serial)
	if lack != nil {
		p.wait(at, after, lack)
		return
	}
	if lack := p.apart(at, after, requests); lack != nil {
		p.wait(at, after, lack)
		return
	}
	node, why := p.choose(at, after, requests, serial)
	if node == nil {
		p.wait(at, after, p.held(requests, serial).or(why))
		return
	}
	attachments := p.attachments(requests, node.ID, serial)
	if lack := p.turn(requests, attachments); lack != nil {
		p.wait(at, after, lack)
		return
	}
	alloc := &api.Allocation{ID: api.NewAllocID(p.job.UID, serial), JobID: p.job.ID, NodeID: node.ID, Resources: at.group.Resources()}
	ports, _ := p.fleet.room(node, at.group, string(alloc.ID))
	for i, port := range at.group.Ports {
		alloc.Ports = append(alloc.Ports, api.AllocatedPort{Name: port.Name, Number: ports[i]})
	}
	p.plan.Add(&command.PlaceAllocation{
		Namespace: p.job.Namespace, JobID: p.job.ID, JobUID: p.job.UID, Revision: p.job.Revision,
		Serial: serial, Group: at.group.Name, Index: at.index,
		NodeID: node.ID, NodeEpoch: node.Status.Epoch,
		Replaces: after.id, Beside: after.beside, Failures: after.failures, Failing: after.failing, Ports: ports,
	})
	p.placed = append(p.placed, placement{at.group.Name, at.index, node.ID})
	p.fleet.take(alloc, attachments)
	p.fleet.promise(requests, node.ID)
}

// nodes is the fleet, read once in a pass.
func (p *pass) nodes() *fleet {
	if p.fleet == nil {
		p.fleet = newFleet(p.v)
	}
	return p.fleet
}

// wanted is one volume request with the volume that it is for.
type wanted struct {
	request *api.VolumeRequest
	volume  *api.Volume
}

// volumes finds the volumes of a place. If one is of no use yet, it says which
// and why; one that is to be made like another is made.
func (p *pass) volumes(at place, serial uint64) ([]wanted, *lack) {
	var all []wanted
	for _, r := range at.group.Attached() {
		if r.Ephemeral != nil {
			vol := command.EphemeralVolume(p.job.Namespace, api.NewAllocID(p.job.UID, serial), r)
			if why := p.cannotMake(vol); why != "" {
				return nil, &lack{request: r, volume: vol.ID, reason: why}
			}
			all = append(all, wanted{r, vol})
			continue
		}
		id := r.VolumeFor(at.index)
		vol := p.v.Volume(p.job.Namespace, id)
		reason := fit.Request(vol, id, r)
		if vol == nil && r.PerAlloc {
			reason = p.member(r, id)
		}
		if reason != "" {
			return nil, &lack{request: r, volume: id, reason: reason}
		}
		all = append(all, wanted{r, vol})
	}
	return all, nil
}

// cannotMake says why a volume that an allocation is to have for itself cannot be
// made now, or "". One that begins as a snapshot can be where that is.
func (p *pass) cannotMake(vol *api.Volume) string {
	if id := vol.Spec.SnapshotID; id != "" {
		snap := p.v.Snapshot(vol.Namespace, api.SnapshotID(id))
		switch {
		case snap == nil || snap.PluginID != vol.Spec.PluginID: // the plugin's own id
		case snap.Status.State != api.SnapshotReady:
			return fmt.Sprintf("snapshot %s, as which it is to begin, is %s", snap.ID, snap.Status.State)
		default:
			vol.Status.AccessibleTopology = snap.Status.AccessibleTopology
			vol.Spec.CapacityMin = cmp.Or(vol.Spec.CapacityMin, snap.Status.Size)
		}
	}
	return p.nodes().plugin(vol.Spec.PluginID).CannotCreate()
}

// attachments are what a placement on the node would hold.
func (p *pass) attachments(requests []wanted, node api.NodeID, serial uint64) []*api.Attachment {
	var all []*api.Attachment
	for _, w := range requests {
		all = append(all, &api.Attachment{
			AllocID: api.NewAllocID(p.job.UID, serial), Name: w.request.Name,
			Namespace: p.job.Namespace, VolumeID: w.volume.ID, PluginID: w.volume.Spec.PluginID,
			NodeID: node, JobID: p.job.ID,
			ReadOnly: w.request.ReadOnly, AccessMode: w.request.AccessMode, AttachmentMode: w.request.AttachmentMode,
			Status: api.AttachmentStatus{State: api.Claimed},
		})
	}
	return all
}

// choose finds the best of some nodes that fit: the one that brings the
// group's spread nearest to what was asked, then one with room for the volumes
// that are to be made, then the least loaded. If none
// fits, it says how many nodes were turned down for which reason.
//
// What follows another allocation stays on its node if that fits: its volumes
// are there, or the way back is the shortest. It does not where it has failed
// there again and again.
func (p *pass) choose(at place, after successor, requests []wanted, serial uint64) (*api.Node, string) {
	if at.node != nil {
		reason := p.rejects(at.node, at.group, requests, serial)
		if reason != "" {
			p.turnDown(at.group, at.node, reason)
			return nil, reason
		}
		return at.node, ""
	}
	spreads := p.spreads(at.group)
	stay := p.stay(after, at.group)
	if stay != nil && len(spreads) == 0 && p.rejects(stay, at.group, requests, serial) == "" {
		p.looked(at.group, p.lookFor(), true)
		return stay, ""
	}
	limit := enough
	if len(spreads) > 0 {
		limit = enoughToSpread
	}
	reasons := map[string]int{}
	var fitting []*api.Node
	tight, roomy := map[api.NodeID]int{}, 0
	look := p.lookFor()
	for node := range p.nodes().from(serial) {
		if reason := p.rejects(node, at.group, requests, serial); reason != "" {
			reasons[reason]++
			look.turnDown(node, reason)
			continue
		}
		fitting, tight[node.ID] = append(fitting, node), p.tight(node, requests)
		if tight[node.ID] == 0 {
			roomy++
		}
		if roomy == limit {
			break
		}
	}
	p.looked(at.group, look, len(fitting) > 0)
	if len(fitting) == 0 {
		return nil, summary(reasons)
	}
	over := p.shares(at.group, spreads, fitting)
	return slices.MinFunc(fitting, func(a, b *api.Node) int {
		return cmp.Or(cmp.Compare(over[a.ID], over[b.ID]), tight[a.ID]-tight[b.ID], moves(a, stay)-moves(b, stay), p.fleet.load(a.ID)-p.fleet.load(b.ID))
	}), ""
}

// moves is 0 for the node to stay on, and 1 for any other.
func moves(n, stay *api.Node) int {
	if n == stay {
		return 0
	}
	return 1
}

// noNode begins a summary.
const noNode = "no node fits: "

// told is how many reasons a summary tells.
const told = 8

// summary says how many nodes were turned down for which reason, the most
// frequent first.
func summary(reasons map[string]int) string {
	if len(reasons) == 0 {
		return "the cluster has no nodes"
	}
	var parts []string
	others := 0
	for i, r := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(reasons[b]-reasons[a], strings.Compare(a, b))
	}) {
		switch {
		case i >= told:
			others += reasons[r]
		case reasons[r] > 1:
			parts = append(parts, fmt.Sprintf("%s (%d nodes)", r, reasons[r]))
		default:
			parts = append(parts, r)
		}
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("and %d nodes more", others))
	}
	return noNode + strings.Join(parts, "; ")
}

// rejects says why a node will not do, or "". Where all nodes may have the
// same reason, the reason names no node.
func (p *pass) rejects(node *api.Node, group *api.TaskGroup, requests []wanted, serial uint64) string {
	if !p.takes(node, group) {
		return away(node)
	}
	if reason := p.lasting(node, group); reason != "" {
		return reason
	}
	for i := range group.Tasks {
		if d := node.Status.Drivers[group.Tasks[i].Driver]; !d.Healthy {
			return fmt.Sprintf("driver %s on node %s is not healthy: %s", group.Tasks[i].Driver, node.ID, d.Reason)
		}
	}
	if reason := p.crowded(node, group); reason != "" {
		return reason
	}
	if _, reason := p.nodes().room(node, group, string(api.NewAllocID(p.job.UID, serial))); reason != "" {
		return reason
	}
	attachments := p.attachments(requests, node.ID, serial)
	for i, w := range requests {
		if reason := p.rejectsVolume(node, w.volume); reason != "" {
			return reason
		}
		holders := slices.Collect(p.v.Holders(w.volume.Namespace, w.volume.ID))
		holders = slices.DeleteFunc(holders, func(h *api.Attachment) bool { return p.moving[h.AllocID] })
		holders = append(holders, p.fleet.held(w.volume)...)
		holders = append(holders, attachments[:i]...)
		if reason := holdReason(attachments[i], holders, p.fleet.instance(w.volume.Spec.PluginID, node.ID)); reason != "" {
			return reason
		}
	}
	if reason := p.fleet.full(node.ID, attachments); reason != "" {
		return reason
	}
	if reason := p.short(node, requests); reason != "" {
		return reason
	}
	if reason := p.unmade(node, requests); reason != "" {
		return reason
	}
	return p.refused(node, attachments)
}

// refused says that the provider has refused to attach a volume to the node for
// want of room there, which no plugin's maximum told before. Who shares a
// volume that is attached to the node already needs none.
func (p *pass) refused(node *api.Node, attachments []*api.Attachment) string {
	for _, a := range attachments {
		if pub := p.v.Publication(a.Namespace, a.VolumeID, node.ID); pub != nil && pub.Status.Outcome == api.OutcomePublished {
			continue
		}
		for op := range p.v.Exhausted(a.PluginID, node.ID) {
			if until, full := fit.NoRoom(op, p.now); full {
				p.wake(until)
				return fmt.Sprintf("node %s takes no more volumes of plugin %s: %s", node.ID, a.PluginID, op.Status.Message)
			}
		}
	}
	return ""
}

// stay is the node of the predecessor, if its volumes are a reason to go there
// again, or nil.
func (p *pass) stay(after successor, group *api.TaskGroup) *api.Node {
	if len(group.Volumes) == 0 || after.id == "" || after.failures > tries {
		return nil
	}
	return p.nodes().node(after.node)
}

// tries is how often in a row an allocation may fail on one node before its
// successor looks for another.
const tries = 2

// away says why a node takes nothing.
func away(node *api.Node) string {
	switch {
	case node.Takes() && node.Spec.Drain != nil:
		return fmt.Sprintf("node %s is being drained", node.ID)
	case node.Takes():
		return fmt.Sprintf("node %s is not eligible", node.ID)
	}
	if node.Status.State == api.NodeReady && node.Status.Owes {
		reason := fmt.Sprintf("node %s is still undoing what it ran before it was fenced or forgot it", node.ID)
		if node.Status.Remains != "" {
			reason += " (" + node.Status.Remains + ")"
		}
		return reason
	}
	return fmt.Sprintf("node %s is %s", node.ID, node.Status.State)
}

// holdReason is fit.Hold for the holders of one volume.
func holdReason(want *api.Attachment, holders []*api.Attachment, on *api.Instance) string {
	holders = slices.DeleteFunc(holders, func(h *api.Attachment) bool {
		return h.VolumeID != want.VolumeID || h.Namespace != want.Namespace
	})
	if reason := fit.Hold(want, holders, on); reason != "" {
		return fmt.Sprintf("volume %s: %s", want.VolumeID, reason)
	}
	return ""
}

// lasting says why a node will not do for the group as long as it is what it
// is, or "".
func (p *pass) lasting(node *api.Node, group *api.TaskGroup) string {
	return fit.Lasting(node, &p.job.Spec, group)
}

// excludes says which constraint a node does not meet, or "".
func (p *pass) excludes(node *api.Node, group *api.TaskGroup) string {
	return fit.Excludes(node, &p.job.Spec, group)
}

func (p *pass) rejectsVolume(node *api.Node, vol *api.Volume) string {
	instance := p.fleet.instance(vol.Spec.PluginID, node.ID)
	switch {
	case instance == nil:
		return fmt.Sprintf("node %s does not run plugin %s", node.ID, vol.Spec.PluginID)
	case !instance.Healthy:
		return fmt.Sprintf("plugin %s on node %s is not healthy: %s", vol.Spec.PluginID, node.ID, instance.Reason)
	case !fit.Reachable(vol.Status.AccessibleTopology, instance.Topology):
		return fmt.Sprintf("volume %s cannot be reached from node %s", vol.ID, node.ID)
	}
	return ""
}
