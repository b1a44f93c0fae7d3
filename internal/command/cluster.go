package command

import (
	"iter"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// InitCluster gives the cluster its id. The first leader of an empty log
// proposes it before anything else.
type InitCluster struct {
	ClusterID    string `json:"cluster_id"`
	FeatureLevel int    `json:"feature_level"`
}

// Kind implements Command.
func (*InitCluster) Kind() Kind { return "cluster.init" }

// Validate implements Command.
func (c *InitCluster) Validate() error {
	var p api.Problems
	if c.ClusterID == "" {
		p.Add("cluster_id", "is empty", "give the cluster an id")
	}
	if c.FeatureLevel < 1 {
		p.Addf("feature_level", "use 1 or more", "is %d", c.FeatureLevel)
	}
	return p.Err("the cluster")
}

// Apply implements Command. A cluster is made once.
func (c *InitCluster) Apply(tx *state.Tx) error {
	if old := tx.Cluster(); old != nil {
		return conflict("the cluster has an id already: %s", old.ID)
	}
	tx.PutCluster(&api.Cluster{
		ID:           c.ClusterID,
		FeatureLevel: c.FeatureLevel,
		Generation:   api.Generation{Number: 1, Since: tx.Now()},
	})
	return nil
}

// BeginGeneration marks that the servers' state was put back to an older one.
// From then on nothing is started, stopped, detached or deleted until
// ConfirmGeneration.
type BeginGeneration struct {
	Number uint64 `json:"number"`
	Reason string `json:"reason"`
}

// Kind implements Command.
func (*BeginGeneration) Kind() Kind { return "generation.begin" }

// Validate implements Command.
func (c *BeginGeneration) Validate() error {
	var p api.Problems
	if c.Number == 0 {
		p.Add("number", "is 0", "use the number after the newest known")
	}
	if c.Reason == "" {
		p.Add("reason", "is empty", "say how the state came to be older")
	}
	return p.Err("the generation")
}

// Apply implements Command. Generations only ever rise.
func (c *BeginGeneration) Apply(tx *state.Tx) error {
	cluster := tx.Cluster()
	if cluster == nil {
		return conflict("the cluster has no id yet")
	}
	if c.Number <= cluster.Generation.Number {
		return conflict("generation %d has begun already", cluster.Generation.Number)
	}
	next := *cluster
	next.Generation = api.Generation{Number: c.Number, Recovering: true, Reason: c.Reason, Since: tx.Now()}
	tx.PutCluster(&next)
	return nil
}

// ConfirmGeneration is the operator's word that the restored state and the
// nodes agree well enough to go on.
type ConfirmGeneration struct {
	Number uint64 `json:"number"`
	// Force confirms although some nodes have not reported; once more, it ends
	// the recovery although some still end what the state does not know.
	Force bool `json:"force,omitempty"`
}

// Kind implements Command.
func (*ConfirmGeneration) Kind() Kind { return "generation.confirm" }

// Validate implements Command.
func (c *ConfirmGeneration) Validate() error { return nil }

// Apply implements Command.
func (c *ConfirmGeneration) Apply(tx *state.Tx) error {
	cluster := tx.Cluster()
	if cluster == nil || cluster.Generation.Number != c.Number {
		return conflict("generation %d is not the current one", c.Number)
	}
	if !cluster.Generation.Recovering || cluster.Generation.Confirmed && !c.Force {
		return nil
	}
	for n := range tx.Nodes() {
		if n.Status.Generation < c.Number && !c.Force {
			return api.Errorf(api.CodeConflict,
				"node %s has not reported since the restore; start its agent, or force if the machine is gone", n.ID)
		}
	}
	next := *cluster
	// Forced once more, nobody is waited for who still ends something.
	next.Generation.Recovering = !c.Force || !cluster.Generation.Confirmed
	next.Generation.Confirmed = next.Generation.Recovering
	tx.PutCluster(&next)
	endRecovery(tx)
	return nil
}

// endRecovery ends a recovery that was confirmed, when every node that takes
// part in it runs nothing that the servers do not know. Until then somebody may
// write to a volume of whose user the servers know nothing.
func endRecovery(tx *state.Tx) {
	cluster := tx.Cluster()
	if cluster == nil || !cluster.Generation.Confirmed {
		return
	}
	for range Clearing(tx.View) {
		return
	}
	next := *cluster
	next.Generation.Recovering, next.Generation.Confirmed = false, false
	tx.PutCluster(&next)
}

// Clearing yields the nodes for which a confirmed recovery waits.
func Clearing(v state.View) iter.Seq[api.NodeID] {
	return func(yield func(api.NodeID) bool) {
		cluster := v.Cluster()
		if cluster == nil || !cluster.Generation.Confirmed {
			return
		}
		for n := range v.Nodes() {
			takesPart := n.Status.Generation == cluster.Generation.Number
			if takesPart && n.Status.Cleared < cluster.Generation.Number && !yield(n.ID) {
				return
			}
		}
	}
}
