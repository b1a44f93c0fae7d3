package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/controller/scheduler"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/server/httpapi"
	"github.com/berth-dev/berth/internal/state"
)

// planner says what applying specs would do. It does it, on a fork of the
// committed state that is thrown away, and lets the scheduler decide there:
// what it answers is no estimate.
type planner struct {
	fork func() *state.Tx
	now  func() time.Time
	// turns bounds how many plans are made at once: a leader has other work.
	turns chan struct{}
}

func newPlanner(store *state.Store, now func() time.Time) *planner {
	return &planner{fork: store.Fork, now: now, turns: make(chan struct{}, 2)}
}

// Bounds of a plan.
const (
	// maxSteps is how often the scheduler is asked about one job. It places
	// some 60 allocations in a step.
	maxSteps = 1000
	// planTime is how long the steps for one request may take together.
	planTime = 10 * time.Second
	// toldReasons and toldNodes are how many reasons are told of a group, and
	// how many nodes of a reason.
	toldReasons = 16
	toldNodes   = 5
)

// Plan implements httpapi.Planner.
func (p *planner) Plan(ctx context.Context, specs httpapi.Specs) (api.Plan, error) {
	select {
	case p.turns <- struct{}{}:
		defer func() { <-p.turns }()
	case <-ctx.Done():
		return api.Plan{}, api.Errorf(api.CodeUnavailable, "other plans are being made; try again")
	}
	ctx, cancel := context.WithTimeout(ctx, planTime)
	defer cancel()
	tx := p.fork()
	defer tx.Abort()
	tx.At(p.now())
	plan := api.Plan{Index: tx.View.Index(), Volumes: []api.VolumePlan{}, Jobs: []api.JobPlan{}}
	for _, c := range specs.Volumes {
		one, err := planVolume(tx, c)
		if err != nil {
			return plan, named(err, "volume", c.Namespace, string(c.ID))
		}
		plan.Volumes = append(plan.Volumes, one)
	}
	made, err := volumesToBe(ctx, tx, plan.Volumes)
	if err != nil {
		return plan, err
	}
	for _, c := range specs.Jobs {
		one, err := planJob(ctx, tx, c, made)
		if err != nil {
			return plan, named(err, "job", c.Namespace, string(c.ID))
		}
		plan.Jobs = append(plan.Jobs, one)
	}
	return plan, nil
}

// named says of which object an error is.
func named(err error, noun string, ns api.NamespaceID, id string) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return fmt.Errorf("plan %s %s/%s: %w", noun, ns, id, err)
	}
	said := *e
	said.Message = fmt.Sprintf("%s %s/%s: %s", noun, ns, id, e.Message)
	return &said
}

func planVolume(tx *state.Tx, c *command.ApplyVolume) (api.VolumePlan, error) {
	plan := api.VolumePlan{Namespace: c.Namespace, ID: c.ID, Action: api.PlanCreate, Changes: []api.Change{}}
	before := tx.Volume(c.Namespace, c.ID)
	if err := c.Apply(tx); err != nil {
		return plan, err
	}
	if before != nil {
		plan.Version, plan.Action = before.Version, api.PlanNone
		if !fit.Same(before.Spec, c.Spec) {
			plan.Action, plan.Changes = api.PlanChange, fit.Diff(before.Spec, c.Spec)
		}
	}
	return plan, nil
}

// planJob plans a job; made are the volumes that are only taken for made.
func planJob(ctx context.Context, tx *state.Tx, c *command.ApplyJob, made map[volumeName]bool) (api.JobPlan, error) {
	r := rehearsal{
		plan:  api.JobPlan{Namespace: c.Namespace, ID: c.ID, Changes: []api.Change{}, Start: []api.PlannedStart{}, Stop: []api.PlannedStop{}, Keep: []api.PlannedKeep{}},
		looks: scheduler.Looks{}, before: map[api.AllocID]bool{}, inPlace: map[api.AllocID]bool{},
	}
	before := tx.Job(c.Namespace, c.ID)
	if err := c.Apply(tx); err != nil {
		return r.plan, err
	}
	job := tx.Job(c.Namespace, c.ID)
	r.plan.Action = action(before, c)
	if before != nil {
		r.plan.Version = before.Version
		r.plan.Changes = fit.Diff(before.Spec, c.Spec)
	}
	for a := range tx.LiveAllocations(job.UID) {
		r.before[a.ID] = true
	}
	r.made = made
	if err := r.run(ctx, tx); err != nil {
		return r.plan, err
	}
	after := tx.Job(c.Namespace, c.ID)
	if r.plan.Revision = after.Revision; after.Revision > job.Revision {
		r.plan.Reverted = after.Status.Reverted
	}
	for a := range tx.LiveAllocations(job.UID) {
		if a.Terminal() || a.Desired != api.DesireRun || a.Replaced || !r.before[a.ID] {
			continue
		}
		keep := &r.plan.Keep
		if r.inPlace[a.ID] {
			keep = &r.plan.InPlace
		}
		*keep = append(*keep, api.PlannedKeep{ID: a.ID, Group: a.Group, Index: a.Index, NodeID: a.NodeID})
	}
	for i, id := range r.starts {
		r.plan.Start[i].After = waitsFor(tx.View, made, id)
	}
	names := strings.NewReplacer(r.placed...)
	for i := range r.plan.Waits {
		r.plan.Waits[i].Reason = names.Replace(r.plan.Waits[i].Reason)
	}
	r.plan.TurnedDown = turnedDown(job, r.looks, names)
	return r.plan, nil
}

