package volumewatcher

import (
	"fmt"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
)

// leaveFull ends allocations whose volume the provider does not attach to this
// node any more, for want of room there, so that the scheduler places them
// where there is. Where no other node could have them, they wait here, as those
// of jobs that run on every node do.
func (p *pass) leaveFull(claimed []*api.Attachment) bool {
	op := p.v.Operation(p.pub.Status.Operation)
	if op == nil || op.Kind != api.OperationPublish || op.Status.State != api.OperationWaiting ||
		op.Status.Code != "RESOURCE_EXHAUSTED" || op.Status.Uncertain || len(claimed) < len(p.holders) || !p.roomElsewhere() {
		return false
	}
	return p.leave(claimed, false, fmt.Sprintf("node %s takes no more volumes of plugin %s: %s", p.pub.NodeID, p.pub.PluginID, op.Status.Message))
}

// leaveUnmade ends an allocation whose own volume its plugin has no room for near
// this node, so that the scheduler tries another. Nothing was made, and nobody
// else waits for it. Where no other node could have it, it waits here.
func (p *pass) leaveUnmade(claimed []*api.Attachment) bool {
	op := p.v.Operation(p.vol.Status.Operation)
	if p.vol.Owner == "" || op == nil || op.Kind != api.OperationCreate || op.Status.State != api.OperationWaiting || op.Request.Create == nil ||
		op.Status.Code != "RESOURCE_EXHAUSTED" || op.Status.Uncertain || !p.makesElsewhere(claimed, op.Request.Create) {
		return false
	}
	return p.leave(claimed, true, fmt.Sprintf("plugin %s cannot make volume %s for node %s: %s", p.pub.PluginID, p.vol.ID, p.pub.NodeID, op.Status.Message))
}

// makesElsewhere reports whether another node that takes allocations, and is one
// for the volume's group, is where the plugin has not refused to make such a
// volume, and does not say that it cannot.
func (p *pass) makesElsewhere(claimed []*api.Attachment, r *api.CreateRequest) bool {
	if len(claimed) == 0 {
		return false
	}
	a, job := p.v.Allocation(claimed[0].AllocID), p.v.Job(claimed[0].Namespace, claimed[0].JobID)
	if a == nil || job == nil || job.UID != a.JobUID {
		return false
	}
	group := job.Spec.Group(a.Group)
	if group == nil {
		return false
	}
	quiet := p.v.Quiet()
	refusals := fit.NewRefusals(quiet.Exhausted(p.pub.PluginID, ""), p.now)
	for i := range quiet.Instances(p.pub.PluginID) {
		n := quiet.Node(i.NodeID)
		if !i.ServesNode() || !i.Healthy || len(i.Topology) == 0 || n == nil || !n.Eligible() || fit.Lasting(n, &job.Spec, group) != "" {
			continue
		}
		if refusals.Of(r.CapacityMin, r.Parameters, i.Topology) != nil {
			continue
		}
		if fit.Short(quiet.Room(p.pub.PluginID, api.NewRoomID(i.Topology, r.Parameters)), r.CapacityMin, p.now) == "" {
			return true
		}
	}
	return false
}

// leave ends the allocations of attachments, but those of jobs that run on every
// node: those wait. Refused says that a volume of their own was not made.
func (p *pass) leave(claimed []*api.Attachment, refused bool, reason string) bool {
	seen := map[api.AllocID]bool{}
	for _, c := range claimed {
		a, job := p.v.Allocation(c.AllocID), p.v.Job(c.Namespace, c.JobID)
		if a == nil || a.Terminal() || a.Desired == api.DesireStop || job == nil || job.Spec.Type.Everywhere() || seen[a.ID] {
			continue
		}
		seen[a.ID] = true
		p.plan.Add(&command.StopAllocation{
			ID: a.ID, Version: a.Version, Reason: reason, Refused: refused,
		})
	}
	return len(seen) > 0
}

// roomElsewhere reports whether another node that is ready serves the plugin,
// can reach the volume, and has not refused one of its volumes, too.
func (p *pass) roomElsewhere() bool {
	quiet := p.v.Quiet()
	for i := range quiet.Instances(p.pub.PluginID) {
		if i.NodeID == p.pub.NodeID || !i.ServesNode() || !i.Healthy || !fit.Reachable(p.vol.Status.AccessibleTopology, i.Topology) {
			continue
		}
		n := quiet.Node(i.NodeID)
		if n == nil || n.Status.State != api.NodeReady {
			continue
		}
		refused := false
		for op := range quiet.Exhausted(p.pub.PluginID, i.NodeID) {
			until, full := fit.NoRoom(op, p.now)
			refused = refused || full && (until.IsZero() || until.After(p.now))
		}
		if !refused {
			return true
		}
	}
	return false
}
