package command

import (
	"reflect"

	"github.com/berth-dev/berth/api"
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
}

// Kind implements Command.
func (*ApplyJob) Kind() Kind { return "job.apply" }

// Validate implements Command.
func (c *ApplyJob) Validate() error {
	var p api.Problems
	p.Name("namespace", string(c.Namespace))
	p.Name("id", string(c.ID))
	p.Merge(c.Spec.Validate())
	return p.Err("job " + string(c.ID))
}

// Apply implements Command. The same spec of a job that is wanted changes
// nothing.
func (c *ApplyJob) Apply(tx *state.Tx) error {
	old := tx.Job(c.Namespace, c.ID)
	if err := checkVersion("job", string(c.ID), metaOf(old), c.Version); err != nil {
		return err
	}
	next := &api.Job{Namespace: c.Namespace, ID: c.ID, UID: c.UID}
	if old != nil {
		if old.Desired == api.Present && reflect.DeepEqual(old.Spec, c.Spec) {
			return nil
		}
		copied := *old
		next = &copied
	}
	next.Desired = api.Present
	next.Spec = c.Spec
	next.Revision++
	next.Status.Settled = false
	tx.PutJob(next)
	tx.PutRevision(&state.Revision{JobUID: next.UID, Revision: next.Revision, Spec: c.Spec})
	return nil
}

// StopJob says that a job is to end.
type StopJob struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.JobID       `json:"id"`
	Version   uint64          `json:"version,omitempty"`
}

// Kind implements Command.
func (*StopJob) Kind() Kind { return "job.stop" }

// Validate implements Command.
func (c *StopJob) Validate() error { return nil }

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
	next.Desired = api.Absent
	next.Status.Settled = false
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
	next.Status.Settled = true
	tx.PutJob(&next)
	return nil
}

// unsettleJob wakes the scheduler for a job.
func unsettleJob(tx *state.Tx, ns api.NamespaceID, id api.JobID) {
	job := tx.Job(ns, id)
	if job == nil || !job.Status.Settled {
		return
	}
	next := *job
	next.Status.Settled = false
	tx.PutJob(&next)
}
