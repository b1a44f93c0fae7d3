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
	binary.BigEndian.PutUint64(b[:], uint64(t.UnixNano()))
	return string(b[:])
}

// number orders by a number from 0.
func number(n int) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(max(n, 0)))
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

// multiIndexer is indexer for a row that stands in the index under several keys.
type multiIndexer[T any] struct {
	indexer[T]
	keys func(*T) [][]byte
}

// FromObject is go-memdb's question for the keys of a row.
func (i multiIndexer[T]) FromObject(raw any) (bool, [][]byte, error) {
	row, ok := raw.(*T)
	if !ok {
		return false, nil, fmt.Errorf("index %T: got a %T", row, raw)
	}
	keys := i.keys(row)
	return len(keys) > 0, keys, nil
}

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

// several declares an index in which a row may have many keys, and many rows
// one.
func several[T any](name string, keys func(*T) [][]byte) *memdb.IndexSchema {
	return &memdb.IndexSchema{Name: name, AllowMissing: true, Indexer: multiIndexer[T]{keys: keys}}
}
