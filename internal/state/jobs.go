package state

import (
	"iter"

	"github.com/berth-dev/berth/api"
)

const tableJobs = "jobs"

const (
	jobsUnsettled = "unsettled"
	jobsStopped   = "stopped"
)

func jobsTable() definition {
	id := func(j *api.Job) []byte { return key(string(j.Namespace), string(j.ID)) }
	return define[api.Job](tableJobs,
		unique(primary, id),
		unique(jobsUnsettled, func(j *api.Job) []byte {
			if j.Status.Settled {
				return nil
			}
			return id(j)
		}),
		shared(jobsStopped, func(j *api.Job) []byte {
			if j.Desired == api.Present {
				return nil
			}
			return key(timePart(j.ModifyTime))
		}),
	)
}

// Job is the job of that name, or nil.
func (v View) Job(ns api.NamespaceID, id api.JobID) *api.Job {
	return first[api.Job](v, tableJobs, primary, key(string(ns), string(id)))
}

// Jobs yields the jobs of a namespace by id, or all if ns is empty.
func (v View) Jobs(ns api.NamespaceID) iter.Seq[*api.Job] {
	if ns == "" {
		return rows[api.Job](v, tableJobs, primary, nil)
	}
	return rows[api.Job](v, tableJobs, primary, key(string(ns)))
}

// UnsettledJobs yields the jobs that wait for the scheduler.
func (v View) UnsettledJobs() iter.Seq[*api.Job] {
	return rows[api.Job](v, tableJobs, jobsUnsettled, nil)
}

// StoppedJobs yields the jobs that their users stopped, oldest first.
func (v View) StoppedJobs() iter.Seq[*api.Job] {
	return rows[api.Job](v, tableJobs, jobsStopped, nil)
}

// JobsIndex is when a job was last written.
func (v View) JobsIndex() uint64 { return v.modified(tableJobs) }

// PutJob stores a new job, or a changed copy.
func (tx *Tx) PutJob(j *api.Job) { put(tx, tableJobs, j) }

// DeleteJob removes a job that is there.
func (tx *Tx) DeleteJob(j *api.Job) { remove(tx, tableJobs, j) }
