package api

import (
	"fmt"
	"time"
)

// Snapshot is a point in time of a volume, kept by its plugin. It outlives the
// volume.
type Snapshot struct {
	Meta
	Namespace NamespaceID `json:"namespace"`
	ID        SnapshotID  `json:"id"`
	// UID tells this snapshot from any other that had or will have its name. The
	// CSI name of CreateSnapshot is made from it.
	UID string `json:"uid"`
	// VolumeID and VolumeUID are the volume that it is of. Another volume may have
	// the id later, and never the UID.
	VolumeID  VolumeID `json:"volume_id"`
	VolumeUID string   `json:"volume_uid"`
	PluginID  PluginID `json:"plugin_id"`
	// Owner is who made it, and with it who may delete it: a schedule deletes
	// what it made, and nobody but its user a user's.
	Owner SnapshotOwner `json:"owner"`
	// Scheduled is the time that it was made for; zero if a user made it.
	Scheduled time.Time `json:"scheduled,omitzero"`
	// Desired is whether it is to be there, or to go.
	Desired Presence       `json:"desired"`
	Spec    SnapshotSpec   `json:"spec"`
	Status  SnapshotStatus `json:"status"`
}

// SnapshotOwner is who made a snapshot.
type SnapshotOwner string

// The owners.
const (
	OwnerUser     SnapshotOwner = "user"
	OwnerSchedule SnapshotOwner = "schedule"
)

// SnapshotSpec is what a user asks for.
type SnapshotSpec struct {
	// Parameters are the plugin's (CSI spec, CreateSnapshotRequest.parameters).
	Parameters map[string]string `json:"parameters,omitempty"`
	// Keep is for how long it stays, counted from when it was asked for; 0 is
	// until its user deletes it. What a schedule made stays by number instead.
	Keep Duration `json:"keep,omitempty"`
}

// SnapshotState is where a snapshot is in its life.
type SnapshotState string

// The snapshot states.
const (
	// SnapshotCreating: intent is in the log; the plugin may or may not have it.
	// With an ExternalID it is cut, and the plugin still works on it.
	SnapshotCreating SnapshotState = "creating"
	// SnapshotReady: a volume can be made from it.
	SnapshotReady SnapshotState = "ready"
	// SnapshotFailed: the plugin refused for good; Reason says why.
	SnapshotFailed SnapshotState = "failed"
	// SnapshotDeleting: it is to go, and goes when the plugin lets it.
	SnapshotDeleting SnapshotState = "deleting"
)

// SnapshotStatus is what the system knows of a snapshot. Its writers are the
// commands of internal/command named at each field.
type SnapshotStatus struct {
	State SnapshotState `json:"state"` // CreateSnapshot, DeleteSnapshot, ReportFacts, CancelOperation
	// ExternalID is the plugin's id. It may hold any character.
	ExternalID string `json:"external_id,omitempty"` // ReportFacts
	// Size in bytes is what a volume made from it needs at least; 0 if it is not
	// known.
	Size int64 `json:"size,omitempty"` // ReportFacts
	// Created is when the plugin cut it, by the provider's clock.
	Created time.Time `json:"created,omitzero"` // ReportFacts
	// Ready: the plugin says that it can be used (CSI spec, Snapshot.ready_to_use).
	Ready bool `json:"ready"` // ReportFacts
	// AccessibleTopology is where its volume could be reached. CSI knows no place
	// of a snapshot; a volume that is made from it is made there.
	AccessibleTopology []Topology `json:"accessible_topology,omitempty"` // CreateSnapshot
	// Operation is the open operation on the snapshot.
	Operation OperationID `json:"operation,omitempty"` // OpenOperation, CancelOperation, ReportFacts
	// Reason is the plugin's last refusal, or that it still works on it.
	Reason string `json:"reason,omitempty"` // ReportFacts, CancelOperation
}

// Expires is when the snapshot's own time is over; zero for never.
func (s *Snapshot) Expires() time.Time {
	if s.Spec.Keep == 0 {
		return time.Time{}
	}
	return s.CreateTime.Add(time.Duration(s.Spec.Keep))
}

// Validate reports every problem of the spec.
func (s *SnapshotSpec) Validate() error {
	var p Problems
	validateMap(&p, "parameters", s.Parameters)
	if s.Keep < 0 {
		p.Addf("keep", "give a time such as 720h, or leave it out", "is %s", s.Keep)
	}
	return p.Err("the snapshot")
}

// SnapshotSchedule has snapshots of a volume made by the clock.
type SnapshotSchedule struct {
	// Cron says when, in UTC: minute, hour, day of month, month, day of week; or
	// @hourly, @daily, @weekly, @monthly.
	Cron string `json:"cron"`
	// Keep is how many of the schedule's snapshots stay, the newest ones.
	Keep int `json:"keep"`
	// Parameters are the plugin's, for each snapshot.
	Parameters map[string]string `json:"parameters,omitempty"`
}

// maxScheduled bounds how many snapshots of a volume a schedule keeps.
const maxScheduled = 1000

// validate checks all but the cron expression, which takes a parser.
func (s *SnapshotSchedule) validate(p *Problems, path string) {
	if s == nil {
		return
	}
	if s.Cron == "" {
		p.Add(path+".cron", "is missing", `say when, in UTC: cron = "0 3 * * *" is every day at three`)
	}
	if s.Keep < 1 || s.Keep > maxScheduled {
		p.Addf(path+".keep", fmt.Sprintf("say how many snapshots stay, 1 to %d", maxScheduled), "is %d", s.Keep)
	}
	validateMap(p, path+".parameters", s.Parameters)
}

// ScheduleStatus is where a volume's schedule is. Its writer is
// ScheduleSnapshots; ApplyVolume begins it anew.
type ScheduleStatus struct {
	// Next is when the next snapshot is due; zero until that is planned.
	Next time.Time `json:"next,omitzero"`
	// Last is the time that the last snapshot was made for, Snapshot its id.
	Last     time.Time  `json:"last,omitzero"`
	Snapshot SnapshotID `json:"snapshot,omitempty"`
	// Missed is for how many earlier times the last snapshot stands too, and
	// Skipped how many have passed since without a snapshot. Reason says why.
	Missed  int    `json:"missed,omitempty"`
	Skipped int    `json:"skipped,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Excess: there may be more snapshots than are to stay.
	Excess bool `json:"excess,omitempty"` // ReportFacts, ApplyVolume; ScheduleSnapshots
}

// SnapshotInfo is a snapshot with all that concerns it.
type SnapshotInfo struct {
	*Snapshot
	// Operations are its operations, open and ended.
	Operations []*Operation `json:"operations"`
	// Volumes are the volumes of the namespace that were made from it, or are to
	// be.
	Volumes []VolumeID `json:"volumes"`
	Waits   []Wait     `json:"waits"`
}

// SnapshotCreation asks for a snapshot.
type SnapshotCreation struct {
	VolumeID VolumeID     `json:"volume_id"`
	Spec     SnapshotSpec `json:"spec"`
}