func action(before *api.Job, c *command.ApplyJob) api.PlanAction {
	switch {
	case before == nil:
		return api.PlanCreate
	case before.Desired == api.Absent:
		return api.PlanStart
	case fit.Same(before.Spec, c.Spec):
		return api.PlanNone
	}
	return api.PlanChange
}

// rehearsal lets the scheduler do on a fork what it would do about one job.
type rehearsal struct {
	plan  api.JobPlan
	looks scheduler.Looks
	// before are the allocations that the job had.
	before map[api.AllocID]bool
	// inPlace are those that would be taken to the new revision.
	inPlace map[api.AllocID]bool
	// placed are ids of allocations that would be placed, and after each what
	// to call it: nobody knows the ids yet.
	placed []string
	// starts are the ids of the plan's starts, in their order.
	starts []api.AllocID
	// made are the volumes that are taken for made.
	made map[volumeName]bool
}

// run asks the scheduler until it has nothing to do but to wait: about the job,
// unless that is settled, and about the health of its newest revision.
func (r *rehearsal) run(ctx context.Context, tx *state.Tx) error {
	for step := 0; ; step++ {
		writes := tx.Writes()
		r.plan.Waits = []api.Wait{}
		r.plan.Cut = step == maxSteps || ctx.Err() != nil
		for _, ask := range []func(state.View, time.Time) (controller.Plan, error){r.job, r.health} {
			next, err := ask(tx.View, tx.Now())
			if err != nil {
				return fmt.Errorf("ask the scheduler: %w", hidden{err})
			}
			r.plan.Waits = append(r.plan.Waits, next.Waits...)
			if r.plan.Cut && len(next.Commands) > 0 {
				return nil
			}
			for _, c := range next.Commands {
				r.note(tx, c)
			}
			if err := next.Commands.Apply(tx); err != nil {
				return fmt.Errorf("apply what the scheduler plans: %w", hidden{err})
			}
			if err := r.create(tx, next.Commands); err != nil {
				return err
			}
		}
		if tx.Writes() == writes {
			r.plan.Cut = false
			return nil
		}
	}
}

// job is what the scheduler does about the job. Of what is settled it is not
// asked.
func (r *rehearsal) job(v state.View, now time.Time) (controller.Plan, error) {
	if v.Job(r.plan.Namespace, r.plan.ID).Status.Settled {
		return controller.Plan{}, nil
	}
	next, looks := scheduler.Examine(v, now, r.plan.Namespace, r.plan.ID)
	for group, look := range looks {
		if before, ok := r.looks[group]; ok {
			look = before.Then(look)
		}
		r.looks[group] = look
	}
	return next, nil
}

func (r *rehearsal) health(v state.View, now time.Time) (controller.Plan, error) {
	return scheduler.Controller{}.Reconcile(v, now, scheduler.HealthKey(r.plan.Namespace, r.plan.ID))
}

// hidden is an error of Berth's own, which its caller cannot mend.
type hidden struct{ error }

// note takes a command of the scheduler's into the plan.
func (r *rehearsal) note(tx *state.Tx, c command.Command) {
	switch c := c.(type) {
	case *command.PlaceAllocation:
		r.plan.Start = append(r.plan.Start, api.PlannedStart{Group: c.Group, Index: c.Index, NodeID: c.NodeID, Replaces: c.Replaces, Beside: c.Beside})
		name := &api.Allocation{JobID: c.JobID, Group: c.Group, Index: c.Index}
		id := api.NewAllocID(c.JobUID, c.Serial)
		r.placed, r.starts = append(r.placed, "allocation "+id.Short(), "allocation "+name.Name()), append(r.starts, id)
	case *command.ReviseAllocation:
		r.inPlace[c.ID] = true
	case *command.StopAllocation:
		// One that has ended already only gets no successor.
		if a := tx.Allocation(c.ID); a != nil && !a.Terminal() {
			r.plan.Stop = append(r.plan.Stop, api.PlannedStop{ID: a.ID, Group: a.Group, Index: a.Index, NodeID: a.NodeID, Reason: c.Reason})
		}
	}
}

