package state

import (
	"bytes"
	"iter"
	"strings"

	"github.com/berth-dev/berth/api"
)

// Table is one noun's rows in the order of their identity, for whoever lists
// nouns without knowing them.
type Table[T any] struct {
	at  tableID
	key func([]byte, *T) []byte
}

// The tables that lists are made of.

// Nodes has the key id.
func Nodes() Table[api.Node] { return tableOf[api.Node](nodesTable()) }

// Instances has the key plugin, node, allocation, type.
func Instances() Table[api.Instance] { return tableOf[api.Instance](instancesTable()) }

// Volumes has the key namespace, id.
func Volumes() Table[api.Volume] { return tableOf[api.Volume](volumesTable()) }

// Publications has the key namespace, volume, node.
func Publications() Table[api.Publication] { return tableOf[api.Publication](publicationsTable()) }

// Attachments has the key allocation, name.
func Attachments() Table[api.Attachment] { return tableOf[api.Attachment](attachmentsTable()) }

// Operations has the key id.
func Operations() Table[api.Operation] { return tableOf[api.Operation](operationsTable()) }

// Jobs has the key namespace, id.
func Jobs() Table[api.Job] { return tableOf[api.Job](jobsTable()) }

// Allocations has the key id.
func Allocations() Table[api.Allocation] { return tableOf[api.Allocation](allocationsTable()) }

// Snapshots has the key namespace, id.
func Snapshots() Table[api.Snapshot] { return tableOf[api.Snapshot](snapshotsTable()) }

func tableOf[T any](t *table[T]) Table[T] {
	return Table[T]{at: t.at, key: t.indexes[primary].key}
}

// Name is the name of the table.
func (t Table[T]) Name() string { return t.at.String() }

// Modified is when a row of the table was last written.
func (t Table[T]) Modified(v View) uint64 { return v.modified(t.at) }

// Key is a row's identity in its table: its parts, each with a NUL behind it.
// Keys order rows, and a prefix of the parts is a prefix of the key.
type Key []byte

// Parts makes the key of these parts, or the beginning of longer ones.
func Parts(parts ...string) Key { return key(parts...) }

// Split is the parts of a whole key.
func (k Key) Split() []string {
	return strings.Split(strings.TrimSuffix(string(k), "\x00"), "\x00")
}

// HasPrefix reports whether the key begins with p.
func (k Key) HasPrefix(p Key) bool { return bytes.HasPrefix(k, p) }

// Next is the least key that is greater than k.
func (k Key) Next() Key { return append(bytes.Clone(k), 0) }

// From yields the rows from a key on, in key order, with their keys. It notes
// nothing in a Watch: such a range cannot be watched.
func (t Table[T]) From(v View, lower Key) iter.Seq2[Key, *T] {
	return func(yield func(Key, *T) bool) {
		tree := treeOf[T](v, t.at, primary)
		if w := writing[T](v, t.at); w != nil {
			tree = w.at[primary].Keep()
		}
		tree.From(lower, func(row *T) bool { return yield(t.key(nil, row), row) })
	}
}
