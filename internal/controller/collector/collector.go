// Package collector removes what is history: operations and allocations that
// ended, freed attachments, jobs that were stopped, snapshots that were never
// made, and nodes that are gone, each some time after its last change.
//
// It never removes what still holds anything. Invariant: what it collects has
// not changed for the keep time, checked again when the command is applied.
package collector

import (
	"fmt"
	"iter"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/state"
)

// Keep says for how long history stays.
type Keep struct {
	Operations, Attachments, Allocations, Jobs, Snapshots, Nodes time.Duration
}

// DefaultKeep keeps a day, and nodes a week.
func DefaultKeep() Keep {
	const day = 24 * time.Hour
	return Keep{Operations: day, Attachments: day, Allocations: day, Jobs: day, Snapshots: day, Nodes: 7 * day}
}

// Controller collects. It has one key for each kind of history.
type Controller struct {
	keep Keep
}

// New returns a collector that keeps history for so long.
func New(keep Keep) Controller { return Controller{keep} }

// Name implements controller.Controller.
func (Controller) Name() string { return "collector" }

// The keys.
const (
	Operations  controller.Key = "operations"
	Attachments controller.Key = "attachments"
	Allocations controller.Key = "allocations"
	Jobs        controller.Key = "jobs"
	Snapshots   controller.Key = "snapshots"
	Nodes       controller.Key = "nodes"
)

// Keys are all of them. What goes with something else comes after it.
func Keys() []controller.Key {
	return []controller.Key{Operations, Allocations, Attachments, Jobs, Snapshots, Nodes}
}

// Pending implements controller.Controller.
func (Controller) Pending(v state.View) iter.Seq[controller.Key] {
	return func(yield func(controller.Key) bool) {
		if some(v.EndedOperations()) && !yield(Operations) {
			return
		}
		if some(v.EndedAllocations()) && !yield(Allocations) {
			return
		}
		if some(v.FreedAttachments()) && !yield(Attachments) {
			return
		}
		if some(v.StoppedJobs()) && !yield(Jobs) {
			return
		}
		if some(v.FailedSnapshots()) && !yield(Snapshots) {
			return
		}
		if some(v.AwayNodes()) {
			yield(Nodes)
		}
	}
}

func some[T any](rows iter.Seq[T]) bool {
	for range rows {
		return true
	}
	return false
}

// Reconcile implements controller.Controller. It waits for time only: what
// ends later is due later.
func (c Controller) Reconcile(v state.View, now time.Time, k controller.Key) (controller.Plan, error) {
	s, col, err := c.history(v.Quiet(), now, k)
	if err != nil {
		return controller.Plan{}, err
	}
	p := controller.Plan{Wake: s.wake}
	if s.taken > 0 {
		col.Before = s.before
		p.Add(&col)
	}
	return p, nil
}

// history is what of one kind is old enough to go.
func (c Controller) history(v state.View, now time.Time, k controller.Key) (s sweep, col command.Collect, err error) {
	switch k {
	case Operations:
		s = newSweep(now, c.keep.Operations)
		each(&s, v.EndedOperations(), func(op *api.Operation) bool {
			col.Operations = append(col.Operations, op.ID)
			return true
		})
	case Allocations:
		s = newSweep(now, c.keep.Allocations)
		each(&s, v.EndedAllocations(), func(a *api.Allocation) bool {
			if !over(v, a) {
				return false
			}
			col.Allocations = append(col.Allocations, a.ID)
			return true
		})
	case Attachments:
		s = newSweep(now, c.keep.Attachments)
		each(&s, v.FreedAttachments(), func(at *api.Attachment) bool {
			if a := v.Allocation(at.AllocID); a != nil && !a.Terminal() {
				return false
			}
			col.Attachments = append(col.Attachments, command.AttachmentName{AllocID: at.AllocID, Name: at.Name})
			return true
		})
	case Jobs:
		s = newSweep(now, c.keep.Jobs)
		each(&s, v.StoppedJobs(), func(j *api.Job) bool {
			if some(v.JobAllocations(j.UID)) {
				return false
			}
			col.Jobs = append(col.Jobs, command.JobName{Namespace: j.Namespace, ID: j.ID})
			return true
		})
	case Snapshots:
		s = newSweep(now, c.keep.Snapshots)
		each(&s, v.FailedSnapshots(), func(f *api.Snapshot) bool {
			col.Snapshots = append(col.Snapshots, command.SnapshotName{Namespace: f.Namespace, ID: f.ID})
			return true
		})
	case Nodes:
		s = newSweep(now, c.keep.Nodes)
		each(&s, v.AwayNodes(), func(n *api.Node) bool {
			if !command.Gone(v, n) {
				return false
			}
			col.Nodes = append(col.Nodes, n.ID)
			return true
		})
	default:
		return s, col, fmt.Errorf("key %q is no kind of history", k)
	}
	return s, col, nil
}

// over reports whether nothing of an ended allocation is needed any more: it
// holds no volume, and it has a successor or is not to have one.
func over(v state.View, a *api.Allocation) bool {
	for at := range v.AllocAttachments(a.ID) {
		if at.Holds() {
			return false
		}
	}
	job := v.Job(a.Namespace, a.JobID)
	return a.Replaced || job == nil || job.UID != a.JobUID
}
