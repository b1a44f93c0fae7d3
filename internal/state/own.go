package state

import (
	"fmt"

	"github.com/hashicorp/go-memdb"
)

// ownRows finds the rows that a transaction has written by their identity, and
// those that it has not in the state that it began with. go-memdb can do both,
// but to read an index that a transaction has written to it copies the
// transaction, and the next write copies the nodes of its tree again.
type ownRows struct {
	schema *memdb.DBSchema
	base   *memdb.Txn
	rows   map[rowKey]any // a row, or nil for one that was removed
}

type rowKey struct {
	table, key string
}

func newOwnRows(db *memdb.MemDB) *ownRows {
	return &ownRows{schema: db.DBSchema(), base: db.Txn(false), rows: map[rowKey]any{}}
}

// find answers the row that was written, which is nil if it was removed.
func (o *ownRows) find(table string, k []byte) (row any, written bool) {
	row, written = o.rows[rowKey{table, string(k)}]
	return row, written
}

func (o *ownRows) put(table string, of, row any) {
	id, ok := o.schema.Tables[table].Indexes[primary].Indexer.(memdb.SingleIndexer)
	if !ok {
		panic(fmt.Errorf("rows of %s have several identities", table)) // the schema and this package disagree
	}
	_, k, err := id.FromObject(of)
	if err != nil {
		panic(fmt.Errorf("find key of %s: %w", table, err)) // the schema and this package disagree
	}
	o.rows[rowKey{table, string(k)}] = row
}