// create takes the volumes into the plan that commands have made rows of, and those
// for made that a plugin could make now: so the plan goes on behind them.
func (r *rehearsal) create(tx *state.Tx, commands command.Plan) error {
	for _, c := range commands {
		switch c := c.(type) {
		case *command.CopyVolume:
			planned, made, err := r.planned(tx, c.ID)
			if err != nil {
				return err
			}
			planned.ID, planned.From = c.ID, c.From
			r.plan.Create = append(r.plan.Create, planned)
			r.made[volumeName{c.Namespace, c.ID}] = made
		case *command.PlaceAllocation:
			if err := r.own(tx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// own takes the volumes into the plan that go with a new allocation.
func (r *rehearsal) own(tx *state.Tx, c *command.PlaceAllocation) error {
	id := api.NewAllocID(c.JobUID, c.Serial)
	for a := range tx.AllocAttachments(id) {
		vol := tx.Volume(a.Namespace, a.VolumeID)
		if vol == nil || vol.Owner != id {
			continue
		}
		planned, _, err := r.planned(tx, vol.ID)
		if err != nil {
			return err
		}
		planned.Request, planned.Group, planned.Index, planned.NodeID = a.Name, c.Group, c.Index, c.NodeID
		r.plan.Create = append(r.plan.Create, planned)
	}
	return nil
}

// planned is what a volume would be that has a row already, and whether it is taken
// for made now.
func (r *rehearsal) planned(tx *state.Tx, id api.VolumeID) (planned api.PlannedVolume, made bool, err error) {
	vol, p := tx.Volume(r.plan.Namespace, id), api.VolumePlan{Action: api.PlanCreate}
	request, err := toBe(tx, vol, &p)
	if err != nil {
		return planned, false, fmt.Errorf("ask the provisioner: %w", hidden{err})
	}
	planned = api.PlannedVolume{PluginID: vol.Spec.PluginID, CapacityMin: vol.Spec.CapacityMin, CapacityMax: vol.Spec.CapacityMax, Waits: p.Waits}
	if t := vol.Spec.TopologyRequest; t != nil {
		planned.Topologies = t.Required
	}
	if request == nil {
		return planned, false, nil
	}
	if request.TopologyRequest != nil {
		planned.Topologies = request.TopologyRequest.Required
	}
	takeForMade(tx, vol, request)
	return planned, true, nil
}

// turnedDown sums up why nodes were turned down, group by group.
func turnedDown(job *api.Job, looks scheduler.Looks, names *strings.Replacer) []api.TurnedDown {
	all := []api.TurnedDown{}
	for i := range job.Spec.Groups {
		look, ok := looks[job.Spec.Groups[i].Name]
		if !ok || len(look.Reasons) == 0 {
			continue
		}
		t := api.TurnedDown{Group: job.Spec.Groups[i].Name, Nodes: len(look.Reasons)}
		byReason := map[string][]api.NodeID{}
		for _, id := range slices.Sorted(maps.Keys(look.Reasons)) {
			reason := names.Replace(ofTheNode(look.Reasons[id], id))
			byReason[reason] = append(byReason[reason], id)
		}
		for _, reason := range slices.SortedFunc(maps.Keys(byReason), func(a, b string) int {
			return cmp.Or(len(byReason[b])-len(byReason[a]), strings.Compare(a, b))
		}) {
			if len(t.Reasons) == toldReasons {
				break
			}
			nodes := byReason[reason]
			t.Reasons = append(t.Reasons, api.TurnedDownReason{Reason: reason, Nodes: len(nodes), Names: nodes[:min(len(nodes), toldNodes)]})
		}
		all = append(all, t)
	}
	return all
}

// ofTheNode is a node's reason without its name, so that nodes have reasons in
// common.
func ofTheNode(reason string, id api.NodeID) string {
	name := "node " + string(id)
	before, after, found := strings.Cut(reason, name)
	if !found || after != "" && !strings.ContainsAny(after[:1], " ,:;)") {
		return reason
	}
	return before + "the node" + after
}
