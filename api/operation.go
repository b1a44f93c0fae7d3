package api

import (
	"fmt"
	"strings"
	"time"
)

// Operation is one call with an effect at a storage provider: recorded before
// it is made, assigned to the agent of a node that has a controller plugin,
// its outcome recorded after.
type Operation struct {
	Meta
	ID OperationID `json:"id"`
	// Name is unique while the operation is open: publish/default/pg/db-1-9f31c2aa.
	Name      string        `json:"name"`
	Kind      OperationKind `json:"kind"`
	Namespace NamespaceID   `json:"namespace"`
	VolumeID  VolumeID      `json:"volume_id"`
	// SnapshotID is the snapshot that is made or deleted; else empty. VolumeID is
	// then the volume that it is of.
	SnapshotID SnapshotID `json:"snapshot_id,omitempty"`
	PluginID   PluginID   `json:"plugin_id"`
	// NodeID is the node of the publication that the call is about; else empty.
	NodeID NodeID `json:"node_id,omitempty"`
	// Request is frozen at opening, so that every repetition carries the same
	// fields (CSI spec, Error Scheme).
	Request OperationRequest `json:"request"`
	// Trace is whose wish it is, of those on a volume itself.
	Trace  TraceContext    `json:"trace,omitempty"`
	Status OperationStatus `json:"status"`
}

// OperationKind is the call that is made.
type OperationKind string

// The operation kinds and the calls that they make.
const (
	OperationCreate    OperationKind = "create"    // CreateVolume
	OperationDelete    OperationKind = "delete"    // DeleteVolume
	OperationPublish   OperationKind = "publish"   // ControllerPublishVolume
	OperationUnpublish OperationKind = "unpublish" // ControllerUnpublishVolume
	OperationExpand    OperationKind = "expand"    // ControllerExpandVolume
	OperationModify    OperationKind = "modify"    // ControllerModifyVolume
	// OperationNodeExpand is NodeExpandVolume, which only the agent of the
	// publication's node can make.
	OperationNodeExpand     OperationKind = "node-expand"
	OperationSnapshot       OperationKind = "snapshot"        // CreateSnapshot
	OperationDeleteSnapshot OperationKind = "delete-snapshot" // DeleteSnapshot
)

// OperationKinds lists all kinds.
func OperationKinds() []OperationKind {
	return []OperationKind{
		OperationCreate, OperationDelete, OperationPublish, OperationUnpublish,
		OperationExpand, OperationModify, OperationNodeExpand, OperationSnapshot, OperationDeleteSnapshot,
	}
}

// OperationSubject is the noun that an operation changes, and that names the
// operation while it is open.
type OperationSubject string

// The subjects.
const (
	SubjectVolume      OperationSubject = "volume"
	SubjectPublication OperationSubject = "publication"
	SubjectSnapshot    OperationSubject = "snapshot"
)

// Subject is the noun that calls of the kind change; empty for no kind.
func (k OperationKind) Subject() OperationSubject {
	switch k {
	case OperationCreate, OperationDelete, OperationExpand, OperationModify:
		return SubjectVolume
	case OperationPublish, OperationUnpublish, OperationNodeExpand:
		return SubjectPublication
	case OperationSnapshot, OperationDeleteSnapshot:
		return SubjectSnapshot
	}
	return ""
}

// OperationName is the readable name that is unique while the operation is open.
// Where the subject is a snapshot, its id takes the place of the volume's.
func OperationName(kind OperationKind, ns NamespaceID, volume VolumeID, node NodeID) string {
	if node == "" {
		return fmt.Sprintf("%s/%s/%s", kind, ns, volume)
	}
	return fmt.Sprintf("%s/%s/%s/%s", kind, ns, volume, node)
}

// NewOperationID names an operation; serials are never used twice.
func NewOperationID(name string, serial uint64) OperationID {
	return OperationID(fmt.Sprintf("%s@%d", name, serial))
}

// Kind is the kind of call that the operation makes, read from its name.
func (id OperationID) Kind() OperationKind {
	kind, _, _ := strings.Cut(string(id), "/")
	return OperationKind(kind)
}

// OperationRequest holds the arguments of the call; exactly the member that
// fits the kind is set.
type OperationRequest struct {
	Create    *CreateRequest    `json:"create,omitempty"`
	Delete    *DeleteRequest    `json:"delete,omitempty"`
	Publish   *PublishRequest   `json:"publish,omitempty"`
	Unpublish *UnpublishRequest `json:"unpublish,omitempty"`

	Expand         *ExpandRequest         `json:"expand,omitempty"`
	Modify         *ModifyRequest         `json:"modify,omitempty"`
	NodeExpand     *NodeExpandRequest     `json:"node_expand,omitempty"`
	Snapshot       *SnapshotRequest       `json:"snapshot,omitempty"`
	DeleteSnapshot *DeleteSnapshotRequest `json:"delete_snapshot,omitempty"`
}

