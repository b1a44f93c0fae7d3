package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// update is how far the exchange of a group's allocations is.
type update struct {
	rules api.Update
	// room is how many more places may be without a healthy allocation.
	room int
	// next is when one of those that run becomes healthy.
	next time.Time
	// stuck is a place that should have been healthy long ago.
	stuck *api.Allocation
}

// update looks at the group once in a pass.
func (p *pass) update(group *api.TaskGroup) *update {
	if u := p.updates[group.Name]; u != nil {
		return u
	}
	u := &update{rules: p.job.Spec.UpdateOf(group)}
	u.room = u.rules.MaxParallel
	for _, a := range p.live {
		if a.Group == group.Name && !p.spared(a, group) {
			p.look(u, a)
		}
	}
	if u.stuck != nil {
		u.room = 0
	}
	if p.updates == nil {
		p.updates = map[string]*update{}
	}
	p.updates[group.Name] = u
	return u
}

// look counts a place that has no healthy allocation. One of an older revision
// counts as healthy as long as it runs.
func (p *pass) look(u *update, a *api.Allocation) {
	current := p.current(a)
	if !current && a.Status.State == api.AllocRunning && a.Desired == api.DesireRun {
		return
	}
	ok, at := fit.Healthy(a, u.rules, p.now)
	if current && ok {
		return
	}
	u.room--
	if !current {
		return
	}
	if !at.IsZero() && (u.next.IsZero() || at.Before(u.next)) {
		u.next = at
	}
	if due := p.began(a).Add(time.Duration(u.rules.HealthyDeadline)); !p.now.Before(due) {
		u.stuck = a
	}
}

// since is when a place began to try to be healthy.
func since(a *api.Allocation) time.Time {
	if a.Failing.IsZero() {
		return a.CreateTime
	}
	return a.Failing
}

// began is since when a place has been tried that has no healthy allocation. For
// one that was told to stop, was lost, or ended after it had run, that is its
// end: it was no failure to get healthy. For one that had been healthy it is when
// that was over. No place was tried before the newest revision was there.
func (p *pass) began(a *api.Allocation) time.Time {
	ran := a.Failing.IsZero() || a.Status.State == api.AllocLost || a.ModifyTime.Sub(a.CreateTime) >= steadyRun
	t := since(a)
	if ended := a.Desired == api.DesireStop || a.Terminal() && ran; ended && a.ModifyTime.After(t) {
		t = a.ModifyTime
	}
	return latest(t, a.Faltered, p.job.Status.Applied)
}

func latest(t time.Time, others ...time.Time) time.Time {
	for _, o := range others {
		if o.After(t) {
			t = o
		}
	}
	return t
}

// mayExchange reports whether an outdated allocation may be stopped now. One
// that does not run is missed by nobody.
func (p *pass) mayExchange(a *api.Allocation, group *api.TaskGroup) bool {
	if p.job.Spec.Type.Ends() || a.Status.State != api.AllocRunning {
		return true
	}
	u := p.update(group)
	if !fit.Promoted(p.job, group) {
		if a.Index < u.rules.Canary {
			return true
		}
		p.plan.Wait(p.slot(place{group: group, index: a.Index}), fmt.Sprintf("runs revision %d until %s", a.Revision, p.promotion()), p.job.Status.Applied, time.Time{})
		return false
	}
	if u.room > 0 {
		u.room--
		return true
	}
	at := place{group: group, index: a.Index}
	if u.stuck != nil {
		p.plan.Wait(p.slot(at), fmt.Sprintf("runs revision %d until allocation %s, of the new one, is healthy, which it was to be in %s",
			a.Revision, u.stuck.ID.Short(), time.Duration(u.rules.HealthyDeadline)), p.job.Status.Applied, u.next)
		return false
	}
	p.plan.Wait(p.slot(at), fmt.Sprintf("runs revision %d until it is its turn: group %s exchanges %d at a time", a.Revision, group.Name, u.rules.MaxParallel),
		p.job.Status.Applied, u.next)
	return false
}

// unready reports whether an outdated allocation goes on because a volume that the
// newer one asks for is not there, or is none for it: to stop it would win nothing.
// What the newer one waits for is made meanwhile.
func (p *pass) unready(a *api.Allocation, group *api.TaskGroup) bool {
	if p.job.Spec.Type.Ends() || a.Status.State != api.AllocRunning {
		return false
	}
	at := place{group: group, index: a.Index}
	_, lack := p.volumes(at, p.job.Status.Serial+uint64(len(p.placed))+1)
	if lack == nil {
		return false
	}
	p.plan.Wait(p.slot(at), fmt.Sprintf("runs revision %d until the newer one can: %s", a.Revision, lack.reason), p.job.Status.Applied, time.Time{})
	return true
}

