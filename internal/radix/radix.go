// Package radix is an ordered map from byte strings to pointers, in memory. Its
// versions share what they have in common, and who has read a part of one can
// wait until that part is another.
//
// It owns the tree's shape. It knows nothing of what the keys mean. Invariants:
// a Tree never changes; the signal of a node fires when a transaction that
// replaced the node has been published, and also for who asks for it after that.
package radix

import (
	"slices"
	"sort"
	"sync/atomic"
)

// Tree is one version of a map. It is a small value, and safe for concurrent use.
// The zero Tree is empty, and has no signals that ever fire; see New.
type Tree[T any] struct {
	root *node[T]
}

// New is an empty tree.
func New[T any]() Tree[T] { return Tree[T]{&node[T]{}} }

// node is one node. What is below it has its prefix, behind those of the nodes
// above. Without a value it has two children or more, but for the root.
type node[T any] struct {
	// signal is made when somebody asks for it, and is gone when the node is no
	// more in the newest version.
	signal atomic.Pointer[Signal]
	// owner is the transaction that may change the node in place.
	owner  uint64
	prefix string
	value  *T
	edges  []edge[T] // by label
}

// edge leads to a node by the first byte of its prefix.
type edge[T any] struct {
	label byte
	node  *node[T]
}

// few is up to how many edges are looked through one by one.
const few = 8

// edge is where the child with that label is, or would be.
func (n *node[T]) edge(label byte) (int, bool) {
	if len(n.edges) > few {
		i := sort.Search(len(n.edges), func(i int) bool { return n.edges[i].label >= label })
		return i, i < len(n.edges) && n.edges[i].label == label
	}
	for i := range n.edges {
		if l := n.edges[i].label; l >= label {
			return i, l == label
		}
	}
	return len(n.edges), false
}

// Get is the value at a key, or nil.
func (t Tree[T]) Get(k []byte) *T {
	v, _ := t.find(k)
	return v
}

// Watch is Get, and the signal of the key, present or not.
func (t Tree[T]) Watch(k []byte) (*T, *Signal) {
	v, n := t.find(k)
	return v, signalOf(n)
}

// find is the value at a key, and the node that a change of it would replace.
func (t Tree[T]) find(k []byte) (*T, *node[T]) {
	n := t.root
	if n == nil {
		return nil, nil
	}
	for len(k) > 0 {
		i, ok := n.edge(k[0])
		if !ok {
			return nil, n
		}
		c := n.edges[i].node
		if len(k) < len(c.prefix) || string(k[:len(c.prefix)]) != c.prefix {
			return nil, n
		}
		n, k = c, k[len(c.prefix):]
	}
	return n.value, n
}

// Prefix is what of the tree has keys that begin with k.
func (t Tree[T]) Prefix(k []byte) Range[T] {
	n := t.root
	if n == nil {
		return Range[T]{}
	}
	whole := len(k)
	for len(k) > 0 {
		i, ok := n.edge(k[0])
		if !ok {
			return Range[T]{near: n}
		}
		c := n.edges[i].node
		switch {
		case len(k) < len(c.prefix):
			if c.prefix[:len(k)] != string(k) {
				return Range[T]{near: n}
			}
			return Range[T]{near: c, top: c, within: whole}
		case string(k[:len(c.prefix)]) != c.prefix:
			return Range[T]{near: n}
		}
		n, k = c, k[len(c.prefix):]
	}
	return Range[T]{near: n, top: n}
}

// Range is a part of a version: all keys that have a prefix in common.
type Range[T any] struct {
	near *node[T] // which any change of the range would replace, or cut
	top  *node[T] // nil for an empty range
	// within is the length of the range's prefix if it ends within that of near.
	within int
}

// Signal fires when anything in the range has changed. Close neighbours of an
// empty range make it fire, too.
func (r Range[T]) Signal() *Signal {
	s := signalOf(r.near)
	if r.within > 0 {
		return s.reaches(r.within)
	}
	return s
}

// All calls yield with the values in the order of their keys until it says false.
func (r Range[T]) All(yield func(*T) bool) {
	if r.top != nil {
		r.top.walk(yield)
	}
}

// Some is the first values of the range, as many as there is room for, and
// whether these are all.
func (r Range[T]) Some(room []*T) (values []*T, all bool) {
	values = room[:0]
	if r.top == nil {
		return values, true
	}
	return r.top.some(values)
}

func (n *node[T]) some(values []*T) ([]*T, bool) {
	if n.value != nil {
		if len(values) == cap(values) {
			return values, false
		}
		values = append(values, n.value)
	}
	for i := range n.edges {
		some, all := n.edges[i].node.some(values)
		if values = some; !all {
			return values, false
		}
	}
	return values, true
}

// Last is the value of the range with the greatest key, or nil.
func (r Range[T]) Last() *T {
	n := r.top
	if n == nil {
		return nil
	}
	for len(n.edges) > 0 {
		n = n.edges[len(n.edges)-1].node
	}
	return n.value
}

func (n *node[T]) walk(yield func(*T) bool) bool {
	if n.value != nil && !yield(n.value) {
		return false
	}
	for i := range n.edges {
		if !n.edges[i].node.walk(yield) {
			return false
		}
	}
	return true
}

// From calls yield with the values whose keys are not less than k, in order,
// until it says false.
func (t Tree[T]) From(k []byte, yield func(*T) bool) {
	if t.root != nil {
		t.root.from(k, yield)
	}
}

// from walks what is below a node and not less than k, which is cut by the
// prefixes above.
func (n *node[T]) from(k []byte, yield func(*T) bool) bool {
	if len(k) == 0 {
		return n.walk(yield)
	}
	i, ok := n.edge(k[0])
	if ok {
		c := n.edges[i].node
		i++
		m := min(len(k), len(c.prefix))
		switch p := c.prefix[:m]; {
		case string(k[:m]) == p:
			if !c.from(k[m:], yield) {
				return false
			}
		case string(k[:m]) < p:
			if !c.walk(yield) {
				return false
			}
		}
	}
	for ; i < len(n.edges); i++ {
		if !n.edges[i].node.walk(yield) {
			return false
		}
	}
	return true
}

// Cursor goes through a range, one value at a time.
type Cursor[T any] struct {
	stack []*node[T] // what is still to be gone through, the next at the end
}

// Cursor is one that stands before the first value.
func (r Range[T]) Cursor() *Cursor[T] {
	c := &Cursor[T]{}
	if r.top != nil {
		c.stack = append(make([]*node[T], 0, 32), r.top)
	}
	return c
}

// Next is the next value; nil is the end.
func (c *Cursor[T]) Next() *T {
	for len(c.stack) > 0 {
		n := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		for _, e := range slices.Backward(n.edges) {
			c.stack = append(c.stack, e.node)
		}
		if n.value != nil {
			return n.value
		}
	}
	return nil
}
