package allocrunner

import (
	"errors"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// coded is an error that knows its step and a plugin's code.
type coded interface {
	error
	Problem() (step, code, message string)
}

// setProblem says what keeps the allocation from its next step.
func (r *Runner) setProblem(hook string, err error, next time.Time) {
	r.mu.Lock()
	r.problem = r.problemOf(hook, err, next)
	r.mu.Unlock()
	r.report()
}

// problemOf is an error in the form in which it is said. The time since when is
// kept while the problem stays the same. The caller holds mu.
func (r *Runner) problemOf(hook string, err error, next time.Time) *api.Problem {
	p := &api.Problem{Step: hook, Message: OneLine(err), Since: now()}
	if !next.IsZero() {
		p.Next = next.UTC().Round(0)
	}
	if c, ok := errors.AsType[coded](err); ok {
		p.Step, p.Code, p.Message = c.Problem()
	}
	if old := r.problem; old != nil && old.Step == p.Step && old.Code == p.Code && old.Message == p.Message {
		p.Since = old.Since
	}
	return p
}

// OneLine is an error in one line: a problem has no more. What is set in below a
// line follows it after a colon, and lines apart from each other after semicolons.
func OneLine(err error) string {
	var b strings.Builder
	deep := false
	for line := range strings.Lines(err.Error()) {
		text := strings.TrimSpace(line)
		if text == "" {
			continue
		}
		in := strings.TrimLeft(line, " \t") != line
		switch {
		case b.Len() == 0:
		case in && !deep && !strings.HasSuffix(b.String(), ":"):
			b.WriteString(": ")
		case in && !deep:
			b.WriteString(" ")
		default:
			b.WriteString("; ")
		}
		b.WriteString(text)
		deep = in
	}
	return b.String()
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
// one unless a hook says otherwise. What one says that failed in part, err, is
// its problem.
func (r *Runner) setRunning(hook string, err error, next time.Time) {
	starting, awaited, ill := r.step.Starting(), r.step.Awaited(), r.step.Ill()
	r.mu.Lock()
	switch {
	case err != nil:
		r.problem = r.problemOf(hook, err, next)
	case awaited != "":
		r.problem = r.problemOf(api.StepPlugin, errors.New(awaited), time.Time{})
	default:
		r.problem = ill
	}
	running := starting || r.record.Status.State == api.AllocRunning
	r.mu.Unlock()
	if !running {
		tasks, events := r.step.Tasks(), r.step.Events()
		r.change(func(a *localdb.Allocation) {
			a.Status.State, a.Status.Tasks, a.Status.Events, a.Status.Checks = api.AllocRunning, tasks, events, r.step.Checks()
		})
	}
	r.report()
}

// report says how the allocation is. An end is said only when all is down: the
// servers may act on it at once.
func (r *Runner) report() {
	r.saying.Lock() // hooks say how things are while the runner does
	defer r.saying.Unlock()
	r.mu.Lock()
	s := r.record.Status
	if r.record.Phase != localdb.PhaseDone {
		s.Tasks, s.Events, s.Checks = r.step.Tasks(), r.step.Events(), r.step.Checks()
		if s.State.Terminal() {
			s.State = api.AllocPending // the servers keep what it was before
			s.Problem = &api.Problem{Message: "its tasks end and its volumes are unmounted", Since: r.turned}
		}
		if r.problem != nil {
			s.Problem = r.problem
		} else if p := r.step.Ending(); p != nil {
			s.Problem = p
		}
		if late := r.step.Late(); late != nil {
			s.Problem = late // it is what the runner waits for now
		}
	}
	id := r.record.Assignment.ID
	r.mu.Unlock()
	r.cfg.Facts.SetAllocation(api.AllocFact{ID: id, Status: s})
}
