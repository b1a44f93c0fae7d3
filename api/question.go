package api

import "time"

// Question asks an agent what a plugin on its node says. It changes nothing,
// is no part of the state, and leaves no word in the log. Exactly the field of
// its kind is set.
type Question struct {
	Kind     QuestionKind `json:"kind"`
	PluginID PluginID     `json:"plugin_id"`
	// Limit is how long the agent may take.
	Limit Duration `json:"limit"`

	Volumes   *VolumesQuestion   `json:"volumes,omitempty"`
	Volume    *VolumeQuestion    `json:"volume,omitempty"`
	Capacity  *CapacityQuestion  `json:"capacity,omitempty"`
	Validate  *ValidateQuestion  `json:"validate,omitempty"`
	Snapshots *SnapshotsQuestion `json:"snapshots,omitempty"`
	Stats     *StatsQuestion     `json:"stats,omitempty"`
}

// QuestionKind is the call that answers a question.
type QuestionKind string

// The kinds of questions, and what each answers.
const (
	// AskVolumes answers Listed, many times (ListVolumes).
	AskVolumes QuestionKind = "volumes"
	// AskVolume answers an ExternalVolume (ControllerGetVolume).
	AskVolume QuestionKind = "volume"
	// AskCapacity answers an AvailableCapacity (GetCapacity).
	AskCapacity QuestionKind = "capacity"
	// AskValidate answers a Validated (ValidateVolumeCapabilities).
	AskValidate QuestionKind = "validate"
	// AskSnapshots answers a SnapshotPage (ListSnapshots).
	AskSnapshots QuestionKind = "snapshots"
	// AskStats answers a VolumeUsage (NodeGetVolumeStats).
	AskStats QuestionKind = "stats"
)

// VolumesQuestion asks for the volumes that a plugin has.
type VolumesQuestion struct {
	// Whole asks for all of them, page after page; else it is the one page that
	// begins at Token, of at most Limit volumes, 0 for what the plugin gives.
	Whole bool   `json:"whole,omitempty"`
	Token string `json:"token,omitempty"`
	Limit int32  `json:"limit,omitempty"`
}

// Listed is one item of an answer to AskVolumes. One of its fields is set.
type Listed struct {
	Volume *ExternalVolume `json:"volume,omitempty"`
	// Restart: the plugin lost its place, and the list begins again. What was
	// answered before counts no more.
	Restart bool `json:"restart,omitempty"`
	// Next is where the next page begins.
	Next string `json:"next,omitempty"`
}

// ExternalVolume is a volume as its plugin describes it.
type ExternalVolume struct {
	// ExternalID is the plugin's id of it, of any characters.
	ExternalID string `json:"external_id"`
	// Capacity in bytes, 0 if the plugin does not say.
	Capacity           int64             `json:"capacity,omitempty"`
	Context            map[string]string `json:"context,omitempty"`
	AccessibleTopology []Topology        `json:"accessible_topology,omitempty"`
	// Nodes are the external ids of the nodes that it is published to, sorted.
	// They mean something only if the plugin says that it lists them.
	Nodes []string `json:"nodes,omitempty"`
	// Condition is nil if the plugin says nothing of it.
	Condition *VolumeCondition `json:"condition,omitempty"`
}

// VolumeCondition is a plugin's opinion on a volume. Drivers have been seen to
// call a volume abnormal that a task wrote to happily: nothing acts on it.
type VolumeCondition struct {
	Abnormal bool   `json:"abnormal"`
	Message  string `json:"message,omitempty"`
}

// VolumeQuestion asks for one volume.
type VolumeQuestion struct {
	ExternalID string `json:"external_id"`
}

// CapacityQuestion asks for room: for volumes of these parameters and
// capabilities, in this topology; empty asks for all that there is.
type CapacityQuestion struct {
	Topology     Topology          `json:"topology,omitempty"`
	Parameters   map[string]string `json:"parameters,omitempty"`
	Capabilities []Capability      `json:"capabilities,omitempty"`
}

// AvailableCapacity is what GetCapacity answers, in bytes. Minimum and Maximum
// bound the size of one volume; 0 is no bound.
type AvailableCapacity struct {
	Available int64 `json:"available"`
	Maximum   int64 `json:"maximum,omitempty"`
	Minimum   int64 `json:"minimum,omitempty"`
}

