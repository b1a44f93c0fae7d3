package agent

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/agent/runner"
	"github.com/berth-dev/berth/internal/supervise"
)

// operations takes the operations that this node has.
type operations interface {
	Assign(ops []*api.Operation)
}

// facts is where a node says that it runs nothing which the servers do not
// know, and nothing of an ended epoch.
type facts interface {
	SetCleared(generation uint64, left []api.LeftVolume)
	SetUndone(epoch uint64)
	SetRemains(what string)
}

// allocations is the runners of a node. It takes assignments, and keeps a
// runner for each allocation.
type allocations struct {
	cfg        allocrunner.Config
	make       func(record localdb.Allocation) runner.Runner
	operations operations
	facts      facts
	log        *slog.Logger

	mu       sync.Mutex // guards below
	runners  map[api.AllocID]runner.Runner
	held     []localdb.Allocation // wait for word of the servers
	starting []runner.Runner      // not picked up by Run yet
	// resting are done, and have no goroutine until something is said to them.
	resting    map[runner.Runner]bool
	draining   bool
	started    chan struct{} // capacity 1: starting has something
	changed    chan struct{} // closed and replaced when a runner ends
	quiet      bool          // a recovery was said
	generation uint64        // of the last assignments
	// clearing are the allocations that end because a confirmed recovery does
	// not know them; nil if there is none.
	clearing map[api.AllocID]bool
	left     []api.LeftVolume // that they may have attached
	// undoing are the allocations of ended epochs that are not down yet, nil if
	// the servers do not ask; epoch is the one for which they do.
	undoing map[api.AllocID]bool
	epoch   uint64
	wanted  map[api.AllocID]bool // by the newest word of the servers
	down    chan struct{}        // capacity 1: undoing is empty
	// remains undoes what is found on the node of allocations that run no more,
	// recorded or not; running reports which do.
	remains func(ctx context.Context, running func(api.AllocID) bool) error
}

func newAllocations(cfg allocrunner.Config, ops operations, f facts, log *slog.Logger) *allocations {
	s := &allocations{
		cfg: cfg, operations: ops, facts: f, log: log,
		runners: map[api.AllocID]runner.Runner{}, resting: map[runner.Runner]bool{},
		started: make(chan struct{}, 1), changed: make(chan struct{}),
		wanted: map[api.AllocID]bool{}, down: make(chan struct{}, 1),
		remains: func(context.Context, func(api.AllocID) bool) error { return nil },
	}
	s.cfg.Down = s.isDown
	s.make = func(record localdb.Allocation) runner.Runner { return allocrunner.New(s.cfg, record, s.log) }
	return s
}

// restore takes over what the local database remembers. What ran in an earlier
// boot is held until the servers have spoken: meanwhile they may have given its
// volumes away, or this is a copy of the node. What runs goes on at once.
func (s *allocations) restore(records []localdb.Allocation, rebooted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rebooted && len(records) > 0 {
		s.log.Info("allocations of an earlier boot wait for word of the servers", "allocations", len(records))
		s.held = records
		return
	}
	for _, r := range records {
		s.add(r)
	}
}

// add makes a runner; the caller holds mu.
func (s *allocations) add(record localdb.Allocation) {
	r := s.make(record)
	s.runners[r.ID()] = r
	s.start(r)
}

// start has Run pick up a runner; the caller holds mu.
func (s *allocations) start(r runner.Runner) {
	s.starting = append(s.starting, r)
	select {
	case s.started <- struct{}{}:
	default:
	}
}

// tell says something to a runner, and has one that rests listen; the caller
// holds mu.
func (s *allocations) tell(r runner.Runner, say func(runner.Runner)) {
	say(r)
	if s.resting[r] {
		delete(s.resting, r)
		s.start(r)
	}
}

// rest takes a runner's goroutine from it, unless something was said to it in
// the meantime.
func (s *allocations) rest(r runner.Runner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Addressed() {
		return false
	}
	s.resting[r] = true
	return true
}