// reconcileHealth looks whether a job's newest revision is healthy everywhere,
// or has failed.
func reconcileHealth(v state.View, now time.Time, ns api.NamespaceID, id api.JobID) controller.Plan {
	job := v.Job(ns, id)
	if job == nil || job.Desired == api.Absent || job.Spec.Type.Ends() || job.Status.Stable == job.Revision {
		return controller.Plan{}
	}
	p := newPass(v, now, job)
	healthy := job.Status.Settled
	for i := range job.Spec.Groups {
		for at, a := range p.places(&job.Spec.Groups[i]) {
			healthy = p.examine(at, a) && healthy
		}
	}
	if len(p.plan.Commands) == 0 { // what goes back is not promoted
		p.promote()
	}
	if len(p.plan.Commands) > 0 {
		return p.plan
	}
	if healthy {
		p.plan.Add(&command.StabilizeJob{Namespace: ns, ID: id, Version: job.Version})
	}
	return p.plan
}

// places yields the places of a group with what is in them, or nil.
func (p *pass) places(group *api.TaskGroup) func(func(place, *api.Allocation) bool) {
	bySlot := map[int]*api.Allocation{}
	for _, a := range p.live {
		if a.Group == group.Name {
			bySlot[a.Index] = a
		}
	}
	return func(yield func(place, *api.Allocation) bool) {
		if p.everywhere() {
			for _, i := range slices.Sorted(maps.Keys(bySlot)) {
				if !yield(place{group: group, index: i}, bySlot[i]) {
					return
				}
			}
			return
		}
		for i := range group.Count {
			if !yield(place{group: group, index: i}, bySlot[i]) {
				return
			}
		}
	}
}

// examine reports whether a place is healthy. If it should be by now, the
// update has failed.
func (p *pass) examine(at place, a *api.Allocation) bool {
	rules := p.job.Spec.UpdateOf(at.group)
	since, next := p.job.Status.Applied, time.Time{}
	switch {
	case a == nil:
	case p.spared(a, at.group):
		return true
	case p.current(a):
		ok, when := fit.Healthy(a, rules, p.now)
		if ok {
			return true
		}
		since, next = p.began(a), when
	case a.Terminal() || a.Desired == api.DesireStop:
		since = a.ModifyTime
	default:
		return false // its turn has not come
	}
	due := since.Add(time.Duration(rules.HealthyDeadline))
	if p.now.Before(due) {
		p.wake(next)
		p.wake(due)
		return false
	}
	p.failed(at, a, rules, since)
	return false
}

// wake has the pass made again, not later than then.
func (p *pass) wake(at time.Time) {
	if !at.IsZero() && at.After(p.now) && (p.plan.Wake.IsZero() || at.Before(p.plan.Wake)) {
		p.plan.Wake = at
	}
}

// failed goes back to the last revision that was healthy everywhere, if the job
// wants that and there is one; else it says what is wrong.
func (p *pass) failed(at place, a *api.Allocation, rules api.Update, began time.Time) {
	reason := fmt.Sprintf("%s did not become healthy in %s", p.slot(at), time.Duration(rules.HealthyDeadline))
	if a != nil {
		reason += cmp.Or(why(a), failing(a))
	}
	stable := p.v.Revision(p.job.UID, p.job.Status.Stable)
	switch {
	case len(p.plan.Commands) > 0:
	case rules.AutoRevert && stable != nil && !fit.Same(stable.Spec, p.job.Spec):
		p.plan.Add(&command.RevertJob{Namespace: p.job.Namespace, ID: p.job.ID, Version: p.job.Version, Reason: reason})
	default:
		p.plan.Wait(p.slot(at), fmt.Sprintf("revision %d did not become healthy in %s", p.job.Revision, time.Duration(rules.HealthyDeadline)), began, time.Time{})
	}
}

// failing is which check of an allocation does not pass, to go behind a sentence.
func failing(a *api.Allocation) string {
	for _, c := range a.Status.Checks {
		if c.Status != api.CheckPassing {
			return strings.TrimSuffix(fmt.Sprintf(": check %q of service %s is %s: %s", c.Name, c.Service, c.Status, c.Output), ": ")
		}
	}
	return ""
}

// tried says that an older allocation beside which a canary is to run stays,
// because there is no room for both.
func (p *pass) tried(a *api.Allocation, group *api.TaskGroup) bool {
	if a.Status.State != api.AllocRunning || fit.Promoted(p.job, group) || p.job.Spec.Type.Ends() {
		return false
	}
	p.plan.Wait(p.slot(place{group: group, index: a.Index}),
		fmt.Sprintf("runs revision %d until a node has room for a canary beside it", a.Revision), p.job.Status.Applied, time.Time{})
	return true
}

// promotion is what an update waits for that is being tried.
func (p *pass) promotion() string {
	return fmt.Sprintf("revision %d is promoted (berth job promote %s)", p.job.Revision, p.job.ID)
}

// promote promotes the newest revision when all of its canaries are healthy, if
// each group that has some wants that.
func (p *pass) promote() {
	asked := false
	for i := range p.job.Spec.Groups {
		if g := &p.job.Spec.Groups[i]; !fit.Promoted(p.job, g) {
			if !p.job.Spec.UpdateOf(g).AutoPromote {
				return
			}
			asked = true
		}
	}
	if !asked {
		return
	}
	reason, next := command.Untried(p.v, p.job, p.now)
	if p.wake(next); reason == "" {
		p.plan.Add(&command.PromoteJob{Namespace: p.job.Namespace, ID: p.job.ID, Version: p.job.Version, Revision: p.job.Revision})
	}
}
