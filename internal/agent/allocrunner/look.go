package allocrunner

import (
	"cmp"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// Dir is the allocation's directory on the host. It is there until the servers
// know the allocation no more.
func (r *Runner) Dir() string { return r.step.Dir }

// Over reports whether a task writes nothing any more: it has ended, or the
// allocation has, without ever starting it.
func (r *Runner) Over(task string) bool {
	return r.phase() == localdb.PhaseDone || r.step.Tasks()[task].State == api.TaskEnded
}

// Serves is the CSI plugins that tasks of the allocation are.
func (r *Runner) Serves() (plugins []api.PluginID) {
	if group := r.step.Assignment().Group; group != nil {
		for i := range group.Tasks {
			if c := group.Tasks[i].CSIPlugin; c != nil {
				plugins = append(plugins, c.ID)
			}
		}
	}
	return plugins
}

// Needs reports whether the allocation has a volume of a plugin.
func (r *Runner) Needs(id api.PluginID) bool {
	return slices.ContainsFunc(r.step.Assignment().Attachments, func(at api.AttachmentAssignment) bool { return at.Attachment.PluginID == id })
}

// Retry has what failed tried again now.
func (r *Runner) Retry() { r.nudge() }

// Note says something of a task to people, beside what its start is about.
func (r *Runner) Note(task, message string) { r.step.Say(task, message) }

// Phase is where the allocation is between up and down.
func (r *Runner) Phase() localdb.Phase { return cmp.Or(r.phase(), localdb.PhaseUp) }

// Running are the tasks that run, with how often each was started again before.
func (r *Runner) Running() map[*api.Task]int {
	running := map[*api.Task]int{}
	group, tasks := r.step.Assignment().Group, r.step.Tasks()
	if group == nil {
		return running
	}
	for i := range group.Tasks {
		if is := tasks[group.Tasks[i].Name]; is.State == api.TaskRunning {
			running[&group.Tasks[i]] = is.Restarts
		}
	}
	return running
}
