package scheduler

import (
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/state"
)

// Looks are what a reconciliation of a job saw of the nodes, by group.
type Looks map[string]Look

// Look is one look at the nodes for a place in a group. It goes no further than
// the scheduler does, which has enough of a few nodes that fit.
type Look struct {
	// Found: a node fits. Otherwise a place waits for one.
	Found bool
	// Reasons say why nodes were turned down.
	Reasons map[api.NodeID]string
}

// Examine is Controller.Reconcile of a job, and also says which nodes it
// turned down, and why: for each group the first look that found a node, or the
// last that found none.
func Examine(v state.View, now time.Time, ns api.NamespaceID, id api.JobID) (controller.Plan, Looks) {
	job := v.Job(ns, id)
	if job == nil {
		return controller.Plan{}, nil
	}
	p := newPass(v, now, job)
	p.looks = Looks{}
	p.reconcile()
	return p.plan, p.looks
}

// Then is what is known of a group after a later reconciliation.
func (l Look) Then(later Look) Look {
	if later.Found {
		return l
	}
	return later
}

// lookFor begins a look, which notes nothing if nobody asks.
func (p *pass) lookFor() Look {
	if p.looks == nil {
		return Look{}
	}
	return Look{Reasons: map[api.NodeID]string{}}
}

func (l Look) turnDown(node *api.Node, reason string) {
	if l.Reasons != nil {
		l.Reasons[node.ID] = reason
	}
}

// looked ends a look.
func (p *pass) looked(group *api.TaskGroup, l Look, found bool) {
	if p.looks == nil {
		return
	}
	l.Found = found
	if before, ok := p.looks[group.Name]; ok {
		l = before.Then(l)
	}
	p.looks[group.Name] = l
}

// turnDown notes that a group that runs everywhere does not run on a node. Its
// nodes are one look.
func (p *pass) turnDown(group *api.TaskGroup, node *api.Node, reason string) {
	if p.looks == nil {
		return
	}
	l, ok := p.looks[group.Name]
	if !ok {
		l = p.lookFor()
		p.looks[group.Name] = l
	}
	l.turnDown(node, reason)
}
