package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
)

// Specs are what would be applied, in this order.
type Specs struct {
	Volumes []*command.ApplyVolume
	Jobs    []*command.ApplyJob
}

// Planner says what applying specs would do. It changes nothing.
type Planner interface {
	Plan(ctx context.Context, specs Specs) (api.Plan, error)
}

// plan says what several specs would do. Those that are wrong are refused
// together, with every problem of all of them.
func (h *Handler) plan(r *request) (any, error) {
	var asked api.PlanRequest
	if err := r.decode(&asked); err != nil {
		return nil, err
	}
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	var (
		specs Specs
		p     api.Problems
		seen  = map[string]bool{}
	)
	check := func(noun string, ns api.NamespaceID, id string, problems error) {
		at := fmt.Sprintf("%s[%q]", noun, id)
		if key := noun + "/" + string(ns) + "/" + id; seen[key] {
			p.Add(at, "is there twice", "leave one out")
		} else {
			seen[key] = true
		}
		below(&p, at, problems)
	}
	for i := range asked.Volumes {
		v := &asked.Volumes[i]
		apply, err := h.plannedVolume(cmp.Or(v.Namespace, api.DefaultNamespace), v.ID, v.Spec, v.Version)
		apply.IfAbsent = r.ifAbsent
		specs.Volumes = append(specs.Volumes, apply)
		check("volume", apply.Namespace, string(v.ID), err)
	}
	for i := range asked.Jobs {
		j := &asked.Jobs[i]
		apply := &command.ApplyJob{Namespace: cmp.Or(j.Namespace, api.DefaultNamespace), ID: j.ID, UID: newUID(), Spec: j.Spec, Version: j.Version, IfAbsent: r.ifAbsent}
		specs.Jobs = append(specs.Jobs, apply)
		check("job", apply.Namespace, string(j.ID), h.checkJob(apply))
	}
	if err := p.Err("the plan's input"); err != nil {
		return nil, err
	}
	plan, err := h.Plan.Plan(r.Context(), specs)
	if err != nil {
		return nil, err
	}
	v := h.Log.View()
	for i, c := range specs.Volumes {
		plan.Volumes[i].Warnings = volumeWarnings(v, &api.Volume{Namespace: c.Namespace, ID: c.ID, Spec: c.Spec})
	}
	for i, c := range specs.Jobs {
		plan.Jobs[i].Warnings = jobWarnings(v, &api.Job{Namespace: c.Namespace, ID: c.ID, Spec: c.Spec})
	}
	return plan, nil
}

// below takes over problems of a part of the input, which is at a path.
func below(p *api.Problems, at string, err error) {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return
	}
	for _, f := range e.Fields {
		p.Add(strings.TrimSuffix(at+"."+f.Path, "."), f.Message, f.Mend)
	}
}

// planJob is plan for what PUT would be given.
func (h *Handler) planJob(r *request) (any, error) {
	var spec api.JobSpec
	if err := r.decode(&spec); err != nil {
		return nil, err
	}
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	apply := &command.ApplyJob{Namespace: r.namespace(), ID: api.JobID(r.PathValue("id")), UID: newUID(), Spec: spec, Version: version, IfAbsent: r.ifAbsent}
	if err := h.checkJob(apply); err != nil {
		return nil, err
	}
	plan, err := h.Plan.Plan(r.Context(), Specs{Jobs: []*command.ApplyJob{apply}})
	if err != nil {
		return nil, err
	}
	plan.Jobs[0].Warnings = jobWarnings(h.Log.View(), &api.Job{Namespace: apply.Namespace, ID: apply.ID, Spec: spec})
	return plan.Jobs[0], nil
}
