package allocrunner

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// Memory is where a runner records what it must be able to undo.
type Memory interface {
	PutAllocation(a *localdb.Allocation) error
	DeleteAllocation(id api.AllocID) error
}

// Facts is where a runner says how its allocation is.
type Facts interface {
	SetAllocation(f api.AllocFact)
	ForgetAllocation(id api.AllocID, attachments []string)
}

// Config is what all runners of a node share.
type Config struct {
	// Dir holds a directory for each allocation.
	Dir    string
	Hooks  []Hook
	Memory Memory
	Facts  Facts
	// Called is told of every call of a hook, up or down; nil for nobody.
	Called func(hook, direction string, err error, took time.Duration)
	// Down is told when nothing of an allocation runs or is mounted any more; nil
	// for nobody. It is said again when the way down was gone again.
	Down func(id api.AllocID)
	// Remove removes a directory tree, and refuses to cross mounts.
	Remove func(ctx context.Context, dir string) error
}

// Between tries of a hook that fails, and between health checks.
const (
	firstRetry  = 250 * time.Millisecond
	lastRetry   = time.Minute
	checkPeriod = 30 * time.Second
)

// Runner runs one allocation.
type Runner struct {
	cfg  Config
	id   api.AllocID
	log  *slog.Logger
	step *Step

	saving  sync.Mutex // is held while a record is written
	saying  sync.Mutex // held while how the allocation is is put together and said
	mu      sync.Mutex // guards below; the database is written without it
	record  localdb.Allocation
	stale   bool // the record has changed since it was written
	forget  bool
	changed chan struct{} // capacity 1: the assignment has changed, or is gone
	problem *api.Problem
	turned  time.Time // when the way down began
}

// New returns the runner of a new allocation, or of one that was recorded.
// Nothing is recorded or started before Run.
func New(cfg Config, record localdb.Allocation, log *slog.Logger) *Runner {
	a := record.Assignment
	r := &Runner{
		cfg:     cfg,
		id:      a.ID,
		log:     log.With("alloc", a.ID.Short()),
		step:    NewStep(filepath.Join(cfg.Dir, string(a.ID)), a),
		record:  record,
		changed: make(chan struct{}, 1),
	}
	if record.Phase != localdb.PhaseUp {
		r.turned = now()
	}
	if record.Phase == localdb.PhaseDone {
		// Going down once more costs little, and says again what the servers
		// may not have heard.
		r.record.Phase = localdb.PhaseDown
	}
	maps.Copy(r.step.tasks, record.Status.Tasks)
	r.step.events, r.step.checks = record.Status.Events, record.Status.Checks
	r.step.changed, r.step.record = r.report, r.saveTasks
	return r
}

// ID is the allocation's.
func (r *Runner) ID() api.AllocID { return r.id }

// Attached are the volumes that the provider has, or may have, attached to this
// node for the allocation.
func (r *Runner) Attached() []api.LeftVolume {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []api.LeftVolume
	for i := range r.record.Assignment.Attachments {
		at := &r.record.Assignment.Attachments[i]
		asked := slices.ContainsFunc(at.Attachment.Status.Steps, func(s api.AttachmentStep) bool {
			return s.State == api.ControllerPublished && !s.Skipped
		})
		if asked {
			all = append(all, api.LeftVolume{
				Namespace: at.Attachment.Namespace, VolumeID: at.Attachment.VolumeID, PluginID: at.Attachment.PluginID, ExternalID: at.ExternalID,
			})
		}
	}
	return all
}

// Update takes a newer assignment. What the servers only give back of the
// node's own reports wakes nobody: it would defeat the backoff.
func (r *Runner) Update(a api.AllocAssignment) {
	r.mu.Lock()
	news := !sameWish(&r.record.Assignment, &a)
	r.record.Assignment = a
	r.stale = r.stale || news
	r.mu.Unlock()
	r.step.setAssignment(a)
	if r.unwanted() {
		r.step.end()
	}
	if news {
		r.nudge()
	}
}

// Again takes an allocation that is done down once more. That says again what
// servers have forgotten that were put back.
func (r *Runner) Again() {
	r.mu.Lock()
	if r.record.Phase == localdb.PhaseDone {
		r.record.Phase = localdb.PhaseDown
	}
	r.mu.Unlock()
	r.nudge()
}

