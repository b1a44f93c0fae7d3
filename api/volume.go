package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Volume is a piece of storage that the cluster knows.
type Volume struct {
	Meta
	Namespace NamespaceID `json:"namespace"`
	ID        VolumeID    `json:"id"`
	// UID tells this volume from any other that had or will have its name. The
	// CSI name of CreateVolume is made from it.
	UID string `json:"uid"`
	// Desired is what the user wants: that the volume is there, or that it goes.
	Desired Presence `json:"desired"`
	// Reclaim is what its user said of the data when the volume was deleted;
	// empty leaves it to Retained.
	Reclaim Reclaim `json:"reclaim,omitempty"`
	// Owner is the allocation that the volume was made for, and goes with; empty
	// for a user's.
	Owner AllocID `json:"owner,omitempty"`
	// Secrets are the names of the secrets that the plugin gets.
	Secrets []string     `json:"secrets,omitempty"`
	Spec    VolumeSpec   `json:"spec"`
	Status  VolumeStatus `json:"status"`
}

// Reclaim is what becomes of a volume's data when the volume is deleted.
type Reclaim string

// The ways to reclaim.
const (
	// ReclaimDelete: the plugin deletes it.
	ReclaimDelete Reclaim = "delete"
	// ReclaimRetain: only the cluster forgets it.
	ReclaimRetain Reclaim = "retain"
)

// Reclaims lists the ways to reclaim.
func Reclaims() []Reclaim { return []Reclaim{ReclaimDelete, ReclaimRetain} }

// Retained reports whether the plugin is to keep the volume when it is deleted:
// as its user said, and else if it was there before the cluster knew it.
func (v *Volume) Retained() bool {
	if v.Reclaim == "" {
		return v.Spec.Registered()
	}
	return v.Reclaim == ReclaimRetain
}

// Presence is a user's wish for the existence of an object.
type Presence string

// The presences.
const (
	Present Presence = "present"
	Absent  Presence = "absent"
)

// VolumeSpec is what a user asks for.
type VolumeSpec struct {
	// Name is a free label for people; the id serves where it is empty.
	Name     string   `json:"name,omitempty"`
	PluginID PluginID `json:"plugin_id"`
	// CapacityMin and CapacityMax bound the size in bytes; 0 leaves a bound to
	// the plugin (CSI spec, CapacityRange). A larger CapacityMin than the volume
	// has expands it.
	CapacityMin  int64             `json:"capacity_min,omitempty"`
	CapacityMax  int64             `json:"capacity_max,omitempty"`
	Capabilities []Capability      `json:"capabilities"`
	MountOptions *MountOptions     `json:"mount_options,omitempty"`
	Parameters   map[string]string `json:"parameters,omitempty"`
	// MutableParameters are for the plugin too, and can be changed later (CSI
	// spec, ControllerModifyVolume).
	MutableParameters map[string]string `json:"mutable_parameters,omitempty"`
	TopologyRequest   *TopologyRequest  `json:"topology_request,omitempty"`
	// ExternalID is the plugin's id of a volume that exists already: it is
	// registered, and nothing is made. Context is its volume context (CSI spec,
	// Volume.volume_context).
	ExternalID string            `json:"external_id,omitempty"`
	Context    map[string]string `json:"context,omitempty"`
	// SnapshotID is the snapshot that a new volume begins as: one of the namespace
	// and the plugin, else one by the plugin's own id.
	SnapshotID string `json:"snapshot_id,omitempty"`
	// CloneID is the volume that a new one begins as a copy of: one of the
	// namespace and the plugin, else one by the plugin's own id.
	CloneID string `json:"clone_id,omitempty"`
	// SnapshotSchedule has snapshots of the volume made; nil makes none.
	SnapshotSchedule *SnapshotSchedule `json:"snapshot_schedule,omitempty"`
	// Secrets are for the plugin, and only in a request: the servers seal them,
	// and no row and no answer has them. Nil leaves those that there are, and an
	// empty map removes them.
	Secrets map[string]string `json:"secrets,omitzero"`
}

