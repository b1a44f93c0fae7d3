package api

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Finding is a difference between what a plugin says and what the cluster
// knows, which was there twice, some time apart. It is cleared when it is gone.
// Nothing is done about it but by a person.
type Finding struct {
	Meta
	ID FindingID `json:"id"`
	Observation
}

// FindingID is the kind of a finding, and 12 hex digits that are made from what
// it is about: the same difference has the same id each time.
type FindingID string

// FindingKind is what differs.
type FindingKind string

// The kinds of findings.
const (
	// FindingLeak: the plugin has a volume that this cluster made, or had
	// deleted, and that it does not know.
	FindingLeak FindingKind = "leak"
	// FindingRetained: the cluster let a volume go that it had made, and left it
	// to the plugin, as its user said.
	FindingRetained FindingKind = "retained"
	// FindingVanished: the plugin has a volume no more that the cluster knows.
	FindingVanished FindingKind = "vanished"
	// FindingAbnormal: the plugin says that something is wrong with a volume.
	FindingAbnormal FindingKind = "abnormal"
	// FindingAttached: the provider has a volume attached to a node, and the
	// cluster does not know why.
	FindingAttached FindingKind = "attached"
	// FindingDetached: the cluster had a volume attached to a node, and the
	// provider has not.
	FindingDetached FindingKind = "detached"
)

// FindingKinds lists the kinds of findings.
func FindingKinds() []FindingKind {
	return []FindingKind{FindingLeak, FindingRetained, FindingVanished, FindingAbnormal, FindingAttached, FindingDetached}
}

// Unclaimed reports whether it is about a volume that the cluster does not
// know.
func (k FindingKind) Unclaimed() bool { return k == FindingLeak || k == FindingRetained }

// Observation is what was found. Its writers are RecordFindings and, for
// retained volumes, ForgetVolume.
type Observation struct {
	Kind     FindingKind `json:"kind"`
	PluginID PluginID    `json:"plugin_id"`
	// ExternalID is the plugin's id of the volume.
	ExternalID string `json:"external_id"`
	// Namespace and VolumeID name the volume. Of a retained one they say what
	// its name was.
	Namespace NamespaceID `json:"namespace,omitempty"`
	VolumeID  VolumeID    `json:"volume_id,omitempty"`
	// ExternalNodeID is the provider's name of the node that it is about, NodeID
	// the cluster's, if it knows it.
	ExternalNodeID string `json:"external_node_id,omitempty"`
	NodeID         NodeID `json:"node_id,omitempty"`
	// Capacity in bytes, of a volume that the cluster does not know.
	Capacity int64 `json:"capacity,omitempty"`
	// Nodes are those that the provider has such a volume attached to.
	Nodes []string `json:"nodes,omitempty"`
	// Message is what was seen, and what says so.
	Message string `json:"message"`
	// Since is when it was first seen.
	Since time.Time `json:"since,omitzero"`
}

// ID is the id of a finding of this.
func (o *Observation) ID() FindingID {
	sum := sha256.Sum256([]byte(string(o.PluginID) + "\x00" + o.ExternalID + "\x00" + o.ExternalNodeID))
	return FindingID(string(o.Kind) + "-" + hex.EncodeToString(sum[:6]))
}

// FoundVolume is what a plugin says of a volume that is registered.
type FoundVolume struct {
	Capacity           int64             `json:"capacity,omitempty"`
	Context            map[string]string `json:"context,omitempty"`
	AccessibleTopology []Topology        `json:"accessible_topology,omitempty"`
}

// SweepRequest asks for a comparison of a plugin with the state; empty is all.
type SweepRequest struct {
	PluginID PluginID `json:"plugin_id,omitempty"`
}

// SweepReport is how the last comparison of a plugin went.
type SweepReport struct {
	PluginID PluginID  `json:"plugin_id"`
	Began    time.Time `json:"began,omitzero"`
	Took     Duration  `json:"took,omitempty"`
	// Volumes is how many volumes the plugin told of, Unknown how many of them
	// the cluster does not know: those that are not its own are no findings.
	Volumes int `json:"volumes"`
	Unknown int `json:"unknown"`
	// Findings is how many there are, Waiting how many more were seen once, and
	// are findings if they are still there at the next look.
	Findings int `json:"findings"`
	Waiting  int `json:"waiting,omitempty"`
	// Changed is how many findings came, changed or went.
	Changed int `json:"changed,omitempty"`
	// Problems are what kept it from being whole.
	Problems []string `json:"problems,omitempty"`
	// Next is when it is compared again.
	Next time.Time `json:"next,omitzero"`
}
