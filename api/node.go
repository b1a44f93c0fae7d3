package api

import (
	"cmp"
	"strings"
	"time"
)

// Node is a machine with an agent.
type Node struct {
	Meta
	ID     NodeID     `json:"id"`
	Name   string     `json:"name"`
	Spec   NodeSpec   `json:"spec,omitzero"`
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
	Profile Profile           `json:"profile,omitzero"` // RegisterNode
	// Generation is the last generation in which the node has reported.
	Generation uint64 `json:"generation"` // RegisterNode
	// Cleared is the last generation of which the node has said that it runs
	// nothing that the servers do not know.
	Cleared uint64 `json:"cleared,omitempty"` // ReportFacts
	// Owes: an epoch of the node has ended, and its agent has not said yet that
	// nothing of it runs or is mounted there any more. The node gets nothing new
	// until it has.
	Owes bool `json:"owes,omitempty"` // RegisterNode, FenceNode, ReportFacts
	// Remains is what its agent could not undo yet of what it owes, and why.
	Remains string `json:"remains,omitempty"` // ReportFacts
	// Fence is why its last epoch was ended, until it owes nothing.
	Fence *Evidence `json:"fence,omitempty"` // FenceNode, ReportFacts
	// Drained is how its last drain ended.
	Drained *Drained `json:"drained,omitempty"` // StopDrain, FinishDrain
}

// Takes reports whether the node may be given calls to make.
func (n *Node) Takes() bool { return n.Status.State == NodeReady && !n.Status.Owes }

// Eligible reports whether new allocations may be placed on the node.
func (n *Node) Eligible() bool { return n.Takes() && !n.Spec.Ineligible }

// Places reports whether new allocations of a group may be placed on the node.
// One that has to undo what it ran takes nothing but plugins without volumes of
// their own: without them it may never be able to.
func (n *Node) Places(g *TaskGroup) bool {
	undoes := n.Status.State == NodeReady && n.Status.Owes && g.ServesPlugins() && len(g.Volumes) == 0
	return (n.Takes() || undoes) && !n.Spec.Ineligible
}

// Condition is the node's state as people read it: ready, down, whether it is
// fenced or has something to undo, and whether it gets allocations.
func (n *Node) Condition() string {
	s := string(n.Status.State)
	switch {
	case n.Status.Fence != nil:
		s += ", fenced"
	case n.Status.Owes:
		s += ", clearing"
	}
	switch {
	case n.Spec.Drain != nil:
		s += ", draining"
	case n.Spec.Ineligible:
		s += ", ineligible"
	}
	return s
}

// Profile is what an agent tells of its machine when it registers.
type Profile struct {
	// Class and Meta are from the agent's configuration.
	Class string            `json:"class,omitempty"`
	Meta  map[string]string `json:"meta,omitempty"`
	// Attributes are what the agent found: cpu.arch, kernel.name, ...
	Attributes map[string]string `json:"attributes,omitempty"`
	// Address is the IP address at which others reach the node's services.
	Address string `json:"address,omitempty"`
	// CPU in MHz and MemoryMB in MiB are what the node has for tasks; of 0
	// nothing is known, and nothing counted.
	CPU      int `json:"cpu,omitempty"`
	MemoryMB int `json:"memory,omitempty"`
	// HostVolumes are the directories that the agent's configuration gives to
	// jobs, by name.
	HostVolumes map[string]HostVolume `json:"host_volumes,omitempty"`
}

// HostVolume is a directory of a node that jobs may ask for.
type HostVolume struct {
	// ReadOnly: no task may write to it.
	ReadOnly bool `json:"read_only,omitempty"`
}

// Lookup is the value of what a constraint names, such as ${attr.cpu.arch}. What
// Nomad's nodes always have, a datacenter and a region, is the node's metadata of
// that name, or Nomad's own default.
func (n *Node) Lookup(reference string) (value string, ok bool) {
	name := strings.TrimSuffix(strings.TrimPrefix(reference, "${"), "}")
	switch name {
	case "node.unique.id":
		return string(n.ID), true
	case "node.unique.name":
		return n.Name, true
	case "node.datacenter":
		return cmp.Or(n.Status.Profile.Meta["datacenter"], "dc1"), true
	case "node.region":
		return cmp.Or(n.Status.Profile.Meta["region"], "global"), true
	case "node.class":
		return n.Status.Profile.Class, n.Status.Profile.Class != ""
	}
	if name == "attr.unique.network.ip-address" && n.Status.Profile.Address != "" {
		return n.Status.Profile.Address, true
	}
	if key, found := strings.CutPrefix(name, "attr."); found {
		if value, ok = n.Status.Profile.Attributes[key]; ok {
			return value, ok
		}
		return n.driver(key)
	}
	if key, found := strings.CutPrefix(name, "meta."); found {
		value, ok = n.Status.Profile.Meta[key]
	}
	return value, ok
}

// driver is the value of driver.<name>, which is 1 where it works, and of
// driver.<name>.version.
func (n *Node) driver(key string) (value string, ok bool) {
	key, found := strings.CutPrefix(key, "driver.")
	if !found {
		return "", false
	}
	if d := n.Status.Drivers[key]; d.Healthy {
		return "1", true
	}
	if name, found := strings.CutSuffix(key, ".version"); found {
		d := n.Status.Drivers[name]
		return d.Version, d.Healthy && d.Version != ""
	}
	return "", false
}

// Driver is a task driver as an agent declares it.
type Driver struct {
	Healthy bool `json:"healthy"`
	// Reason is why it is not healthy.
	Reason string `json:"reason,omitempty"`
	// Version is what it runs tasks with, if that has one.
	Version string `json:"version,omitempty"`
	// MountsVolumes: the driver can bind volumes into a task.
	MountsVolumes bool `json:"mounts_volumes"`
	// NoBlockDevices: of the volumes that it mounts, none may be a block device.
	NoBlockDevices bool `json:"no_block_devices,omitempty"`
}

// Lease is how long an agent may be silent before the servers call its node down.
const Lease = 15 * time.Second

// MaxPollWait bounds how long a blocking query may wait, and so how long an
// agent in health is silent.
const MaxPollWait = 5 * time.Minute
