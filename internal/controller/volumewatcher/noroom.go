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
	seen := map[api.AllocID]bool{}
	for _, c := range claimed {
		a, job := p.v.Allocation(c.AllocID), p.v.Job(c.Namespace, c.JobID)
		if a == nil || a.Terminal() || a.Desired == api.DesireStop || job == nil || job.Spec.Type.Everywhere() || seen[a.ID] {
			continue
		}
		seen[a.ID] = true
		p.plan.Add(&command.StopAllocation{
			ID: a.ID, Version: a.Version,
			Reason: fmt.Sprintf("node %s takes no more volumes of plugin %s: %s", p.pub.NodeID, p.pub.PluginID, op.Status.Message),
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
