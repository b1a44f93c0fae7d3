package command

import (
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// ApplyJob creates a job, changes its spec, or starts it again.
type ApplyJob struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.JobID       `json:"id"`
	// UID is the job's if it is new.
	UID     string      `json:"uid"`
	Spec    api.JobSpec `json:"spec"`
	Version uint64      `json:"version,omitempty"`
	// IfAbsent: only if there is no such job. A job that was stopped is there
	// until it is collected.
	IfAbsent bool `json:"if_absent,omitempty"`
	// Trace is that of the request.
	Trace api.TraceContext `json:"trace,omitempty"`
}

// Kind implements Command.
func (*ApplyJob) Kind() Kind { return "job.apply" }

// Validate implements Command.
func (c *ApplyJob) Validate() error {
	var p api.Problems
	p.Name("namespace", string(c.Namespace))
	p.Name("id", string(c.ID))
	p.Merge(c.Spec.Validate())
	validateTrace(&p, c.Trace)
	return p.Err("job " + string(c.ID))
}

// Apply implements Command. The same spec of a job that is wanted changes
// nothing, but that places which gave up are tried again.
func (c *ApplyJob) Apply(tx *state.Tx) error {
	old := tx.Job(c.Namespace, c.ID)
	if err := checkVersion("job", string(c.ID), metaOf(old), c.Version); err != nil {
		return err
	}
	if err := checkAbsent("job", string(c.ID), metaOf(old), c.IfAbsent); err != nil {
		return err
	}
	next := &api.Job{Namespace: c.Namespace, ID: c.ID, UID: c.UID}
	if old != nil {
		if old.Desired == api.Present && fit.Same(old.Spec, c.Spec) {
			tryAgain(tx, old, c.Trace)
			return nil
		}
		copied := *old
		next = &copied
	}
	next.Status.Reverted, next.Status.Trace = nil, c.Trace
	revise(tx, next, c.Spec)
	return nil
}

// tryAgain has the places of a job that gave up tried again, for which the wait
// begins now.
func tryAgain(tx *state.Tx, job *api.Job, trace api.TraceContext) {
	if len(job.Status.GaveUp) == 0 {
		return
	}
	next := *job
	next.Status.GaveUp = nil
	next.Status.Applied, next.Status.Waiting, next.Status.Trace = tx.Now(), tx.Now(), trace
	next.Status.Settled = false
	tx.PutJob(&next)
}

// revise gives a job another spec, as its next revision.
func revise(tx *state.Tx, job *api.Job, spec api.JobSpec) {
	job.Status.GaveUp = nil
	job.Desired, job.Status.StoppedBy = api.Present, ""
	job.Spec = spec
	job.Revision++
	job.Status.Applied = tx.Now()
	unsettle(tx, job)
	tx.PutJob(job)
	tx.PutRevision(&state.Revision{JobUID: job.UID, Revision: job.Revision, Applied: tx.Now(), Spec: spec})
}

// validateTrace refuses what no traceparent was read as: a row keeps it.
func validateTrace(p *api.Problems, t api.TraceContext) {
	if !t.Valid() {
		p.Add("trace", "is no traceparent of version 00", "leave it out")
	}
}

// validateBy refuses a name that no request could have brought: a row keeps it.
func validateBy(p *api.Problems, by string) {
	if wrong := api.CheckUser(by); wrong != "" {
		p.Add("by", wrong, "leave it out")
	}
}

// StopJob says that a job is to end.
type StopJob struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.JobID       `json:"id"`
	Version   uint64          `json:"version,omitempty"`
	// By is who asks, by the caller's word.
	By string `json:"by,omitempty"`
}

// Kind implements Command.
func (*StopJob) Kind() Kind { return "job.stop" }

// Validate implements Command.
func (c *StopJob) Validate() error {
	var p api.Problems
	validateBy(&p, c.By)
	return p.Err("the stop")
}