// Registered reports whether the volume exists already.
func (s *VolumeSpec) Registered() bool { return s.ExternalID != "" }

// Capability is one way in which a volume may be used.
type Capability struct {
	AccessMode     AccessMode     `json:"access_mode"`
	AttachmentMode AttachmentMode `json:"attachment_mode"`
}

// AccessMode says how many nodes and writers may use a volume at once (CSI
// spec, VolumeCapability.AccessMode).
type AccessMode string

// The access modes of the specification.
const (
	SingleNodeWriter       AccessMode = "single-node-writer"
	SingleNodeReaderOnly   AccessMode = "single-node-reader-only"
	SingleNodeSingleWriter AccessMode = "single-node-single-writer"
	SingleNodeMultiWriter  AccessMode = "single-node-multi-writer"
	MultiNodeReaderOnly    AccessMode = "multi-node-reader-only"
	MultiNodeSingleWriter  AccessMode = "multi-node-single-writer"
	MultiNodeMultiWriter   AccessMode = "multi-node-multi-writer"
)

// AccessModes lists all access modes, for validation and documentation.
func AccessModes() []AccessMode {
	return []AccessMode{
		SingleNodeWriter, SingleNodeReaderOnly, SingleNodeSingleWriter, SingleNodeMultiWriter,
		MultiNodeReaderOnly, MultiNodeSingleWriter, MultiNodeMultiWriter,
	}
}

// Exclusive reports whether one allocation has the volume alone. A driver may
// refuse a second target path for every mode of a single node but
// single-node-multi-writer, even to readers (CSI spec, NodePublishVolume,
// second publish); such a volume has one holder, whatever its driver does.
func (m AccessMode) Exclusive() bool {
	return m == SingleNodeWriter || m == SingleNodeReaderOnly || m == SingleNodeSingleWriter
}

// SingleNode reports whether only one node may use the volume at a time.
func (m AccessMode) SingleNode() bool {
	return m.Exclusive() || m == SingleNodeMultiWriter
}

// ReadersOnly reports whether nobody may write.
func (m AccessMode) ReadersOnly() bool { return m == SingleNodeReaderOnly || m == MultiNodeReaderOnly }

// AttachmentMode says what a task finds at the mount: a directory or a device.
type AttachmentMode string

// The attachment modes.
const (
	FileSystem  AttachmentMode = "file-system"
	BlockDevice AttachmentMode = "block-device"
)

// MountOptions reach the plugin as the mount part of a VolumeCapability.
type MountOptions struct {
	FSType     string   `json:"fs_type,omitempty"`
	MountFlags []string `json:"mount_flags,omitempty"`
}

// TopologyRequest says where a new volume must and should be reachable (CSI
// spec, TopologyRequirement).
type TopologyRequest struct {
	Required  []Topology `json:"required,omitempty"`
	Preferred []Topology `json:"preferred,omitempty"`
}

// VolumeState is where a volume is in its life.
type VolumeState string

// The volume states.
const (
	// VolumeCreating: intent is in the log; the plugin may or may not have it.
	VolumeCreating VolumeState = "creating"
	// VolumeReady: the plugin has it, and ExternalID names it there.
	VolumeReady VolumeState = "ready"
	// VolumeFailed: the plugin refused for good; Reason says why. Applying a
	// changed spec tries again, deleting forgets it.
	VolumeFailed VolumeState = "failed"
	// VolumeDeleting: its user wants it gone; it goes as soon as nothing holds it.
	VolumeDeleting VolumeState = "deleting"
)

