package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Allocation is one instance of a job's group on one node.
type Allocation struct {
	Meta
	ID        AllocID     `json:"id"`
	Namespace NamespaceID `json:"namespace"`
	JobID     JobID       `json:"job_id"`
	JobUID    string      `json:"job_uid"`
	// Revision is the revision of the job's spec that it runs.
	Revision uint64 `json:"revision"`
	Group    string `json:"group"`
	// Index is its number in the group, from 0.
	Index  int    `json:"index"`
	NodeID NodeID `json:"node_id"`
	// Ports are those that it has on its node, by the group's names.
	Ports []AllocatedPort `json:"ports,omitempty"` // PlaceAllocation
	// Resources are what it takes of its node until it has ended.
	Resources Resources `json:"resources,omitzero"` // PlaceAllocation
	// Desired is what the servers want, and DesiredReason why.
	Desired       AllocDesire `json:"desired"`                  // PlaceAllocation, StopAllocation
	DesiredReason string      `json:"desired_reason,omitempty"` // as Desired
	// Replaced: a successor was placed, or none is wanted.
	Replaced bool `json:"replaced,omitempty"` // PlaceAllocation, StopAllocation
	// Refused: it was stopped because its plugin has no room for a volume of its own
	// near its node. That counts as a failure.
	Refused bool `json:"refused,omitempty"` // StopAllocation
	// Failures counts the failed allocations before it at the same index, for
	// backoff.
	Failures int `json:"failures,omitempty"` // PlaceAllocation
	// Failing is when the first of these was placed.
	Failing time.Time `json:"failing,omitzero"` // PlaceAllocation
	// Running is since when it runs with none of its tasks started again.
	Running time.Time `json:"running,omitzero"` // ReportFacts
	// Passing is since when the checks pass that its health waits for, zero if one
	// does not.
	Passing time.Time `json:"passing,omitzero"` // ReportFacts, ReviseAllocation, RetakePlace
	// Faltered is when it was no longer healthy that had been: the first time
	// since it was so for SteadyTime without a break.
	Faltered time.Time `json:"faltered,omitzero"` // ReportFacts
	// Asked counts how often users asked for a restart of its tasks, by task;
	// AllTasks stands for all. It is a level: the node does what is missing.
	Asked map[string]int `json:"asked,omitempty"` // RestartAllocation
	// AskedBy is who asked for the last of these, by the caller's word.
	AskedBy string      `json:"asked_by,omitempty"` // RestartAllocation
	Status  AllocStatus `json:"status"`
}

// SteadyTime is how long an allocation must have gone well for what was before
// not to count any more.
const SteadyTime = 5 * time.Minute

// AllTasks stands for all of an allocation's tasks in Allocation.Asked. No task
// is called so.
const AllTasks = "*"

// RestartsAsked is how often users asked for a restart of the task.
func (a *Allocation) RestartsAsked(task string) int { return a.Asked[AllTasks] + a.Asked[task] }

// RestartRequest asks for a restart of one task of an allocation, or of all that
// run.
type RestartRequest struct {
	// Task is "" for all.
	Task string `json:"task,omitempty"`
	// Number is that of the request among those of the same kind, from 1: one
	// more than what Allocation.Asked counts. The same number sent again changes
	// nothing. 0 stands for the next.
	Number int `json:"number,omitempty"`
}

// AllocDesire is what the servers want of an allocation.
type AllocDesire string

// The desires.
const (
	DesireRun  AllocDesire = "run"
	DesireStop AllocDesire = "stop"
)

// AllocState is where an allocation is in its life. It only moves forward.
type AllocState string

// The allocation states.
const (
	AllocPending  AllocState = "pending"
	AllocRunning  AllocState = "running"
	AllocComplete AllocState = "complete" // ended as it should
	AllocFailed   AllocState = "failed"   // ended otherwise
	// AllocLost: its node was fenced, so that it counts as ended. Nobody knows how
	// it came to that, and it is no failure of its own.
	AllocLost AllocState = "lost"
)

// AllocStatus is the agent's word. Its only writer is ReportFacts, until the
// servers end what the agent cannot speak for: RegisterNode, FenceNode.
type AllocStatus struct {
	State AllocState `json:"state"`
	// Problem is what keeps it from running or from ending.
	Problem *Problem              `json:"problem,omitempty"`
	Tasks   map[string]TaskStatus `json:"tasks,omitempty"`
	Ended   time.Time             `json:"ended,omitzero"`
	// Events are the last that the drivers said of the tasks' starts, oldest
	// first.
	Events []TaskEvent `json:"events,omitempty"`
	// Checks are those of its services, in their order.
	Checks []CheckStatus `json:"checks,omitempty"`
}

// Check is how a check is, or nil.
func (s *AllocStatus) Check(service, name string) *CheckStatus {
	for i := range s.Checks {
		if s.Checks[i].Service == service && s.Checks[i].Name == name {
			return &s.Checks[i]
		}
	}
	return nil
}

