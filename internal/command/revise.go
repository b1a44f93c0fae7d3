package command

import (
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// ReviseAllocation takes an allocation that goes on to a newer revision of its
// job: nothing is stopped, and its node follows the newer spec from then on.
type ReviseAllocation struct {
	ID      api.AllocID `json:"id"`
	Version uint64      `json:"version"`
	// Revision is the job's.
	Revision uint64 `json:"revision"`
}

// Kind implements Command.
func (*ReviseAllocation) Kind() Kind { return "allocation.revise" }

// Validate implements Command.
func (c *ReviseAllocation) Validate() error { return nil }

// Apply implements Command.
func (c *ReviseAllocation) Apply(tx *state.Tx) error {
	alloc := tx.Allocation(c.ID)
	if alloc == nil || alloc.Version != c.Version || alloc.Terminal() || alloc.Desired != api.DesireRun {
		return conflict("allocation %s has changed", c.ID.Short())
	}
	job := tx.Job(alloc.Namespace, alloc.JobID)
	if job == nil || job.UID != alloc.JobUID || job.Desired != api.Present || job.Revision != c.Revision {
		return conflict("job %s has changed", alloc.JobID)
	}
	was := tx.Revision(alloc.JobUID, alloc.Revision)
	if was == nil || !fit.Current(&was.Spec, &job.Spec, alloc.Group) {
		return conflict("allocation %s cannot go on in revision %d of job %s", c.ID.Short(), c.Revision, alloc.JobID)
	}
	if alloc.Revision == c.Revision {
		return nil
	}
	next := *alloc
	next.Revision = c.Revision
	forgetChecks(&next, was.Spec.Group(alloc.Group), job.Spec.Group(alloc.Group))
	judgeChecks(tx, &next)
	tx.PutAllocation(&next)
	tx.Touch(alloc.NodeID)
	return nil
}
