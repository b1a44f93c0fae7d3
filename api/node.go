package api

import "time"

// Node is a machine with an agent.
type Node struct {
	Meta
	ID     NodeID     `json:"id"`
	Name   string     `json:"name"`
	Status NodeStatus `json:"status"`
}

// NodeState is the servers' view of a node.
type NodeState string

// The node states.
const (
	// NodeReady: its agent is in contact.
	NodeReady NodeState = "ready"
	// NodeDown: no word from it for longer than the lease. Nothing new is
	// placed there. It says nothing about what still runs there.
	NodeDown NodeState = "down"
)

// NodeStatus is what is known of a node.
type NodeStatus struct {
	State NodeState `json:"state"` // RegisterNode, SetNodeState
	// Epoch changes when the node is fenced or its agent's memory was lost.
	// What was reported in an older epoch counts no more.
	Epoch uint64 `json:"epoch"` // RegisterNode
	// BootID is the kernel's boot id: a new one means that all of the node's
	// mounts and processes are gone.
	BootID string `json:"boot_id"` // RegisterNode
	// Session starts with every registration of an agent.
	Session time.Time         `json:"session,omitzero"` // RegisterNode
	Version string            `json:"version"`          // RegisterNode
	Drivers map[string]Driver `json:"drivers"`          // RegisterNode, ReportFacts
	// Generation is the last generation in which the node has reported.
	Generation uint64 `json:"generation"` // RegisterNode
}

// Driver is a task driver as an agent declares it.
type Driver struct {
	Healthy bool `json:"healthy"`
	// Reason is why it is not healthy.
	Reason string `json:"reason,omitempty"`
	// MountsVolumes: the driver can bind volumes into a task.
	MountsVolumes bool `json:"mounts_volumes"`
}

// Lease is how long an agent may be silent before the servers call its node down.
const Lease = 15 * time.Second

// MaxPollWait bounds how long a blocking query may wait, and so how long an
// agent in health is silent.
const MaxPollWait = 5 * time.Minute
