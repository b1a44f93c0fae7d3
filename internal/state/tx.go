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
	tables  map[string]bool     // tables that were written
	touched map[api.NodeID]bool // nodes whose assignments changed: true if allocations did
	done    bool
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
	tx.txn.Commit()
	tx.done = true
	tx.tell()
}

// Abort forgets the writes. After Commit it does nothing.
func (tx *Tx) Abort() {
	if !tx.done {
		tx.txn.Abort()
		tx.done = true
	}
}

// stamped is a row that carries api.Meta.
type stamped[T any] interface {
	*T
	GetMeta() *api.Meta
}

// put stores a new row, or a changed copy of the stored one, and stamps it.
func put[T any, P stamped[T]](tx *Tx, table string, row P) {
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
func insert[T any](tx *Tx, table string, row *T) {
	if err := tx.txn.Insert(table, row); err != nil {
		panic(fmt.Errorf("put into %s: %w", table, err)) // the schema and this package disagree
	}
	tx.own.put(table, row, row)
	tx.tables[table] = true
	tx.writes++
}

// remove deletes a row that is there.
func remove[T any](tx *Tx, table string, row *T) {
	if err := tx.txn.Delete(table, row); err != nil {
		panic(fmt.Errorf("delete from %s: %w", table, err)) // the caller did not look before
	}
	tx.own.put(table, row, nil)
	if noun, ok := any(row).(Noun); ok {
		tx.record(table, noun, true)
	}
	tx.tables[table] = true
	tx.writes++
}
