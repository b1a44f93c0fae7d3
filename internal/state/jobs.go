package state

import (
	"bytes"
	"iter"

	"github.com/berth-dev/berth/api"
)

const (
	jobsUnsettled = iota + 1
	jobsStopped
	jobsWaiting
	jobsDone
	jobsUnstable
	jobsServices
)

func jobsTable() *table[api.Job] {
	id := func(b []byte, j *api.Job) []byte { return appendKey(b, string(j.Namespace), string(j.ID)) }
	return define[api.Job](tableJobs,
		unique(primary, id),
		unique(jobsUnsettled, func(b []byte, j *api.Job) []byte {
			if j.Status.Settled {
				return nil
			}
			return id(b, j)
		}),
		shared(jobsStopped, func(b []byte, j *api.Job) []byte {
			if j.Desired == api.Present {
				return nil
			}
			return appendKey(b, timePart(j.ModifyTime))
		}),
		several(jobsWaiting, volumeKeys),
		unique(jobsUnstable, func(b []byte, j *api.Job) []byte {
			if j.Status.Stable == j.Revision || j.Desired == api.Absent || j.Spec.Type.Ends() {
				return nil
			}
			return id(b, j)
		}),
		several(jobsServices, serviceKeys),
		unique(jobsDone, func(b []byte, j *api.Job) []byte {
			if !j.Status.Settled || j.Desired == api.Absent || !j.Spec.Type.Everywhere() {
				return nil
			}
			return id(b, j)
		}),
	)
}

// volumeKeys are the keys of the volumes that a job may wait for.
func volumeKeys(j *api.Job) [][]byte {
	if j.Status.Settled || j.Desired == api.Absent {
		return nil
	}
	var keys [][]byte
	seen := map[api.VolumeID]bool{}
	for i := range j.Spec.Groups {
		for _, r := range j.Spec.Groups[i].Attached() {
			if r.Ephemeral != nil {
				continue // it waits for none that others have
			}
			name := r.Source
			if r.PerAlloc {
				name = familyName(name)
			}
			if !seen[name] {
				keys = append(keys, key(string(j.Namespace), string(name)))
			}
			seen[name] = true
		}
	}
	return keys
}

// familyName stands for all volumes of a family. No volume is called that.
func familyName(name api.VolumeID) api.VolumeID { return name + "[]" }

// serviceKeys are the keys of the services that a job offers.
func serviceKeys(j *api.Job) [][]byte {
	if j.Desired == api.Absent {
		return nil
	}
	var keys [][]byte
	seen := map[string]bool{}
	for i := range j.Spec.Groups {
		for _, s := range j.Spec.Groups[i].Services {
			if !seen[s.Name] {
				keys = append(keys, key(string(j.Namespace), s.Name))
			}
			seen[s.Name] = true
		}
	}
	return keys
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

// UnstableJobs yields the services and system jobs whose newest revision has not
// been healthy everywhere.
func (v View) UnstableJobs() iter.Seq[*api.Job] {
	return rows[api.Job](v, tableJobs, jobsUnstable, nil)
}

// StoppedJobs yields the jobs that their users stopped, oldest first.
func (v View) StoppedJobs() iter.Seq[*api.Job] {
	return rows[api.Job](v, tableJobs, jobsStopped, nil)
}

// JobsFor yields the jobs that ask for a volume, or for each of its family, and
// are not settled.
func (v View) JobsFor(ns api.NamespaceID, vol api.VolumeID) iter.Seq[*api.Job] {
	one := rows[api.Job](v, tableJobs, jobsWaiting, key(string(ns), string(vol)))
	family, _, ok := vol.Family()
	if !ok {
		return one
	}
	return func(yield func(*api.Job) bool) {
		seen := map[string]bool{}
		for j := range one {
			seen[j.UID] = true
			if !yield(j) {
				return
			}
		}
		for j := range rows[api.Job](v, tableJobs, jobsWaiting, key(string(ns), string(familyName(family)))) {
			if !seen[j.UID] && !yield(j) {
				return
			}
		}
	}
}

// JobsWithService yields the jobs that offer a service of that name.
func (v View) JobsWithService(ns api.NamespaceID, name string) iter.Seq[*api.Job] {
	return rows[api.Job](v, tableJobs, jobsServices, key(string(ns), name))
}

// Services yields the services that jobs offer, each once, from a key on: the
// namespace and the name. It notes nothing in a Watch.
func (v View) Services(lower Key) iter.Seq[Key] {
	return func(yield func(Key) bool) {
		for {
			job := from[api.Job](v, tableJobs, jobsServices, lower)
			if job == nil {
				return
			}
			// It stands in the index under each of its services.
			var next Key
			for _, k := range serviceKeys(job) {
				if bytes.Compare(k, lower) >= 0 && (next == nil || bytes.Compare(k, next) < 0) {
					next = k
				}
			}
			if !yield(next) {
				return
			}
			// Behind the rows of this service, before those of any other.
			lower = append(bytes.Clone(next[:len(next)-1]), 1)
		}
	}
}

// SettledEverywhere yields the jobs that are settled and are to run on every
// node that fits: a new node is their scheduler's business.
func (v View) SettledEverywhere() iter.Seq[*api.Job] {
	return rows[api.Job](v, tableJobs, jobsDone, nil)
}

// JobsIndex is when a job was last written.
func (v View) JobsIndex() uint64 { return v.modified(tableJobs) }

// PutJob stores a new job, or a changed copy.
func (tx *Tx) PutJob(j *api.Job) { put(tx, tableJobs, j) }

// DeleteJob removes a job that is there.
func (tx *Tx) DeleteJob(j *api.Job) { remove(tx, tableJobs, j) }
