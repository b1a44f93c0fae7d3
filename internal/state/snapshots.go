package state

import (
	"iter"

	"github.com/berth-dev/berth/api"
)

const (
	snapshotsUnsettled = iota + 1
	snapshotsVolume
	snapshotsExpiring
	snapshotsFailed
)

func snapshotsTable() *table[api.Snapshot] {
	id := func(b []byte, s *api.Snapshot) []byte { return appendKey(b, string(s.Namespace), string(s.ID)) }
	return define[api.Snapshot](tableSnapshots,
		unique(primary, id),
		unique(snapshotsUnsettled, func(b []byte, s *api.Snapshot) []byte {
			if SnapshotSettled(s) {
				return nil
			}
			return id(b, s)
		}),
		shared(snapshotsVolume, func(b []byte, s *api.Snapshot) []byte { return appendKey(b, string(s.Namespace), string(s.VolumeID)) }),
		shared(snapshotsExpiring, func(b []byte, s *api.Snapshot) []byte {
			if s.Desired == api.Absent || s.Spec.Keep == 0 {
				return nil
			}
			return appendKey(b, timePart(s.Expires()))
		}),
		shared(snapshotsFailed, func(b []byte, s *api.Snapshot) []byte {
			if !NeverMade(s) {
				return nil
			}
			return appendKey(b, timePart(s.ModifyTime))
		}),
	)
}

// SnapshotSettled reports whether nothing is left to do for the snapshot but to
// wait for its open operation.
func SnapshotSettled(s *api.Snapshot) bool {
	if s.Desired == api.Absent {
		// One that is still being made may have to be cancelled.
		return s.Status.Operation.Kind() == api.OperationDeleteSnapshot
	}
	return s.Status.Operation != "" || s.Status.State != api.SnapshotCreating
}

// NeverMade reports whether a snapshot has failed, and the plugin has nothing of
// it: what is left is the reason.
func NeverMade(s *api.Snapshot) bool {
	return s.Desired == api.Present && s.Status.State == api.SnapshotFailed && s.Status.ExternalID == "" && s.Status.Operation == ""
}

// FailedSnapshots yields the snapshots that were never made, oldest first.
func (v View) FailedSnapshots() iter.Seq[*api.Snapshot] {
	return rows[api.Snapshot](v, tableSnapshots, snapshotsFailed, nil)
}

// Snapshot is the snapshot of that name, or nil.
func (v View) Snapshot(ns api.NamespaceID, id api.SnapshotID) *api.Snapshot {
	return first[api.Snapshot](v, tableSnapshots, primary, key(string(ns), string(id)))
}

// Snapshots yields the snapshots of a namespace by id, or all if ns is empty.
func (v View) Snapshots(ns api.NamespaceID) iter.Seq[*api.Snapshot] {
	if ns == "" {
		return rows[api.Snapshot](v, tableSnapshots, primary, nil)
	}
	return rows[api.Snapshot](v, tableSnapshots, primary, key(string(ns)))
}

// VolumeSnapshots yields the snapshots of all volumes that ever had that id, by
// the snapshots' ids.
func (v View) VolumeSnapshots(ns api.NamespaceID, vol api.VolumeID) iter.Seq[*api.Snapshot] {
	return rows[api.Snapshot](v, tableSnapshots, snapshotsVolume, key(string(ns), string(vol)))
}

// UnsettledSnapshots yields the snapshots that wait for the snapshotter.
func (v View) UnsettledSnapshots() iter.Seq[*api.Snapshot] {
	return rows[api.Snapshot](v, tableSnapshots, snapshotsUnsettled, nil)
}

// ExpiringSnapshots yields the snapshots whose own time ends, the next first.
func (v View) ExpiringSnapshots() iter.Seq[*api.Snapshot] {
	return rows[api.Snapshot](v, tableSnapshots, snapshotsExpiring, nil)
}

// SnapshotsIndex is when a snapshot was last written.
func (v View) SnapshotsIndex() uint64 { return v.modified(tableSnapshots) }

// PutSnapshot stores a new snapshot, or a changed copy.
func (tx *Tx) PutSnapshot(s *api.Snapshot) { put(tx, tableSnapshots, s) }

// DeleteSnapshot removes a snapshot that is there.
func (tx *Tx) DeleteSnapshot(s *api.Snapshot) { remove(tx, tableSnapshots, s) }
