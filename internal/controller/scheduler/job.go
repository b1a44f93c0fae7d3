package scheduler

import (
	"fmt"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// Rules for what follows an allocation that ended by itself.
const (
	// steadyRun is how long an allocation must have run for its end to start
	// the count of failures afresh.
	steadyRun = api.SteadyTime
	// placementsAPlan bounds a plan; the rest follows in the next.
	placementsAPlan = 64
	// revisionsAPlan bounds those that go on in place.
	revisionsAPlan = 256
)

// pass is one reconciliation of one job.
type pass struct {
	v    state.View
	now  time.Time
	job  *api.Job
	live []*api.Allocation
	// outgoing are those that run until the one that replaces them is healthy.
	outgoing []*api.Allocation
	plan     controller.Plan
	placed   []placement
	// Fleet and keepers are made when they are first asked for.
	fleet   *fleet
	keepers map[seat]*api.Allocation
	updates map[string]*update
	// Of a drain: how far each group is, and what has left its node already as far
	// as the pass is concerned.
	migrations map[string]*migration
	moving     map[api.AllocID]bool
	// joined are those beside which a newer one is placed.
	joined map[api.AllocID]bool
	// given is how many places this plan gives up, and made the volumes that it
	// makes.
	given uint64
	made  []api.VolumeID
	// sparing is how many outdated allocations go on where nothing can follow them.
	sparing int
	// retaken are those that have their places again.
	retaken map[api.AllocID]bool
	// revised is how many allocations this plan takes to the job's revision.
	revised int
	// absent is what the job's places lack of other jobs, nil until it is asked for.
	absent []absence
	// theirs are passes that were made to learn what other jobs would get.
	theirs map[string]*pass
	// hypothetical: the pass is made to learn what the job would get, and
	// yields to nobody.
	hypothetical bool
	// looks notes which nodes are turned down, nil if nobody asks.
	looks Looks
}

// placement is where the pass puts an allocation.
type placement struct {
	group string
	index int
	node  api.NodeID
}

func reconcileJob(v state.View, now time.Time, ns api.NamespaceID, id api.JobID) controller.Plan {
	job := v.Job(ns, id)
	if job == nil {
		return controller.Plan{}
	}
	p := newPass(v, now, job)
	p.reconcile()
	return p.plan
}

func newPass(v state.View, now time.Time, job *api.Job) *pass {
	p := &pass{v: v, now: now, job: job}
	for a := range v.LiveAllocations(job.UID) {
		if a.Replaced {
			p.outgoing = append(p.outgoing, a)
		} else {
			p.live = append(p.live, a)
		}
	}
	return p
}

func (p *pass) reconcile() {
	job := p.job
	p.takeBack()
	for _, a := range p.live {
		if !p.retaken[a.ID] {
			p.stopUnwanted(a)
		}
	}
	for _, a := range p.outgoing {
		p.stopOutgoing(a)
	}
	if job.Desired == api.Present {
		for i := range job.Spec.Groups {
			p.fill(&job.Spec.Groups[i])
		}
	}
	if len(p.plan.Commands) == 0 && len(p.plan.Waits) == p.sparing && !job.Status.Settled {
		p.plan.Add(&command.SettleJob{Namespace: job.Namespace, ID: job.ID, Version: job.Version})
	}
}

// stopped is why the allocations of a job that was stopped end.
func stopped(job *api.Job) string {
	if by := job.Status.StoppedBy; by != "" {
		return "the job was stopped by " + by
	}
	return "the job was stopped"
}

// stopUnwanted ends an allocation that the job no longer asks for, or asks for
// otherwise.
func (p *pass) stopUnwanted(a *api.Allocation) {
	reason := ""
	group := p.job.Spec.Group(a.Group)
	switch {
	case p.job.Desired == api.Absent:
		reason = stopped(p.job)
	case group == nil:
		reason = "the group was removed from the job"
	case p.everywhere() && group.Count == 0, !p.everywhere() && a.Index >= group.Count:
		reason = "the group's count was lowered"
	case p.everywhere() && p.keeper(seat{a.Group, a.NodeID}) != a:
		reason = "another allocation of the group has the node"
	case !a.Terminal() && a.Desired == api.DesireRun:
		reason = p.outdated(a, group)
		if reason == "" {
			p.revise(a)
			return
		}
		if p.spared(a, group) {
			p.plan.Wait(p.slot(place{group: group, index: a.Index}), fmt.Sprintf("runs revision %d: %s", a.Revision, away(p.nodes().node(a.NodeID))),
				p.job.Status.Applied, time.Time{})
			p.sparing++
			return
		}
		if !p.mayExchange(a, group) || p.unready(a, group) {
			return
		}
		if p.joins(a, group) || p.tried(a, group) {
			return
		}
	case p.everywhere() && a.Terminal() && p.left(a):
		reason = "the node is not one of the job's any more"
	}
	if reason == "" || !a.Terminal() && a.Desired == api.DesireStop {
		return
	}
	p.plan.Add(&command.StopAllocation{ID: a.ID, Version: a.Version, Reason: reason})
}

// revise takes an allocation that goes on to the job's revision, if that says
// something new for it. Nothing is missed meanwhile, so there are no turns.
func (p *pass) revise(a *api.Allocation) {
	if a.Revision == p.job.Revision || p.revised >= revisionsAPlan {
		return
	}
	rev := p.v.Revision(p.job.UID, a.Revision)
	if rev == nil || !fit.InPlace(&rev.Spec, &p.job.Spec, a.Group) {
		return
	}
	p.revised++
	p.plan.Add(&command.ReviseAllocation{ID: a.ID, Version: a.Version, Revision: p.job.Revision})
}

// everywhere reports whether the job runs on each node that fits.
func (p *pass) everywhere() bool { return p.job.Spec.Type.Everywhere() }

// outdated says why an allocation is not what the job asks for any more, or "".
func (p *pass) outdated(a *api.Allocation, group *api.TaskGroup) string {
	if !p.current(a) {
		return "the job was changed"
	}
	if a.Revision == p.job.Revision {
		return ""
	}
	if reason := p.excluded(a, group); reason != "" {
		return "the job was changed: " + reason
	}
	return ""
}

// excluded says why an allocation's node is not one for the group any more,
// which a newer revision may have decided, or "".
func (p *pass) excluded(a *api.Allocation, group *api.TaskGroup) string {
	if node := p.nodes().node(a.NodeID); node != nil {
		return p.excludes(node, group)
	}
	return ""
}

// current reports whether an allocation runs what the group asks for now.
func (p *pass) current(a *api.Allocation) bool {
	if a.Revision == p.job.Revision {
		return true
	}
	rev := p.v.Revision(p.job.UID, a.Revision)
	return rev != nil && fit.Current(&rev.Spec, &p.job.Spec, a.Group)
}

// fill places what is missing of a group.
func (p *pass) fill(group *api.TaskGroup) {
	if p.everywhere() {
		if group.Count > 0 {
			p.fillNodes(group)
		}
		return
	}
	bySlot := map[int]*api.Allocation{}
	for _, a := range p.live {
		if a.Group == group.Name {
			bySlot[a.Index] = a
		}
	}
	for i := range group.Count {
		if len(p.placed) >= placementsAPlan {
			return
		}
		p.fillSlot(place{group: group, index: i}, bySlot[i])
	}
}

// place is a place in a group: a number, and a node if it is for that one only.
type place struct {
	group *api.TaskGroup
	index int
	node  *api.Node
}

func (p *pass) fillSlot(at place, a *api.Allocation) {
	switch {
	case a == nil:
		p.vacant(at, successor{})
	case !a.Terminal():
		if p.joined[a.ID] {
			p.place(at, beside(a))
		} else if a.Desired == api.DesireStop {
			p.plan.Wait(p.slot(at), fmt.Sprintf("allocation %s before it is ending", a.ID.Short()), a.ModifyTime, time.Time{})
		}
	case p.finished(a, at.group):
	default:
		p.replace(at, a)
	}
}

// vacant places what is missing, unless the place has given up.
func (p *pass) vacant(at place, after successor) {
	if !p.givenUp(at) {
		p.place(at, after)
	}
}

// finished reports whether an ended allocation needs no successor.
func (p *pass) finished(a *api.Allocation, group *api.TaskGroup) bool {
	if !p.job.Spec.Type.Ends() || !p.current(a) || a.Desired == api.DesireStop {
		return false
	}
	if a.Status.State == api.AllocLost {
		return false
	}
	r := p.job.Spec.RescheduleOf(group)
	return a.Status.State == api.AllocComplete || !r.Unlimited && a.Failures >= r.Attempts
}

// replace places the successor of an allocation that ended, at once if it had
// run steadily, was told to end, ran what the job no longer asks for, or was
// lost with its node, else after a delay, and as often as the job allows. That
// it was lost is no failure of its own, and none is forgiven for it; that its
// plugin refused to make a volume of its own is one, else it would go round
// among full nodes without end.
func (p *pass) replace(at place, a *api.Allocation) {
	if a.Status.State == api.AllocLost {
		p.vacant(at, follow(a, a.Failures, a.Failing))
		return
	}
	failures, failing := a.Failures+1, a.Failing
	if failing.IsZero() {
		failing = a.CreateTime
	}
	steady := a.Desired == api.DesireStop || a.ModifyTime.Sub(a.CreateTime) >= steadyRun
	if steady && !a.Refused || !p.current(a) {
		failures = 0
	}
	if failures == 0 {
		p.vacant(at, follow(a, 0, time.Time{}))
		return
	}
	r := p.job.Spec.RescheduleOf(at.group)
	ended := fmt.Sprintf("allocation %s ended %s (%d in a row)%s", a.ID.Short(), a.Status.State, failures, why(a))
	if a.Refused {
		ended = fmt.Sprintf("allocation %s was refused (%d in a row): %s", a.ID.Short(), failures, a.DesiredReason)
	}
	if !r.Unlimited && failures > r.Attempts {
		over := failing.Add(time.Duration(r.Interval))
		if p.now.Before(over) {
			p.plan.Wait(p.slot(at), fmt.Sprintf("%s; it may be replaced %d times in %s", ended, r.Attempts, time.Duration(r.Interval)), a.ModifyTime, over)
			return
		}
		failures, failing = 1, p.now
	}
	if due := a.ModifyTime.Add(fit.Delay(r, string(a.ID), failures)); p.now.Before(due) {
		p.plan.Wait(p.slot(at), ended, a.ModifyTime, due)
		return
	}
	p.vacant(at, follow(a, failures, failing))
}

// why is the reason of an end, to go behind a sentence.
func why(a *api.Allocation) string {
	if reason := a.Status.Why(); reason != "" {
		return ": " + reason
	}
	return ""
}

// slot is what people call a place in a group.
func (p *pass) slot(at place) string {
	name := fmt.Sprintf("allocation %s.%s[%d]", p.job.ID, at.group.Name, at.index)
	if at.node != nil {
		name += " on node " + string(at.node.ID)
	}
	return name
}
