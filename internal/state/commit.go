package state

import (
	"time"

	"github.com/berth-dev/berth/api"
)

// Commit is what one write transaction changed: the nouns among its rows.
type Commit struct {
	Index uint64
	// Time is command time.
	Time time.Time
	// Bytes is the size of the log's entry, 0 if it is not known. It bounds what
	// the rows keep in memory that they did not share with older ones.
	Bytes int
	// Changes are in the order in which they were written. A row that was written
	// twice is there twice.
	Changes []Change
}

// Change is one row that was put or removed.
type Change struct {
	Table string
	// Row is what was put, or what was removed.
	Row     Noun
	Removed bool
}

// Noun is a row that people know, of whatever type.
type Noun interface {
	GetMeta() *api.Meta
}

// Observer follows the state from one commit to the next. It is called on the
// way of every write, one call at a time, and must do no more than take note.
type Observer interface {
	// Committed is called when the commit is visible.
	Committed(c Commit)
	// Replaced is called when another state has taken the place of the old one.
	Replaced(v View)
}

// Observe sets who follows the state. It is called before anything is written.
func (s *Store) Observe(o Observer) { s.observer = o }

// Weighs notes the size of the log's entry that is applied.
func (tx *Tx) Weighs(bytes int) { tx.bytes = bytes }

// record keeps a change for the observer.
func (tx *Tx) record(table tableID, row Noun, removed bool) {
	if tx.observer != nil {
		tx.changes = append(tx.changes, Change{Table: table.String(), Row: row, Removed: removed})
	}
}

// tell tells the observer of a commit.
func (tx *Tx) tell() {
	if tx.observer != nil {
		tx.observer.Committed(Commit{Index: tx.index, Time: tx.now, Bytes: tx.bytes, Changes: tx.changes})
	}
}

// ChangeAll notes that every table may be another than it was: for a state that
// takes the place of one in which indexes were higher.
func (tx *Tx) ChangeAll() {
	for i := range tx.tables {
		tx.tables[i] = true
	}
}
