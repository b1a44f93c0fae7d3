package command

import (
	"maps"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// RegisterNode begins a session of a node's agent.
type RegisterNode struct {
	NodeID     api.NodeID `json:"node_id"`
	Name       string     `json:"name"`
	SecretHash string     `json:"secret_hash"`
	// Session is the new session's token, and Known the tokens of the older
	// ones that the agent remembers.
	Session string                `json:"session"`
	Known   []string              `json:"known,omitempty"`
	BootID  string                `json:"boot_id"`
	Version string                `json:"version"`
	Drivers map[string]api.Driver `json:"drivers"`
	Profile api.Profile           `json:"profile,omitzero"`
	// Generation is the newest that the agent has seen, and 0 if its memory is new.
	Generation uint64 `json:"generation,omitempty"`
	// Epoch is the node's last that the agent knows of.
	Epoch uint64 `json:"epoch,omitempty"`
	// OtherLive: the session that the state knows was heard of within its
	// lease, and is another agent's, not that of the one that this agent took
	// over from on its machine. Only the leader can tell, so it is its choice.
	OtherLive bool `json:"other_live,omitempty"`
}

// Kind implements Command.
func (*RegisterNode) Kind() Kind { return "node.register" }

// Validate implements Command.
func (c *RegisterNode) Validate() error {
	var p api.Problems
	p.Name("node_id", string(c.NodeID))
	p.Name("name", c.Name)
	if len(c.SecretHash) != 64 {
		p.Add("secret", "is missing", "send the node's secret")
	}
	if c.Session == "" {
		p.Add("session", "is empty", "make a token for the session")
	}
	if c.BootID == "" {
		p.Add("boot_id", "is empty", "send the kernel's boot id")
	}
	p.Merge(c.Profile.Validate())
	return p.Err("the registration")
}

// Apply implements Command. An agent that knows the last session is the one
// that the servers last spoke to, and keeps the node's epoch. One that does
// not is a copy of it while the other is heard of, and otherwise one whose
// memory was lost or put back: what it reported before counts no more, and
// what it ran is to be undone. So is what a node ran that was forgotten: its
// next epoch is one that its agent has not seen.
func (c *RegisterNode) Apply(tx *state.Tx) error {
	old := tx.Identity(c.NodeID)
	if old == nil {
		c.register(tx, nil, &state.Identity{Epoch: c.Epoch + 1})
		return nil
	}
	if old.SecretHash != c.SecretHash {
		return api.Errorf(api.CodeForbidden, "node %s is registered with another secret", c.NodeID)
	}
	node := tx.Node(c.NodeID)
	if old.Session == c.Session {
		if c.firstInGeneration(tx, node) {
			doubtOperations(tx, c.NodeID)
		}
		c.register(tx, node, &state.Identity{Epoch: old.Epoch, Sequence: old.Sequence})
		return nil
	}
	if c.OtherLive {
		return api.Errorf(api.CodeIdentityInUse,
			"another agent with the identity of node %s was heard of within the last %s: was its data directory copied?", c.NodeID, api.Lease)
	}
	if slices.Contains(c.Known, old.Session) || c.restored(tx) {
		c.register(tx, node, &state.Identity{Epoch: old.Epoch, Sequence: old.Sequence})
		doubtOperations(tx, c.NodeID)
		return nil
	}
	c.register(tx, node, &state.Identity{Epoch: max(old.Epoch, c.Epoch) + 1})
	doubtOperations(tx, c.NodeID)
	endAllocations(tx, c.NodeID, "the agent of node "+string(c.NodeID)+" lost its memory")
	return nil
}

// restored reports whether it is the servers whose memory is older: they were
// put back, and this agent speaks to them for the first time since. That they
// do not know its session says nothing then.
func (c *RegisterNode) restored(tx *state.Tx) bool {
	cluster := tx.Cluster()
	return cluster != nil && cluster.Generation.Recovering && 0 < c.Generation && c.Generation < cluster.Generation.Number
}

// firstInGeneration reports whether the node has not registered since the
// servers were put back. Its agent has forgotten which calls it made then.
func (c *RegisterNode) firstInGeneration(tx *state.Tx, node *api.Node) bool {
	cluster := tx.Cluster()
	return cluster != nil && node != nil && node.Status.Generation < cluster.Generation.Number
}

// doubtOperations makes the operations of a node uncertain whose agent does not
// know which calls were made: it is another process than the last, or has
// forgotten them.
func doubtOperations(tx *state.Tx, node api.NodeID) {
	for op := range tx.NodeOperations(node) {
		if op.Status.Uncertain {
			continue
		}
		next := *op
		next.Status.Uncertain = true
		tx.PutOperation(&next)
	}
}

// register writes the node and its identity.
func (c *RegisterNode) register(tx *state.Tx, old *api.Node, id *state.Identity) {
	id.NodeID, id.SecretHash, id.Session = c.NodeID, c.SecretHash, c.Session
	tx.PutIdentity(id)
	node := &api.Node{ID: c.NodeID}
	if old != nil {
		copied := *old
		node = &copied
	}
	node.Name = c.Name
	node.Status = api.NodeStatus{
		State:   api.NodeReady,
		Epoch:   id.Epoch,
		BootID:  c.BootID,
		Session: tx.Now(),
		Version: c.Version,
		Drivers: c.Drivers,
		Profile: c.Profile,
		// An epoch that is not the first, and not the last that was known, was
		// begun because of what may be left of those before.
		Owes:    node.Status.Owes || id.Epoch > 1 && id.Epoch != node.Status.Epoch,
		Fence:   node.Status.Fence,
		Drained: node.Status.Drained,
	}
	if cluster := tx.Cluster(); cluster != nil {
		node.Status.Generation = cluster.Generation.Number
	}
	tx.PutNode(node)
	tx.Touch(c.NodeID)
	unsettleEverywhere(tx)
}

// endAllocations ends whatever a node ran, because nobody there knows of it
// any more. The holds stay until the agent says that nothing is mounted.
func endAllocations(tx *state.Tx, node api.NodeID, reason string) {
	for a := range tx.NodeAllocations(node) {
		if a.Terminal() {
			continue
		}
		next := *a
		next.Status.State = api.AllocFailed
		next.Status.Ended = tx.Now()
		next.Status.Problem = &api.Problem{Step: "run", Message: reason, Since: tx.Now()}
		tx.PutAllocation(&next)
		beginRelease(tx, a.ID)
		unsettleJob(tx, a.Namespace, a.JobID)
	}
}

// SetNodeState says whether a node's agent is in contact.
type SetNodeState struct {
	NodeID api.NodeID    `json:"node_id"`
	State  api.NodeState `json:"state"`
	// Session is the session that was silent, or was heard of again.
	Session string `json:"session"`
}

// Kind implements Command.
func (*SetNodeState) Kind() Kind { return "node.state" }

// Validate implements Command.
func (c *SetNodeState) Validate() error {
	var p api.Problems
	if c.State != api.NodeReady && c.State != api.NodeDown {
		p.Addf("state", "use ready or down", "is %q", c.State)
	}
	return p.Err("the node")
}

// Apply implements Command. A session that has ended decides nothing.
func (c *SetNodeState) Apply(tx *state.Tx) error {
	node, id := tx.Node(c.NodeID), tx.Identity(c.NodeID)
	if node == nil || id == nil {
		return api.Errorf(api.CodeNotFound, "node %s does not exist", c.NodeID)
	}
	if id.Session != c.Session || node.Status.State == c.State {
		return nil
	}
	next := *node
	next.Status.State = c.State
	tx.PutNode(&next)
	unsettleEverywhere(tx)
	return nil
}

// putDrivers notes what a node's drivers are now.
func putDrivers(tx *state.Tx, node *api.Node, drivers map[string]api.Driver) {
	if drivers == nil || maps.Equal(node.Status.Drivers, drivers) {
		return
	}
	next := *node
	next.Status.Drivers = drivers
	tx.PutNode(&next)
	unsettleEverywhere(tx)
}
