package localdb

import (
	"go.etcd.io/bbolt"

	"github.com/berth-dev/berth/api"
)

// Phase is how far a node is with an allocation.
type Phase string

// The phases. They only move forward.
const (
	// PhaseUp: hooks have been, or are being, brought up.
	PhaseUp Phase = "up"
	// PhaseDown: they are being taken down.
	PhaseDown Phase = "down"
	// PhaseDone: all are down; what is left are the logs.
	PhaseDone Phase = "done"
)

// Allocation is everything that a node must know to run an allocation without
// a server, and to undo it.
type Allocation struct {
	Phase      Phase               `json:"phase"`
	Assignment api.AllocAssignment `json:"assignment"`
	Status     api.AllocStatus     `json:"status"`
}

// PutAllocation stores an allocation. One that begins is refused on a full disk
// with a *FullError.
func (db *DB) PutAllocation(a *Allocation) error {
	key := string(a.Assignment.ID)
	return db.transact("store allocation "+a.Assignment.ID.Short(),
		func(tx *bbolt.Tx) error { return put(tx, bucketAllocations, key, a) },
		func(tx *bbolt.Tx) bool { return a.Phase == PhaseUp && lacks(tx, bucketAllocations, key) })
}

// DeleteAllocation forgets an allocation.
func (db *DB) DeleteAllocation(id api.AllocID) error {
	return db.write("forget allocation "+id.Short(), func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketAllocations)).Delete([]byte(id))
	})
}

// Allocations reads all allocations.
func (db *DB) Allocations() ([]Allocation, error) { return all[Allocation](db, bucketAllocations) }
