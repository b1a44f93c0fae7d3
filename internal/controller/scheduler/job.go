package scheduler

import (
	"fmt"
	"reflect"
	"slices"
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
	steadyRun = 5 * time.Minute
	// batchTries is how often a batch job's allocation may fail in a row.
	batchTries = 3
	// placementsAPlan bounds a plan; the rest follows in the next.
	placementsAPlan = 64
)

// pass is one reconciliation of one job.
type pass struct {
	v      state.View
	now    time.Time
	job    *api.Job
	live   []*api.Allocation
	plan   controller.Plan
	placed int
	fleet  *fleet // made when the first placement is tried
}

func reconcileJob(v state.View, now time.Time, ns api.NamespaceID, id api.JobID) controller.Plan {
	job := v.Job(ns, id)
	if job == nil {
		return controller.Plan{}
	}
	p := &pass{v: v, now: now, job: job, live: slices.Collect(v.LiveAllocations(job.UID))}
	for _, a := range p.live {
		p.stopUnwanted(a)
	}
	if job.Desired == api.Present {
		for i := range job.Spec.Groups {
			p.fill(&job.Spec.Groups[i])
		}
	}
	if len(p.plan.Commands) == 0 && len(p.plan.Waits) == 0 && !job.Status.Settled {
		p.plan.Add(&command.SettleJob{Namespace: ns, ID: id, Version: job.Version})
	}
	return p.plan
}

// stopUnwanted ends an allocation that the job no longer asks for, or asks for
// otherwise.
func (p *pass) stopUnwanted(a *api.Allocation) {
	reason := ""
	group := p.job.Spec.Group(a.Group)
	switch {
	case p.job.Desired == api.Absent:
		reason = "the job was stopped"
	case group == nil:
		reason = "the group was removed from the job"
	case a.Index >= group.Count:
		reason = "the group's count was lowered"
	case !a.Terminal() && !p.current(a, group):
		reason = "the job was changed"
	}
	if reason == "" || !a.Terminal() && a.Desired == api.DesireStop {
		return
	}
	p.plan.Add(&command.StopAllocation{ID: a.ID, Version: a.Version, Reason: reason})
}

// current reports whether an allocation runs what the group asks for now. A
// newer revision that leaves the group as it was changes nothing for it.
func (p *pass) current(a *api.Allocation, group *api.TaskGroup) bool {
	if a.Revision == p.job.Revision {
		return true
	}
	rev := p.v.Revision(p.job.UID, a.Revision)
	if rev == nil || rev.Spec.Type != p.job.Spec.Type {
		return false
	}
	old := rev.Spec.Group(group.Name)
	if old == nil {
		return false
	}
	was, is := *old, *group
	was.Count, is.Count = 0, 0
	return reflect.DeepEqual(was, is)
}

// fill places what is missing of a group.
func (p *pass) fill(group *api.TaskGroup) {
	bySlot := map[int]*api.Allocation{}
	for _, a := range p.live {
		if a.Group == group.Name {
			bySlot[a.Index] = a
		}
	}
	for i := range group.Count {
		if p.placed >= placementsAPlan {
			return
		}
		p.fillSlot(group, i, bySlot[i])
	}
}

func (p *pass) fillSlot(group *api.TaskGroup, index int, a *api.Allocation) {
	switch {
	case a == nil:
		p.place(group, index, "", 0)
	case !a.Terminal():
		if a.Desired == api.DesireStop {
			p.plan.Wait(slot(p.job, group, index), fmt.Sprintf("allocation %s before it is ending", a.ID.Short()),
				a.ModifyTime, time.Time{})
		}
	case p.finished(a, group):
	default:
		p.replace(group, index, a)
	}
}

// finished reports whether an ended allocation needs no successor.
func (p *pass) finished(a *api.Allocation, group *api.TaskGroup) bool {
	if p.job.Spec.Type != api.JobBatch || !p.current(a, group) || a.Desired == api.DesireStop {
		return false
	}
	return a.Status.State == api.AllocComplete || a.Failures+1 >= batchTries
}

// replace places the successor of an allocation that ended, at once if it had
// run steadily or was told to end, else after a backoff.
func (p *pass) replace(group *api.TaskGroup, index int, a *api.Allocation) {
	failures := a.Failures + 1
	if a.Desired == api.DesireStop || a.ModifyTime.Sub(a.CreateTime) >= steadyRun {
		failures = 0
	}
	if failures > 0 {
		due := a.ModifyTime.Add(fit.Backoff(string(a.ID), failures))
		if p.now.Before(due) {
			p.plan.Wait(slot(p.job, group, index), fmt.Sprintf("allocation %s ended %s, %d times in a row",
				a.ID.Short(), a.Status.State, failures), a.ModifyTime, due)
			return
		}
	}
	p.place(group, index, a.ID, failures)
}

// slot is what people call a place in a group.
func slot(job *api.Job, group *api.TaskGroup, index int) string {
	return fmt.Sprintf("allocation %s.%s[%d]", job.ID, group.Name, index)
}
