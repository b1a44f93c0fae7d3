package fit

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
)

// Healthy reports whether an allocation has run, and its checks have passed, for
// long enough, or else when they will have if it goes on; the time is zero if it
// does not run, if one of its tasks waits to be started again, or if a check does
// not pass: then nobody can say.
func Healthy(a *api.Allocation, u api.Update, now time.Time) (ok bool, at time.Time) {
	if !a.Runs() {
		return false, time.Time{}
	}
	for _, t := range a.Status.Tasks {
		if t.State == api.TaskPending && !t.Next.IsZero() {
			return false, time.Time{}
		}
	}
	well := a.Running
	if u.HealthCheck == api.HealthChecks {
		if a.Passing.IsZero() {
			return false, time.Time{}
		}
		if a.Passing.After(well) {
			well = a.Passing
		}
	}
	at = well.Add(time.Duration(u.MinHealthyTime))
	return !now.Before(at), at
}

// Beside reports whether a group's newer allocation may be started while the
// older one runs: it holds nothing that is for one.
func Beside(s *api.JobSpec, g *api.TaskGroup) bool { return s.StopsFirst(g) == "" }

// Promoted reports whether the job's newest revision may take the place of what a
// group runs: it is not to be tried first, or was promoted.
func Promoted(job *api.Job, g *api.TaskGroup) bool {
	return job.Spec.UpdateOf(g).Canary == 0 || job.Status.Promoted == job.Revision
}

// Current reports whether an allocation of an older spec may go on under the
// job's spec of now: nothing of its group has changed that takes a new process.
func Current(old, spec *api.JobSpec, group string) bool {
	if old.Type != spec.Type || !maps.Equal(old.Meta, spec.Meta) {
		return false
	}
	was, is := old.Group(group), spec.Group(group)
	return was != nil && is != nil && Same(started(*was), started(*is))
}

// InPlace reports whether an allocation of an older spec goes on and is to be
// told of the job's spec of now: something has changed that its node does, or
// others find, while its tasks run.
func InPlace(old, spec *api.JobSpec, group string) bool {
	return Current(old, spec, group) && !Same(told(*old.Group(group)), told(*spec.Group(group)))
}

// told is a group without what only the servers look at: how many there are,
// where they may be, and how they follow each other.
func told(g api.TaskGroup) api.TaskGroup {
	g.Count, g.Constraints, g.Spreads, g.Update, g.Migrate, g.Reschedule = 0, nil, nil, nil, nil, nil
	g.Volumes = slices.Clone(g.Volumes)
	for i := range g.Volumes {
		g.Volumes[i].WaitTimeout = 0
	}
	g.Tasks = slices.Clone(g.Tasks)
	for i := range g.Tasks {
		g.Tasks[i].Constraints = nil
	}
	return g
}

// started is a group without what can change while its tasks run: what follows
// their ends, how they are stopped, how they are found, and how they are told that
// their files have changed.
func started(g api.TaskGroup) api.TaskGroup {
	g = told(g)
	g.Restart, g.Services = nil, nil
	for i := range g.Tasks {
		t := &g.Tasks[i]
		t.Restart, t.KillSignal, t.KillTimeout = nil, "", 0
		if t.CSIPlugin != nil {
			plugin := *t.CSIPlugin
			plugin.HealthTimeout = 0
			t.CSIPlugin = &plugin
		}
		t.Templates = slices.Clone(t.Templates)
		for j := range t.Templates {
			one := &t.Templates[j]
			one.ChangeMode, one.ChangeSignal, one.ChangeScript, one.Splay = "", "", nil, nil
		}
	}
	return g
}

// Delay is how long a place waits for its next allocation after so many
// failures in a row. It is spread as Backoff is.
func Delay(r api.Reschedule, subject string, failures int) time.Duration {
	first, last := time.Duration(r.Delay), max(time.Duration(r.MaxDelay), time.Duration(r.Delay))
	d, before := first, time.Duration(0)
	for i := 1; i < failures && d < last; i++ {
		switch r.DelayFunction {
		case api.DelayExponential:
			d *= 2
		case api.DelayFibonacci:
			d, before = d+before, d
		case api.DelayConstant:
		}
	}
	return spreadOut(min(d, last), fmt.Sprintf("%s/%d", subject, failures))
}
