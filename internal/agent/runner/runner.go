// Package runner is the shape of what runs one allocation, and how a node gets
// one for each.
//
// It never runs anything. Invariant: a node's agent knows its runners by this
// shape only, so that a simulator can put others in their place, and thousands
// of agents fit into a process that starts no task and mounts nothing.
package runner

import (
	"context"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// Runner runs one allocation. All but Work may be called at any time, from any
// goroutine, and do not wait.
type Runner interface {
	// ID is the allocation's.
	ID() api.AllocID
	// Work runs the allocation until ctx ends, or until it has ended and Stop has
	// been called: then nothing is left of it, and its record is gone. An error
	// is a fault of the node; Work is called again. It may also return because
	// there is nothing to do, and then rests until something is said to it.
	Work(ctx context.Context) (rests bool, err error)
	// Addressed reports whether something was said that Work has not heard, and
	// takes note of it.
	Addressed() bool
	// Update takes a newer assignment. The servers may repeat one.
	Update(a api.AllocAssignment)
	// Stop says that the servers do not know the allocation any more: it ends if
	// it has not, and is forgotten.
	Stop()
	// Again takes an allocation that is down, down once more, and says so again.
	Again()
	// Retry has what failed tried again now.
	Retry()
	// Note has something reported of a task, for people.
	Note(task, message string)
	// Running are the tasks that run, with how often each was started again.
	Running() map[*api.Task]int
	// Phase is where it is between up and down, as its record has it.
	Phase() localdb.Phase
	// Attached are the volumes that the provider may have attached for it.
	Attached() []api.LeftVolume
	// Needs reports whether it has a volume of a plugin, and Serves is the plugins
	// that its tasks are.
	Needs(plugin api.PluginID) bool
	Serves() []api.PluginID
	// Dir is its directory, which is there until it is forgotten, and Over reports
	// whether a task writes nothing there any more.
	Dir() string
	Over(task string) bool
}

// Memory is where a runner records what it must be able to undo: before it does
// anything, and until nothing is left of it.
type Memory interface {
	PutAllocation(a *localdb.Allocation) error
	DeleteAllocation(id api.AllocID) error
}

// Facts is where a runner says how its allocation is, and its volumes.
type Facts interface {
	SetAllocation(f api.AllocFact)
	SetAttachment(f api.AttachmentFact)
	SetPublication(f api.PublicationFact)
	ForgetAllocation(id api.AllocID, attachments []string)
}

// Node is what a runner has of its node.
type Node struct {
	Memory Memory
	Facts  Facts
	// Down is to be told when nothing of an allocation runs or is mounted any
	// more, and again after Again.
	Down func(id api.AllocID)
}

// Factory makes the runner of a new allocation, or of one that was recorded. It
// starts nothing.
type Factory func(n Node, record localdb.Allocation) Runner
