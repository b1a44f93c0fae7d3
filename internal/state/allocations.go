package state

import (
	"iter"

	"github.com/berth-dev/berth/api"
)

const (
	allocationsByJob = iota + 1
	allocationsLive
	allocationsByNode
	allocationsEnded
)

func allocationsTable() *table[api.Allocation] {
	return define[api.Allocation](tableAllocations,
		unique(primary, func(b []byte, a *api.Allocation) []byte { return appendKey(b, string(a.ID)) }),
		shared(allocationsByJob, func(b []byte, a *api.Allocation) []byte { return appendKey(b, a.JobUID, a.Group, number(a.Index)) }),
		shared(allocationsLive, func(b []byte, a *api.Allocation) []byte {
			if a.Terminal() && a.Replaced {
				return nil
			}
			return appendKey(b, a.JobUID, a.Group, number(a.Index))
		}),
		shared(allocationsByNode, func(b []byte, a *api.Allocation) []byte { return appendKey(b, string(a.NodeID)) }),
		shared(allocationsEnded, func(b []byte, a *api.Allocation) []byte {
			if !a.Terminal() {
				return nil
			}
			return appendKey(b, timePart(a.ModifyTime))
		}),
	)
}

// Allocation is the allocation of that id, or nil.
func (v View) Allocation(id api.AllocID) *api.Allocation {
	return first[api.Allocation](v, tableAllocations, primary, key(string(id)))
}

// Allocations yields all allocations by id.
func (v View) Allocations() iter.Seq[*api.Allocation] {
	return rows[api.Allocation](v, tableAllocations, primary, nil)
}

// AllocationsWithPrefix yields the allocations whose id begins with prefix.
func (v View) AllocationsWithPrefix(prefix string) iter.Seq[*api.Allocation] {
	return rows[api.Allocation](v, tableAllocations, primary, []byte(prefix))
}

// JobAllocations yields the allocations of a job, by its UID, place by place.
func (v View) JobAllocations(uid string) iter.Seq[*api.Allocation] {
	return rows[api.Allocation](v, tableAllocations, allocationsByJob, key(uid))
}

// EveryPlaceAllocation yields the allocations that have, or had, a place in a
// group, until they are forgotten.
func (v View) EveryPlaceAllocation(uid, group string, index int) iter.Seq[*api.Allocation] {
	return rows[api.Allocation](v, tableAllocations, allocationsByJob, key(uid, group, number(index)))
}

// LiveAllocations yields the allocations of a job that the scheduler still
// has to think of: those that run, and those that ended without a successor.
func (v View) LiveAllocations(uid string) iter.Seq[*api.Allocation] {
	return rows[api.Allocation](v, tableAllocations, allocationsLive, key(uid))
}

// PlaceAllocations yields the allocations that have a place in a group, of
// those that the scheduler still has to think of: one, or none, and those that
// go when it is healthy (Replaced).
func (v View) PlaceAllocations(uid, group string, index int) iter.Seq[*api.Allocation] {
	return rows[api.Allocation](v, tableAllocations, allocationsLive, key(uid, group, number(index)))
}

// NodeAllocations yields the allocations on a node.
func (v View) NodeAllocations(node api.NodeID) iter.Seq[*api.Allocation] {
	return rows[api.Allocation](v, tableAllocations, allocationsByNode, key(string(node)))
}

// EndedAllocations yields the allocations that have ended, oldest first.
func (v View) EndedAllocations() iter.Seq[*api.Allocation] {
	return rows[api.Allocation](v, tableAllocations, allocationsEnded, nil)
}

// AllocationsIndex is when an allocation was last written.
func (v View) AllocationsIndex() uint64 { return v.modified(tableAllocations) }

// PutAllocation stores a new allocation, or a changed copy.
func (tx *Tx) PutAllocation(a *api.Allocation) { put(tx, tableAllocations, a) }

// DeleteAllocation removes an allocation that is there.
func (tx *Tx) DeleteAllocation(a *api.Allocation) { remove(tx, tableAllocations, a) }