// VolumeStatus is what the system knows of a volume. Its writers are the
// commands of internal/command named at each field.
type VolumeStatus struct {
	State VolumeState `json:"state"` // ApplyVolume, DeleteVolume, ReportFacts
	// ExternalID is the plugin's id. It may hold any character: no path is ever
	// built from it.
	ExternalID string `json:"external_id,omitempty"` // ReportFacts; ApplyVolume if registered
	// Capacity is what the plugin made, in bytes; not what was asked. 0 if it is
	// not known.
	Capacity           int64             `json:"capacity,omitempty"`            // ReportFacts
	Context            map[string]string `json:"context,omitempty"`             // ReportFacts; ApplyVolume if registered
	AccessibleTopology []Topology        `json:"accessible_topology,omitempty"` // ReportFacts; ApplyVolume if registered
	// Operation is the open operation on the volume itself: create, delete,
	// expand, modify; or the one that makes a snapshot of it, while an agent has that.
	Operation OperationID `json:"operation,omitempty"` // OpenOperation, AssignOperation, CancelOperation, ReportFacts
	// Schedule is where the snapshot schedule is; nil without one.
	Schedule *ScheduleStatus `json:"schedule,omitempty"` // ApplyVolume, ScheduleSnapshots, ReportFacts
	// Expansion is the wish for a larger volume, until it has come true; nil for
	// none.
	Expansion *Expansion `json:"expansion,omitempty"` // ApplyVolume, ReportFacts, CancelOperation
	// NodeExpansion is the size in bytes to which the next node that stages the
	// volume is to grow what is on it; 0 if nothing is to grow. It stands until a
	// node has said that it did.
	NodeExpansion int64 `json:"node_expansion,omitempty"` // ReportFacts, GrowVolume
	// MutableParameters are those that the plugin has taken.
	MutableParameters map[string]string `json:"mutable_parameters,omitempty"` // ReportFacts
	// Modification is the wish for other mutable parameters, until it has come
	// true; nil for none.
	Modification *Modification `json:"modification,omitempty"` // ApplyVolume, ReportFacts, CancelOperation
	// Reason is the plugin's last refusal.
	Reason string `json:"reason,omitempty"` // ReportFacts
	// Trace is whose request made the volume what it is to be, for who looks at
	// traces.
	Trace TraceContext `json:"trace,omitempty"` // ApplyVolume, DeleteVolume, PlaceAllocation
}

// Expansion is a wish for a larger volume that has not come true. What is
// wanted is the spec's; the volume stays usable with the size that it has.
type Expansion struct {
	// From is the capacity_min from which the wish began, in bytes: to put it
	// back is to end the wish.
	From  int64     `json:"from"`
	Since time.Time `json:"since"`
	// Offline: the plugin said that it does not expand the volume while that is
	// in use, whatever its capabilities say.
	Offline bool `json:"offline,omitempty"`
	// Refused is why it was refused for good. Nothing is tried until the volume
	// is applied again.
	Refused string `json:"refused,omitempty"`
}

// Modification is a wish for other mutable parameters that has not come true.
// The volume keeps those in its status.
type Modification struct {
	Since time.Time `json:"since"`
	// Refused is why it was refused for good. Nothing is tried until the volume
	// is applied again.
	Refused string `json:"refused,omitempty"`
}

// Validate reports every problem of the spec; path prefixes the fields.
func (s *VolumeSpec) Validate() error {
	var p Problems
	s.validate(&p)
	return p.Err("the volume")
}

func (s *VolumeSpec) validate(p *Problems) {
	p.Name("plugin_id", string(s.PluginID))
	if len(s.Name) > maxCSIString {
		p.Addf("name", "shorten it", "is longer than the %d bytes that CSI allows", maxCSIString)
	}
	s.validateCapacity(p)
	if len(s.Capabilities) == 0 {
		p.Add("capability", "is missing",
			`add capability { access_mode = "single-node-writer" attachment_mode = "file-system" }`)
	}
	for i, c := range s.Capabilities {
		path := fmt.Sprintf("capability[%d]", i)
		oneOf(p, path+".access_mode", c.AccessMode, AccessModes()...)
		oneOf(p, path+".attachment_mode", c.AttachmentMode, FileSystem, BlockDevice)
		if slices.Contains(s.Capabilities[:i], c) {
			p.Add(path, "is there twice", "remove one")
		}
	}
	s.MountOptions.validate(p, "mount_options")
	validateMap(p, "parameters", s.Parameters)
	validateMap(p, "mutable_parameters", s.MutableParameters)
	s.TopologyRequest.validate(p)
	s.validateOrigin(p)
	s.SnapshotSchedule.validate(p, "snapshot_schedule")
	validateSecrets(p, s.Secrets)
}

