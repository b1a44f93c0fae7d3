package api

import "time"

// The agent's protocol: register, then poll assignments and report facts. An
// agent only ever dials out. Everything here is JSON over HTTP.

// Registration opens an agent's session. It goes out after drivers, host
// plugins and restored plugin tasks have fingerprinted, or their timeout.
type Registration struct {
	NodeID NodeID `json:"node_id"`
	Name   string `json:"name"`
	// ClusterID is the pinned id of the cluster that the agent belongs to,
	// empty before its first registration.
	ClusterID string `json:"cluster_id,omitempty"`
	// Session is the token of the session that begins, made by the agent and
	// written to its local database before it is sent. Known are the tokens
	// of older sessions that the local database still holds: the servers know
	// by them that this is the agent they last spoke to, and not a copy of it.
	Session string   `json:"session"`
	Known   []string `json:"known,omitempty"`
	BootID  string   `json:"boot_id"`
	Version string   `json:"version"`
	// FeatureLevel is the highest that this agent understands.
	FeatureLevel int `json:"feature_level"`
	// Generation and Index are the newest that the agent has seen.
	Generation uint64 `json:"generation,omitempty"`
	Index      uint64 `json:"index,omitempty"`
	// Epoch is the node's last that the agent knows of, 0 before its first
	// registration. Servers that have forgotten the node begin a later one.
	Epoch   uint64            `json:"epoch,omitempty"`
	Drivers map[string]Driver `json:"drivers"`
	Profile Profile           `json:"profile,omitzero"`
}

// Registered is the servers' answer.
type Registered struct {
	ClusterID  string     `json:"cluster_id"`
	Generation Generation `json:"generation"`
	Epoch      uint64     `json:"epoch"`
	// Sequence is the last report that was applied; the next one is higher.
	Sequence uint64 `json:"sequence"`
	Index    uint64 `json:"index"`
}

