package hook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/fit"
)

// Tasks runs the allocation's tasks.
type Tasks struct {
	drivers map[string]driver.Driver
	// node is the node as it is now.
	node func() *api.Node
	host atomic.Pointer[map[string]HostVolume]
	// withdraw takes a plugin out of use whose task is about to be stopped, for a
	// reason; nil for none.
	withdraw func(ctx context.Context, a *api.AllocAssignment, task *api.Task, reason string)
	// reader returns what templates of a namespace read of the servers; nil for none.
	reader func(ns api.NamespaceID) Reader

	mu sync.Mutex // guards below
	// follows are the tasks whose templates read of the servers, and nil for those
	// that were found to have none.
	follows map[api.AllocID]map[string]*followed
}

// NewTasks returns the hook of a node with these drivers, by name. node answers
// what tasks find of it, which may change between two starts.
func NewTasks(drivers map[string]driver.Driver, node func() *api.Node) *Tasks {
	return &Tasks{drivers: drivers, node: node, follows: map[api.AllocID]map[string]*followed{}}
}

// Name implements allocrunner.Hook.
func (*Tasks) Name() string { return "tasks" }

// runID is the driver's name for a run of a task. Each run has its own, so that
// an end is counted once, and a start made once, whatever was cut short between.
func runID(a *api.AllocAssignment, task string, run int) string { return RunID(a.ID, task, run) }

// RunID is the driver's name for a run of a task.
func RunID(alloc api.AllocID, task string, run int) string {
	id := string(alloc) + "/" + task
	if run > 0 {
		id += "/" + strconv.Itoa(run)
	}
	return id
}

// Up implements allocrunner.Hook. A task that runs is adopted; one that has
// ended is started again, or left, as its restart policy says. One of which this
// cannot be told, or done, keeps no other from being watched.
func (t *Tasks) Up(ctx context.Context, s *allocrunner.Step) error {
	a := s.Assignment()
	var failed error
	stuck, away := map[string]bool{}, map[string]error{}
	for task := range due(a.Group, s.Tasks) {
		err := away[task.Driver]
		if err != nil && s.Tasks()[task.Name].State == api.TaskRunning {
			continue // an engine that hangs is not waited for again for each task, and Watch does
		}
		if err == nil {
			err = t.raise(ctx, s, &a, task)
		}
		if fatal, ok := errors.AsType[*allocrunner.Fatal](err); ok {
			return fatal
		}
		if api.CodeOf(err) == api.CodeUnavailable {
			away[task.Driver] = err
		}
		if err != nil {
			stuck[task.Name] = true
		}
		if failed == nil || err != nil && waiting(failed) {
			failed = err
		}
	}
	s.SetStuck(stuck)
	s.SetStarting(!passed(a.Group, "", s.Tasks()))
	if failed == nil {
		return nil
	}
	return &allocrunner.Partial{Err: failed}
}

// waiting reports whether a task waits for what its templates read.
func waiting(err error) bool {
	_, is := errors.AsType[*allocrunner.Waiting](err)
	return is
}

// raise does the next thing for one task, if there is one to do now.
func (t *Tasks) raise(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task) error {
	d := t.drivers[task.Driver]
	if d == nil {
		return noDriver(s, task)
	}
	was := s.Tasks()[task.Name]
	status, err := d.Status(ctx, runID(a, task.Name, was.Restarts))
	if err != nil {
		return fmt.Errorf("look at task %s: %w", task.Name, err)
	}
	if was.State != api.TaskEnded && status.State != driver.StateUnknown {
		if was.State == api.TaskPending {
			was.Reason = "" // of the run before
		}
		was.State = api.TaskRunning // also if the agent was killed that had started it
	}
	if asked := a.Allocation.RestartsAsked(task.Name); asked != was.Asked {
		if was, err = obey(s, task, was, asked, a.Allocation.AskedBy); err != nil {
			return err
		}
		if status, err = d.Status(ctx, runID(a, task.Name, was.Restarts)); err != nil {
			return fmt.Errorf("look at task %s: %w", task.Name, err)
		}
	}
	if status.State == driver.StateRunning && s.Failing(task.Name, was.Restarts) == "" {
		if err := t.refresh(ctx, s, a, task); err != nil {
			s.SetTask(task.Name, seen(was, status, TaskDir(s.Dir, task.Name)))
			return err
		}
		if now := s.Tasks()[task.Name]; now.Restarts > was.Restarts {
			was, status = now, driver.Status{State: driver.StateUnknown} // it is to be started again
		}
	}
	if reason := s.Failing(task.Name, was.Restarts); reason != "" && status.State == driver.StateRunning {
		if status, err = t.fail(ctx, s, a, task, reason); err != nil {
			return err
		}
	}
	switch {
	case status.State == driver.StateRunning:
		s.SetTask(task.Name, seen(was, status, TaskDir(s.Dir, task.Name)))
		return nil
	case was.State == api.TaskEnded:
		t.unfollow(a.ID, task.Name)
		return nil
	case status.State == driver.StateEnded:
		return decide(s, a, task, seen(was, status, TaskDir(s.Dir, task.Name)))
	case was.State == api.TaskPending && was.Next.After(time.Now()):
		return nil
	}
	return t.start(ctx, s, a, task)
}

