package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
	// Desired is what the servers want, and DesiredReason why.
	Desired       AllocDesire `json:"desired"`                  // PlaceAllocation, StopAllocation
	DesiredReason string      `json:"desired_reason,omitempty"` // as Desired
	// Replaced: a successor was placed, or none is wanted.
	Replaced bool `json:"replaced,omitempty"` // PlaceAllocation, StopAllocation
	// Failures counts the failed allocations before it at the same index, for
	// backoff.
	Failures int         `json:"failures,omitempty"` // PlaceAllocation
	Status   AllocStatus `json:"status"`
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
)

// AllocStatus is the agent's word. Its only writer is ReportFacts.
type AllocStatus struct {
	State AllocState `json:"state"`
	// Problem is what keeps it from running or from ending.
	Problem *Problem              `json:"problem,omitempty"`
	Tasks   map[string]TaskStatus `json:"tasks,omitempty"`
	Ended   time.Time             `json:"ended,omitzero"`
}

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
}

// NewAllocID is the id of the serial-th allocation of a job. It is derived,
// because a controller that places has no random source.
func NewAllocID(jobUID string, serial uint64) AllocID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", jobUID, serial))
	return AllocID(hex.EncodeToString(sum[:16]))
}

// Terminal reports whether the state is an end.
func (s AllocState) Terminal() bool { return s == AllocComplete || s == AllocFailed }

// Terminal reports whether the allocation has ended on its node.
func (a *Allocation) Terminal() bool { return a.Status.State.Terminal() }

// Name is what people call the allocation: job.group[0].
func (a *Allocation) Name() string { return fmt.Sprintf("%s.%s[%d]", a.JobID, a.Group, a.Index) }