// Fits reports whether the member of the kind is set.
func (r *OperationRequest) Fits(kind OperationKind) bool {
	switch kind {
	case OperationCreate:
		return r.Create != nil
	case OperationDelete:
		return r.Delete != nil
	case OperationPublish:
		return r.Publish != nil
	case OperationUnpublish:
		return r.Unpublish != nil
	case OperationExpand:
		return r.Expand != nil
	case OperationModify:
		return r.Modify != nil
	case OperationNodeExpand:
		return r.NodeExpand != nil
	case OperationSnapshot:
		return r.Snapshot != nil
	case OperationDeleteSnapshot:
		return r.DeleteSnapshot != nil
	}
	return false
}

// CreateRequest is CreateVolume's (CSI spec, CreateVolume).
type CreateRequest struct {
	// Name is the CSI name, the same in every attempt.
	Name         string            `json:"name"`
	CapacityMin  int64             `json:"capacity_min,omitempty"`
	CapacityMax  int64             `json:"capacity_max,omitempty"`
	Capabilities []Capability      `json:"capabilities"`
	MountOptions *MountOptions     `json:"mount_options,omitempty"`
	Parameters   map[string]string `json:"parameters,omitempty"`
	// MutableParameters can be changed later, by a ModifyRequest.
	MutableParameters map[string]string `json:"mutable_parameters,omitempty"`
	TopologyRequest   *TopologyRequest  `json:"topology_request,omitempty"`
	// SnapshotID or CloneID is the content that the volume begins with, by the
	// plugin's id (CSI spec, VolumeContentSource).
	SnapshotID string `json:"snapshot_id,omitempty"`
	CloneID    string `json:"clone_id,omitempty"`
	// First is the TopologyRequest of the first attempt, where others were tried
	// since for want of room.
	First *TopologyRequest `json:"first,omitempty"`
	// Search counts the answers that the volume is there, and different. The next
	// attempt is made with the arguments of another earlier one, to find it. Loose:
	// it is to be deleted, so it is found with as few conditions as can be.
	Search int  `json:"search,omitempty"`
	Loose  bool `json:"loose,omitempty"`
}

// DeleteRequest is DeleteVolume's.
type DeleteRequest struct {
	ExternalID string `json:"external_id"`
}

// PublishRequest is ControllerPublishVolume's.
type PublishRequest struct {
	ExternalID     string            `json:"external_id"`
	ExternalNodeID string            `json:"external_node_id"`
	Capability     Capability        `json:"capability"`
	MountOptions   *MountOptions     `json:"mount_options,omitempty"`
	ReadOnly       bool              `json:"read_only,omitempty"`
	Context        map[string]string `json:"context,omitempty"`
}

// UnpublishRequest is ControllerUnpublishVolume's.
type UnpublishRequest struct {
	ExternalID     string `json:"external_id"`
	ExternalNodeID string `json:"external_node_id"`
	// ReadBack: an earlier publish got no answer, so what comes of this call is
	// read back where the plugin can.
	ReadBack bool `json:"read_back,omitempty"`
}

// ExpandRequest is ControllerExpandVolume's. Sizes are in bytes; a maximum of 0
// is none.
type ExpandRequest struct {
	ExternalID   string        `json:"external_id"`
	CapacityMin  int64         `json:"capacity_min"`
	CapacityMax  int64         `json:"capacity_max,omitempty"`
	Capability   Capability    `json:"capability"`
	MountOptions *MountOptions `json:"mount_options,omitempty"`
}

// ModifyRequest is ControllerModifyVolume's.
type ModifyRequest struct {
	ExternalID        string            `json:"external_id"`
	MutableParameters map[string]string `json:"mutable_parameters"`
}

// NodeExpandRequest is NodeExpandVolume's, without the paths, which the agent
// knows. Sizes are in bytes; a maximum of 0 is none.
type NodeExpandRequest struct {
	ExternalID   string        `json:"external_id"`
	CapacityMin  int64         `json:"capacity_min"`
	CapacityMax  int64         `json:"capacity_max,omitempty"`
	Capability   Capability    `json:"capability"`
	MountOptions *MountOptions `json:"mount_options,omitempty"`
}

