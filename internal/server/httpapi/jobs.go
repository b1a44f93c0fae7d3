package httpapi

import (
	"fmt"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

func jobs() listing[api.JobInfo] {
	return listing[api.JobInfo]{
		modified: func(v state.View) uint64 { return max(v.JobsIndex(), v.AllocationsIndex()) },
		rows: showing(byNamespace(state.Jobs()), func(v state.View, job *api.Job) api.JobInfo {
			return api.JobInfo{Job: job, State: jobState(job, collect(v.LiveAllocations(job.UID)))}
		}),
	}
}

func (h *Handler) getJob(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		job := v.Job(r.namespace(), api.JobID(r.PathValue("id")))
		if job == nil {
			return nil, 0, noSuch("job", r.PathValue("id"), r.namespace())
		}
		q := v.Quiet()
		return h.jobInfo(v, job), max(q.JobsIndex(), q.AllocationsIndex(), explained(v)), nil
	})
}

func (h *Handler) jobInfo(v state.View, job *api.Job) api.JobInfo {
	return api.JobInfo{
		Job:         job,
		State:       jobState(job, collect(v.LiveAllocations(job.UID))),
		Healthy:     healthyPlaces(v, job),
		Allocations: collect(v.JobAllocations(job.UID)),
		Waits:       h.Explain.Job(v, job),
	}
}

// healthyPlaces are those of a job's that have an allocation which is healthy as its
// own revision says. It becomes so as time passes.
func healthyPlaces(v state.View, job *api.Job) int {
	type place struct {
		group string
		index int
	}
	healthy, now := map[place]bool{}, time.Now()
	for a := range v.LiveAllocations(job.UID) {
		rev := v.Revision(a.JobUID, a.Revision)
		if rev == nil || rev.Spec.Type.Ends() || rev.Spec.Group(a.Group) == nil {
			continue
		}
		if ok, _ := fit.Healthy(a, rev.Spec.UpdateOf(rev.Spec.Group(a.Group)), now); ok {
			healthy[place{a.Group, a.Index}] = true
		}
	}
	return len(healthy)
}

// jobState sums up a job from the allocations that still count. Until the
// scheduler has looked at what was applied, what runs may be what was there
// before.
func jobState(job *api.Job, live []*api.Allocation) api.JobState {
	running, ended, failed := 0, 0, 0
	for _, a := range live {
		switch {
		case a.Runs(), job.Spec.Type.Ends() && a.Status.State == api.AllocRunning && a.Desired == api.DesireRun:
			running++
		case a.Status.State == api.AllocFailed:
			failed++
		case a.Terminal():
			ended++
		}
	}
	wanted := 0
	for _, g := range job.Spec.Groups {
		wanted += g.Count
	}
	active := len(live) - ended - failed
	if job.Spec.Type.Everywhere() {
		wanted = len(live) // settled, it is on all nodes that it can be on
		if !job.Spec.Type.Ends() {
			wanted = active // what has ended has left a node that gets nothing
		}
	}
	switch {
	case job.Desired == api.Absent && active > 0:
		return api.JobStopping
	case job.Desired == api.Absent:
		return api.JobStopped
	case job.Spec.Type.Ends() && job.Status.Settled && ended == wanted:
		return api.JobComplete
	case job.Spec.Type.Ends() && job.Status.Settled && active == 0 && failed > 0:
		return api.JobFailed
	case job.Status.Settled && running >= wanted:
		return api.JobRunning
	}
	return api.JobPending
}

func (h *Handler) putJob(r *request) (any, error) {
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
	id := api.JobID(r.PathValue("id"))
	return h.applyJob(r, &command.ApplyJob{Namespace: r.namespace(), ID: id, UID: newUID(), Spec: spec, Version: version, IfAbsent: r.ifAbsent})
}

// applyJob writes a job's spec, and answers the job.
func (h *Handler) applyJob(r *request, apply *command.ApplyJob) (any, error) {
	apply.Trace = r.trace()
	if err := h.checkJob(apply); err != nil {
		return nil, err
	}
	if _, err := h.propose(r, apply); err != nil {
		return nil, err
	}
	v := h.Log.View()
	job := v.Job(apply.Namespace, apply.ID)
	if job == nil {
		return nil, api.Errorf(api.CodeNotFound, "job %s was written, and has been collected since", apply.ID)
	}
	info := h.jobInfo(v, job)
	info.Warnings = jobWarnings(v, job)
	return info, nil
}

// checkJob finds every problem of a spec that can be found before it is applied.
func (h *Handler) checkJob(apply *command.ApplyJob) error {
	var p api.Problems
	p.Merge(apply.Validate())
	checkDrivers(&p, h.Log.View(), &apply.Spec)
	return p.Err("job " + string(apply.ID))
}

// checkDrivers refuses at once what no node could ever run: a task without what its
// driver needs to know, and one that mounts
// volumes with a driver of which every node says that it cannot. Where no node
// has the driver, the job may wait for one that does.
func checkDrivers(p *api.Problems, v state.View, spec *api.JobSpec) {
	for i := range spec.Groups {
		g := &spec.Groups[i]
		for j := range g.Tasks {
			t := &g.Tasks[j]
			if message, mend := t.LacksConfig(); message != "" {
				p.Add(fmt.Sprintf("group[%q].task[%q].config", g.Name, t.Name), message, mend)
			}
			switch lacks := everywhereLacks(v, g, t); {
			case lacks == "":
			case t.Driver == "raw_exec":
				p.Addf(fmt.Sprintf("group[%q].task[%q].driver", g.Name, t.Name),
					`use driver "exec", which can, or remove the task's volume_mount`,
					"is %q, which %s: it runs the command directly on the host", t.Driver, lacks)
			default:
				p.Addf(fmt.Sprintf("group[%q].task[%q].driver", g.Name, t.Name),
					`use driver "exec", which can, or remove the task's volume_mount`,
					"is %q, which %s on any node", t.Driver, lacks)
			}
		}
	}
}

// everywhereLacks says what a task wants that its driver can do on no node that
// has it, or "".
func everywhereLacks(v state.View, g *api.TaskGroup, t *api.Task) (lacks string) {
	for n := range v.Nodes() {
		if d, ok := n.Status.Drivers[t.Driver]; ok {
			if lacks = fit.Driver(d, g, t); lacks == "" {
				return ""
			}
		}
	}
	return lacks
}

func (h *Handler) stopJob(r *request) (any, error) {
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	by, err := r.user()
	if err != nil {
		return nil, err
	}
	id := api.JobID(r.PathValue("id"))
	if _, err := h.propose(r, &command.StopJob{Namespace: r.namespace(), ID: id, Version: version, By: by}); err != nil {
		return nil, err
	}
	v := h.Log.View()
	if job := v.Job(r.namespace(), id); job != nil {
		return h.jobInfo(v, job), nil
	}
	return nil, nil
}
