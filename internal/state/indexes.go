package state

// wholeState is the row of tableIndexes that counts every write.
const wholeState = ""

// Modified is when a table was last written.
type Modified struct {
	Table string `json:"table"`
	Index uint64 `json:"index"`
}

func indexesTable() *table[Modified] {
	return define[Modified](tableIndexes, unique(primary, func(b []byte, m *Modified) []byte { return appendKey(b, m.Table) }))
}

func (tx *Tx) writeIndexes() {
	written := false
	for i, w := range tx.tables {
		if w {
			insert(tx, tableIndexes, &Modified{Table: tableID(i).String(), Index: tx.index})
			written = true
		}
	}
	if written {
		insert(tx, tableIndexes, &Modified{Table: wholeState, Index: tx.index})
	}
}

// Index is the log index of the last write that the view sees.
func (v View) Index() uint64 { return v.Modified(wholeState) }

// modified is the log index of the last write to a table, 0 for none.
func (v View) modified(t tableID) uint64 { return v.Modified(t.String()) }

// Modified is the log index of the last write to the table of that name.
func (v View) Modified(table string) uint64 {
	if m := first[Modified](v, tableIndexes, primary, key(table)); m != nil {
		return m.Index
	}
	return 0
}
