package hook

import (
	"iter"

	"github.com/berth-dev/berth/api"
)

// stages are when tasks are started, in order.
func stages() []api.LifecycleHook {
	return []api.LifecycleHook{api.HookPrestart, "", api.HookPoststart}
}

// due are the tasks that may run by now, in the order of their starts. How far
// that is follows from how the tasks of the stages before are, each time anew:
// there is nothing else that could be lost.
func due(group *api.TaskGroup, status func() map[string]api.TaskStatus) iter.Seq[*api.Task] {
	return func(yield func(*api.Task) bool) {
		for _, stage := range stages() {
			for i := range group.Tasks {
				if t := &group.Tasks[i]; t.Hook() == stage && !yield(t) {
					return
				}
			}
			if !passed(group, stage, status()) {
				return
			}
		}
	}
}

// passed reports whether the tasks of a stage leave the next one its turn.
func passed(group *api.TaskGroup, stage api.LifecycleHook, tasks map[string]api.TaskStatus) bool {
	for i := range group.Tasks {
		t := &group.Tasks[i]
		if t.Hook() != stage {
			continue
		}
		is := tasks[t.Name]
		toItsEnd := stage == api.HookPrestart && !t.Sidecar()
		if toItsEnd && (is.State != api.TaskEnded || !is.End().Succeeded()) || !ran(is) {
			return false
		}
	}
	return true
}

// ran reports whether a task was started at least once.
func ran(is api.TaskStatus) bool {
	return is.State != "" && (is.State != api.TaskPending || is.Restarts > 0)
}

// leaving are the tasks in the order in which they are stopped, those of one
// part at once.
func leaving(group *api.TaskGroup) [][]*api.Task {
	parts := make([][]*api.Task, 3)
	for i := range group.Tasks {
		switch t := &group.Tasks[i]; {
		case t.Hook() == api.HookPoststop: // its turn comes then
		case t.Leader:
			parts[0] = append(parts[0], t)
		case t.Hook() == api.HookPrestart:
			parts[2] = append(parts[2], t)
		default:
			parts[1] = append(parts[1], t)
		}
	}
	return parts
}
