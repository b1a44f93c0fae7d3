package command

import (
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// CreateSnapshot says that a snapshot of a volume is to be made.
type CreateSnapshot struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.SnapshotID  `json:"id"`
	// UID is the snapshot's if it is new.
	UID      string            `json:"uid"`
	VolumeID api.VolumeID      `json:"volume_id"`
	Owner    api.SnapshotOwner `json:"owner"`
	// Scheduled is the time that a schedule's is for.
	Scheduled time.Time        `json:"scheduled,omitzero"`
	Spec      api.SnapshotSpec `json:"spec"`
	// IfAbsent: only if there is no such snapshot.
	IfAbsent bool `json:"if_absent,omitempty"`
}

// Kind implements Command.
func (*CreateSnapshot) Kind() Kind { return "snapshot.create" }

// Validate implements Command.
func (c *CreateSnapshot) Validate() error {
	var p api.Problems
	p.Name("namespace", string(c.Namespace))
	p.Name("id", string(c.ID))
	p.VolumeID("volume_id", string(c.VolumeID))
	if c.UID == "" {
		p.Add("uid", "is missing", "give the snapshot one")
	}
	if c.Owner != api.OwnerUser && c.Owner != api.OwnerSchedule {
		p.Addf("owner", "use user or schedule", "is %q", c.Owner)
	}
	p.Merge(c.Spec.Validate())
	return p.Err("snapshot " + string(c.ID))
}

// Apply implements Command. The same again changes nothing; where the plugin
// refused for good, it is a new try.
func (c *CreateSnapshot) Apply(tx *state.Tx) error {
	vol := tx.Volume(c.Namespace, c.VolumeID)
	switch {
	case vol == nil:
		return api.Errorf(api.CodeNotFound, "volume %s does not exist in namespace %s", c.VolumeID, c.Namespace)
	case vol.Desired == api.Absent:
		return conflict("volume %s is being deleted", c.VolumeID)
	case vol.Status.State != api.VolumeReady || vol.Status.ExternalID == "":
		return conflict("volume %s is %s, and a snapshot can be made of what is ready", c.VolumeID, vol.Status.State)
	}
	status := api.SnapshotStatus{State: api.SnapshotCreating, AccessibleTopology: vol.Status.AccessibleTopology}
	old := tx.Snapshot(c.Namespace, c.ID)
	if err := checkAbsent("snapshot", string(c.ID), metaOf(old), c.IfAbsent); err != nil {
		return err
	}
	if old == nil {
		tx.PutSnapshot(&api.Snapshot{
			Namespace: c.Namespace, ID: c.ID, UID: c.UID,
			VolumeID: c.VolumeID, VolumeUID: vol.UID, PluginID: vol.Spec.PluginID,
			Owner: c.Owner, Scheduled: c.Scheduled, Desired: api.Present, Spec: c.Spec, Status: status,
		})
		return nil
	}
	if err := c.same(old, vol); err != nil {
		return err
	}
	if old.Status.State == api.SnapshotFailed && old.Status.ExternalID == "" {
		next := *old
		next.Status = status
		tx.PutSnapshot(&next)
	}
	return nil
}

// same refuses to take another snapshot for the one that is asked for.
func (c *CreateSnapshot) same(old *api.Snapshot, vol *api.Volume) error {
	switch {
	case old.Desired == api.Absent:
		return conflict("snapshot %s is being deleted; wait until it is gone, or give the new one another name", c.ID)
	case old.VolumeUID != vol.UID:
		return conflict("snapshot %s exists already, of another volume (%s); give the new one another name", c.ID, old.VolumeID)
	case old.Owner != c.Owner || !old.Scheduled.Equal(c.Scheduled) || !fit.Same(old.Spec, c.Spec):
		return conflict("snapshot %s of volume %s exists already, and was asked for otherwise; give the new one another name", c.ID, c.VolumeID)
	}
	return nil
}

// DeleteSnapshot says that a snapshot is to go.
type DeleteSnapshot struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.SnapshotID  `json:"id"`
	Version   uint64          `json:"version,omitempty"`
	// Retention: no person asks for it. It is refused then for any snapshot that
	// is to stay.
	Retention bool `json:"retention,omitempty"`
}

// Kind implements Command.
func (*DeleteSnapshot) Kind() Kind { return "snapshot.delete" }

// Validate implements Command.
func (c *DeleteSnapshot) Validate() error { return nil }

// Apply implements Command. It is refused while a volume is being made from
// the snapshot.
func (c *DeleteSnapshot) Apply(tx *state.Tx) error {
	old := tx.Snapshot(c.Namespace, c.ID)
	if old == nil {
		return api.Errorf(api.CodeNotFound, "snapshot %s does not exist in namespace %s", c.ID, c.Namespace)
	}
	if err := checkVersion("snapshot", string(c.ID), metaOf(old), c.Version); err != nil {
		return err
	}
	if old.Desired == api.Absent {
		return nil
	}
	if vol := BeingMadeFrom(tx.View, old); vol != nil {
		return api.Errorf(api.CodeInUse, "volume %s is being made from snapshot %s; wait until it is ready, or delete it", vol.ID, c.ID)
	}
	if c.Retention && !Outlived(tx.View, old, tx.Now()) {
		return conflict("snapshot %s is to stay", c.ID)
	}
	next := *old
	next.Desired = api.Absent
	next.Status.State = api.SnapshotDeleting
	tx.PutSnapshot(&next)
	return nil
}

