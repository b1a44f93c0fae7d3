package state

import (
	"iter"

	"github.com/berth-dev/berth/api"
)

const instancesByNode = 1

func instancesTable() *table[api.Instance] {
	return define[api.Instance](tableInstances,
		unique(primary, func(b []byte, i *api.Instance) []byte {
			return appendKey(b, string(i.PluginID), string(i.NodeID), string(i.AllocID), string(i.Type))
		}),
		shared(instancesByNode, func(b []byte, i *api.Instance) []byte { return appendKey(b, string(i.NodeID), string(i.PluginID)) }),
	)
}

// Instance is the instance that a fact is about, or nil.
func (v View) Instance(node api.NodeID, f *api.InstanceFact) *api.Instance {
	return first[api.Instance](v, tableInstances, primary, key(string(f.PluginID), string(node), string(f.AllocID), string(f.Type)))
}

// Instances yields the instances of a plugin by node, or all by plugin and
// node if plugin is empty.
func (v View) Instances(plugin api.PluginID) iter.Seq[*api.Instance] {
	if plugin == "" {
		return rows[api.Instance](v, tableInstances, primary, nil)
	}
	return rows[api.Instance](v, tableInstances, primary, key(string(plugin)))
}

// NodeInstances yields the instances on a node by plugin.
func (v View) NodeInstances(node api.NodeID) iter.Seq[*api.Instance] {
	return rows[api.Instance](v, tableInstances, instancesByNode, key(string(node)))
}

// NodePlugin yields the instances of one plugin on one node.
func (v View) NodePlugin(node api.NodeID, plugin api.PluginID) iter.Seq[*api.Instance] {
	return rows[api.Instance](v, tableInstances, instancesByNode, key(string(node), string(plugin)))
}

// InstancesIndex is when an instance was last written.
func (v View) InstancesIndex() uint64 { return v.modified(tableInstances) }

// PutInstance stores a new instance, or a changed copy.
func (tx *Tx) PutInstance(i *api.Instance) { put(tx, tableInstances, i) }

// DeleteInstance removes an instance that is there.
func (tx *Tx) DeleteInstance(i *api.Instance) { remove(tx, tableInstances, i) }