// validateOrigin checks what the volume is before anybody writes to it.
func (s *VolumeSpec) validateOrigin(p *Problems) {
	origins := []struct{ path, id string }{
		{"external_id", s.ExternalID}, {"snapshot_id", s.SnapshotID}, {"clone_id", s.CloneID},
	}
	first := ""
	for _, o := range origins {
		validateID(p, o.path, o.id)
		switch {
		case o.id == "":
		case first == "":
			first = o.path
		case first == "external_id":
			p.Addf(o.path, "remove one of them", "is given, and so is external_id: a volume that exists already has its content")
		default:
			p.Addf(o.path, "remove one of them", "is given, and so is %s: a volume begins as one thing", first)
		}
	}
	validateMap(p, "context", s.Context)
	if len(s.Context) > 0 && !s.Registered() {
		p.Add("context", "belongs to a volume that exists already, and external_id is missing",
			`add external_id = "...", or remove it: the plugin gives a new volume its context`)
	}
}

// validateID checks an id that a plugin gave (CSI spec, Size Limits).
func validateID(p *Problems, path, id string) {
	if len(id) > maxCSIString {
		p.Addf(path, "correct it", "is longer than the %d bytes that CSI allows", maxCSIString)
	}
	if strings.ContainsRune(id, 0) {
		p.Add(path, "has a NUL character", "remove it")
	}
}

func (s *VolumeSpec) validateCapacity(p *Problems) {
	if s.CapacityMin < 0 {
		p.Add("capacity_min", "is negative", "give a size such as 10GiB")
	}
	if s.CapacityMax < 0 {
		p.Add("capacity_max", "is negative", "give a size such as 10GiB")
	}
	if s.CapacityMax > 0 && s.CapacityMin > s.CapacityMax {
		p.Addf("capacity_min", "make it at most capacity_max", "is %d bytes, more than capacity_max (%d)",
			s.CapacityMin, s.CapacityMax)
	}
}

// Size limits of the CSI specification, section Size Limits.
const (
	maxCSIString = 128
	maxCSIMap    = 4 << 10
)

func (o *MountOptions) validate(p *Problems, path string) {
	if o == nil {
		return
	}
	if len(o.FSType) > maxCSIString {
		p.Addf(path+".fs_type", "shorten it", "is longer than the %d bytes that CSI allows", maxCSIString)
	}
	size := 0
	for _, f := range o.MountFlags {
		size += len(f)
	}
	if size > maxCSIMap {
		p.Addf(path+".mount_flags", "shorten them", "are %d bytes together, more than the %d that CSI allows", size, maxCSIMap)
	}
}

func validateMap(p *Problems, path string, m map[string]string) {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
		if k == "" {
			p.Add(path, "has an empty key", "remove it")
		}
	}
	if size > maxCSIMap {
		p.Addf(path, "shorten it", "is %d bytes, more than the %d that CSI allows", size, maxCSIMap)
	}
}

func (r *TopologyRequest) validate(p *Problems) {
	if r == nil {
		return
	}
	check := func(path string, list []Topology) {
		for i, t := range list {
			at := fmt.Sprintf("%s[%d]", path, i)
			if len(t) == 0 {
				p.Add(at, "has no segments", `write topology { segments { "zone" = "a" } }`)
			}
			for _, k := range slices.Sorted(maps.Keys(t)) {
				if k == "" || t[k] == "" {
					p.Add(at, "has an empty key or value", "give both")
				}
			}
		}
	}
	check("topology_request.required", r.Required)
	check("topology_request.preferred", r.Preferred)
}
