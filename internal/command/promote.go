package command

import (
	"fmt"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// PromoteJob has the revision that a job's canaries try take the place of the one
// before it.
type PromoteJob struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.JobID       `json:"id"`
	Version   uint64          `json:"version,omitempty"`
	Revision  uint64          `json:"revision"`
}

// Kind implements Command.
func (*PromoteJob) Kind() Kind { return "job.promote" }

// Validate implements Command.
func (c *PromoteJob) Validate() error { return nil }

// Apply implements Command. What was promoted already changes nothing.
func (c *PromoteJob) Apply(tx *state.Tx) error {
	job := tx.Job(c.Namespace, c.ID)
	if job == nil {
		return api.Errorf(api.CodeNotFound, "job %s does not exist in namespace %s", c.ID, c.Namespace)
	}
	if err := checkVersion("job", string(c.ID), metaOf(job), c.Version); err != nil {
		return err
	}
	switch {
	case job.Desired == api.Absent:
		return conflict("job %s is stopped", c.ID)
	case job.Revision != c.Revision:
		return conflict("job %s is at revision %d, and revision %d was to be promoted", c.ID, job.Revision, c.Revision)
	case job.Status.Promoted == c.Revision:
		return nil
	}
	if reason, _ := Untried(tx.View, job, tx.Now()); reason != "" {
		return conflict("revision %d of job %s cannot be promoted: %s", c.Revision, c.ID, reason)
	}
	next := *job
	next.Status.Promoted = c.Revision
	unsettle(tx, &next)
	tx.PutJob(&next)
	return nil
}

// Untried says why a job's newest revision is not to be promoted yet, or "", and
// when a canary becomes healthy, if that is known.
func Untried(v state.View, job *api.Job, now time.Time) (reason string, next time.Time) {
	reason = "none of its groups has canaries (update.canary)"
	for i := range job.Spec.Groups {
		g := &job.Spec.Groups[i]
		rules := job.Spec.UpdateOf(g)
		if rules.Canary == 0 {
			continue
		}
		reason = ""
		healthy := map[int]bool{}
		for a := range v.LiveAllocations(job.UID) {
			if a.Group != g.Name || a.Replaced || !runs(v, job, a) {
				continue
			}
			ok, at := fit.Healthy(a, rules, now)
			healthy[a.Index] = ok
			if !ok && !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
		for index := range min(rules.Canary, g.Count) {
			if !healthy[index] {
				return fmt.Sprintf("%s.%s[%d] has no healthy allocation of it yet", job.ID, g.Name, index), next
			}
		}
	}
	return reason, time.Time{}
}

// runs reports whether an allocation runs what the job's newest revision says.
func runs(v state.View, job *api.Job, a *api.Allocation) bool {
	if a.Revision == job.Revision {
		return true
	}
	rev := v.Revision(job.UID, a.Revision)
	return rev != nil && fit.Current(&rev.Spec, &job.Spec, a.Group)
}
