package state

import (
	"bytes"
	"fmt"

	"github.com/berth-dev/berth/internal/radix"
)

// database is one version of all tables. It never changes.
type database struct {
	schema *[tableCount]definition
	// tables has a *trees[T] for each table, T being the type of its rows.
	tables [tableCount]any
}

// trees is one version of one table: a tree for each index.
type trees[T any] struct {
	table *table[T]
	at    []radix.Tree[T]
}

func newDatabase() *database {
	schema := definitions()
	db := &database{schema: &schema}
	for i, d := range schema {
		db.tables[i] = d.empty()
	}
	return db
}

func (t *table[T]) empty() any {
	all := &trees[T]{table: t, at: make([]radix.Tree[T], len(t.indexes))}
	for i := range all.at {
		all.at[i] = radix.New[T]()
	}
	return all
}

func (db *database) modifiedBy(tx *Tx) *database {
	next := *db
	for i, w := range tx.writing {
		if w != nil {
			next.tables[i] = w.version()
		}
	}
	return &next
}

// treesOf are the trees of a table whose rows are of type T.
func treesOf[T any](db *database, at tableID) *trees[T] {
	t, ok := db.tables[at].(*trees[T])
	if !ok {
		panic(fmt.Errorf("table %s has no rows of type %T", at, (*T)(nil))) // the schema and the caller disagree
	}
	return t
}

// treeOf is the tree of an index, as a view sees it, to be read until the next
// write.
func treeOf[T any](v View, at tableID, index int) radix.Tree[T] {
	if w := writing[T](v, at); w != nil {
		return w.at[index].Now()
	}
	return treesOf[T](v.db, at).at[index]
}

// writing is what the view's transaction has written to a table, or nil.
func writing[T any](v View, at tableID) *writes[T] {
	if v.tx == nil {
		return nil
	}
	w, _ := v.tx.writing[at].(*writes[T])
	return w
}

// writer is a *writes[T].
type writer interface {
	// version is the table as it was written.
	version() any
	// published wakes who waits for what was changed.
	published()
}

// writes are what a transaction writes to a table.
type writes[T any] struct {
	table *table[T]
	at    []radix.Txn[T]
	// Room for keys.
	id, old, next []byte
}

// writesOf begins to write a table, if the transaction has not yet.
func writesOf[T any](tx *Tx, at tableID) *writes[T] {
	if w := writing[T](tx.View, at); w != nil {
		return w
	}
	t := treesOf[T](tx.db, at)
	w := &writes[T]{table: t.table, at: make([]radix.Txn[T], len(t.at))}
	for i := range t.at {
		w.at[i] = radix.Begin(t.at[i], tx.publishes)
	}
	tx.writing[at] = w
	return w
}

func (w *writes[T]) version() any {
	t := &trees[T]{table: w.table, at: make([]radix.Tree[T], len(w.at))}
	for i := range w.at {
		t.at[i] = w.at[i].End()
	}
	return t
}

func (w *writes[T]) published() {
	for i := range w.at {
		w.at[i].Published()
	}
}

// put puts a row into all indexes, in the place of the one with its identity.
func (w *writes[T]) put(row *T) {
	w.id = w.table.indexes[primary].key(w.id[:0], row)
	old := w.at[primary].Put(w.id, row)
	for i := primary + 1; i < len(w.at); i++ {
		x := &w.table.indexes[i]
		if x.keys != nil {
			w.putSeveral(x, row, old)
			continue
		}
		next := x.of(w.next[:0], row, w.id)
		if next != nil {
			w.next = next
		}
		if old != nil {
			was := x.of(w.old[:0], old, w.id)
			if was != nil {
				w.old = was
			}
			if was != nil && (next == nil || !bytes.Equal(was, next)) {
				w.at[i].Delete(was)
			}
		}
		if next != nil {
			w.at[i].Put(next, row)
		}
	}
}

// putSeveral puts a row under all its keys in an index.
func (w *writes[T]) putSeveral(x *index[T], row, old *T) {
	w.removeSeveral(x, old)
	for _, k := range x.keys(row) {
		w.at[x.at].Put(append(k, w.id...), row)
	}
}

func (w *writes[T]) removeSeveral(x *index[T], old *T) {
	if old == nil {
		return
	}
	for _, k := range x.keys(old) {
		w.at[x.at].Delete(append(k, w.id...))
	}
}

// remove takes the row out that has the identity of row, and reports whether
// there was one.
func (w *writes[T]) remove(row *T) bool {
	w.id = w.table.indexes[primary].key(w.id[:0], row)
	old := w.at[primary].Delete(w.id)
	if old == nil {
		return false
	}
	for i := primary + 1; i < len(w.at); i++ {
		x := &w.table.indexes[i]
		if x.keys != nil {
			w.removeSeveral(x, old)
			continue
		}
		if was := x.of(w.old[:0], old, w.id); was != nil {
			w.old = was
			w.at[i].Delete(was)
		}
	}
	return true
}
