package allocrunner

import (
	"errors"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// coded is an error that knows its step and a plugin's code.
type coded interface {
	error
	Problem() (step, code, message string)
}

// setProblem says what keeps the allocation from its next step. The time since
// when is kept while the problem stays the same.
func (r *Runner) setProblem(hook string, err error, next time.Time) {
	p := &api.Problem{Step: hook, Message: err.Error(), Since: now()}
	if !next.IsZero() {
		p.Next = next.UTC().Round(0)
	}
	if c, ok := errors.AsType[coded](err); ok {
		p.Step, p.Code, p.Message = c.Problem()
	}
	r.mu.Lock()
	if old := r.problem; old != nil && old.Step == p.Step && old.Code == p.Code && old.Message == p.Message {
		p.Since = old.Since
	}
	r.problem = p
	r.mu.Unlock()
	r.report()
}

// solved takes back the problem of a step that has succeeded.
func (r *Runner) solved() {
	r.mu.Lock()
	had := r.problem != nil
	r.problem = nil
	r.mu.Unlock()
	if had {
		r.report()
	}
}

// setRunning notes that all hooks are up, which makes the allocation a running
// one unless a hook says otherwise.
func (r *Runner) setRunning() {
	starting, awaited := r.step.Starting(), r.step.Awaited()
	r.mu.Lock()
	was := r.problem
	r.problem = nil
	if awaited != "" {
		r.problem = &api.Problem{Step: "plugin", Message: awaited, Since: now()}
		if was != nil && was.Step == r.problem.Step && was.Message == awaited {
			r.problem.Since = was.Since
		}
	}
	running := starting || r.record.Status.State == api.AllocRunning
	r.mu.Unlock()
	if !running {
		tasks, events := r.step.Tasks(), r.step.Events()
		r.change(func(a *localdb.Allocation) {
			a.Status.State, a.Status.Tasks, a.Status.Events = api.AllocRunning, tasks, events
		})
	}
	r.report()
}

// report says how the allocation is. An end is said only when all is down: the
// servers may act on it at once.
func (r *Runner) report() {
	r.mu.Lock()
	s := r.record.Status
	if r.record.Phase != localdb.PhaseDone {
		s.Tasks, s.Events = r.step.Tasks(), r.step.Events()
		if s.State.Terminal() {
			s.State = api.AllocPending // the servers keep what it was before
			s.Problem = &api.Problem{Message: "its tasks end and its volumes are unmounted", Since: r.turned}
		}
		if r.problem != nil {
			s.Problem = r.problem
		}
	}
	id := r.record.Assignment.ID
	r.mu.Unlock()
	r.cfg.Facts.SetAllocation(api.AllocFact{ID: id, Status: s})
}
