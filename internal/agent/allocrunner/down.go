package allocrunner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// turn begins the way down.
func (r *Runner) turn(state api.AllocState, reason string) {
	tasks, events := r.step.Tasks(), r.step.Events()
	r.change(func(a *localdb.Allocation) {
		a.Phase = localdb.PhaseDown
		a.Status.State, a.Status.Tasks, a.Status.Events, a.Status.Checks = state, tasks, events, r.step.Checks()
		if reason != "" {
			a.Status.Problem = &api.Problem{Step: "run", Message: reason, Since: now()}
		}
		r.problem, r.turned = nil, now()
	})
	r.report()
}

// runDown takes the hooks down in reverse order, each until it succeeds. That
// the allocation is on its way down, and how it ended, is recorded first: the
// servers may give a volume away when a hook says that it is unmounted, and an
// agent that knew nothing of it would mount it again.
func (r *Runner) runDown(ctx context.Context) {
	if !r.insist(ctx, "record", r.save) {
		return
	}
	for _, h := range slices.Backward(r.cfg.Hooks) {
		if !r.insist(ctx, h.Name(), func() error { return r.call(h, "down", func() error { return h.Down(ctx, r.step) }) }) {
			return
		}
	}
	tasks := r.step.Tasks()
	r.change(func(a *localdb.Allocation) {
		a.Phase, a.Status.Tasks, a.Status.Checks = localdb.PhaseDone, tasks, r.step.Checks()
		if a.Status.Ended.IsZero() {
			a.Status.Ended = now()
		}
		r.problem = nil
	})
}

// insist repeats a step of the way down until it succeeds, and reports whether
// it did before ctx ended.
func (r *Runner) insist(ctx context.Context, step string, do func() error) bool {
	for delay := firstRetry; ctx.Err() == nil; {
		err := do()
		if err == nil {
			r.solved()
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		r.setProblem(step, err, time.Now().Add(delay))
		r.log.Warn("allocation cannot end yet", "step", step, "error", err, "retry", delay)
		delay = r.retryAfter(ctx, delay)
	}
	return false
}

// end removes what the allocation leaves behind, and its record last.
func (r *Runner) end(ctx context.Context) error {
	if err := r.cfg.Remove(ctx, r.step.Dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the directory of allocation %s: %w", r.ID().Short(), err)
	}
	if err := r.cfg.Memory.DeleteAllocation(r.ID()); err != nil {
		return err
	}
	var names []string
	for _, at := range r.step.Assignment().Attachments {
		names = append(names, at.Attachment.Name)
	}
	r.cfg.Facts.ForgetAllocation(r.ID(), names)
	return nil
}
