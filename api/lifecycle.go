package api

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Lifecycle makes a task one that runs around the group's main tasks, which are
// those without.
type Lifecycle struct {
	Hook LifecycleHook `json:"hook"`
	// Sidecar tasks run on beside the main ones; the others run to their end.
	Sidecar bool `json:"sidecar,omitempty"`
}

// LifecycleHook is when a task is started.
type LifecycleHook string

// The lifecycle hooks.
const (
	// HookPrestart: before the main tasks, which wait until it has succeeded, or,
	// if it is a sidecar, until it runs.
	HookPrestart LifecycleHook = "prestart"
	// HookPoststart: when the main tasks run.
	HookPoststart LifecycleHook = "poststart"
	// HookPoststop: when all others have ended, however they did, while the
	// volumes are still mounted.
	HookPoststop LifecycleHook = "poststop"
)

// LifecycleHooks lists all hooks, for validation and documentation.
func LifecycleHooks() []LifecycleHook {
	return []LifecycleHook{HookPrestart, HookPoststart, HookPoststop}
}

// DefaultPoststopTime is how long a run of a poststop task may take that says
// nothing else.
const DefaultPoststopTime = 5 * time.Minute

// PoststopTime is how long one run of a poststop task may take: the allocation's
// volumes wait for its end.
func (t *Task) PoststopTime() time.Duration {
	return cmp.Or(time.Duration(t.KillTimeout), DefaultPoststopTime)
}

// Main reports whether it is one of the tasks for which the group is there.
func (t *Task) Main() bool { return t.Lifecycle == nil }

// Hook is when the task is started, "" for a main one.
func (t *Task) Hook() LifecycleHook {
	if t.Lifecycle == nil {
		return ""
	}
	return t.Lifecycle.Hook
}

// Sidecar reports whether it runs beside the main tasks as long as they do.
func (t *Task) Sidecar() bool { return t.Lifecycle != nil && t.Lifecycle.Sidecar }

// validateLifecycles reports tasks that do not go together.
func (g *TaskGroup) validateLifecycles(p *Problems, path string) {
	mains := 0
	var leaders []string
	for i := range g.Tasks {
		t := &g.Tasks[i]
		at := fmt.Sprintf("%s.task[%q]", path, t.Name)
		if t.Main() {
			mains++
		} else {
			oneOf(p, at+".lifecycle.hook", t.Lifecycle.Hook, LifecycleHooks()...)
		}
		if t.Hook() == HookPoststop && t.Sidecar() {
			p.Add(at+".lifecycle.sidecar", "is true, and a poststop task has no main tasks to run beside", "remove it")
		}
		if t.Hook() == HookPoststop && t.CSIPlugin != nil {
			p.Add(at+".csi_plugin", "makes no sense in a poststop task, which runs to its end", "remove one of the two")
		}
		if t.Leader {
			leaders = append(leaders, t.Name)
		}
		if t.Leader && !t.Main() {
			p.Add(at+".leader", "goes with no lifecycle: only a main task leads", "remove one of the two")
		}
	}
	if mains == 0 && len(g.Tasks) > 0 {
		p.Add(path+".task", "has a lifecycle in every block, and tasks with one run around main tasks", "leave lifecycle out of one")
	}
	if len(leaders) > 1 {
		p.Addf(path+".task", "leave leader out of the others", "has %d leaders: %s", len(leaders), strings.Join(leaders, ", "))
	}
}