// BeingMadeFrom is a volume that is being made from the snapshot, or nil. One
// that waits for the snapshot counts.
func BeingMadeFrom(v state.View, s *api.Snapshot) *api.Volume {
	for vol := range v.VolumesFromSnapshot(s.Namespace, string(s.ID)) {
		making := vol.Status.State == api.VolumeCreating || vol.Status.Operation.Kind() == api.OperationCreate
		if making && vol.Spec.PluginID == s.PluginID {
			return vol
		}
	}
	return nil
}

// Outlived reports whether a snapshot has stayed for as long as its owner
// wanted. One of a user has where its own time is over; one that a schedule made
// where enough newer ones are ready, or where it failed and is not the last. No
// other ever has.
func Outlived(v state.View, s *api.Snapshot, now time.Time) bool {
	if e := s.Expires(); !e.IsZero() && !now.Before(e) {
		return true
	}
	if s.Owner != api.OwnerSchedule {
		return false
	}
	vol := v.Volume(s.Namespace, s.VolumeID)
	return vol != nil && slices.Contains(Excess(v, vol), s)
}

// Excess are the snapshots that a volume's schedule made and that need not stay,
// oldest first. Without a schedule all stay.
func Excess(v state.View, vol *api.Volume) []*api.Snapshot {
	schedule := vol.Spec.SnapshotSchedule
	if schedule == nil {
		return nil
	}
	var ready, failed []*api.Snapshot
	for s := range v.VolumeSnapshots(vol.Namespace, vol.ID) {
		if s.Owner != api.OwnerSchedule || s.VolumeUID != vol.UID || s.Desired == api.Absent {
			continue
		}
		switch s.Status.State {
		case api.SnapshotReady:
			ready = append(ready, s)
		case api.SnapshotFailed:
			failed = append(failed, s)
		case api.SnapshotCreating, api.SnapshotDeleting:
		}
	}
	return append(allButNewest(ready, schedule.Keep), allButNewest(failed, 1)...)
}

// allButNewest leaves out the n snapshots that were scheduled last.
func allButNewest(all []*api.Snapshot, n int) []*api.Snapshot {
	slices.SortFunc(all, func(a, b *api.Snapshot) int { return a.Scheduled.Compare(b.Scheduled) })
	return all[:max(0, len(all)-n)]
}

// ForgetSnapshot removes the row of a snapshot that the plugin never made.
type ForgetSnapshot struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.SnapshotID  `json:"id"`
	Version   uint64          `json:"version"`
}

// Kind implements Command.
func (*ForgetSnapshot) Kind() Kind { return "snapshot.forget" }

// Validate implements Command.
func (c *ForgetSnapshot) Validate() error { return nil }

// Apply implements Command.
func (c *ForgetSnapshot) Apply(tx *state.Tx) error {
	s := tx.Snapshot(c.Namespace, c.ID)
	if s == nil || s.Version != c.Version {
		return conflict("snapshot %s has changed", c.ID)
	}
	if s.Desired != api.Absent || s.Status.ExternalID != "" || s.Status.Operation != "" {
		return conflict("snapshot %s is not one that was never made", c.ID)
	}
	tx.DeleteSnapshot(s)
	return nil
}

// ScheduleSnapshots moves a volume's snapshot schedule on.
type ScheduleSnapshots struct {
	Namespace api.NamespaceID `json:"namespace"`
	VolumeID  api.VolumeID    `json:"volume_id"`
	Version   uint64          `json:"version"`
	// Next is when the next snapshot is due.
	Next time.Time `json:"next"`
	// Snapshot is the one that was just asked for, empty for none, and Due the
	// time that it is for.
	Snapshot api.SnapshotID `json:"snapshot,omitempty"`
	Due      time.Time      `json:"due,omitzero"`
	// Missed is how many other times the snapshot stands for; without one, how
	// many pass without a snapshot. Reason says why.
	Missed int    `json:"missed,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Kind implements Command.
func (*ScheduleSnapshots) Kind() Kind { return "snapshot.schedule" }

// Validate implements Command.
func (c *ScheduleSnapshots) Validate() error {
	var p api.Problems
	if c.Next.IsZero() {
		p.Add("next", "is missing", "say when the next snapshot is due")
	}
	return p.Err("the schedule")
}

// Apply implements Command.
func (c *ScheduleSnapshots) Apply(tx *state.Tx) error {
	vol := tx.Volume(c.Namespace, c.VolumeID)
	if vol == nil || vol.Version != c.Version {
		return conflict("volume %s has changed", c.VolumeID)
	}
	if !state.Scheduled(vol) {
		return conflict("volume %s has no snapshot schedule that runs", c.VolumeID)
	}
	next := *vol
	status := api.ScheduleStatus{}
	if vol.Status.Schedule != nil {
		status = *vol.Status.Schedule
	}
	status.Next, status.Excess = c.Next, false
	switch {
	case c.Snapshot != "":
		status.Last, status.Snapshot = c.Due, c.Snapshot
		status.Missed, status.Skipped, status.Reason = c.Missed, 0, c.Reason
	case c.Missed > 0:
		status.Skipped += c.Missed
		status.Reason = c.Reason
	}
	next.Status.Schedule = &status
	tx.PutVolume(&next)
	return nil
}

// BeingSnapshotted is a snapshot of the volume that its plugin is still to cut,
// or still works on, or nil.
func BeingSnapshotted(v state.View, vol *api.Volume) *api.Snapshot {
	for s := range v.VolumeSnapshots(vol.Namespace, vol.ID) {
		making := s.Status.State == api.SnapshotCreating || s.Status.Operation.Kind() == api.OperationSnapshot
		if making && s.VolumeUID == vol.UID {
			return s
		}
	}
	return nil
}
