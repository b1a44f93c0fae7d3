package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/frame"
)

// signal sends a signal to tasks that run. Who asked is recorded first.
func (a *Agent) signal(ctx context.Context, offer api.StreamOffer, out *frame.Writer) error {
	q := offer.Signal
	if q == nil {
		return api.Errorf(api.CodeInvalid, "the servers do not say which signal")
	}
	if err := q.Validate(); err != nil {
		return err
	}
	running, err := a.allocations.running(q.AllocID)
	if err != nil {
		return err
	}
	done := api.Signalled{AllocID: q.AllocID, Signal: q.Signal, Tasks: []string{}}
	var tasks []*api.Task
	for task := range running {
		if q.Task == "" || q.Task == task.Name {
			tasks = append(tasks, task)
		}
	}
	slices.SortFunc(tasks, func(x, y *api.Task) int { return strings.Compare(x.Name, y.Name) })
	for _, task := range tasks { // all or none, as far as that is known before
		if a.signaller(task.Driver) == nil {
			return api.Errorf(api.CodeInvalid, "driver %s sends no signals to its tasks", task.Driver)
		}
	}
	for _, task := range tasks {
		s := a.signaller(task.Driver)
		a.allocations.note(q.AllocID, task.Name, fmt.Sprintf("%s is sent, asked for %s", q.Signal, q.Asker))
		a.log.Info("signal is sent to a task", "alloc", q.AllocID.Short(), "task", task.Name, "signal", q.Signal, "by", q.By, "from", q.From)
		switch err := s.Signal(ctx, hook.RunID(q.AllocID, task.Name, running[task]), q.Signal); api.CodeOf(err) {
		case "":
			done.Tasks = append(done.Tasks, task.Name)
		case api.CodeNotFound, api.CodeConflict: // it has ended meanwhile
		default:
			if len(done.Tasks) > 0 {
				err = api.Errorf(api.CodeOf(err), "%s was sent to %s, and to task %s not: %v", q.Signal, strings.Join(done.Tasks, ", "), task.Name, err)
			}
			return err
		}
	}
	if len(done.Tasks) == 0 {
		which := "no task of allocation " + q.AllocID.Short() + " runs"
		if q.Task != "" {
			which = "task " + q.Task + " of allocation " + q.AllocID.Short() + " does not run"
		}
		return api.Errorf(api.CodeConflict, "%s (see 'berth alloc status %s')", which, q.AllocID.Short())
	}
	b, err := json.Marshal(done)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = out.Write(b)
	return err
}

func (a *Agent) signaller(name string) driver.Signaller {
	for _, d := range a.cfg.Drivers {
		if s, ok := d.(driver.Signaller); ok && d.Name() == name {
			return s
		}
	}
	return nil
}
