package allocrunner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/berth-dev/berth/api"
)

// Hook is one part of what an allocation needs on its node.
type Hook interface {
	// Name is one or two lower-case words.
	Name() string
	// Up brings the part up, after those before it. It looks before it acts:
	// it is called again after every failure, after a restart of the agent,
	// and as a health check while the allocation runs. An error is retried
	// with backoff, unless it is Fatal.
	Up(ctx context.Context, s *Step) error
	// Down takes it down, after those behind it. It works if Up never ran, or
	// half ran, or ran in an earlier boot. It is repeated until it answers nil.
	Down(ctx context.Context, s *Step) error
}

// Watcher is a hook that knows when the allocation has ended by itself.
type Watcher interface {
	Hook
	// Watch returns when the allocation has ended, when Up has something to do,
	// or ctx. It is called when all hooks are up.
	Watch(ctx context.Context, s *Step) (News, error)
}

// Judge is a hook that can tell at any time whether the allocation has ended by
// itself: also while another one fails, and nobody watches.
type Judge interface {
	Hook
	// Outcome is how the allocation has ended, or Again.
	Outcome(s *Step) News
}

// News is what a Watcher has seen.
type News int

// The news.
const (
	// Again: the hooks' Ups are to look.
	Again News = iota
	// Complete: the allocation has ended as it should.
	Complete
	// Failed: it has ended otherwise.
	Failed
)

// Fatal marks an error that repeating cannot help: the allocation has failed.
type Fatal struct{ Err error }

func (f *Fatal) Error() string { return f.Err.Error() }
func (f *Fatal) Unwrap() error { return f.Err }

// Partial marks an error of a hook that keeps none of those behind it from their
// turn: what runs must not go unwatched because something cannot be brought up
// again. What cannot be done without it, they refuse.
type Partial struct{ Err error }

func (p *Partial) Error() string { return p.Err.Error() }
func (p *Partial) Unwrap() error { return p.Err }

// Waiting is the error of a hook that waits for the servers. It is not counted
// as a failure: the hook is called again when the assignment changes.
type Waiting struct{ Reason string }

func (w *Waiting) Error() string { return w.Reason }

// waiting reports whether err says that the servers' turn has not come.
func waiting(err error) bool {
	var w *Waiting
	return errors.As(err, &w)
}

// partial reports whether err keeps no other hook from its turn.
func partial(err error) bool {
	var p *Partial
	return errors.As(err, &p)
}

// Step is what hooks work with: the assignment, and what hooks hand to those
// behind them. It is safe for concurrent use.
type Step struct {
	// Dir is the allocation's directory on the host.
	Dir string

	mu         sync.Mutex // guards below
	assignment api.AllocAssignment
	mounts     map[string]string
	lacking    map[string]error
	tasks      map[string]api.TaskStatus
	plugins    map[string]PluginPlace
	failing    map[string]failing
	stuck      map[string]bool
	ending     map[string]api.Problem
	events     []api.TaskEvent
	checks     []api.CheckStatus
	starting   bool
	givenUp    bool
	awaited    string
	ill        map[api.PluginID]api.Problem
	late       map[string]api.Problem
	over       bool // the allocation is to end
	works      int  // counts those that ever were
	lasting    map[int]context.CancelFunc
	changed    func()
	record     func() error
}

// NewStep returns the step of an assignment.
func NewStep(dir string, a api.AllocAssignment) *Step {
	return &Step{
		Dir: dir, assignment: a, mounts: map[string]string{}, tasks: map[string]api.TaskStatus{},
		plugins: map[string]PluginPlace{}, failing: map[string]failing{}, lasting: map[int]context.CancelFunc{},
		ill: map[api.PluginID]api.Problem{}, late: map[string]api.Problem{}, ending: map[string]api.Problem{},
		changed: func() {}, record: func() error { return nil },
	}
}

// Assignment is the newest.
func (s *Step) Assignment() api.AllocAssignment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assignment
}

func (s *Step) setAssignment(a api.AllocAssignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assignment = a
}

