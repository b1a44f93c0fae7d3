package state

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
)

// Tx is the one write transaction. It reads its own writes. What it writes
// becomes visible at Commit, all at once.
type Tx struct {
	View
	index   uint64
	now     time.Time
	writes  int                 // rows that were put or removed
	tables  [tableCount]bool    // tables that were written
	writing [tableCount]writer  // what was written to them, nil for nothing
	touched map[api.NodeID]bool // nodes whose assignments changed: true if allocations did
	// generation is what Commit writes to; nil for a fork.
	generation *generation
	// publishes: somebody may wait for what the transaction changes.
	publishes bool
	done      bool
	// observer hears of the commit; nil for a fork.
	observer Observer
	changes  []Change
	bytes    int
}

// Now is the command time of the entry that is applied. It never runs backwards.
func (tx *Tx) Now() time.Time { return tx.now }

// Index is the log index of the entry that is applied. It serves polling only:
// a fork does not know it.
func (tx *Tx) Index() uint64 { return tx.index }

// At sets the command time for what follows: for forks, which see many entries,
// and for an entry whose time is behind the log's.
func (tx *Tx) At(now time.Time) { tx.now = now }

// Writes counts the rows that were put or removed.
func (tx *Tx) Writes() int { return tx.writes }

// Commit makes the writes visible.
func (tx *Tx) Commit() {
	for _, node := range slices.Sorted(maps.Keys(tx.touched)) {
		if tx.Node(node) != nil { // one that was forgotten has nothing to do
			tx.writeAssignmentVersion(node)
		}
	}
	tx.writeIndexes()
	tx.generation.db.Store(tx.db.modifiedBy(tx))
	for _, w := range tx.writing {
		if w != nil {
			w.published()
		}
	}
	tx.done = true
	tx.generation.writing.Unlock()
	tx.tell()
}

// Abort forgets the writes. After Commit it does nothing.
func (tx *Tx) Abort() {
	if !tx.done {
		tx.done = true
		if tx.generation != nil {
			tx.generation.writing.Unlock()
		}
	}
}

// stamped is a row that carries api.Meta.
type stamped[T any] interface {
	*T
	GetMeta() *api.Meta
}

// put stores a new row, or a changed copy of the stored one, and stamps it.
func put[T any, P stamped[T]](tx *Tx, table tableID, row P) {
	meta := row.GetMeta()
	if meta.Version == 0 {
		meta.CreateIndex, meta.CreateTime = tx.index, tx.now
	}
	meta.Version++
	meta.ModifyIndex, meta.ModifyTime = tx.index, tx.now
	insert(tx, table, (*T)(row))
	tx.record(table, row, false)
}

// insert stores a row without stamping it.
func insert[T any](tx *Tx, table tableID, row *T) {
	writesOf[T](tx, table).put(row)
	tx.tables[table] = true
	tx.writes++
}

// remove deletes a row that is there.
func remove[T any](tx *Tx, table tableID, row *T) {
	if !writesOf[T](tx, table).remove(row) {
		panic(fmt.Errorf("delete from %s: it is not there", table)) // the caller did not look before
	}
	if noun, ok := any(row).(Noun); ok {
		tx.record(table, noun, true)
	}
	tx.tables[table] = true
	tx.writes++
}
