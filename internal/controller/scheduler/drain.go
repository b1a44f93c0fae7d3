package scheduler

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// DrainKey is the key of a job that has allocations on nodes that are drained.
func DrainKey(ns api.NamespaceID, id api.JobID) controller.Key {
	return controller.Key(drainKey + string(ns) + "/" + string(id))
}

// draining yields the jobs that have to leave nodes.
func draining(v state.View) iter.Seq[controller.Key] {
	return func(yield func(controller.Key) bool) {
		for node := range v.DrainingNodes() {
			seen := map[controller.Key]bool{}
			for a := range v.NodeAllocations(node.ID) {
				k := DrainKey(a.Namespace, a.JobID)
				if !leaves(a) || seen[k] {
					continue
				}
				seen[k] = true
				if !yield(k) {
					return
				}
			}
		}
	}
}

// leaves reports whether an allocation is still to be told to leave its node.
func leaves(a *api.Allocation) bool { return !a.Terminal() && a.Desired == api.DesireRun }

// reconcileDrain stops those allocations of a job that are to leave their nodes
// now. What follows them is placed when they have ended, as after any stop.
func reconcileDrain(v state.View, now time.Time, ns api.NamespaceID, id api.JobID) controller.Plan {
	job := v.Job(ns, id)
	if job == nil || job.Desired == api.Absent {
		return controller.Plan{} // they end for that
	}
	return drainJob(newPass(v, now, job))
}

// Staying says for what the drains of nodes wait that have these allocations, as
// Reconcile does for each of their jobs. Nodes and plugins are read once.
func Staying(v state.View, now time.Time, allocs []*api.Allocation) []api.Wait {
	var waits []api.Wait
	var nodes *fleet
	asked := map[controller.Key]bool{}
	for _, a := range allocs {
		k := DrainKey(a.Namespace, a.JobID)
		job := v.Job(a.Namespace, a.JobID)
		if asked[k] || job == nil || job.Desired == api.Absent {
			continue
		}
		asked[k] = true
		if nodes == nil {
			nodes = newFleet(v)
		}
		p := newPass(v, now, job)
		p.fleet = nodes.anew()
		plan := drainJob(p)
		waits = append(waits, plan.Waits...)
	}
	return waits
}

func drainJob(p *pass) controller.Plan {
	v := p.v
	p.hypothetical = true
	p.moving = map[api.AllocID]bool{}
	for _, a := range slices.Concat(p.live, p.outgoing) {
		node := v.Node(a.NodeID)
		if !leaves(a) || node == nil || node.Spec.Drain == nil || command.StaysDrained(v, node, a) {
			continue
		}
		if w := p.stays(a, node); w.reason != "" {
			p.wake(node.Spec.Drain.Deadline)
			p.plan.Wait(DrainSubject(a), w.reason, node.Spec.Drain.Started, w.next)
			continue
		}
		p.plan.Add(&command.StopAllocation{ID: a.ID, Version: a.Version, Reason: fmt.Sprintf("node %s is drained", node.ID)})
	}
	return p.plan
}

// DrainSubject is what a drain calls an allocation that is to leave.
func DrainSubject(a *api.Allocation) string { return "allocation " + a.ID.Short() + " " + a.Name() }

// pause is why an allocation stays on its node for now, and when that is looked
// at again, if it is known.
type pause struct {
	reason string
	next   time.Time
}

// stays says why an allocation is not stopped yet. Services leave first, one
// after the other; what ends by itself may do so until the deadline; system jobs
// go when the others are gone, and who serves volumes when none is left.
func (p *pass) stays(a *api.Allocation, node *api.Node) pause {
	drain := node.Spec.Drain
	if plugins := p.serves(a); len(plugins) > 0 {
		return pause{reason: p.served(a, node, plugins)}
	}
	switch {
	case drain.Over(p.now):
		return pause{reason: p.controls(a, node)}
	case !node.Takes():
		return pause{reason: away(node) + ": nobody knows how it is there"}
	case p.job.Spec.Type.Ends() && drain.Deadline.IsZero():
		return pause{reason: "it is a batch, and may run to its end"}
	case p.job.Spec.Type.Ends():
		return pause{reason: "it is a batch, and may run to its end until the drain's deadline", next: drain.Deadline}
	case p.everywhere():
		return pause{reason: p.behind(a, node, mover)}
	}
	return p.migrates(a)
}