// Apply implements Command.
func (c *StopJob) Apply(tx *state.Tx) error {
	old := tx.Job(c.Namespace, c.ID)
	if old == nil {
		return api.Errorf(api.CodeNotFound, "job %s does not exist in namespace %s", c.ID, c.Namespace)
	}
	if err := checkVersion("job", string(c.ID), metaOf(old), c.Version); err != nil {
		return err
	}
	if old.Desired == api.Absent {
		return nil
	}
	next := *old
	next.Desired, next.Status.StoppedBy = api.Absent, c.By
	unsettle(tx, &next)
	tx.PutJob(&next)
	return nil
}

// SettleJob notes that the scheduler has nothing left to do for a job.
type SettleJob struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.JobID       `json:"id"`
	Version   uint64          `json:"version"`
}

// Kind implements Command.
func (*SettleJob) Kind() Kind { return "job.settle" }

// Validate implements Command.
func (c *SettleJob) Validate() error { return nil }

// Apply implements Command.
func (c *SettleJob) Apply(tx *state.Tx) error {
	job := tx.Job(c.Namespace, c.ID)
	if job == nil || job.Version != c.Version {
		return conflict("job %s has changed", c.ID)
	}
	if job.Status.Settled {
		return nil
	}
	next := *job
	next.Status.Settled, next.Status.Waiting = true, time.Time{}
	tx.PutJob(&next)
	return nil
}

// StabilizeJob notes that all places of a job have been healthy in its newest
// revision.
type StabilizeJob struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.JobID       `json:"id"`
	Version   uint64          `json:"version"`
}

// Kind implements Command.
func (*StabilizeJob) Kind() Kind { return "job.stabilize" }

// Validate implements Command.
func (c *StabilizeJob) Validate() error { return nil }

// Apply implements Command.
func (c *StabilizeJob) Apply(tx *state.Tx) error {
	job := tx.Job(c.Namespace, c.ID)
	if job == nil || job.Version != c.Version {
		return conflict("job %s has changed", c.ID)
	}
	if job.Status.Stable == job.Revision {
		return nil
	}
	next := *job
	next.Status.Stable = job.Revision
	tx.PutJob(&next)
	return nil
}

// RevertJob goes back to the spec of the last revision that was healthy
// everywhere, because the newest has failed.
type RevertJob struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.JobID       `json:"id"`
	Version   uint64          `json:"version"`
	Reason    string          `json:"reason"`
}

// Kind implements Command.
func (*RevertJob) Kind() Kind { return "job.revert" }

// Validate implements Command.
func (c *RevertJob) Validate() error {
	var p api.Problems
	if c.Reason == "" {
		p.Add("reason", "is empty", "say why")
	}
	return p.Err("the reversion")
}

// Apply implements Command.
func (c *RevertJob) Apply(tx *state.Tx) error {
	job := tx.Job(c.Namespace, c.ID)
	if job == nil || job.Version != c.Version || job.Desired == api.Absent || job.Status.Stable >= job.Revision {
		return conflict("job %s has changed", c.ID)
	}
	rev := tx.Revision(job.UID, job.Status.Stable)
	if rev == nil {
		return conflict("revision %d of job %s is not known any more", job.Status.Stable, c.ID)
	}
	next := *job
	next.Status.Reverted = &api.Reversion{From: job.Revision, To: rev.Revision, Reason: c.Reason, Time: tx.Now()}
	next.Status.Promoted = job.Revision + 1 // it was tried already
	revise(tx, &next, rev.Spec)
	return nil
}

// unsettleJob wakes the scheduler for a job.
func unsettleJob(tx *state.Tx, ns api.NamespaceID, id api.JobID) {
	job := tx.Job(ns, id)
	if job == nil || !job.Status.Settled {
		return
	}
	next := *job
	unsettle(tx, &next)
	tx.PutJob(&next)
}

// unsettle notes that the scheduler has something to do, and since when.
func unsettle(tx *state.Tx, job *api.Job) {
	if job.Status.Settled || job.Status.Waiting.IsZero() {
		job.Status.Waiting = tx.Now()
	}
	job.Status.Settled = false
}

// unsettleEverywhere wakes the scheduler for the jobs that are to run on every
// node: one has come, or can do something else than before.
func unsettleEverywhere(tx *state.Tx) {
	for job := range tx.SettledEverywhere() {
		unsettleJob(tx, job.Namespace, job.ID)
	}
}
