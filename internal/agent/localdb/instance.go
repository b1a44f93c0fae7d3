package localdb

import (
	"go.etcd.io/bbolt"

	"github.com/berth-dev/berth/api"
)

// Instance is what a plugin instance last told of itself while it was healthy.
// A restarted agent knows by it what a driver can that is not up yet, and which
// instances the servers have heard of.
type Instance struct {
	PluginID api.PluginID       `json:"plugin_id"`
	AllocID  api.AllocID        `json:"alloc_id,omitempty"`
	Status   api.InstanceStatus `json:"status"`
}

// PutInstance stores an instance.
func (db *DB) PutInstance(i *Instance) error {
	return db.write("store instance of plugin "+string(i.PluginID), func(tx *bbolt.Tx) error {
		return put(tx, bucketInstances, string(i.PluginID)+"\x00"+string(i.AllocID)+"\x00"+string(i.Status.Type), i)
	})
}

// DeleteInstance forgets an instance.
func (db *DB) DeleteInstance(i *Instance) error {
	return db.write("forget instance of plugin "+string(i.PluginID), func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketInstances)).Delete([]byte(string(i.PluginID) + "\x00" + string(i.AllocID) + "\x00" + string(i.Status.Type)))
	})
}

// Instances reads all instances.
func (db *DB) Instances() ([]Instance, error) { return all[Instance](db, bucketInstances) }