// Generation counts how often the servers' state was put back to an older one.
type Generation struct {
	Number uint64 `json:"number"`
	// Recovering: until the nodes have reported and an operator confirms,
	// nothing is started, stopped, detached or deleted.
	Recovering bool `json:"recovering,omitempty"`
	// Confirmed: an operator has. Agents end what the servers do not know; when
	// all have, the recovery is over, and the servers plan again.
	Confirmed bool      `json:"confirmed,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Since     time.Time `json:"since,omitzero"`
}

// Assignments is the whole of what one node is to do, as of Index.
type Assignments struct {
	ClusterID  string     `json:"cluster_id"`
	Generation Generation `json:"generation"`
	Epoch      uint64     `json:"epoch"`
	// Owes: the agent is to say when nothing of an earlier epoch runs or is
	// mounted on the node any more; it gets nothing new until then. Fence is
	// why, if the node was fenced.
	Owes        bool              `json:"owes,omitempty"`
	Fence       *Evidence         `json:"fence,omitempty"`
	Index       uint64            `json:"index"`
	Allocations []AllocAssignment `json:"allocations"`
	// Same: the allocations are those of the answer that had the index that the
	// agent polled with. None of them is named.
	Same       bool         `json:"same,omitempty"`
	Operations []*Operation `json:"operations,omitempty"`
	// Streams are wanted from this agent. They are no part of the state: an
	// answer may carry some and nothing newer, and then names no allocation.
	Streams []StreamOffer `json:"streams,omitempty"`
}

// AllocAssignment is one allocation that the node is to run or to end. If
// nothing of it changed since the index that the agent polled with, only ID is
// set.
type AllocAssignment struct {
	ID          AllocID                `json:"id"`
	Allocation  *Allocation            `json:"allocation,omitempty"`
	JobType     JobType                `json:"job_type,omitempty"`
	Meta        map[string]string      `json:"meta,omitempty"` // the job's
	Group       *TaskGroup             `json:"group,omitempty"`
	Attachments []AttachmentAssignment `json:"attachments,omitempty"`
}

// AttachmentAssignment is everything that an agent must know to stage and
// publish, and later to undo it, without asking again.
type AttachmentAssignment struct {
	Attachment Attachment `json:"attachment"`
	ExternalID string     `json:"external_id"`
	// StageOptions are the volume's own: one volume is staged once a node,
	// whatever its attachments ask for.
	StageOptions   *MountOptions     `json:"stage_options,omitempty"`
	Context        map[string]string `json:"context,omitempty"`
	PublishContext map[string]string `json:"publish_context,omitempty"`
	// Secrets: the volume has secrets, which the agent asks for right before it
	// stages or publishes, and never keeps.
	Secrets bool `json:"secrets,omitempty"`
	// NodeExpansion is the size in bytes to which the agent has what is on the
	// volume grown when it stages it (CSI spec, NodeExpandVolume); 0 if nothing is
	// to grow. CapacityMax is the most that it may be; 0 is no bound.
	NodeExpansion int64 `json:"node_expansion,omitempty"`
	CapacityMax   int64 `json:"capacity_max,omitempty"`
	// Refused is why the volume, which was to be made for the allocation, was
	// refused for good; empty if it was not.
	Refused string `json:"refused,omitempty"`
}

// Report carries facts from an agent to the servers. Sequence rises with every
// report and is kept in the local database until acknowledged, so that each is
// applied once.
type Report struct {
	NodeID   NodeID `json:"node_id"`
	Session  string `json:"session"`
	Epoch    uint64 `json:"epoch"`
	Sequence uint64 `json:"sequence"`
	Facts    Facts  `json:"facts"`
}

// Facts are levels, not edges: each says how one thing is now.
type Facts struct {
	Drivers      map[string]Driver `json:"drivers,omitempty"`
	Instances    []InstanceFact    `json:"instances,omitempty"`
	Allocations  []AllocFact       `json:"allocations,omitempty"`
	Attachments  []AttachmentFact  `json:"attachments,omitempty"`
	Publications []PublicationFact `json:"publications,omitempty"`
	Operations   []OperationFact   `json:"operations,omitempty"`
	// Cleared is the generation of which the node says that it runs nothing
	// that the servers do not know.
	Cleared uint64 `json:"cleared,omitempty"`
	// Left are the volumes of which the node let go for Cleared, and that the
	// provider may still have attached to it.
	Left []LeftVolume `json:"left,omitempty"`
	// Undone is the epoch of which the node says that nothing of those before it
	// runs or is mounted any more.
	Undone uint64 `json:"undone,omitempty"`
	// Remains is what of the epochs before this one the node could not undo yet,
	// and why.
	Remains string `json:"remains,omitempty"`
}

// LeftVolume is a volume that a node had for an allocation which a restored
// state does not know.
type LeftVolume struct {
	Namespace  NamespaceID `json:"namespace"`
	VolumeID   VolumeID    `json:"volume_id"`
	PluginID   PluginID    `json:"plugin_id"`
	ExternalID string      `json:"external_id"`
}

// Empty reports whether nothing is said.
func (f *Facts) Empty() bool {
	return f.Drivers == nil && len(f.Instances) == 0 && len(f.Allocations) == 0 &&
		len(f.Attachments) == 0 && len(f.Publications) == 0 && len(f.Operations) == 0 && f.Cleared == 0 && len(f.Left) == 0 && f.Undone == 0 && f.Remains == ""
}

// InstanceFact is how a plugin instance on the node is. Gone means that the
// node has it no more.
type InstanceFact struct {
	PluginID PluginID `json:"plugin_id"`
	AllocID  AllocID  `json:"alloc_id,omitempty"`
	Gone     bool     `json:"gone,omitempty"`
	InstanceStatus
}

// AllocFact is how an allocation is.
type AllocFact struct {
	ID     AllocID     `json:"id"`
	Status AllocStatus `json:"status"`
}

// AttachmentFact is how far the node is with an attachment: node-published,
// node-detached, or a problem on the way.
type AttachmentFact struct {
	AllocID    AllocID         `json:"alloc_id"`
	Name       string          `json:"name"`
	State      AttachmentState `json:"state,omitempty"`
	TargetPath string          `json:"target_path,omitempty"`
	Problem    *Problem        `json:"problem,omitempty"`
}

// PublicationFact says whether a volume is staged on the node.
type PublicationFact struct {
	Namespace NamespaceID `json:"namespace"`
	VolumeID  VolumeID    `json:"volume_id"`
	Staged    bool        `json:"staged"`
	// Grown is the size in bytes to which the node has had what is on the volume
	// grown since it mounted it; 0 if it has not.
	Grown int64 `json:"grown,omitempty"`
}

// OperationFact is the outcome of one attempt.
type OperationFact struct {
	ID      OperationID `json:"id"`
	Attempt int         `json:"attempt"`
	// Code is the gRPC code's name; OK for success.
	Code string `json:"code"`
	// NotSent: the call never left the agent, so it certainly had no effect.
	NotSent  bool            `json:"not_sent,omitempty"`
	Message  string          `json:"message,omitempty"`
	Duration Duration        `json:"duration,omitempty"`
	Result   OperationResult `json:"result,omitzero"`
	// Seen is what the plugin said of the volume after the call, where the agent
	// asked because the answer leaves a question, and the plugin can say.
	Seen *VolumeSeen `json:"seen,omitempty"`
}

// VolumeSeen is a volume as its plugin describes it.
type VolumeSeen struct {
	// Gone: the provider does not have the volume.
	Gone bool `json:"gone,omitempty"`
	// Nodes are the external ids of the nodes that it is published to, if
	// NodesKnown: some plugins do not say.
	NodesKnown bool     `json:"nodes_known,omitempty"`
	Nodes      []string `json:"nodes,omitempty"`
	// Found is the volume that the plugin lists with the name of a create which it
	// refused because the volume is there.
	Found *OperationResult `json:"found,omitempty"`
}

// Reported is the answer to a Report.
type Reported struct {
	Index uint64 `json:"index"`
}
