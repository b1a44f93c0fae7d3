package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// jobRevisions lists a job's revisions, newest first, page by page like any
// other list.
func (h *Handler) jobRevisions(r *request) (any, error) {
	find := func(v state.View) *api.Job { return v.Job(r.namespace(), api.JobID(r.PathValue("id"))) }
	if find(h.Log.View()) == nil {
		return nil, noSuch("job", r.PathValue("id"), r.namespace())
	}
	return list(h, listing[api.JobRevision]{
		modified: state.View.JobsIndex,
		rows: func(v state.View, s scope) iter.Seq2[state.Key, api.JobRevision] {
			return func(yield func(state.Key, api.JobRevision) bool) {
				job := find(v)
				if job == nil {
					return
				}
				for k, rev := range v.NewestRevisions(job.UID, s.from) {
					if !yield(k, revisionOf(v, job, rev)) {
						return
					}
				}
			}
		},
	})(r)
}

func revisionOf(v state.View, job *api.Job, rev *state.Revision) api.JobRevision {
	one := api.JobRevision{
		Revision: rev.Revision, Applied: rev.Applied, Changes: []api.Change{},
		Current: rev.Revision == job.Revision, Stable: rev.Revision == job.Status.Stable,
	}
	if before := v.Revision(job.UID, rev.Revision-1); before != nil {
		one.Changes = fit.Diff(before.Spec, rev.Spec)
	}
	return one
}

func (h *Handler) getJobRevision(r *request) (any, error) {
	n, err := strconv.ParseUint(r.PathValue("revision"), 10, 64)
	if err != nil {
		return nil, &api.Error{Code: api.CodeInvalid, Message: "the request has a problem",
			Fields: []api.Field{{Path: "revision", Message: fmt.Sprintf("is %q", r.PathValue("revision")), Mend: "give the number of a revision"}}}
	}
	return h.block(r, func(v state.View) (any, uint64, error) {
		job := v.Job(r.namespace(), api.JobID(r.PathValue("id")))
		if job == nil {
			return nil, 0, noSuch("job", r.PathValue("id"), r.namespace())
		}
		rev := v.Revision(job.UID, n)
		if rev == nil {
			return nil, 0, noRevision(v, job, n)
		}
		one := revisionOf(v, job, rev)
		one.Spec = &rev.Spec
		return one, v.Quiet().JobsIndex(), nil
	})
}

// noRevision says which revisions there are.
func noRevision(v state.View, job *api.Job, n uint64) error {
	for first := range v.Revisions(job.UID) {
		return api.Errorf(api.CodeNotFound, "job %s has no revision %d; it has %d to %d", job.ID, n, first.Revision, job.Revision)
	}
	return api.Errorf(api.CodeNotFound, "job %s has no revision %d", job.ID, n)
}

// revertJob applies an earlier spec again, as a new revision.
func (h *Handler) revertJob(r *request) (any, error) {
	var asked api.Revert
	if err := r.decode(&asked); err != nil {
		return nil, err
	}
	if asked.Revision == 0 {
		var p api.Problems
		p.Add("revision", "is missing", "give the number of one of the job's revisions")
		return nil, p.Err("the request")
	}
	return h.amend(r, asked.Version, func(v state.View, job *api.Job) (api.JobSpec, error) {
		rev := v.Revision(job.UID, asked.Revision)
		if rev == nil {
			return api.JobSpec{}, noRevision(v, job, asked.Revision)
		}
		return rev.Spec, nil
	})
}

// promoteJob promotes the newest revision of a job.
func (h *Handler) promoteJob(r *request) (any, error) {
	var asked api.Promotion
	if err := r.decode(&asked); err != nil {
		return nil, err
	}
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	id := api.JobID(r.PathValue("id"))
	job := h.Log.View().Job(r.namespace(), id)
	if job == nil {
		return nil, noSuch("job", string(id), r.namespace())
	}
	promote := &command.PromoteJob{Namespace: job.Namespace, ID: id, Version: asked.Version, Revision: cmp.Or(asked.Revision, job.Revision)}
	if _, err := h.propose(r, promote); err != nil {
		return nil, err
	}
	v := h.Log.View()
	if now := v.Job(job.Namespace, id); now != nil {
		job = now
	}
	return h.jobInfo(v, job), nil
}

// scaleJob applies the current spec with another count of one group.
func (h *Handler) scaleJob(r *request) (any, error) {
	var asked api.Scale
	if err := r.decode(&asked); err != nil {
		return nil, err
	}
	return h.amend(r, asked.Version, func(_ state.View, job *api.Job) (api.JobSpec, error) {
		if job.Desired == api.Absent {
			return api.JobSpec{}, api.Errorf(api.CodeConflict, "job %s is stopped: apply it, or revert it to revision %d, and it starts again", job.ID, job.Revision)
		}
		spec := job.Spec
		spec.Groups = append([]api.TaskGroup{}, spec.Groups...)
		group := spec.Group(asked.Group)
		if asked.Group == "" && len(spec.Groups) == 1 {
			group = &spec.Groups[0]
		}
		var p api.Problems
		switch {
		case group != nil:
		case asked.Group == "":
			p.Add("group", "is missing, and the job has several", "use one of "+groupNames(&spec))
		default:
			p.Addf("group", "use one of "+groupNames(&spec), "is %q, and the job has no such group", asked.Group)
		}
		switch {
		case asked.Count == nil:
			p.Add("count", "is missing", "say how many allocations the group is to have")
		case group != nil:
			group.Count = *asked.Count
			p.Merge(spec.Validate())
		case *asked.Count < 0:
			p.Add("count", "is negative", "use 0 or more")
		}
		return spec, p.Err("the request")
	})
}

func groupNames(spec *api.JobSpec) string {
	var names []string
	for i := range spec.Groups {
		names = append(names, spec.Groups[i].Name)
	}
	return strings.Join(names, ", ")
}

// Amending reads and writes: what is written in between is a conflict. A caller
// who named no version did not mean one, so it is done again then.
const (
	amendTries = 5
	// amendWait is how long to wait for the write that was in between.
	amendWait = time.Second
)

// amend applies what change makes of a job, if the job is as it was read, and
// has the version if one is given.
func (h *Handler) amend(r *request, version uint64, change func(state.View, *api.Job) (api.JobSpec, error)) (any, error) {
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	id := api.JobID(r.PathValue("id"))
	for try := 1; ; try++ {
		watch := state.NewWatch()
		v := h.Log.View().Watching(watch)
		job := v.Job(r.namespace(), id)
		if job == nil {
			return nil, noSuch("job", string(id), r.namespace())
		}
		spec, err := change(v.Quiet(), job)
		if err != nil {
			return nil, err
		}
		apply := &command.ApplyJob{Namespace: job.Namespace, ID: id, UID: job.UID, Spec: spec, Version: version}
		if version == 0 {
			apply.Version = job.Version
		}
		answer, err := h.applyJob(r, apply)
		if api.CodeOf(err) != api.CodeConflict || version > 0 || try == amendTries {
			return answer, err
		}
		ctx, cancel := context.WithTimeout(r.Context(), amendWait)
		_ = watch.Wait(ctx) // the end of the wait is a reason to look, too
		cancel()
	}
}
