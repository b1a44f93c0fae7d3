package hook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// Poststop runs the tasks that come when all others have ended. It lies between
// the volumes and the tasks: it has nothing to bring up, and is taken down when
// nothing else runs and all is still mounted.
type Poststop struct {
	tasks   *Tasks
	volumes *Volumes
}

// NewPoststop returns the hook of a node with these hooks; volumes are nil where
// there are none.
func NewPoststop(tasks *Tasks, volumes *Volumes) *Poststop { return &Poststop{tasks, volumes} }

// Name implements allocrunner.Hook.
func (*Poststop) Name() string { return "poststop" }

// Up implements allocrunner.Hook.
func (*Poststop) Up(context.Context, *allocrunner.Step) error { return nil }

// Down implements allocrunner.Hook. What has ended is recorded, and not run
// again. Where no other task was ever started there is nothing to come after.
func (p *Poststop) Down(ctx context.Context, s *allocrunner.Step) error {
	a := s.Assignment()
	var last []*api.Task
	begun := false
	for _, task := range all(a.Group) {
		if task.Hook() == api.HookPoststop {
			last = append(last, task)
		} else {
			begun = begun || ran(s.Tasks()[task.Name])
		}
	}
	if len(last) == 0 || !begun {
		return nil
	}
	reason, err := p.forbids(s)
	if err != nil {
		return err
	}
	var g errgroup.Group
	for _, task := range last {
		g.Go(func() error {
			if reason != "" {
				return p.leave(ctx, s, &a, task, reason)
			}
			return p.run(ctx, s, &a, task)
		})
	}
	return g.Wait()
}

// forbids says why no more tasks may run, or "": their volumes may be another's
// by now, or are not mounted any more, and they would write to what lies below.
func (p *Poststop) forbids(s *allocrunner.Step) (reason string, err error) {
	if s.GivenUp() {
		return "it did not run to its end: the servers had given the allocation up", nil
	}
	if p.volumes == nil {
		return "", nil
	}
	missing, err := p.volumes.find(s)
	if err != nil || missing == "" {
		return "", err
	}
	return "it did not run to its end: " + missing, nil
}

// run runs a task until it has ended for good.
func (p *Poststop) run(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task) error {
	if was := s.Tasks()[task.Name]; was.State == "" {
		s.SetTask(task.Name, api.TaskStatus{State: api.TaskPending, Dir: TaskDir(s.Dir, task.Name), Poststop: true})
		if err := s.Record(); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		is := s.Tasks()[task.Name]
		if is.State == api.TaskEnded {
			return p.tasks.end(ctx, s, a, task)
		}
		if is.State == api.TaskRunning && is.Reason != "" {
			if err := p.cut(ctx, s, a, task); err != nil {
				return err
			}
			continue
		}
		err := p.tasks.raise(ctx, s, a, task)
		if fatal, ok := errors.AsType[*allocrunner.Fatal](err); ok {
			return p.leave(ctx, s, a, task, fatal.Error())
		}
		if err == nil {
			err = p.wait(ctx, s, a, task)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// wait waits until a run of a task has ended, or has taken too long, or until the
// next is due.
func (p *Poststop) wait(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task) error {
	is := s.Tasks()[task.Name]
	if is.State != api.TaskRunning {
		return p.tasks.pending(ctx, is)
	}
	began := is.Started
	if began.IsZero() {
		began = time.Now()
	}
	limited, cancel := context.WithDeadline(ctx, began.Add(task.PoststopTime()))
	defer cancel()
	defer p.tasks.long(s, task, cleaning(a, task, began))()
	d, id := p.tasks.drivers[task.Driver], runID(a, task.Name, is.Restarts)
	_, err := d.Wait(limited, id)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil || limited.Err() == nil:
		return fmt.Errorf("watch task %s: %w", task.Name, err)
	}
	is.Reason = fmt.Sprintf("it had not ended after %s, and its volumes wait for it", task.PoststopTime())
	s.SetTask(task.Name, is)
	return s.Record() // so that its end is not taken for one that its policy judges
}

// cut ends a run that has taken too long, for good.
func (p *Poststop) cut(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task) error {
	is := s.Tasks()[task.Name]
	d, id := p.tasks.drivers[task.Driver], runID(a, task.Name, is.Restarts)
	if d == nil {
		return noDriver(s, task)
	}
	if err := d.Stop(ctx, id, task.KillSignal, driver.DefaultKillTimeout); err != nil {
		return fmt.Errorf("stop task %s: %w", task.Name, err)
	}
	ended, err := d.Status(ctx, id)
	if err != nil {
		return fmt.Errorf("look at task %s: %w", task.Name, err)
	}
	ended.State, ended.Reason = driver.StateEnded, is.Reason
	s.SetTask(task.Name, seen(is, ended, is.Dir))
	return s.Record()
}

// leave notes that a task does not run, or not on, and ends what runs of it.
func (p *Poststop) leave(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task, reason string) error {
	over := s.Tasks()[task.Name].State == api.TaskEnded
	if err := p.tasks.end(ctx, s, a, task); err != nil || over {
		return err
	}
	is := s.Tasks()[task.Name]
	is.State, is.Reason, is.Poststop, is.Next = api.TaskEnded, reason, true, time.Time{}
	s.SetTask(task.Name, is)
	return s.Record()
}

// pending waits until a task is to be started.
func (*Tasks) pending(ctx context.Context, is api.TaskStatus) error {
	if is.State != api.TaskPending {
		return nil
	}
	timer := time.NewTimer(time.Until(is.Next))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// all are a group's tasks.
func all(group *api.TaskGroup) []*api.Task {
	var tasks []*api.Task
	if group != nil {
		for i := range group.Tasks {
			tasks = append(tasks, &group.Tasks[i])
		}
	}
	return tasks
}

// find hands on where the volumes of an allocation are mounted, and says which is
// not, or "". It mounts nothing.
func (v *Volumes) find(s *allocrunner.Step) (missing string, err error) {
	a := s.Assignment()
	if v.tasks != nil {
		if err := v.tasks.hostVolumes(s, &a, func(string) bool { return true }); err != nil {
			return err.Error(), nil //nolint:nilerr // that it is not there is the answer
		}
	}
	s.SetLacking(nil) // what Up saw counts no more
	for i := range a.Attachments {
		at := &a.Attachments[i]
		target, err := v.mounter.Mounted(at)
		if err != nil {
			return "", err
		}
		if target == "" {
			return fmt.Sprintf("volume %s is not mounted any more, as after a restart of the machine", at.Attachment.VolumeID), nil
		}
		s.SetMount(at.Attachment.Name, target)
	}
	return "", nil
}