// Assign implements assignment.Consumer. While a restored cluster recovers,
// what the servers want may be long out of date: nothing is started and
// nothing is stopped, until an operator has confirmed. Then first ends, on all
// nodes, what the servers do not know.
func (s *allocations) Assign(a *api.Assignments) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Generation.Number != s.generation {
		if s.generation != 0 {
			for _, r := range s.runners {
				s.tell(r, runner.Runner.Again)
			}
			// Servers that were put back count operations from an older number on:
			// one with the same id may be another.
			s.operations.Assign(nil)
		}
		s.generation, s.clearing = a.Generation.Number, nil
	}
	listed := map[api.AllocID]bool{}
	for i := range a.Allocations {
		listed[a.Allocations[i].ID] = true
	}
	switch {
	case s.draining:
	case a.Generation.Confirmed:
		s.clear(listed)
	case a.Generation.Recovering:
		if !s.quiet {
			s.log.Warn("the cluster recovers: this node changes nothing until an operator confirms", "reason", a.Generation.Reason)
		}
		s.quiet = true
	default:
		s.quiet, s.clearing = false, nil
		s.want(a, listed)
		s.take(a, listed)
		s.undo(a)
	}
}

// undo sees to it that nothing is left of the epochs before this one, where
// the servers ask for it: the node was fenced, or its memory lost. They have
// given up all that it ran, so whatever they do not want ends; it goes down
// once more even if it was down. When all is down, Run looks what is left. The
// caller holds mu.
func (s *allocations) undo(a *api.Assignments) {
	if !a.Owes {
		s.undoing = nil
		return
	}
	if s.undoing != nil && s.epoch == a.Epoch {
		return
	}
	if a.Fence != nil {
		s.log.Warn("this node was fenced: all that it ran before is ended and unmounted", "epoch", a.Epoch, "evidence", a.Fence.String())
	}
	s.undoing, s.epoch = map[api.AllocID]bool{}, a.Epoch
	for id, r := range s.runners {
		if !s.wanted[id] {
			s.undoing[id] = true
			s.tell(r, runner.Runner.Again)
		}
	}
	s.ended()
}

// isDown notes that nothing is left of an allocation. What a plugin served that
// it was may have gone with its process, while another instance is there to mount
// it again.
func (s *allocations) isDown(id api.AllocID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(id)
	if r := s.runners[id]; r != nil {
		for _, plugin := range r.Serves() {
			s.retry(plugin)
		}
	}
}

// forget notes that an allocation is down, or gone; the caller holds mu.
func (s *allocations) forget(id api.AllocID) {
	if s.undoing[id] {
		delete(s.undoing, id)
		s.ended()
	}
}

// ended has Run look what is left, if all is down that was to end; the caller
// holds mu.
func (s *allocations) ended() {
	if s.undoing == nil || len(s.undoing) > 0 {
		return
	}
	select {
	case s.down <- struct{}{}:
	default:
	}
}

// want notes what of a node's allocations the servers want, which they never
// do with one of an ended epoch; the caller holds mu.
func (s *allocations) want(a *api.Assignments, listed map[api.AllocID]bool) {
	for id := range s.wanted {
		if !listed[id] {
			delete(s.wanted, id)
		}
	}
	for i := range a.Allocations {
		if alloc := a.Allocations[i].Allocation; alloc != nil {
			s.wanted[alloc.ID] = alloc.Desired == api.DesireRun && !alloc.Terminal()
		}
	}
}

// clear ends what is not listed, and says so when it has ended.
func (s *allocations) clear(listed map[api.AllocID]bool) {
	s.clearing, s.left = map[api.AllocID]bool{}, nil
	var held []localdb.Allocation
	for _, record := range s.held {
		if listed[record.Assignment.ID] {
			held = append(held, record)
		} else {
			s.add(record)
		}
	}
	s.held = held
	for id, r := range s.runners {
		if !listed[id] {
			s.clearing[id] = true
			s.left = append(s.left, r.Attached()...)
			s.tell(r, runner.Runner.Stop)
		}
	}
	s.cleared()
}

