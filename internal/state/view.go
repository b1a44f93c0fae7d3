package state

import (
	"context"
	"iter"

	"github.com/hashicorp/go-memdb"
)

// View reads one consistent moment of the state. It is a small value: pass it
// by value. Rows that it returns are shared and must not be changed.
type View struct {
	txn       *memdb.Txn
	watch     *Watch
	abandoned <-chan struct{}
	own       *ownRows // of a Tx
}

// Watch collects what was read, so that one can wait until any of it changes.
// It is for one goroutine.
type Watch struct {
	set memdb.WatchSet
}

// NewWatch returns an empty Watch.
func NewWatch() *Watch { return &Watch{set: memdb.NewWatchSet()} }

// Wait returns nil when anything that was read through the watch has changed,
// or ctx's error.
func (w *Watch) Wait(ctx context.Context) error { return w.set.WatchCtx(ctx) }

// Also makes Wait return when ch is closed, too: for waiting on what is not in
// the state.
func (w *Watch) Also(ch <-chan struct{}) { w.set.Add(ch) }

// Watching returns the same view, noting in w everything that is read.
func (v View) Watching(w *Watch) View {
	v.watch = w
	if v.abandoned != nil {
		w.set.Add(v.abandoned)
	}
	return v
}

// Quiet returns the same view, noting nothing: for reading what a choice
// between equals rests on, and nothing waits for.
func (v View) Quiet() View {
	v.watch = nil
	return v
}

func (v View) note(ch <-chan struct{}) {
	if v.watch != nil {
		v.watch.set.Add(ch)
	}
}

// first is the row with that key in a unique index, or nil.
func first[T any](v View, table, index string, k []byte) *T {
	txn := v.txn
	if v.own != nil && index == primary {
		if row, written := v.own.find(table, k); written {
			t, _ := row.(*T)
			return t
		}
		txn = v.own.base
	}
	ch, raw, err := txn.FirstWatch(table, index, k)
	if err != nil {
		panic(err) // the schema and this file disagree
	}
	v.note(ch)
	if raw == nil {
		return nil
	}
	return raw.(*T)
}

// rows yields the rows whose key in the index begins with k, in key order.
func rows[T any](v View, table, index string, k []byte) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		it, err := v.txn.Get(table, index+"_prefix", k)
		if err != nil {
			panic(err) // the schema and this file disagree
		}
		v.note(it.WatchCh())
		for raw := it.Next(); raw != nil; raw = it.Next() {
			if !yield(raw.(*T)) {
				return
			}
		}
	}
}

// pull is rows, one at a time: nil is the end.
func pull[T any](v View, table, index string, k []byte) func() *T {
	it, err := v.txn.Get(table, index+"_prefix", k)
	if err != nil {
		panic(err) // the schema and this file disagree
	}
	v.note(it.WatchCh())
	return func() *T {
		row, _ := it.Next().(*T)
		return row
	}
}

// peek is the first of rows, or nil.
func peek[T any](v View, table, index string, k []byte) *T {
	return pull[T](v, table, index, k)()
}

// last is the last of the rows whose key in the index begins with k, or nil.
func last[T any](v View, table, index string, k []byte) *T {
	ch, raw, err := v.txn.LastWatch(table, index+"_prefix", k)
	if err != nil {
		panic(err) // the schema and this file disagree
	}
	v.note(ch)
	row, _ := raw.(*T)
	return row
}

// from is the first row whose key in the index is not less than k, or nil. It
// notes nothing: go-memdb cannot watch such a range.
func from[T any](v View, table, index string, k []byte) *T {
	it, err := v.txn.LowerBound(table, index, k)
	if err != nil {
		panic(err) // the schema and this file disagree
	}
	row, _ := it.Next().(*T)
	return row
}
