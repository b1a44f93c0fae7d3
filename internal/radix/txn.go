package radix

import (
	"math"
	"slices"
	"sync/atomic"
)

// Txn makes a new version of a Tree. It sees its own writes. It is for one
// goroutine.
type Txn[T any] struct {
	root *node[T]
	id   uint64
	// track: somebody may wait for the nodes that the transaction replaces.
	track    bool
	replaced []*node[T]
	renamed  []renamed[T]
}

// renamed is a node that a neighbour came to stand above of, and the one with the
// rest of its prefix that took its place. Who waits for it need not care.
type renamed[T any] struct {
	from, to *node[T]
}

// same reports whether nothing but the prefix has changed. What was below from
// belonged to no transaction, so that a change there is a new node.
func (r renamed[T]) same() bool {
	return r.from.value == r.to.value && slices.Equal(r.from.edges, r.to.edges)
}

// settle hands the signal over, and reports whether it could.
func (r renamed[T]) settle() bool {
	cut := r.to.signal.Swap(nil).cut
	if cut == math.MaxInt || !r.same() {
		return false
	}
	if r.from.signal.CompareAndSwap(nil, &gone) {
		return true // nobody waits
	}
	s := r.from.signal.Load()
	if !s.survives(cut) {
		return false
	}
	r.to.signal.Store(s)
	return true
}

// ids are never used twice.
var ids atomic.Uint64 //nolint:gochecknoglobals // trees of any kind may be read together

// Begin begins a transaction on a tree. If it is to be published, and not only
// looked at, published is set: then it remembers whose signals it has to fire.
func Begin[T any](t Tree[T], published bool) Txn[T] {
	x := Txn[T]{root: t.root, id: ids.Add(1), track: published}
	if x.root == nil {
		x.root = &node[T]{owner: x.id}
	}
	return x
}

// Now is the tree as it is now, to be read until the next write.
func (x *Txn[T]) Now() Tree[T] { return Tree[T]{x.root} }

// Keep is the tree as it is now, and stays. What is written next is written to
// copies.
func (x *Txn[T]) Keep() Tree[T] {
	x.id = ids.Add(1)
	return Tree[T]{x.root}
}

// End is the new version, to be made known to everybody. After that, Published
// is called, and nothing else.
func (x *Txn[T]) End() Tree[T] {
	for _, r := range x.renamed {
		if !r.settle() {
			x.replaced = append(x.replaced, r.from)
		}
	}
	x.renamed, x.id = nil, 0
	return Tree[T]{x.root}
}

// Published fires the signals of what the transaction has replaced.
func (x *Txn[T]) Published() {
	for _, n := range x.replaced {
		if s := n.signal.Swap(&gone); s != nil {
			s.fire()
		}
	}
	x.replaced = nil
}

// Put puts a value, which is not nil, at a key, and answers the one that was
// there, or nil.
func (x *Txn[T]) Put(k []byte, v *T) (old *T) {
	x.root, old = x.put(x.root, k, 0, v)
	return old
}

// own is a node that the transaction may change: n, or a copy of it.
func (x *Txn[T]) own(n *node[T]) *node[T] {
	if n.owner == x.id {
		return n
	}
	x.drop(n)
	return x.copy(n)
}

func (x *Txn[T]) copy(n *node[T]) *node[T] {
	c := &node[T]{owner: x.id, prefix: n.prefix, value: n.value}
	if len(n.edges) > 0 {
		c.edges = slices.Clone(n.edges)
	}
	return c
}

// cut is a node without the first bytes of its prefix, up to so many of the
// whole key.
func (x *Txn[T]) cut(n *node[T], prefix string, upTo int) *node[T] {
	if n.owner != x.id {
		c := x.copy(n)
		if x.track {
			c.signal.Store(&Signal{}) // for this transaction: how far it was cut
			x.renamed = append(x.renamed, renamed[T]{n, c})
		}
		n = c
	}
	n.prefix = prefix
	if s := n.signal.Load(); s != nil {
		s.cut = max(s.cut, upTo)
	}
	return n
}

// drop notes that a node is in the tree no more.
func (x *Txn[T]) drop(n *node[T]) {
	if x.track && n.owner != x.id {
		x.replaced = append(x.replaced, n)
	}
}

// put puts a value below a node whose prefixes up to it are the first at bytes of
// the key. k is the rest.
func (x *Txn[T]) put(n *node[T], k []byte, at int, v *T) (next *node[T], old *T) {
	if len(k) == 0 {
		old = n.value
		n = x.own(n)
		n.value = v
		return n, old
	}
	i, ok := n.edge(k[0])
	if !ok {
		n = x.own(n)
		n.edges = slices.Insert(n.edges, i, edge[T]{k[0], x.leaf(k, v)})
		return n, nil
	}
	c := n.edges[i].node
	common := 1
	for common < len(k) && common < len(c.prefix) && k[common] == c.prefix[common] {
		common++
	}
	var below *node[T]
	if common == len(c.prefix) {
		below, old = x.put(c, k[common:], at+common, v)
	} else {
		below = x.split(c, common, at+common, k[common:], v)
	}
	if below != c {
		n = x.own(n)
		n.edges[i].node = below
	}
	return n, old
}

// split puts a value between the node above c and c, whose prefix has so many
// bytes in common with the key. They end at so many bytes of the whole key; rest
// is what is behind them.
func (x *Txn[T]) split(c *node[T], common, at int, rest []byte, v *T) *node[T] {
	above := &node[T]{owner: x.id, prefix: c.prefix[:common]}
	c = x.cut(c, c.prefix[common:], at)
	old := edge[T]{c.prefix[0], c}
	if len(rest) == 0 {
		above.value = v
		above.edges = []edge[T]{old}
		return above
	}
	added := edge[T]{rest[0], x.leaf(rest, v)}
	if added.label < old.label {
		above.edges = []edge[T]{added, old}
	} else {
		above.edges = []edge[T]{old, added}
	}
	return above
}

func (x *Txn[T]) leaf(k []byte, v *T) *node[T] {
	return &node[T]{owner: x.id, prefix: string(k), value: v}
}

// Delete removes the value at a key, and answers it, or nil.
func (x *Txn[T]) Delete(k []byte) (old *T) {
	if x.Now().Get(k) == nil {
		return nil
	}
	x.root, old = x.remove(x.root, k, true)
	return old
}

// remove takes out a value that is there. A nil node is one that is to go.
func (x *Txn[T]) remove(n *node[T], k []byte, root bool) (next *node[T], old *T) {
	if len(k) == 0 {
		old = n.value
		if len(n.edges) == 0 && !root {
			x.drop(n)
			if n.owner == x.id {
				n.value = nil // it may be one that was renamed
			}
			return nil, old
		}
		n = x.own(n)
		n.value = nil
		return x.tidy(n, root), old
	}
	i, _ := n.edge(k[0])
	c := n.edges[i].node
	below, old := x.remove(c, k[len(c.prefix):], false)
	if below == c {
		return n, old
	}
	n = x.own(n)
	if below != nil {
		n.edges[i].node = below
		return n, old
	}
	n.edges = slices.Delete(n.edges, i, i+1)
	return x.tidy(n, root), old
}

// tidy joins a node that the transaction owns with its only child, if it has no
// value of its own.
func (x *Txn[T]) tidy(n *node[T], root bool) *node[T] {
	if root || n.value != nil || len(n.edges) != 1 {
		return n
	}
	c := x.own(n.edges[0].node)
	c.prefix = n.prefix + c.prefix
	if s := c.signal.Load(); s != nil {
		s.cut = math.MaxInt // it was cut before, and is another now
	}
	return c
}
