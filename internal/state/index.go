package state

import (
	"encoding/binary"
	"time"
)

// key builds an index key. Every part ends with a NUL, which no id contains,
// so that ("ab", "c") and ("a", "bc") differ and a prefix of parts is a prefix
// of bytes.
func key(parts ...string) []byte { return appendKey(make([]byte, 0, 96), parts...) }

// appendKey is key, behind what b has.
func appendKey(b []byte, parts ...string) []byte {
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

// index says under which keys the rows of a table stand. Other indexes than the
// primary one are narrow: rows that have no key there are not in them.
type index[T any] struct {
	at int
	// shared: many rows may have one key. They stand behind it by their identity.
	shared bool
	// key appends a row's key to b, or answers nil for none.
	key func(b []byte, row *T) []byte
	// keys are all keys of a row that may have several; key is nil then.
	keys func(*T) [][]byte
}

// primary is the index by identity that every table has.
const primary = 0

// unique declares an index in which every row has its own key.
func unique[T any](at int, key func(b []byte, row *T) []byte) index[T] {
	return index[T]{at: at, key: key}
}

// shared declares an index in which many rows may have one key.
func shared[T any](at int, key func(b []byte, row *T) []byte) index[T] {
	return index[T]{at: at, shared: true, key: key}
}

// several declares an index in which a row may have many keys, and many rows
// one.
func several[T any](at int, keys func(*T) [][]byte) index[T] {
	return index[T]{at: at, shared: true, keys: keys}
}

// of appends the whole key of a row whose identity is id to b, or answers nil.
func (x *index[T]) of(b []byte, row *T, id []byte) []byte {
	b = x.key(b, row)
	if b != nil && x.shared {
		b = append(b, id...)
	}
	return b
}
