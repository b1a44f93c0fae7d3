package api

import (
	"encoding/json"
	"time"
)

// ChangeKind is what became of a field.
type ChangeKind string

// The kinds of changes.
const (
	Added   ChangeKind = "added"
	Removed ChangeKind = "removed"
	Changed ChangeKind = "changed"
)

// Change is one difference between two specs. A block that comes or goes is
// one, and each of its fields another.
type Change struct {
	// Path names the field in the words of the files: group["db"].task["pg"].driver.
	Path string     `json:"path"`
	Kind ChangeKind `json:"kind"`
	// Old and New are the values as JSON; a block has none. Where the named
	// blocks of a list are in another order, they are the names.
	Old json.RawMessage `json:"old,omitempty"`
	New json.RawMessage `json:"new,omitempty"`
}

// PlanAction is what applying a spec would do to the object.
type PlanAction string

// The plan actions.
const (
	PlanCreate PlanAction = "create" // there is none yet
	PlanChange PlanAction = "change"
	PlanStart  PlanAction = "start" // a job that was stopped, perhaps changed
	PlanNone   PlanAction = "none"  // it is so already
)

// PlanRequest are specs that would be applied one after the other: the volumes,
// then the jobs. Each object is there once.
type PlanRequest struct {
	Volumes []PlanVolume `json:"volumes,omitempty"`
	Jobs    []PlanJob    `json:"jobs,omitempty"`
}

// PlanVolume is a volume's spec in a PlanRequest.
type PlanVolume struct {
	Namespace NamespaceID `json:"namespace"`
	ID        VolumeID    `json:"id"`
	Spec      VolumeSpec  `json:"spec"`
	// Version is the one that the object must have; 0 for any.
	Version uint64 `json:"version,omitempty"`
}

// PlanJob is a job's spec in a PlanRequest.
type PlanJob struct {
	Namespace NamespaceID `json:"namespace"`
	ID        JobID       `json:"id"`
	Spec      JobSpec     `json:"spec"`
	// Version is the one that the object must have; 0 for any.
	Version uint64 `json:"version,omitempty"`
}

// Plan is what applying specs would do. Nothing of it was done.
type Plan struct {
	// Index is that of the state that the plan was made on.
	Index   uint64       `json:"index"`
	Volumes []VolumePlan `json:"volumes"`
	Jobs    []JobPlan    `json:"jobs"`
}

// VolumePlan is what applying a volume's spec would do.
type VolumePlan struct {
	Namespace NamespaceID `json:"namespace"`
	ID        VolumeID    `json:"id"`
	Action    PlanAction  `json:"action"`
	// Version is what a conditional apply of this plan gives; 0 for a new volume.
	Version uint64 `json:"version"`
	// Changes are empty for a new volume.
	Changes []Change `json:"changes"`
	// Waits is what keeps the volume from being made or changed now: a plugin
	// that no node runs, or that cannot do what is asked.
	Waits []Wait `json:"waits,omitempty"`
	// Warnings are those that come with the answer to applying it.
	Warnings []Field `json:"warnings,omitempty"`
}

// JobPlan is what applying a job's spec would do: what the scheduler does next,
// until it has to wait for somebody else.
type JobPlan struct {
	Namespace NamespaceID `json:"namespace"`
	ID        JobID       `json:"id"`
	Action    PlanAction  `json:"action"`
	// Version is what a conditional apply of this plan gives; 0 for a new job.
	Version uint64 `json:"version"`
	// Revision is the job's afterwards.
	Revision uint64 `json:"revision"`
	// Reverted says that the job would go back to an older revision at once.
	Reverted *Reversion `json:"reverted,omitempty"`
	// Changes are empty for a new job.
	Changes []Change `json:"changes"`

	// Create are the volumes that would be made for it: of families, and those that
	// go with their allocations.
	Create []PlannedVolume `json:"create,omitempty"`

	Start []PlannedStart `json:"start"`
	Stop  []PlannedStop  `json:"stop"`
	Keep  []PlannedKeep  `json:"keep"`
	// InPlace are those that would go on and follow the new revision, with
	// nothing started again.
	InPlace []PlannedKeep `json:"in_place,omitempty"`
	// Waits is what could not be done at once, and why.
	Waits []Wait `json:"waits"`
	// TurnedDown says of each group that would be placed, or cannot be, which
	// nodes were looked at and will not do.
	TurnedDown []TurnedDown `json:"turned_down"`
	// Cut: the scheduler would do still more, and the plan was ended.
	Cut bool `json:"cut,omitempty"`
	// Warnings are those that come with the answer to applying it.
	Warnings []Field `json:"warnings,omitempty"`
}

