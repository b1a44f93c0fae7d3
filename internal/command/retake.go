package command

import (
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// RetakePlace gives a place in a group back to the older of its two allocations,
// which still runs what the job asks for: the newer one is stopped.
type RetakePlace struct {
	ID      api.AllocID `json:"id"`
	Version uint64      `json:"version"`
	// From is the newer one.
	From        api.AllocID `json:"from"`
	FromVersion uint64      `json:"from_version"`
	// Revision is the job's.
	Revision uint64 `json:"revision"`
	Reason   string `json:"reason"`
}

// Kind implements Command.
func (*RetakePlace) Kind() Kind { return "allocation.retake" }

// Validate implements Command.
func (c *RetakePlace) Validate() error {
	var p api.Problems
	if c.Reason == "" {
		p.Add("reason", "is empty", "say why")
	}
	return p.Err("the return")
}

// Apply implements Command.
func (c *RetakePlace) Apply(tx *state.Tx) error {
	older, newer := tx.Allocation(c.ID), tx.Allocation(c.From)
	switch {
	case older == nil || older.Version != c.Version || older.Terminal() || older.Desired != api.DesireRun || !older.Replaced:
		return conflict("allocation %s has changed", c.ID.Short())
	case newer == nil || newer.Version != c.FromVersion || newer.Replaced:
		return conflict("allocation %s has changed", c.From.Short())
	}
	job := tx.Job(older.Namespace, older.JobID)
	if job == nil || job.UID != older.JobUID || job.Desired != api.Present || job.Revision != c.Revision {
		return conflict("job %s has changed", older.JobID)
	}
	place := newer.Index == older.Index
	if job.Spec.Type.Everywhere() {
		place = newer.NodeID == older.NodeID
	}
	was := tx.Revision(older.JobUID, older.Revision)
	if newer.JobUID != older.JobUID || newer.Group != older.Group || !place || was == nil || !fit.Current(&was.Spec, &job.Spec, older.Group) {
		return conflict("allocation %s cannot have the place of allocation %s", c.ID.Short(), c.From.Short())
	}
	back := *older
	back.Replaced, back.Revision = false, job.Revision
	forgetChecks(&back, was.Spec.Group(older.Group), job.Spec.Group(older.Group))
	judgeChecks(tx, &back)
	tx.PutAllocation(&back)
	next := *newer
	next.Replaced, next.Desired, next.DesiredReason = true, api.DesireStop, c.Reason
	tx.PutAllocation(&next)
	beginRelease(tx, next.ID)
	tx.Touch(back.NodeID)
	tx.Touch(next.NodeID)
	return nil
}
