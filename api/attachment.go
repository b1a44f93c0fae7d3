package api

import "time"

// Attachment is one allocation's named request for one volume, from the moment
// of placement until the volume is free again. One allocation may mount a
// volume twice; each request has its own attachment and its own target path.
type Attachment struct {
	Meta
	AllocID AllocID `json:"alloc_id"`
	// Name is the request's name in the job's group.
	Name           string         `json:"name"`
	Namespace      NamespaceID    `json:"namespace"`
	VolumeID       VolumeID       `json:"volume_id"`
	PluginID       PluginID       `json:"plugin_id"`
	NodeID         NodeID         `json:"node_id"`
	JobID          JobID          `json:"job_id"`
	ReadOnly       bool           `json:"read_only,omitempty"`
	AccessMode     AccessMode     `json:"access_mode"`
	AttachmentMode AttachmentMode `json:"attachment_mode"`
	MountOptions   *MountOptions  `json:"mount_options,omitempty"`
	// FSGroup and FSGroupPolicy are the request's.
	FSGroup       int              `json:"fs_group,omitempty"`
	FSGroupPolicy FSGroupPolicy    `json:"fs_group_policy,omitempty"`
	Status        AttachmentStatus `json:"status"`
}

// AttachmentState only ever moves forward. A step that the plugin's
// capabilities do not need is passed over, and recorded as such.
type AttachmentState string

// The attachment states, in order.
const (
	// Claimed: the hold is taken, in the same log entry as the placement.
	Claimed AttachmentState = "claimed"
	// ControllerPublished: the provider has attached the volume to the node.
	ControllerPublished AttachmentState = "controller-published"
	// NodePublished: it is mounted at the target path.
	NodePublished AttachmentState = "node-published"
	// Unpublishing: the agent is to unmount it.
	Unpublishing AttachmentState = "unpublishing"
	// NodeDetached: the agent's word that nothing of it is mounted.
	NodeDetached AttachmentState = "node-detached"
	// ControllerDetached: the provider has detached it, or others still use
	// the publication.
	ControllerDetached AttachmentState = "controller-detached"
	// Freed: the hold is gone; the row is history.
	Freed AttachmentState = "freed"
)

// AttachmentStates lists the states in order.
func AttachmentStates() []AttachmentState {
	return []AttachmentState{
		Claimed, ControllerPublished, NodePublished, Unpublishing,
		NodeDetached, ControllerDetached, Freed,
	}
}

// Rank is the state's place in the order, from 0; -1 for no state.
func (s AttachmentState) Rank() int {
	for i, state := range AttachmentStates() {
		if s == state {
			return i
		}
	}
	return -1
}

// Before reports whether s comes earlier in the life of an attachment than t.
func (s AttachmentState) Before(t AttachmentState) bool { return s.Rank() < t.Rank() }

// AttachmentStatus is the way that the attachment has come.
type AttachmentStatus struct {
	State AttachmentState  `json:"state"` // PlaceAllocation, AdvanceAttachment, ReportFacts
	Steps []AttachmentStep `json:"steps"` // as State
	// TargetPath is where the agent has it mounted.
	TargetPath string `json:"target_path,omitempty"` // ReportFacts
	// Problem is what keeps the agent from the next step.
	Problem *Problem `json:"problem,omitempty"` // ReportFacts
}

// AttachmentStep is the moment at which a state was reached, or passed over.
type AttachmentStep struct {
	State   AttachmentState `json:"state"`
	Time    time.Time       `json:"time"`
	Skipped bool            `json:"skipped,omitempty"`
	// Evidence is why a step that is the node's was passed over.
	Evidence *Evidence `json:"evidence,omitempty"`
}

// Problem is why an agent's step does not succeed.
type Problem struct {
	// Step is what was tried: NodeStageVolume, wait for plugin. It is empty
	// where only time is needed.
	Step string `json:"step"`
	// Code is a gRPC code name where a plugin answered: NOT_FOUND.
	Code    string    `json:"code,omitempty"`
	Message string    `json:"message"`
	Since   time.Time `json:"since,omitzero"`
	Next    time.Time `json:"next,omitzero"`
}

