package state

import (
	"github.com/berth-dev/berth/api"
)

// AssignmentVersion says when what a node is to do last changed. There is
// always one for every node, so that a change wakes only the agent that it
// concerns: a row that is absent could only be watched together with its
// neighbours.
type AssignmentVersion struct {
	NodeID api.NodeID `json:"node_id"`
	Index  uint64     `json:"index"`
	// Count rises with every change, also in a fork, which has no index.
	Count uint64 `json:"count"`
	// Allocations is when its allocations last changed, if only its operations
	// have since; 0 if they are what changed last.
	Allocations uint64 `json:"allocations,omitempty"`
}

// AllocationsIndex is when the allocations of the node last changed.
func (a *AssignmentVersion) AllocationsIndex() uint64 {
	if a.Allocations > 0 {
		return a.Allocations
	}
	return a.Index
}

func assignmentsTable() *table[AssignmentVersion] {
	return define[AssignmentVersion](tableAssignments, unique(primary, func(b []byte, a *AssignmentVersion) []byte { return appendKey(b, string(a.NodeID)) }))
}

// AssignmentVersion is the node's, or nil if the node is unknown.
func (v View) AssignmentVersion(id api.NodeID) *AssignmentVersion {
	return first[AssignmentVersion](v, tableAssignments, primary, key(string(id)))
}

// Touch notes that what the node is to do has changed. Commit writes its
// version, once.
func (tx *Tx) Touch(id api.NodeID) { tx.touched[id] = true }

// TouchOperations is Touch where only the operations of the node have changed,
// and none of its allocations.
func (tx *Tx) TouchOperations(id api.NodeID) {
	if !tx.touched[id] {
		tx.touched[id] = false
	}
}

func (tx *Tx) writeAssignmentVersion(id api.NodeID) {
	if tx.Node(id) == nil {
		return // it was forgotten, and has nothing to hear of
	}
	next := AssignmentVersion{NodeID: id, Index: tx.index, Count: 1}
	if old := tx.AssignmentVersion(id); old != nil {
		next.Count = old.Count + 1
		if !tx.touched[id] {
			next.Allocations = old.AllocationsIndex()
		}
	}
	insert(tx, tableAssignments, &next)
}