// PlannedVolume is a volume that would be made: like another of its family, or for an
// allocation, with which it goes.
type PlannedVolume struct {
	// ID is empty for an allocation's own, which is named for the allocation.
	ID VolumeID `json:"id,omitempty"`
	// From is the volume of its family that it is made like.
	From VolumeID `json:"from,omitempty"`
	// Request is the allocation's that it is for, Group and Index are its place, and
	// NodeID is where it is made, if it goes with one.
	Request string `json:"request,omitempty"`
	Group   string `json:"group,omitempty"`
	Index   int    `json:"index,omitempty"`
	NodeID  NodeID `json:"node_id,omitempty"`

	PluginID PluginID `json:"plugin_id"`
	// CapacityMin and CapacityMax bound its size in bytes; 0 is left to the plugin.
	CapacityMin int64 `json:"capacity_min,omitempty"`
	CapacityMax int64 `json:"capacity_max,omitempty"`
	// Topologies are those of which the plugin may choose one; empty is any.
	Topologies []Topology `json:"topologies,omitempty"`
	// Waits is what keeps it from being made now.
	Waits []Wait `json:"waits,omitempty"`
}

// PlannedStart is an allocation that would be placed.
type PlannedStart struct {
	Group  string `json:"group"`
	Index  int    `json:"index"`
	NodeID NodeID `json:"node_id"`
	// Replaces is the ended allocation that it follows.
	Replaces AllocID `json:"replaces,omitempty"`
	// Beside: that one runs, and is stopped when this one is healthy.
	Beside bool `json:"beside,omitempty"`
	// After are volumes of the same plan that have to be made first. The plugin
	// may choose where, and the node may then be another one.
	After []VolumeID `json:"after,omitempty"`
}

// PlannedStop is an allocation that would be told to end.
type PlannedStop struct {
	ID     AllocID `json:"id"`
	Group  string  `json:"group"`
	Index  int     `json:"index"`
	NodeID NodeID  `json:"node_id"`
	Reason string  `json:"reason"`
}

// PlannedKeep is an allocation that would go on.
type PlannedKeep struct {
	ID     AllocID `json:"id"`
	Group  string  `json:"group"`
	Index  int     `json:"index"`
	NodeID NodeID  `json:"node_id"`
}

// TurnedDown is why nodes were turned down for a group, the most frequent
// reason first.
type TurnedDown struct {
	Group   string             `json:"group"`
	Nodes   int                `json:"nodes"`
	Reasons []TurnedDownReason `json:"reasons"`
}

// TurnedDownReason is a reason that one or several nodes have in common.
type TurnedDownReason struct {
	Reason string `json:"reason"`
	Nodes  int    `json:"nodes"`
	// Names are the first of the nodes.
	Names []NodeID `json:"names"`
}

// JobRevision is one spec that was applied for a job.
type JobRevision struct {
	Revision uint64 `json:"revision"`
	// Applied is when; zero if that was not noted.
	Applied time.Time `json:"applied,omitzero"`
	// Current: it is what the job asks for now.
	Current bool `json:"current"`
	// Stable: it is the newest that was healthy everywhere.
	Stable bool `json:"stable"`
	// Changes are those since the revision before, if that is known.
	Changes []Change `json:"changes"`
	// Spec is there where one revision is read.
	Spec *JobSpec `json:"spec,omitempty"`
}

// Revert asks for a job to be as one of its revisions was.
type Revert struct {
	Revision uint64 `json:"revision"`
	// Version is the one that the job must have; 0 for any.
	Version uint64 `json:"version,omitempty"`
}

// Scale asks for another number of a group's allocations.
type Scale struct {
	// Group may be empty where the job has one.
	Group string `json:"group,omitempty"`
	// Count is needed.
	Count *int `json:"count"`
	// Version is the one that the job must have; 0 for any.
	Version uint64 `json:"version,omitempty"`
}