// Passes reports whether the checks of a group's services pass that the health
// of its allocations waits for.
func (s *AllocStatus) Passes(g *TaskGroup) bool {
	for i := range g.Services {
		for j := range g.Services[i].Checks {
			c := &g.Services[i].Checks[j]
			if c.OnUpdate == OnUpdateIgnore {
				continue
			}
			if is := s.Check(g.Services[i].Name, c.Name); is == nil || is.Status != CheckPassing {
				return false
			}
		}
	}
	return true
}

// TaskEvent is what a driver says of the start of a task: an image that is
// pulled, a right that is not to be had. It may also be the node's word about the
// health of a plugin that serves the allocation's volumes.
type TaskEvent struct {
	Time time.Time `json:"time"`
	// Task is empty where the whole allocation is meant.
	Task    string `json:"task"`
	Message string `json:"message"`
}

// MaxTaskEvents bounds the events that are kept of an allocation.
const MaxTaskEvents = 10

// TaskState is where a task is.
type TaskState string

// The task states.
const (
	TaskPending TaskState = "pending"
	TaskRunning TaskState = "running"
	TaskEnded   TaskState = "ended"
)

// TaskStatus is the agent's word on one task.
type TaskStatus struct {
	State    TaskState `json:"state"`
	PID      int       `json:"pid,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	ExitCode int       `json:"exit_code,omitempty"`
	// Signal is the number of the signal that ended it, 0 for none.
	Signal int `json:"signal,omitempty"`
	// Reason says in words how it ended, if not by itself.
	Reason string `json:"reason,omitempty"`
	// Dir is where its logs and local files are on the node.
	Dir string `json:"dir,omitempty"`
	// Restarts is how often it was started again in this allocation, and Last
	// how it ended before. A task that is pending is started again at Next.
	Restarts int       `json:"restarts,omitempty"`
	Last     TaskEnd   `json:"last,omitzero"`
	Next     time.Time `json:"next,omitzero"`
	// Attempts are the restarts that its restart policy has counted since Since.
	Attempts int       `json:"attempts,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	// Asked is how many of the restarts that users asked for are done.
	Asked int `json:"asked,omitempty"`
	// Poststop: it runs when the others have ended, and how it ends says nothing
	// of the allocation's end.
	Poststop bool `json:"poststop,omitempty"`
}

// TaskEnd is how a task ended.
type TaskEnd struct {
	Ended    time.Time `json:"ended,omitzero"`
	ExitCode int       `json:"exit_code,omitempty"`
	Signal   int       `json:"signal,omitempty"`
	Reason   string    `json:"reason,omitempty"`
}

// End is how the task ended, if it has.
func (t *TaskStatus) End() TaskEnd {
	return TaskEnd{Ended: t.Ended, ExitCode: t.ExitCode, Signal: t.Signal, Reason: t.Reason}
}

// Succeeded reports whether it ended as it should.
func (e TaskEnd) Succeeded() bool { return e.ExitCode == 0 && e.Signal == 0 && e.Reason == "" }

// Why is how the allocation came to its end, in a few words, or "".
func (s *AllocStatus) Why() string {
	if s.Problem != nil {
		return s.Problem.Message
	}
	for _, name := range slices.Sorted(maps.Keys(s.Tasks)) {
		t := s.Tasks[name]
		var why string
		switch {
		case t.Poststop:
			continue
		case t.Reason != "":
			why = ": " + t.Reason
		case t.Signal != 0:
			why = fmt.Sprintf(" was ended by signal %d", t.Signal)
		case t.ExitCode != 0:
			why = fmt.Sprintf(" exited with status %d", t.ExitCode)
		default:
			continue
		}
		switch t.Restarts {
		case 0:
		case 1:
			why += ", after a restart"
		default:
			why += fmt.Sprintf(", after %d restarts", t.Restarts)
		}
		return "task " + name + why
	}
	return ""
}

// Runs reports whether the allocation runs and is to go on. One whose tasks have
// all ended does not, although its volumes are still to be unmounted before it
// counts as ended.
func (a *Allocation) Runs() bool {
	if a.Status.State != AllocRunning || a.Desired == DesireStop {
		return false
	}
	for _, t := range a.Status.Tasks {
		if t.State != TaskEnded && !t.Poststop {
			return true
		}
	}
	return len(a.Status.Tasks) == 0
}

// NewAllocID is the id of the serial-th allocation of a job. It is derived,
// because a controller that places has no random source.
func NewAllocID(jobUID string, serial uint64) AllocID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", jobUID, serial))
	return AllocID(hex.EncodeToString(sum[:16]))
}

// Terminal reports whether the state is an end.
func (s AllocState) Terminal() bool {
	return s == AllocComplete || s == AllocFailed || s == AllocLost
}

// Terminal reports whether the allocation has ended on its node.
func (a *Allocation) Terminal() bool { return a.Status.State.Terminal() }

// Name is what people call the allocation: job.group[0].
func (a *Allocation) Name() string { return fmt.Sprintf("%s.%s[%d]", a.JobID, a.Group, a.Index) }
