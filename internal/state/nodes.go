package state

import (
	"iter"

	"github.com/berth-dev/berth/api"
)

const (
	nodesDraining = iota + 1
	nodesAway
)

func nodesTable() *table[api.Node] {
	id := func(b []byte, n *api.Node) []byte { return appendKey(b, string(n.ID)) }
	return define[api.Node](tableNodes,
		unique(primary, id),
		unique(nodesDraining, func(b []byte, n *api.Node) []byte {
			if n.Spec.Drain == nil {
				return nil
			}
			return id(b, n)
		}),
		shared(nodesAway, func(b []byte, n *api.Node) []byte {
			if n.Status.State != api.NodeDown {
				return nil
			}
			return appendKey(b, timePart(n.ModifyTime))
		}),
	)
}

// DrainingNodes yields the nodes that are to be emptied.
func (v View) DrainingNodes() iter.Seq[*api.Node] {
	return rows[api.Node](v, tableNodes, nodesDraining, nil)
}

// AwayNodes yields the nodes that are down, those that changed last at the end.
func (v View) AwayNodes() iter.Seq[*api.Node] {
	return rows[api.Node](v, tableNodes, nodesAway, nil)
}

// Node is the node of that id, or nil.
func (v View) Node(id api.NodeID) *api.Node {
	return first[api.Node](v, tableNodes, primary, key(string(id)))
}

// Nodes yields all nodes by id.
func (v View) Nodes() iter.Seq[*api.Node] { return rows[api.Node](v, tableNodes, primary, nil) }

// NodesIndex is when a node was last written.
func (v View) NodesIndex() uint64 { return v.modified(tableNodes) }

// DeleteNode removes a node that is there, with its identity and the version of
// its assignments.
func (tx *Tx) DeleteNode(n *api.Node) {
	remove(tx, tableNodes, n)
	if i := tx.Identity(n.ID); i != nil {
		remove(tx, tableIdentities, i)
	}
	if a := tx.AssignmentVersion(n.ID); a != nil {
		remove(tx, tableAssignments, a)
	}
}

// PutNode stores a new node, or a changed copy.
func (tx *Tx) PutNode(n *api.Node) { put(tx, tableNodes, n) }