// WhileWanted is ctx for work of an Up that takes long, and is of no use to an
// allocation that is to end: then it ends.
func (s *Step) WhileWanted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		cancel()
	}
	s.works++
	work := s.works
	s.lasting[work] = cancel
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.lasting, work)
	}
}

// end ends what lasts only while the allocation is wanted.
func (s *Step) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for _, cancel := range s.lasting {
		cancel()
	}
}

func (s *Step) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.givenUp = true
}

// GivenUp reports whether the servers know the allocation no more, or count it
// as lost: what it held may be another's by now.
func (s *Step) GivenUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.givenUp || s.assignment.Allocation != nil && s.assignment.Allocation.Status.State == api.AllocLost
}

// SetMount hands on where a volume is mounted on the host, by the request's name.
func (s *Step) SetMount(name, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mounts[name] = path
}

// Mounts is where the volumes are.
func (s *Step) Mounts() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mounts)
}

// SetLacking says which volumes, by the request's name, cannot be used now, and
// why. No task that needs one of them is to be started.
func (s *Step) SetLacking(lacking map[string]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacking = lacking
}

// Lacking is the volumes that cannot be used now. It is not to be changed.
func (s *Step) Lacking() map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lacking
}

// SetTask says how a task is. It is reported with the allocation.
func (s *Step) SetTask(name string, t api.TaskStatus) {
	s.mu.Lock()
	same := s.tasks[name] == t
	s.tasks[name] = t
	s.mu.Unlock()
	if !same {
		s.changed()
	}
}

// Tasks is how the tasks are.
func (s *Step) Tasks() map[string]api.TaskStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.tasks)
}

// Say tells people what the start of a task is about.
func (s *Step) Say(task, message string) {
	s.mu.Lock()
	s.events = append(s.events[max(0, len(s.events)+1-api.MaxTaskEvents):len(s.events):len(s.events)],
		api.TaskEvent{Time: now(), Task: task, Message: message})
	s.mu.Unlock()
	s.changed()
}

// Events are the last that were said, oldest first.
func (s *Step) Events() []api.TaskEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events // never changed, only replaced
}

// SetChecks says how the checks of its services are.
func (s *Step) SetChecks(checks []api.CheckStatus) {
	s.mu.Lock()
	same := slices.Equal(s.checks, checks)
	s.checks = checks
	s.mu.Unlock()
	if !same {
		s.changed()
	}
}

// Checks is how they are. It is not to be changed.
func (s *Step) Checks() []api.CheckStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checks
}

// SetStuck says of which tasks it cannot be told how they are, or for which
// nothing can be done now.
func (s *Step) SetStuck(stuck map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = stuck
}

// Stuck reports whether a task is one of these.
func (s *Step) Stuck(task string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stuck[task]
}

// SetEnding says what the end of a task waits for that takes long, by its own
// word: nothing has failed. nil is nothing any more.
func (s *Step) SetEnding(task string, p *api.Problem) {
	s.mu.Lock()
	was, known := s.ending[task]
	if p == nil {
		delete(s.ending, task)
	} else {
		s.ending[task] = *p
	}
	s.mu.Unlock()
	if known != (p != nil) || p != nil && was != *p {
		s.changed()
	}
}

// Ending is what the end of a task waits for, nil if there is none: of several,
// the one that is first by its task's name.
func (s *Step) Ending() *api.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return first(s.ending)
}

// SetStarting says whether the allocation, with all hooks up, does not count as
// running yet.
func (s *Step) SetStarting(starting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = starting
}

// Starting reports whether it does not.
func (s *Step) Starting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starting || s.awaited != ""
}

// SetAwaited says what an allocation whose hooks are up still waits for before
// it is of use; empty for nothing. It is reported as its problem.
func (s *Step) SetAwaited(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaited = reason
}

// Awaited is what it waits for.
func (s *Step) Awaited() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.awaited
}

// Record writes how the tasks are to the local database. A hook calls it from
// Up or Down, before it does what it could not tell from the tasks themselves
// that it has done.
func (s *Step) Record() error { return s.record() }
