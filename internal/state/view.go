package state

import (
	"iter"

	"github.com/berth-dev/berth/internal/radix"
)

// View reads one consistent moment of the state. It is a small value: pass it
// by value. Rows that it returns are shared and must not be changed.
type View struct {
	db        *database
	tx        *Tx // whose writes it sees, or nil
	watch     *Watch
	abandoned *radix.Signal
}

// Watching returns the same view, noting in w everything that is read. What a
// transaction reads is not noted: what it writes may never come true.
func (v View) Watching(w *Watch) View {
	v.watch = w
	if v.abandoned != nil {
		w.note(v.abandoned)
	}
	return v
}

// Quiet returns the same view, noting nothing: for reading what a choice
// between equals rests on, and nothing waits for.
func (v View) Quiet() View {
	v.watch = nil
	return v
}

// watched reports whether reads are noted.
func (v View) watched() bool { return v.watch != nil && v.tx == nil }

// first is the row with that key in a unique index, or nil.
func first[T any](v View, table tableID, index int, k []byte) *T {
	tree := treeOf[T](v, table, index)
	if !v.watched() {
		return tree.Get(k)
	}
	row, signal := tree.Watch(k)
	v.watch.note(signal)
	return row
}

// part is what has keys that begin with k in an index. If it stays, it is the
// same also after the next write of the view's transaction.
func part[T any](v View, table tableID, index int, k []byte, stays bool) radix.Range[T] {
	if w := writing[T](v, table); w != nil && stays {
		return w.at[index].Keep().Prefix(k)
	}
	r := treeOf[T](v, table, index).Prefix(k)
	if v.watched() {
		v.watch.note(r.Signal())
	}
	return r
}

// fewRows is how many rows of a transaction are read at once, so that writes in
// between change nothing. If there are more, the tree is kept as it is.
const fewRows = 8

// rows yields the rows whose key in the index begins with k, in key order.
func rows[T any](v View, table tableID, index int, k []byte) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		if w := writing[T](v, table); w == nil {
			part[T](v, table, index, k, true).All(yield)
			return
		}
		var room [fewRows]*T
		some, all := part[T](v, table, index, k, false).Some(room[:])
		if !all {
			part[T](v, table, index, k, true).All(yield)
			return
		}
		for _, row := range some {
			if !yield(row) {
				return
			}
		}
	}
}

// pull is rows, one at a time: nil is the end.
func pull[T any](v View, table tableID, index int, k []byte) func() *T {
	return part[T](v, table, index, k, true).Cursor().Next
}

// peek is the first of rows, or nil.
func peek[T any](v View, table tableID, index int, k []byte) (row *T) {
	part[T](v, table, index, k, false).All(func(r *T) bool {
		row = r
		return false
	})
	return row
}

// last is the last of the rows whose key in the index begins with k, or nil.
func last[T any](v View, table tableID, index int, k []byte) *T {
	return part[T](v, table, index, k, false).Last()
}

// from is the first row whose key in the index is not less than k, or nil. It
// notes nothing: such a range cannot be watched.
func from[T any](v View, table tableID, index int, k []byte) (row *T) {
	treeOf[T](v, table, index).From(k, func(r *T) bool {
		row = r
		return false
	})
	return row
}