// ValidateQuestion asks whether a volume that is there can be used so.
type ValidateQuestion struct {
	ExternalID   string            `json:"external_id"`
	Context      map[string]string `json:"context,omitempty"`
	Capabilities []Capability      `json:"capabilities"`
	MountOptions *MountOptions     `json:"mount_options,omitempty"`
	Parameters   map[string]string `json:"parameters,omitempty"`
	// Secrets go with the call, and are kept and logged nowhere.
	Secrets map[string]string `json:"secrets,omitempty"`
}

// Validated is the answer to it. Refusal is why it cannot; empty if it can.
type Validated struct {
	Refusal string `json:"refusal,omitempty"`
}

// SnapshotsQuestion asks for a page of snapshots: all, those of one volume, or
// one, by the plugin's ids.
type SnapshotsQuestion struct {
	SourceID   string `json:"source_id,omitempty"`
	SnapshotID string `json:"snapshot_id,omitempty"`
	Token      string `json:"token,omitempty"`
	Limit      int32  `json:"limit,omitempty"`
}

// SnapshotPage is the answer to it.
type SnapshotPage struct {
	Snapshots []ExternalSnapshot `json:"snapshots"`
	Next      string             `json:"next,omitempty"`
}

// ExternalSnapshot is a snapshot as its plugin describes it.
type ExternalSnapshot struct {
	ExternalID string `json:"external_id"`
	// SourceID is the plugin's id of the volume that it is of.
	SourceID string    `json:"source_id,omitempty"`
	Size     int64     `json:"size,omitempty"`
	Ready    bool      `json:"ready,omitempty"`
	Created  time.Time `json:"created,omitzero"`
}

// StatsQuestion asks a node how full a volume is that is mounted there.
type StatsQuestion struct {
	Namespace NamespaceID `json:"namespace"`
	VolumeID  VolumeID    `json:"volume_id"`
}

// VolumeUsage is how full a volume is, as one node sees it. What the plugin
// does not say is nil.
type VolumeUsage struct {
	NodeID    NodeID           `json:"node_id,omitempty"`
	Bytes     *Usage           `json:"bytes,omitempty"`
	Inodes    *Usage           `json:"inodes,omitempty"`
	Condition *VolumeCondition `json:"condition,omitempty"`
	// Unknown is why there is no answer of this node.
	Unknown string `json:"unknown,omitempty"`
}

// Usage is in bytes or inodes.
type Usage struct {
	Total     int64 `json:"total"`
	Used      int64 `json:"used"`
	Available int64 `json:"available"`
}

// ListedVolume is a plugin's volume, and what the cluster knows of it.
type ListedVolume struct {
	ExternalVolume
	PluginID PluginID `json:"plugin_id"`
	// Namespace and VolumeID name the volume that it is; empty if it is none.
	Namespace NamespaceID `json:"namespace,omitempty"`
	VolumeID  VolumeID    `json:"volume_id,omitempty"`
	// Origin is where an unknown volume seems to come from, and what says so.
	Origin Origin `json:"origin,omitempty"`
	// Problem is why some volumes are missing here: the row is no volume.
	Problem string `json:"problem,omitempty"`
}

// ListedSnapshot is a snapshot that a plugin has, with the one of the cluster
// that it is.
type ListedSnapshot struct {
	ExternalSnapshot
	PluginID PluginID `json:"plugin_id"`
	// Namespace and SnapshotID name the snapshot that it is, VolumeID the volume
	// of the cluster that it is of; empty if they are not known.
	Namespace  NamespaceID `json:"namespace,omitempty"`
	SnapshotID SnapshotID  `json:"snapshot_id,omitempty"`
	VolumeID   VolumeID    `json:"volume_id,omitempty"`
	// Problem is why some snapshots are missing here: the row is no snapshot.
	Problem string `json:"problem,omitempty"`
}

// PlaceCapacity is the room in one topology of a plugin, as its controller
// there says.
type PlaceCapacity struct {
	// Topology is empty if the plugin makes no difference between places.
	Topology Topology `json:"topology,omitempty"`
	AvailableCapacity
	// Problem is why it is not known.
	Problem string `json:"problem,omitempty"`
}

// Origin is where a volume that nobody knows seems to come from.
type Origin string

// The origins.
const (
	// OriginOurs: it bears a name that this cluster gave, or the cluster asked
	// for it to be deleted.
	OriginOurs Origin = "ours"
	// OriginBerth: it bears a name as another cluster of Berth gives them.
	OriginBerth Origin = "another-cluster"
	// OriginUnknown: nothing says who made it.
	OriginUnknown Origin = "unknown"
)
