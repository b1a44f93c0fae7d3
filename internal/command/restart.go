package command

import (
	"maps"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// RestartAllocation says that a task of an allocation, or all of them, are to
// be started again where they are.
type RestartAllocation struct {
	ID api.AllocID `json:"id"`
	// Task is a name, or api.AllTasks.
	Task string `json:"task"`
	// Number is the restart's among those of Task, from 1.
	Number int `json:"number"`
	// By is who asks, by the caller's word.
	By string `json:"by,omitempty"`
}

// Kind implements Command.
func (*RestartAllocation) Kind() Kind { return "allocation.restart" }

// Validate implements Command.
func (c *RestartAllocation) Validate() error {
	var p api.Problems
	if c.Task != api.AllTasks {
		p.Name("task", c.Task)
	}
	if c.Number < 1 {
		p.Addf("number", "count from 1", "is %d", c.Number)
	}
	validateBy(&p, c.By)
	return p.Err("the restart")
}

// Apply implements Command. What was asked for already changes nothing.
func (c *RestartAllocation) Apply(tx *state.Tx) error {
	alloc := tx.Allocation(c.ID)
	switch {
	case alloc == nil:
		return api.Errorf(api.CodeNotFound, "allocation %s does not exist", c.ID.Short())
	case c.Number <= alloc.Asked[c.Task]:
		return nil
	case c.Number > alloc.Asked[c.Task]+1:
		return conflict("allocation %s was asked for %d restarts of this kind, and this would be number %d", c.ID.Short(), alloc.Asked[c.Task], c.Number)
	case alloc.Terminal():
		return conflict("allocation %s has ended: it is %s", c.ID.Short(), alloc.Status.State)
	case alloc.Desired != api.DesireRun:
		return conflict("allocation %s is to end: %s", c.ID.Short(), alloc.DesiredReason)
	}
	if c.Task != api.AllTasks {
		task, known := alloc.Status.Tasks[c.Task]
		if !known {
			return api.Errorf(api.CodeNotFound, "allocation %s runs no task %s", c.ID.Short(), c.Task)
		}
		if task.State == api.TaskEnded {
			return conflict("task %s of allocation %s has ended, and is not started again", c.Task, c.ID.Short())
		}
	}
	next := *alloc
	next.Asked = maps.Clone(alloc.Asked)
	if next.Asked == nil {
		next.Asked = map[string]int{}
	}
	next.Asked[c.Task], next.AskedBy = c.Number, c.By
	tx.PutAllocation(&next)
	tx.Touch(alloc.NodeID)
	return nil
}