// rank is when an allocation leaves a node that is drained.
type rank int

const (
	mover  rank = iota
	system      // of a system job
	server      // it serves volumes
)

// rankOf is that of any allocation on a node that is drained.
func (p *pass) rankOf(a *api.Allocation, node *api.Node) rank {
	if len(p.serves(a)) > 0 {
		return server
	}
	if node.Spec.Drain.Over(p.now) && p.controls(a, node) != "" {
		return server
	}
	if job := p.v.Job(a.Namespace, a.JobID); job != nil && job.UID == a.JobUID && job.Spec.Type == api.JobSystem {
		return system
	}
	return mover
}

// behind says which allocation of the ranks up to the last has to leave the node
// before another, or "".
func (p *pass) behind(a *api.Allocation, node *api.Node, last rank) string {
	for other := range p.v.NodeAllocations(node.ID) {
		if other.ID == a.ID || other.Terminal() || command.StaysDrained(p.v, node, other) || p.rankOf(other, node) > last {
			continue
		}
		return fmt.Sprintf("it leaves when allocation %s %s has ended", other.ID.Short(), other.Name())
	}
	return ""
}

// serves are the plugins whose node calls an allocation answers.
func (p *pass) serves(a *api.Allocation) []api.PluginID {
	var all []api.PluginID
	for i := range p.v.NodeInstances(a.NodeID) {
		if i.AllocID == a.ID && i.ServesNode() {
			all = append(all, i.PluginID)
		}
	}
	return all
}

// served says why a plugin is still needed on its node, or "". A deadline does
// not change it: without the plugin nothing can be unmounted.
func (p *pass) served(a *api.Allocation, node *api.Node, plugins []api.PluginID) string {
	if reason := p.behind(a, node, system); reason != "" {
		return reason
	}
	for _, plugin := range plugins {
		if command.HostServes(p.v, a.NodeID, plugin) {
			continue
		}
		for pub := range p.v.NodePublications(node.ID, plugin) {
			return fmt.Sprintf("it serves plugin %s, and volume %s is not detached from the node yet", plugin, pub.VolumeID)
		}
	}
	return ""
}

// controls says why a controller is still needed past the deadline, or "": no
// other could detach what is on the node. Before the deadline it moves.
func (p *pass) controls(a *api.Allocation, node *api.Node) string {
	for i := range p.v.NodeInstances(a.NodeID) {
		if i.AllocID != a.ID || !i.ServesController() || !i.Healthy || p.anotherControls(a, i.PluginID) {
			continue
		}
		for pub := range p.v.NodePublications(node.ID, i.PluginID) {
			if pub.MayBeAttached() {
				return fmt.Sprintf("it is the only controller of plugin %s that is healthy, and volume %s is not detached from the node yet", i.PluginID, pub.VolumeID)
			}
		}
	}
	return ""
}

// anotherControls reports whether a plugin has a controller that goes on without
// the allocation. One that may be stopped in the same moment does not count.
func (p *pass) anotherControls(a *api.Allocation, plugin api.PluginID) bool {
	for i := range p.v.Instances(plugin) {
		node := p.v.Node(i.NodeID)
		if !i.ServesController() || !i.Healthy || node == nil || node.Status.State != api.NodeReady {
			continue
		}
		if i.AllocID == "" {
			return true
		}
		other := p.v.Allocation(i.AllocID)
		if i.AllocID != a.ID && other != nil && leaves(other) && (node.Spec.Drain == nil || !node.Spec.Drain.Over(p.now)) {
			return true
		}
	}
	return false
}

// migration is how far a group is in leaving nodes.
type migration struct {
	rules api.Migrate
	// without are the places that have no healthy allocation.
	without map[int]bool
	// next is when one of those that run becomes healthy.
	next time.Time
	// stuck is a place that should have been healthy long ago.
	stuck string
}