// Stop ends the allocation because the servers no longer know it; what is left
// of it goes.
func (r *Runner) Stop() {
	r.mu.Lock()
	r.forget = true
	r.mu.Unlock()
	r.step.end()
	r.step.giveUp()
	r.nudge()
}

func (r *Runner) nudge() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Run runs the allocation until it is forgotten, or ctx ends: then it stays as
// it is, and the next agent goes on with it.
func (r *Runner) Run(ctx context.Context) error {
	for {
		rests, err := r.Work(ctx)
		if !rests {
			return err
		}
		select {
		case <-r.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// Work is Run that returns also when there is nothing to do: the allocation is
// done, and rests until something is said to its runner. A node that keeps the
// logs of thousands of them keeps no goroutine for each.
func (r *Runner) Work(ctx context.Context) (rests bool, err error) {
	r.begin()
	for ctx.Err() == nil {
		switch r.phase() {
		case localdb.PhaseUp:
			r.runUp(ctx)
		case localdb.PhaseDown:
			r.runDown(ctx)
		case localdb.PhaseDone:
			r.report()
			if r.cfg.Down != nil {
				r.cfg.Down(r.ID())
			}
			if r.forgotten() {
				return false, r.end(ctx)
			}
			return true, nil
		}
	}
	return false, nil
}

// Addressed reports whether something was said to the runner that it has not
// heard, and takes note of it.
func (r *Runner) Addressed() bool {
	select {
	case <-r.changed:
		return true
	default:
		return false
	}
}

// begin makes the record of an allocation that is new. It is written before
// the first hook is called.
func (r *Runner) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.record.Phase == "" {
		r.record.Phase = localdb.PhaseUp
		r.record.Status = api.AllocStatus{State: api.AllocPending}
		r.stale = true
	}
}

// save writes the record if it has changed. Records are written in order, also
// when a hook works on several tasks at once.
func (r *Runner) save() error {
	r.saving.Lock()
	defer r.saving.Unlock()
	r.mu.Lock()
	record, stale := r.record, r.stale
	r.stale = false
	r.mu.Unlock()
	if !stale {
		return nil
	}
	if err := r.cfg.Memory.PutAllocation(&record); err != nil {
		r.mu.Lock()
		r.stale = true
		r.mu.Unlock()
		return err
	}
	return nil
}

// saveTasks records how the tasks and the checks are. If that fails, it is done
// before the next hook is called.
func (r *Runner) saveTasks() error {
	r.mu.Lock()
	r.record.Status.Tasks, r.record.Status.Events, r.record.Status.Checks = r.step.Tasks(), r.step.Events(), r.step.Checks()
	r.stale = true
	r.mu.Unlock()
	return r.save()
}

// change changes the record and writes it. If that fails it is tried again with
// what comes next, and before anything is done that rests on it.
func (r *Runner) change(f func(*localdb.Allocation)) {
	r.mu.Lock()
	f(&r.record)
	r.stale = true
	r.mu.Unlock()
	if err := r.save(); err != nil {
		r.log.Error("allocation could not be recorded", "error", err)
	}
}

func (r *Runner) phase() localdb.Phase {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record.Phase
}

func (r *Runner) forgotten() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.forget
}

// unwanted reports whether the allocation is to end.
func (r *Runner) unwanted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.record.Assignment.Allocation
	return r.forget || a != nil && (a.Desired == api.DesireStop || a.Terminal())
}

// pause waits for a change of the assignment, or for d.
func (r *Runner) pause(ctx context.Context, d time.Duration) (news bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.changed:
		return true
	case <-ctx.Done():
	}
	return false
}

// retryAfter waits out the delay before another try, and answers the one before
// the next. News begin anew: what was in the way may be gone, an engine be back,
// and need another moment.
func (r *Runner) retryAfter(ctx context.Context, delay time.Duration) (next time.Duration) {
	if r.pause(ctx, delay) {
		return firstRetry
	}
	return min(2*delay, lastRetry)
}

// now is the present without its monotonic part, as it will come back from a
// record.
func now() time.Time { return time.Now().UTC().Round(0) }
