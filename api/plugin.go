package api

import "slices"

// Instance is a CSI driver as one agent sees it on one node.
type Instance struct {
	Meta
	PluginID PluginID `json:"plugin_id"`
	NodeID   NodeID   `json:"node_id"`
	// AllocID is set if the plugin runs as a task, empty if the host runs it.
	AllocID AllocID `json:"alloc_id,omitempty"`
	InstanceStatus
}

// InstanceType says which CSI services an instance serves.
type InstanceType string

// The instance types.
const (
	InstanceNode       InstanceType = "node"
	InstanceController InstanceType = "controller"
	InstanceMonolith   InstanceType = "monolith"
)

// InstanceStatus is what the agent found out. Its only writer is ReportFacts.
// Capabilities carry the specification's names; those that this version does
// not know are kept as UNKNOWN(11).
type InstanceStatus struct {
	Type    InstanceType `json:"type"`
	Healthy bool         `json:"healthy"`
	// Reason is why it is not healthy.
	Reason string `json:"reason,omitempty"`
	// Driver and VendorVersion are GetPluginInfo's words.
	Driver        string `json:"driver,omitempty"`
	VendorVersion string `json:"vendor_version,omitempty"`
	// PluginCapabilities are GetPluginCapabilities', services and expansion.
	PluginCapabilities     []string `json:"plugin_capabilities,omitempty"`
	ControllerCapabilities []string `json:"controller_capabilities,omitempty"`
	NodeCapabilities       []string `json:"node_capabilities,omitempty"`
	// ExternalNodeID, MaxVolumes and Topology are NodeGetInfo's. MaxVolumes 0
	// means that the driver names no limit.
	ExternalNodeID string   `json:"external_node_id,omitempty"`
	MaxVolumes     int64    `json:"max_volumes,omitempty"`
	Topology       Topology `json:"topology,omitempty"`
}

// Capabilities that decisions rest on, by the specification's names.
const (
	CapControllerService    = "CONTROLLER_SERVICE"
	CapAccessibility        = "VOLUME_ACCESSIBILITY_CONSTRAINTS"
	CapCreateDeleteVolume   = "CREATE_DELETE_VOLUME"
	CapCreateDeleteSnapshot = "CREATE_DELETE_SNAPSHOT"
	CapCloneVolume          = "CLONE_VOLUME"
	CapPublishUnpublish     = "PUBLISH_UNPUBLISH_VOLUME"
	CapPublishReadonly      = "PUBLISH_READONLY"
	CapSingleNodeMultiWrite = "SINGLE_NODE_MULTI_WRITER"
	CapStageUnstage         = "STAGE_UNSTAGE_VOLUME"
	CapVolumeMountGroup     = "VOLUME_MOUNT_GROUP"
	CapVolumeStats          = "GET_VOLUME_STATS"
	CapListVolumes          = "LIST_VOLUMES"
	CapListPublished        = "LIST_VOLUMES_PUBLISHED_NODES"
	CapGetVolume            = "GET_VOLUME"
	CapGetCapacity          = "GET_CAPACITY"
	CapListSnapshots        = "LIST_SNAPSHOTS"
	CapVolumeCondition      = "VOLUME_CONDITION"
	// CapExpandVolume is a capability of controllers and of nodes.
	CapExpandVolume = "EXPAND_VOLUME"
	CapModifyVolume = "MODIFY_VOLUME"
	// CapOnline and CapOffline are a plugin's kinds of VolumeExpansion: of volumes
	// in use, and only of those that are not.
	CapOnline  = "ONLINE"
	CapOffline = "OFFLINE"
)

// ServesController reports whether controller calls may go to the instance.
func (s *InstanceStatus) ServesController() bool {
	return s.Type != InstanceNode && slices.Contains(s.PluginCapabilities, CapControllerService)
}

// ServesNode reports whether node calls may go to the instance.
func (s *InstanceStatus) ServesNode() bool { return s.Type != InstanceController }

// Can reports whether the instance's controller has the capability.
func (s *InstanceStatus) Can(capability string) bool {
	return slices.Contains(s.ControllerCapabilities, capability)
}

// Stages reports whether the instance stages volumes before it publishes them.
func (s *InstanceStatus) Stages() bool { return slices.Contains(s.NodeCapabilities, CapStageUnstage) }

// Plugin is a CSI driver, computed from its instances; it has no row.
type Plugin struct {
	ID             PluginID `json:"id"`
	Driver         string   `json:"driver,omitempty"`
	VendorVersions []string `json:"vendor_versions,omitempty"`
	// ControllersHealthy of ControllersExpected instances can do controller
	// calls; the same for nodes.
	ControllersHealthy  int         `json:"controllers_healthy"`
	ControllersExpected int         `json:"controllers_expected"`
	NodesHealthy        int         `json:"nodes_healthy"`
	NodesExpected       int         `json:"nodes_expected"`
	Instances           []*Instance `json:"instances,omitempty"`
}