// fail stops a run that another hook has found to be of no use. How it ended is
// judged like any other end. Why is recorded before: an agent that is killed in
// between must not take it for a success.
func (t *Tasks) fail(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task, reason string) (driver.Status, error) {
	was := s.Tasks()[task.Name]
	d, id := t.drivers[task.Driver], runID(a, task.Name, was.Restarts)
	was.State, was.Reason = api.TaskRunning, reason
	s.SetTask(task.Name, was)
	if err := s.Record(); err != nil {
		return driver.Status{}, err
	}
	if err := t.stop(ctx, s, run{a, task, was.Restarts}, reason); err != nil {
		return driver.Status{}, err
	}
	ended, err := d.Status(ctx, id)
	if err != nil {
		return ended, fmt.Errorf("look at task %s: %w", task.Name, err)
	}
	ended.Reason = reason
	return ended, nil
}

// bereave ends the tasks that run and have a volume, for a reason. What comes of
// it is judged like any other end. Which run is the driver's to say: a record may
// be older than a start.
func (t *Tasks) bereave(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, volume, reason string) error {
	for i := range a.Group.Tasks {
		task := &a.Group.Tasks[i]
		was, d := s.Tasks()[task.Name], t.drivers[task.Driver]
		if was.State == api.TaskEnded || d == nil || !has(d, task, volume) {
			continue
		}
		status, err := d.Status(ctx, runID(a, task.Name, was.Restarts))
		if err != nil {
			return fmt.Errorf("look at task %s: %w", task.Name, err)
		}
		if status.State != driver.StateRunning {
			// It is to be started again, and the run before may not have ended yet.
			if err := t.endLast(ctx, s, a, task); err != nil {
				return err
			}
			continue
		}
		if status, err = t.fail(ctx, s, a, task, reason); err != nil {
			return err
		}
		if err := decide(s, a, task, seen(was, status, TaskDir(s.Dir, task.Name))); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a task has a volume of its group: one that it mounts, and
// any if it sees the host's directories.
func has(d driver.Driver, task *api.Task, volume string) bool {
	return !ownRoot(d) || slices.ContainsFunc(task.VolumeMounts, func(m api.VolumeMount) bool { return m.Volume == volume })
}

// ownRoot reports whether the tasks of a driver have a root file system of their
// own.
func ownRoot(d driver.Driver) bool {
	_, shared := d.(driver.OnHost)
	return !shared
}

// decide records what comes of a task's end before it comes: a power cut must
// not make it end, or start, twice.
func decide(s *allocrunner.Step, a *api.AllocAssignment, task *api.Task, ended api.TaskStatus) error {
	s.SetTask(task.Name, after(a.Group.Restarts(task, a.JobType), ended, time.Now()))
	return s.Record()
}

// start begins the next run of a task, when nothing is left of the one before.
func (t *Tasks) start(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task) error {
	d := t.drivers[task.Driver]
	was := s.Tasks()[task.Name]
	if err := t.lacks(s, a, task); err != nil {
		return err
	}
	spec, err := t.spec(ctx, s, a, *task)
	if wait, waits := errors.AsType[*awaits](err); waits {
		if f := t.followed(s, a, task); f != nil {
			return f.await(s, task.Name, wait)
		}
		return &allocrunner.Waiting{Reason: "task " + task.Name + " " + wait.reason}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return &allocrunner.Fatal{Err: fmt.Errorf("task %s: %w", task.Name, err)}
	}
	// What runs goes on until it is known what follows it.
	if err := t.endLast(ctx, s, a, task); err != nil {
		return err
	}
	spec.ID = runID(a, task.Name, was.Restarts)
	spec.Say = func(message string) { s.Say(task.Name, message) }
	if err := admit(ctx, d, a.Group, &spec); err != nil {
		return err
	}
	if place, ok := s.Plugin(task.Name); ok {
		// An earlier run left its socket, and many drivers do not take it over.
		if err := os.Remove(place.HostSocket()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the socket of task %s: %w", task.Name, err)
		}
	}
	if f := t.following(a.ID, task.Name); f != nil {
		if err := f.starts(); err != nil {
			return err
		}
	}
	if err := d.Start(ctx, spec); err != nil {
		if not, ok := errors.AsType[*driver.NotStarted](err); ok {
			s.Say(task.Name, not.Reason)
			return decide(s, a, task, seen(was, driver.Status{State: driver.StateEnded, Ended: time.Now(), Reason: not.Reason}, spec.Dir))
		}
		if api.CodeOf(err) == api.CodeInvalid {
			return &allocrunner.Fatal{Err: fmt.Errorf("task %s: %w", task.Name, err)}
		}
		return fmt.Errorf("start task %s: %w", task.Name, err)
	}
	status, err := d.Status(ctx, spec.ID)
	if err != nil {
		return fmt.Errorf("look at task %s: %w", task.Name, err)
	}
	was = s.Tasks()[task.Name]
	was.Reason = "" // an earlier boot's
	now := seen(was, status, spec.Dir)
	now.State = api.TaskRunning // one that has ended already is Watch's to see
	s.SetTask(task.Name, now)
	if now.Restarts == 0 {
		return nil // recorded when all hooks are up
	}
	return s.Record()
}

// admit checks what is to be run. It is not asked about what runs: the node may
// have changed under it, a user be gone, and it runs all the same.
func admit(ctx context.Context, d driver.Driver, group *api.TaskGroup, spec *driver.Spec) error {
	task := &spec.Task
	if len(task.VolumeMounts) > 0 {
		if lacks := fit.Driver(d.Fingerprint(ctx), group, task); lacks != "" {
			return &allocrunner.Fatal{Err: fmt.Errorf("task %s: driver %s %s on this node; use driver \"exec\"", task.Name, task.Driver, lacks)}
		}
	}
	if err := d.Check(*task); err != nil {
		return &allocrunner.Fatal{Err: fmt.Errorf("task %s: %w", task.Name, err)}
	}
	return nil
}

// noDriver is the error of a task whose driver is not here. If it was once
// started, it may still run: an agent without the driver must not say that it
// has ended, nor take its volumes away.
func noDriver(s *allocrunner.Step, task *api.Task) error {
	err := fmt.Errorf("task %s: this node has no driver %s", task.Name, task.Driver)
	if started(s, task) {
		return fmt.Errorf("%w any more, and it may still run", err)
	}
	return &allocrunner.Fatal{Err: err}
}

func started(s *allocrunner.Step, task *api.Task) bool {
	return ran(s.Tasks()[task.Name])
}

// errNews ends Watch: Up is to look.
var errNews = errors.New("there is something to do")

// Watch implements allocrunner.Watcher. The allocation has ended when one task
// has failed for good, or when the leader, or all main tasks, have ended.
func (t *Tasks) Watch(ctx context.Context, s *allocrunner.Step) (allocrunner.News, error) {
	a, tasks := s.Assignment(), s.Tasks()
	if end := outcome(&a, tasks); end != allocrunner.Again {
		return end, nil
	}
	g, watched := errgroup.WithContext(ctx)
	for task := range due(a.Group, func() map[string]api.TaskStatus { return tasks }) {
		f := t.following(a.ID, task.Name)
		if f != nil {
			g.Go(func() error { return f.wait(watched) })
		}
		if s.Stuck(task.Name) {
			continue // Up looks again, and the others are watched until then
		}
		g.Go(func() error { return t.watch(watched, &a, task, tasks[task.Name]) })
	}
	err := g.Wait()
	if err == nil {
		<-ctx.Done() // there is nobody to watch: Up looks again in its own time
	}
	if errors.Is(err, errNews) {
		err = nil
	}
	return allocrunner.Again, err
}

// Outcome implements allocrunner.Judge.
func (*Tasks) Outcome(s *allocrunner.Step) allocrunner.News {
	a := s.Assignment()
	if a.Group == nil {
		return allocrunner.Again
	}
	return outcome(&a, s.Tasks())
}

// watch waits until a task has ended, or is to be started.
func (t *Tasks) watch(ctx context.Context, a *api.AllocAssignment, task *api.Task, was api.TaskStatus) error {
	switch was.State {
	case api.TaskPending:
		if err := t.pending(ctx, was); err != nil {
			return err
		}
		return errNews
	case api.TaskRunning, "":
		if _, err := t.drivers[task.Driver].Wait(ctx, runID(a, task.Name, was.Restarts)); err != nil {
			return fmt.Errorf("watch task %s: %w", task.Name, err)
		}
		return errNews
	case api.TaskEnded:
	}
	return nil
}

// outcome is how the allocation has ended, or Again.
func outcome(a *api.AllocAssignment, tasks map[string]api.TaskStatus) allocrunner.News {
	left, led := 0, false
	for i := range a.Group.Tasks {
		task := &a.Group.Tasks[i]
		is := tasks[task.Name]
		switch {
		case is.State != api.TaskEnded && task.Main():
			left++
		case is.State != api.TaskEnded:
		case !is.End().Succeeded():
			return allocrunner.Failed
		case task.Leader:
			led = true
		}
	}
	if left == 0 || led {
		return allocrunner.Complete
	}
	return allocrunner.Again
}

// Down implements allocrunner.Hook.
func (t *Tasks) Down(ctx context.Context, s *allocrunner.Step) error {
	a := s.Assignment()
	t.unfollow(a.ID, "")
	if a.Group == nil {
		return nil
	}
	for _, part := range leaving(a.Group) {
		var g errgroup.Group
		for _, task := range part {
			g.Go(func() error { return t.end(ctx, s, &a, task) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// end stops a task and forgets it. How it ended is reported in between: the
// driver does not know it afterwards.
func (t *Tasks) end(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task) error {
	if t.drivers[task.Driver] == nil {
		if started(s, task) {
			return noDriver(s, task)
		}
		return nil
	}
	if err := t.endLast(ctx, s, a, task); err != nil {
		return err
	}
	return t.endRun(ctx, s, run{a, task, s.Tasks()[task.Name].Restarts}, func(status driver.Status) error {
		last, known := s.Tasks()[task.Name]
		switch {
		case status.State == driver.StateEnded && last.State == api.TaskEnded && last.Ended.Equal(stored(status.Ended)):
			return nil // noted, and may say more than the driver knows
		case status.State == driver.StateEnded:
			last = seen(last, status, TaskDir(s.Dir, task.Name))
		case !known:
			return nil
		case last.State == api.TaskRunning:
			// The machine was rebooted, or the agent killed, before it was noted.
			last.State, last.Reason = api.TaskEnded, "nobody saw how it ended"
		case last.State == api.TaskPending && last.Restarts > 0:
			// It waited to be started again: the end before counts.
			last.State, last.Next = api.TaskEnded, time.Time{}
			last.Ended, last.ExitCode, last.Signal, last.Reason = last.Last.Ended, last.Last.ExitCode, last.Last.Signal, last.Last.Reason
		}
		s.SetTask(task.Name, last)
		return nil
	})
}

// endLast ends the run before the current one, if there was one. It has ended
// already, unless it was to be started again before it had.
func (t *Tasks) endLast(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task) error {
	last := s.Tasks()[task.Name].Restarts - 1
	if last < 0 {
		return nil
	}
	return t.endRun(ctx, s, run{a, task, last}, func(status driver.Status) error {
		now, ended := s.Tasks()[task.Name], seen(api.TaskStatus{}, status, "")
		noted := now.Last.Ended.Equal(ended.Ended) // and may say more than the driver knows
		if status.State != driver.StateEnded || noted {
			return nil
		}
		now.Last = ended.End()
		if now.State == api.TaskPending {
			now.Last.Reason = cmp.Or(now.Last.Reason, now.Reason) // it was stopped for that
		}
		s.SetTask(task.Name, now)
		return s.Record()
	})
}

// run is one run of a task.
type run struct {
	a      *api.AllocAssignment
	task   *api.Task
	number int
}

// stop stops a run of a task. One that is a plugin takes no new calls before, and
// those on their way come to their end: reason is why it is stopped.
func (t *Tasks) stop(ctx context.Context, s *allocrunner.Step, r run, reason string) error {
	a, task := r.a, r.task
	d, id := t.drivers[task.Driver], runID(a, task.Name, r.number)
	if task.CSIPlugin != nil && t.withdraw != nil {
		status, err := d.Status(ctx, id)
		if err != nil {
			return fmt.Errorf("look at task %s: %w", task.Name, err)
		}
		if status.State == driver.StateRunning {
			t.withdraw(ctx, a, task, fmt.Sprintf("its task %s is being stopped: %s", task.Name, reason))
		}
	}
	defer t.long(s, task, stopping(a, task, time.Now()))()
	if err := d.Stop(ctx, id, task.KillSignal, time.Duration(task.KillTimeout)); err != nil {
		return fmt.Errorf("stop task %s: %w", task.Name, err)
	}
	return nil
}

// endRun stops a run of a task, tells how it ended, and forgets it.
func (t *Tasks) endRun(ctx context.Context, s *allocrunner.Step, r run, tell func(driver.Status) error) error {
	task := r.task
	d, id := t.drivers[task.Driver], runID(r.a, task.Name, r.number)
	if err := t.stop(ctx, s, r, "it is to be started again"); err != nil {
		return err
	}
	status, err := d.Status(ctx, id)
	if err != nil {
		return fmt.Errorf("look at task %s: %w", task.Name, err)
	}
	if err := tell(status); err != nil {
		return err
	}
	if err := d.Destroy(ctx, id); err != nil {
		return fmt.Errorf("clean up after task %s: %w", task.Name, err)
	}
	return nil
}