// cleared says that nothing is left which a confirmed recovery does not know;
// the caller holds mu.
func (s *allocations) cleared() {
	if s.clearing != nil && len(s.clearing) == 0 {
		s.facts.SetCleared(s.generation, s.left)
	}
}

// take does what the servers want.
func (s *allocations) take(a *api.Assignments, listed map[api.AllocID]bool) {
	for _, record := range s.held {
		s.add(record)
	}
	s.held = nil
	s.operations.Assign(a.Operations)
	for i := range a.Allocations {
		as := a.Allocations[i]
		switch r := s.runners[as.ID]; {
		case as.Allocation == nil: // unchanged
		case r != nil:
			s.tell(r, func(r runner.Runner) { r.Update(as) })
		default:
			s.add(localdb.Allocation{Assignment: as})
		}
	}
	for id, r := range s.runners {
		if !listed[id] {
			s.tell(r, runner.Runner.Stop)
		}
	}
}

// Run runs the runners until ctx ends. Their tasks and mounts stay.
func (s *allocations) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.settle(ctx) })
	for {
		for _, r := range s.pick() {
			running.Go(func() { s.keep(ctx, r) })
		}
		select {
		case <-s.started:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *allocations) pick() []runner.Runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	picked := s.starting
	s.starting = nil
	return picked
}

// retryRunner is how long to wait before a runner that failed goes on.
const retryRunner = 5 * time.Second

// keep runs one runner until it rests, or to its end. It fails only if the
// node's disk does.
func (s *allocations) keep(ctx context.Context, r runner.Runner) {
	for {
		rests, err := r.Work(ctx)
		if ctx.Err() != nil || rests && s.rest(r) {
			return
		}
		if rests {
			continue
		}
		if err == nil {
			break
		}
		s.log.Error("allocation cannot go on", "alloc", r.ID().Short(), "error", err)
		if !supervise.Sleep(ctx, retryRunner) {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runners, r.ID())
	s.forget(r.ID()) // it may have been at its very end when that was asked
	if s.clearing[r.ID()] {
		delete(s.clearing, r.ID())
		s.cleared()
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// known reports whether the node has an allocation: it runs, ends, or waits for
// word of the servers.
func (s *allocations) known(id api.AllocID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.held {
		if s.held[i].Assignment.ID == id {
			return true
		}
	}
	return s.runners[id] != nil
}

// running are the tasks of an allocation that run, with the numbers of their
// runs.
func (s *allocations) running(id api.AllocID) (map[*api.Task]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runners[id]; r != nil {
		return r.Running(), nil
	}
	return nil, api.Errorf(api.CodeUnavailable, "the node has nothing of allocation %s yet, or no more", id.Short())
}

// destroy ends all allocations for good and returns when they are gone, or those
// that are left when ctx ends. Those that run plugins go last: the others'
// volumes need them.
func (s *allocations) destroy(ctx context.Context) []runner.Runner {
	for {
		s.mu.Lock()
		s.draining = true
		for _, record := range s.held {
			s.add(record)
		}
		s.held = nil
		others := false
		for _, r := range s.runners {
			if len(r.Serves()) == 0 {
				others = true
				s.tell(r, runner.Runner.Stop)
			}
		}
		for _, r := range s.runners {
			if !others {
				s.tell(r, runner.Runner.Stop)
			}
		}
		left := slices.Collect(maps.Values(s.runners))
		changed := s.changed
		s.mu.Unlock()
		if len(left) == 0 || ctx.Err() != nil {
			return left
		}
		select {
		case <-changed:
		case <-ctx.Done(): // some may have ended in the meantime
		}
	}
}

// served has the allocations with volumes of a plugin try again at once what
// failed: an instance of it has become healthy. Or none is any more, and they are
// to say so.
func (s *allocations) served(id api.PluginID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retry(id)
}

// retryAll has all allocations try again what failed.
func (s *allocations) retryAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runners {
		r.Retry()
	}
}

// retry has the allocations with volumes of a plugin look again; the caller
// holds mu.
func (s *allocations) retry(id api.PluginID) {
	for _, r := range s.runners {
		if r.Needs(id) {
			r.Retry()
		}
	}
}
