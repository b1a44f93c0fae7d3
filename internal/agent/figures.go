package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/frame"
	"github.com/berth-dev/berth/internal/supervise"
)

// moment is how long tasks are watched to tell how busy they are.
const moment = 500 * time.Millisecond

// sendFigures serves a stream of what the tasks of an allocation use.
func (a *Agent) sendFigures(ctx context.Context, offer api.StreamOffer, out *frame.Writer) error {
	running, err := a.allocations.running(offer.Figures)
	if err != nil {
		return err
	}
	figures := api.AllocFigures{AllocID: offer.Figures, NodeID: a.node.ID, Tasks: map[string]api.TaskFigures{}}
	var mu sync.Mutex // guards figures.Tasks
	var measuring sync.WaitGroup
	for task, run := range running {
		measuring.Go(func() {
			f := a.measureTask(ctx, task.Driver, hook.RunID(offer.Figures, task.Name, run))
			mu.Lock()
			defer mu.Unlock()
			figures.Tasks[task.Name] = f
		})
	}
	measuring.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	figures.Time = time.Now().UTC()
	b, err := json.Marshal(figures)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = out.Write(b)
	return err
}

// measureTask looks twice: how busy a task is can only be seen over a time.
func (a *Agent) measureTask(ctx context.Context, name, id string) api.TaskFigures {
	m := a.measurer(name)
	if m == nil {
		return api.TaskFigures{Problem: fmt.Sprintf("driver %s does not measure its tasks", name)}
	}
	first, err := m.Usage(ctx, id)
	began := time.Now()
	if err == nil && supervise.Sleep(ctx, moment) {
		var last driver.Usage
		if last, err = m.Usage(ctx, id); err == nil {
			return api.TaskFigures{
				CPUMilliseconds: last.CPU.Milliseconds(), CPUPercent: int(100 * max(0, last.CPU-first.CPU) / max(1, time.Since(began))),
				MemoryBytes: last.MemoryBytes, MemoryLimitBytes: last.MemoryLimitBytes, Processes: last.Processes,
			}
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	return api.TaskFigures{Problem: err.Error()}
}

func (a *Agent) measurer(name string) driver.Measurer {
	for _, d := range a.cfg.Drivers {
		if m, ok := d.(driver.Measurer); ok && d.Name() == name {
			return m
		}
	}
	return nil
}
