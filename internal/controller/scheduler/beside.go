package scheduler

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
)

// Where nothing is held that is for one, the newer allocation of a place is
// started beside the older one, which is stopped when the newer one is healthy.
// A version that does not work takes nothing away.

// joins reports whether the one that follows an outdated allocation is placed
// beside it. Where there is no room for both, the older one goes first.
func (p *pass) joins(a *api.Allocation, group *api.TaskGroup) bool {
	if p.job.Spec.Type.Ends() || a.Status.State != api.AllocRunning || !fit.Beside(&p.job.Spec, group) || p.excluded(a, group) != "" || p.accompanied(a) {
		return false
	}
	if p.heldAlone(a, group) {
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
	at := place{group: group, index: a.Index}
	planned, made := p.plan, len(p.made)
	serial := p.job.Status.Serial + uint64(len(p.placed)) + 1
	requests, lack := p.volumes(at, serial)
	p.plan, p.made = planned, p.made[:made] // nothing is made for what may not be placed
	if lack != nil {
		return false
	}
	node := p.nodes().node(a.NodeID)
	if p.everywhere() && (node == nil || p.rejects(node, group, nil, serial) != "") {
		return false
	}
	if !p.everywhere() {
		looks := p.looks
		p.looks = nil
		fits, _ := p.choose(at, beside(a), requests, serial)
		p.looks = looks
		if fits == nil {
			return false
		}
	}
	return true
}

// heldAlone reports whether an older allocation may hold what is for one, which
// the newer revision does not know, unless that asks for the order.
func (p *pass) heldAlone(a *api.Allocation, group *api.TaskGroup) bool {
	if p.job.Spec.UpdateOf(group).Order == api.StartFirst {
		return false
	}
	rev := p.v.Revision(p.job.UID, a.Revision)
	if rev == nil {
		return true
	}
	was := rev.Spec.Group(a.Group)
	return was == nil || !fit.Beside(&rev.Spec, was)
}

// accompanied reports whether an older allocation of the place still runs: a
// third one is not started beside the two.
func (p *pass) accompanied(a *api.Allocation) bool {
	return slices.ContainsFunc(p.outgoing, func(old *api.Allocation) bool {
		return old.Desired == api.DesireRun && p.after(old) == a
	})
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
		reason = stopped(p.job)
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
		if !p.current(after) {
			ok, next = false, time.Time{}
		}
		if !ok {
			p.plan.Wait(p.slot(at), fmt.Sprintf("allocation %s of revision %d runs until allocation %s is healthy",
				a.ID.Short(), a.Revision, after.ID.Short()), after.CreateTime, next)
			return
		}
		if !fit.Promoted(p.job, group) {
			p.plan.Wait(p.slot(at), fmt.Sprintf("allocation %s of revision %d runs until %s", a.ID.Short(), a.Revision, p.promotion()), after.CreateTime, time.Time{})
			return
		}
		reason = fmt.Sprintf("allocation %s of a newer revision is healthy", after.ID.Short())
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

// takeBack has an allocation go on that was to be replaced, where its successor
// is not wanted any more and it is: the job has gone back to what it runs.
func (p *pass) takeBack() {
	if p.job.Desired != api.Present {
		return
	}
	p.outgoing = slices.DeleteFunc(p.outgoing, func(old *api.Allocation) bool {
		if old.Desired != api.DesireRun || old.Status.State != api.AllocRunning || !p.current(old) || len(p.retaken) >= placementsAPlan {
			return false
		}
		after := p.after(old)
		if after == nil || p.current(after) || p.excluded(old, p.job.Spec.Group(old.Group)) != "" {
			return false
		}
		p.plan.Add(&command.RetakePlace{
			ID: old.ID, Version: old.Version, From: after.ID, FromVersion: after.Version, Revision: p.job.Revision,
			Reason: fmt.Sprintf("allocation %s before it is what the job asks for again", old.ID.Short()),
		})
		p.live[slices.Index(p.live, after)] = old
		if p.retaken == nil {
			p.retaken = map[api.AllocID]bool{}
		}
		p.retaken[old.ID] = true
		return true
	})
}
