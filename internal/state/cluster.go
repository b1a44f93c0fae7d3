package state

import (
	"github.com/berth-dev/berth/api"
)

func clusterTable() *table[api.Cluster] {
	return define[api.Cluster](tableCluster, unique(primary, func(b []byte, _ *api.Cluster) []byte { return appendKey(b, "") }))
}

// Cluster is the cluster's one row, or nil before the first leader wrote it.
func (v View) Cluster() *api.Cluster {
	return first[api.Cluster](v, tableCluster, primary, key(""))
}

// Recovering reports whether a restored cluster still waits for its operator.
func (v View) Recovering() bool {
	c := v.Cluster()
	return c != nil && c.Generation.Recovering
}

// PutCluster stores the cluster's row. Every agent hears of it.
func (tx *Tx) PutCluster(c *api.Cluster) {
	put(tx, tableCluster, c)
	for n := range tx.Nodes() {
		tx.Touch(n.ID)
	}
}
