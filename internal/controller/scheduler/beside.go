package scheduler

import (
	"fmt"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
)

// Who serves plugins is exchanged the other way round: the newer allocation is
// started beside the older one, which is stopped when the newer one is healthy.
// Volumes have somebody to call meanwhile, and a version that does not work
// takes nothing away.

// joins reports whether the one that follows an outdated allocation is placed
// beside it. Where there is no room for both, the older one goes first.
func (p *pass) joins(a *api.Allocation, group *api.TaskGroup) bool {
	if p.job.Spec.Type.Ends() || a.Status.State != api.AllocRunning || !fit.Beside(group) || p.excluded(a, group) != "" {
		return false
	}
	if p.joined == nil {
		p.joined = map[api.AllocID]bool{}
	}
	p.joined[a.ID] = p.hasRoomBeside(a, group)
	return p.joined[a.ID]
}

// hasRoomBeside reports whether some node, or that of a job that runs on all of
// them, takes the newer allocation as well.
func (p *pass) hasRoomBeside(a *api.Allocation, group *api.TaskGroup) bool {
	p.joined[a.ID] = true
	serial := p.job.Status.Serial + uint64(len(p.placed)) + 1
	node := p.nodes().node(a.NodeID)
	if p.everywhere() && (node == nil || p.rejects(node, group, nil, serial) != "") {
		return false
	}
	if !p.everywhere() {
		looks := p.looks
		p.looks = nil
		fits, _ := p.choose(place{group: group, index: a.Index}, beside(a), nil, serial)
		p.looks = looks
		if fits == nil {
			return false
		}
	}
	return true
}

// beside is the successor of an allocation that still runs.
func beside(a *api.Allocation) successor {
	return successor{id: a.ID, node: a.NodeID, beside: true}
}

// stopOutgoing ends an allocation whose successor is healthy, or that nothing
// needs any more.
func (p *pass) stopOutgoing(a *api.Allocation) {
	if a.Desired == api.DesireStop {
		return
	}
	group := p.job.Spec.Group(a.Group)
	var reason string
	switch {
	case p.job.Desired == api.Absent:
		reason = "the job was stopped"
	case group == nil:
		reason = "the group was removed from the job"
	case p.everywhere() && group.Count == 0, !p.everywhere() && a.Index >= group.Count:
		reason = "the group's count was lowered"
	case p.excluded(a, group) != "":
		reason = "the node is not one of the job's any more"
	default:
		after := p.after(a)
		at := place{group: group, index: a.Index}
		if after == nil {
			return // it is yet to be placed
		}
		ok, next := fit.Healthy(after, p.job.Spec.UpdateOf(group), p.now)
		if !ok {
			p.plan.Wait(p.slot(at), fmt.Sprintf("allocation %s of revision %d serves its plugins until allocation %s is healthy",
				a.ID.Short(), a.Revision, after.ID.Short()), after.CreateTime, next)
			return
		}
		reason = fmt.Sprintf("allocation %s of a newer revision serves its plugins", after.ID.Short())
	}
	p.plan.Add(&command.StopAllocation{ID: a.ID, Version: a.Version, Reason: reason})
}

// after is the allocation that has the place of one that is outgoing, or nil.
func (p *pass) after(a *api.Allocation) *api.Allocation {
	for _, other := range p.live {
		if other.Group == a.Group && (p.everywhere() && other.NodeID == a.NodeID || !p.everywhere() && other.Index == a.Index) {
			return other
		}
	}
	return nil
}