// SnapshotRequest is CreateSnapshot's.
type SnapshotRequest struct {
	// Name is the CSI name, the same in every attempt.
	Name string `json:"name"`
	// SourceID is the plugin's id of the volume.
	SourceID   string            `json:"source_id"`
	Parameters map[string]string `json:"parameters,omitempty"`
}

// DeleteSnapshotRequest is DeleteSnapshot's.
type DeleteSnapshotRequest struct {
	ExternalID string `json:"external_id"`
}

// OperationState is where an operation is.
type OperationState string

// The operation states. The first two are open.
const (
	// OperationWaiting: it waits for an agent, or for its next attempt.
	OperationWaiting OperationState = "waiting"
	// OperationAssigned: an agent has it; nobody else may make the call.
	OperationAssigned OperationState = "assigned"
	// OperationSucceeded and OperationFailed are ends. Failed is certain: the
	// provider refused, and repeating cannot help.
	OperationSucceeded OperationState = "succeeded"
	OperationFailed    OperationState = "failed"
	// OperationCancelled: it was closed before any agent had it.
	OperationCancelled OperationState = "cancelled"
)

// OperationStatus is what became of the call.
type OperationStatus struct {
	State OperationState `json:"state"` // OpenOperation, AssignOperation, CancelOperation, ReportFacts
	// Attempt counts assignments, from 1. Reports of an older one are refused.
	Attempt int `json:"attempt"` // AssignOperation
	// Executor is the node whose agent makes the call.
	Executor NodeID    `json:"executor,omitempty"` // AssignOperation
	Assigned time.Time `json:"assigned,omitzero"`  // AssignOperation
	Deadline time.Time `json:"deadline,omitzero"`  // AssignOperation
	Ended    time.Time `json:"ended,omitzero"`     // ReportFacts, CancelOperation
	Next     time.Time `json:"next,omitzero"`      // ReportFacts: not tried before this
	Failures int       `json:"failures,omitempty"` // ReportFacts: attempts that failed
	Code     string    `json:"code,omitempty"`     // ReportFacts: gRPC code name of the last attempt
	Message  string    `json:"message,omitempty"`  // ReportFacts
	Duration Duration  `json:"duration,omitempty"` // ReportFacts: of the last call
	// Uncertain: at least one attempt ended without anybody knowing its effect.
	Uncertain bool `json:"uncertain,omitempty"` // ReportFacts
	// Queued is the operation's place in the queue of its plugin, where that is
	// later than its opening: other operations on its volume were before it.
	Queued time.Time `json:"queued,omitzero"` // OpenOperation
	// Secrets: the volume had secrets when the attempt was assigned, which the
	// agent asks for before it makes the call.
	Secrets bool `json:"secrets,omitempty"` // AssignOperation
}

// Open reports whether the operation has not ended.
func (o *Operation) Open() bool {
	return o.Status.State == OperationWaiting || o.Status.State == OperationAssigned
}

// Place is what the operations that wait for a plugin are served by.
func (o *Operation) Place() time.Time {
	if o.Status.Queued.IsZero() {
		return o.CreateTime
	}
	return o.Status.Queued
}

// OperationResult is what a successful call answered.
type OperationResult struct {
	ExternalID         string            `json:"external_id,omitempty"`
	Capacity           int64             `json:"capacity,omitempty"`
	Context            map[string]string `json:"context,omitempty"`
	AccessibleTopology []Topology        `json:"accessible_topology,omitempty"`
	PublishContext     map[string]string `json:"publish_context,omitempty"`
	// SnapshotID or CloneID is the content that a new volume began as, by the
	// plugin's word (CSI spec, Volume.content_source).
	SnapshotID string `json:"snapshot_id,omitempty"`
	CloneID    string `json:"clone_id,omitempty"`
	// NodeExpansionRequired is ControllerExpandVolume's: the node has to grow the
	// file system, too.
	NodeExpansionRequired bool            `json:"node_expansion_required,omitempty"`
	Snapshot              *SnapshotResult `json:"snapshot,omitempty"`
}

// SnapshotResult is what CreateSnapshot answered.
type SnapshotResult struct {
	ExternalID string `json:"external_id"`
	// Size in bytes is what a volume made from it needs at least; 0 if it is not
	// known.
	Size    int64     `json:"size,omitempty"`
	Created time.Time `json:"created,omitzero"`
	// Ready: it can be used. Until then the plugin goes on working on it, and the
	// same call asks how far it is (CSI spec, Snapshot.ready_to_use).
	Ready bool `json:"ready"`
}
