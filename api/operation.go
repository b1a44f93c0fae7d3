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
	PluginID  PluginID      `json:"plugin_id"`
	// NodeID is the node that the volume is published to; empty for create and
	// delete.
	NodeID NodeID `json:"node_id,omitempty"`
	// Request is frozen at opening, so that every repetition carries the same
	// fields (CSI spec, Error Scheme).
	Request OperationRequest `json:"request"`
	Status  OperationStatus  `json:"status"`
}

// OperationKind is the call that is made.
type OperationKind string

// The operation kinds and the calls that they make.
const (
	OperationCreate    OperationKind = "create"    // CreateVolume
	OperationDelete    OperationKind = "delete"    // DeleteVolume
	OperationPublish   OperationKind = "publish"   // ControllerPublishVolume
	OperationUnpublish OperationKind = "unpublish" // ControllerUnpublishVolume
)

// OperationName is the readable name that is unique while the operation is open.
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
}

// CreateRequest is CreateVolume's (CSI spec, CreateVolume).
type CreateRequest struct {
	// Name is the CSI name, the same in every attempt.
	Name            string            `json:"name"`
	CapacityMin     int64             `json:"capacity_min,omitempty"`
	CapacityMax     int64             `json:"capacity_max,omitempty"`
	Capabilities    []Capability      `json:"capabilities"`
	MountOptions    *MountOptions     `json:"mount_options,omitempty"`
	Parameters      map[string]string `json:"parameters,omitempty"`
	TopologyRequest *TopologyRequest  `json:"topology_request,omitempty"`
	// SnapshotID or CloneID is the content that the volume begins with, by the
	// plugin's id (CSI spec, VolumeContentSource).
	SnapshotID string `json:"snapshot_id,omitempty"`
	CloneID    string `json:"clone_id,omitempty"`
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
	// Secrets: the volume had secrets when the attempt was assigned, which the
	// agent asks for before it makes the call.
	Secrets bool `json:"secrets,omitempty"` // AssignOperation
}

// Open reports whether the operation has not ended.
func (o *Operation) Open() bool {
	return o.Status.State == OperationWaiting || o.Status.State == OperationAssigned
}

// OperationResult is what a successful call answered.
type OperationResult struct {
	ExternalID         string            `json:"external_id,omitempty"`
	Capacity           int64             `json:"capacity,omitempty"`
	Context            map[string]string `json:"context,omitempty"`
	AccessibleTopology []Topology        `json:"accessible_topology,omitempty"`
	PublishContext     map[string]string `json:"publish_context,omitempty"`
}
