package state

import (
	"maps"
	"slices"
)

// tableIndexes keeps, for each table and for the whole, the log index of the
// last write. Blocking queries compare it with what they have.
const tableIndexes = "indexes"

// wholeState is the row of tableIndexes that counts every write.
const wholeState = ""

// Modified is when a table was last written.
type Modified struct {
	Table string `json:"table"`
	Index uint64 `json:"index"`
}

func indexesTable() definition {
	return define[Modified](tableIndexes, unique(primary, func(m *Modified) []byte { return key(m.Table) }))
}

func (tx *Tx) writeIndexes() {
	if len(tx.tables) == 0 {
		return
	}
	for _, t := range slices.Sorted(maps.Keys(tx.tables)) {
		insert(tx, tableIndexes, &Modified{Table: t, Index: tx.index})
	}
	insert(tx, tableIndexes, &Modified{Table: wholeState, Index: tx.index})
}

// Index is the log index of the last write that the view sees.
func (v View) Index() uint64 { return v.modified(wholeState) }

// Modified is the log index of the last write to the table of that name.
func (v View) Modified(table string) uint64 { return v.modified(table) }

// modified is the log index of the last write to a table, 0 for none.
func (v View) modified(name string) uint64 {
	if m := first[Modified](v, tableIndexes, primary, key(name)); m != nil {
		return m.Index
	}
	return 0
}