// migration looks at a group once in a pass.
func (p *pass) migration(group *api.TaskGroup) *migration {
	if m := p.migrations[group.Name]; m != nil {
		return m
	}
	m := &migration{rules: p.job.Spec.MigrateOf(group), without: map[int]bool{}}
	for at, a := range p.places(group) {
		p.lookAt(m, at, a)
	}
	if p.migrations == nil {
		p.migrations = map[string]*migration{}
	}
	p.migrations[group.Name] = m
	return m
}

// lookAt notes a place that has no healthy allocation. One that gave up is not
// waited for.
func (p *pass) lookAt(m *migration, at place, a *api.Allocation) {
	if (a == nil || a.Terminal()) && p.job.Status.GiveUpOf(at.group.Name, at.index) != nil {
		return
	}
	began := p.job.Status.Applied
	if a != nil {
		ok, when := fit.Healthy(a, api.Update{HealthCheck: m.rules.HealthCheck, MinHealthyTime: m.rules.MinHealthyTime}, p.now)
		if ok {
			return
		}
		if !when.IsZero() && (m.next.IsZero() || when.Before(m.next)) {
			m.next = when
		}
		began = latest(since(a), a.Faltered)
		if a.Terminal() || a.Desired == api.DesireStop {
			began = a.ModifyTime
		}
	}
	m.without[at.index] = true
	if due := began.Add(time.Duration(m.rules.HealthyDeadline)); !p.now.Before(due) {
		m.stuck = p.slot(at)
	} else {
		p.wake(due)
	}
}

// migrates says why an allocation of a service is not stopped yet: it finds no
// other node, or it is not its turn. One that does not run is missed by nobody,
// and has no turn to wait for.
func (p *pass) migrates(a *api.Allocation) pause {
	group := p.job.Spec.Group(a.Group)
	if group == nil || a.Index >= group.Count {
		return pause{} // it ends for that
	}
	m := p.migration(group)
	without := len(m.without)
	if m.without[a.Index] {
		without--
	}
	switch {
	case without < m.rules.MaxParallel, a.Status.State != api.AllocRunning:
	case m.stuck != "":
		return pause{reason: fmt.Sprintf("it stays until %s is healthy, which it was to be in %s", m.stuck, time.Duration(m.rules.HealthyDeadline)), next: m.next}
	default:
		return pause{reason: fmt.Sprintf("it stays until it is its turn: %d of group %s may be without a healthy allocation (migrate.max_parallel)",
			m.rules.MaxParallel, group.Name), next: m.next}
	}
	if reason := p.elsewhere(a, group); reason != "" {
		return pause{reason: "it has nowhere to go: " + reason}
	}
	m.without[a.Index] = true
	return pause{}
}

// elsewhere says why no other node would take an allocation's place if it let go
// of what it holds, or "". What it would take there is taken for the rest of the
// pass.
func (p *pass) elsewhere(a *api.Allocation, group *api.TaskGroup) string {
	at := place{group: group, index: a.Index}
	plan, made := p.plan, len(p.made)
	serial := p.job.Status.Serial + uint64(len(p.placed)) + 1
	requests, lack := p.volumes(at, serial)
	p.plan, p.made = plan, p.made[:made] // nothing is made for what may not be placed
	if lack != nil {
		return lack.reason
	}
	p.moving[a.ID] = true
	reasons := map[string]int{}
	for node := range p.nodes().from(serial) {
		if node.ID == a.NodeID {
			continue
		}
		reason := p.rejects(node, group, requests, serial)
		if reason == "" {
			p.placed = append(p.placed, placement{group.Name, a.Index, node.ID})
			p.fleet.take(&api.Allocation{ID: api.NewAllocID(p.job.UID, serial), JobID: p.job.ID, NodeID: node.ID, Resources: group.Resources(), Ports: a.Ports},
				p.attachments(requests, node.ID, serial))
			return ""
		}
		reasons[reason]++
	}
	delete(p.moving, a.ID)
	if len(reasons) == 0 {
		return "the cluster has no other node"
	}
	return summary(reasons)
}