// StepPlugin is the step of a problem that is a plugin's health: what an allocation
// has may work all the same.
const StepPlugin = "plugin"

// StepStop is the step of a problem that is the end of a task, which takes as long
// as its job lets it.
const StepStop = "stop"

// Holds reports whether the attachment still counts against its volume.
func (a *Attachment) Holds() bool { return a.Status.State != Freed }

// Wanted reports whether the attachment wants its volume published: it holds,
// and is not on its way out.
func (a *Attachment) Wanted() bool { return a.Status.State.Before(Unpublishing) }

// Writes reports whether the attachment may change the volume.
func (a *Attachment) Writes() bool {
	return !a.ReadOnly && !a.AccessMode.ReadersOnly()
}

// Publication is the presence of one volume on one node, shared by all of the
// attachments there. One that was ever asked for is detached before it is
// forgotten, whatever was answered.
type Publication struct {
	Meta
	Namespace NamespaceID       `json:"namespace"`
	VolumeID  VolumeID          `json:"volume_id"`
	NodeID    NodeID            `json:"node_id"`
	PluginID  PluginID          `json:"plugin_id"`
	Status    PublicationStatus `json:"status"`
}

// Outcome is what the storage provider is known to have done.
type Outcome string

// The outcomes.
const (
	// OutcomeNone: the provider was never asked.
	OutcomeNone Outcome = "none"
	// OutcomeUncertain: it was asked; nobody knows what came of it.
	OutcomeUncertain Outcome = "uncertain"
	// OutcomePublished: the volume is attached to the node.
	OutcomePublished Outcome = "published"
	// OutcomeDetached: it was asked to detach and said that it did.
	OutcomeDetached Outcome = "detached"
)

// PublicationStatus is what is known of the volume on the node.
type PublicationStatus struct {
	// ExternalNodeID is the provider's name for the node, stored before the
	// first publish and never dropped.
	ExternalNodeID string            `json:"external_node_id,omitempty"` // OpenOperation
	Outcome        Outcome           `json:"outcome"`                    // AssignOperation, ReportFacts
	PublishContext map[string]string `json:"publish_context,omitempty"`  // ReportFacts
	// ReadOnly and Capability are what the provider was given last. It may not
	// be asked for anything else before it has detached.
	ReadOnly   bool       `json:"read_only,omitempty"` // OpenOperation
	Capability Capability `json:"capability,omitzero"` // OpenOperation
	// Staged is the agent's word on NodeStageVolume.
	Staged bool `json:"staged"` // ReportFacts
	// Left: the node has it for nothing that the state knows: a recovery found
	// that, or the provider says so and somebody wants it away. It is detached when
	// nobody else there holds it.
	Left bool `json:"left,omitempty"` // ReportFacts, DetachVolume
	// NodeEpoch is the epoch of the node when the publication was made.
	NodeEpoch uint64 `json:"node_epoch"` // PlaceAllocation
	// NodeExpansion is the size in bytes to which the node is to grow what is on
	// the volume; 0 if nothing is to grow there.
	NodeExpansion int64 `json:"node_expansion,omitempty"` // PlaceAllocation, ReportFacts, GrowVolume
	// NodeExpansionRefused is why the plugin on the node refused that for good. It
	// is tried again when the volume is staged again, or expanded again.
	NodeExpansionRefused string `json:"node_expansion_refused,omitempty"` // ReportFacts, CancelOperation
	// Operation is the open operation on the publication.
	Operation OperationID `json:"operation,omitempty"` // OpenOperation, CancelOperation, ReportFacts
	// Lingers is until when a publish that nobody waits for any more may still
	// be running. The opposite call waits for it.
	Lingers time.Time `json:"lingers,omitzero"` // ReportFacts
}

// MayBeAttached reports whether the provider might have the volume attached.
func (p *Publication) MayBeAttached() bool {
	return p.Status.Outcome == OutcomePublished || p.Status.Outcome == OutcomeUncertain
}
