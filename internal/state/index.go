package state

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hashicorp/go-memdb"
)

// key builds an index key. Every part ends with a NUL, which no id contains,
// so that ("ab", "c") and ("a", "bc") differ and a prefix of parts is a prefix
// of bytes.
func key(parts ...string) []byte {
	size := 0
	for _, p := range parts {
		size += len(p) + 1
	}
	b := make([]byte, 0, size)
	for _, p := range parts {
		b = append(b, p...)
		b = append(b, 0)
	}
	return b
}

// timePart orders by time when it stands first in a key.
func timePart(t time.Time) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.UnixNano())) //nolint:gosec // order is kept for all times after 1970
	return string(b[:])
}

// indexer adapts a typed key function to go-memdb. A nil key leaves the row
// out of the index, which is what keeps indexes narrow.
type indexer[T any] struct {
	key func(*T) []byte
}

// FromObject is go-memdb's question for the key of a row.
func (i indexer[T]) FromObject(raw any) (bool, []byte, error) {
	row, ok := raw.(*T)
	if !ok {
		return false, nil, fmt.Errorf("index %T: got a %T", row, raw)
	}
	k := i.key(row)
	return k != nil, k, nil
}

// FromArgs takes a key that is built already.
func (i indexer[T]) FromArgs(args ...any) ([]byte, error) {
	if len(args) == 1 {
		if k, ok := args[0].([]byte); ok {
			return k, nil
		}
	}
	return nil, fmt.Errorf("index: want one built key, got %d arguments", len(args))
}

// PrefixFromArgs is FromArgs: keys are built so that prefixes just work.
func (i indexer[T]) PrefixFromArgs(args ...any) ([]byte, error) { return i.FromArgs(args...) }

// primary is the index by identity that every table has.
const primary = "id"

// unique declares an index in which every row has its own key.
func unique[T any](name string, key func(*T) []byte) *memdb.IndexSchema {
	return &memdb.IndexSchema{Name: name, Unique: true, AllowMissing: name != primary, Indexer: indexer[T]{key}}
}

// shared declares an index in which many rows may have one key.
func shared[T any](name string, key func(*T) []byte) *memdb.IndexSchema {
	return &memdb.IndexSchema{Name: name, AllowMissing: true, Indexer: indexer[T]{key}}
}
