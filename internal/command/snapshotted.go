package command

import (
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// The answers of plugins that mean something here.
const (
	codeOK                 = "OK"
	codeAlreadyExists      = "ALREADY_EXISTS"
	codeFailedPrecondition = "FAILED_PRECONDITION"
)

// working reports whether a plugin has cut a snapshot and still works on it.
func working(kind api.OperationKind, r *api.OperationResult, verdict fit.Verdict) bool {
	return kind == api.OperationSnapshot && verdict.Done && (r.Snapshot == nil || !r.Snapshot.Ready)
}

// snapshotted takes over what became of a call that makes a snapshot. Whatever
// it was, the volume's slot is free again.
func snapshotted(tx *state.Tx, op *api.Operation, r *api.SnapshotResult) {
	freeVolume(tx, op)
	snap := tx.Snapshot(op.Namespace, op.SnapshotID)
	if snap == nil || snap.Status.Operation != op.ID {
		return
	}
	next := *snap
	next.Status.Reason = op.Status.Code + ": " + op.Status.Message
	if r != nil && op.Status.Code == codeOK {
		next.Status.ExternalID, next.Status.Size, next.Status.Ready = r.ExternalID, r.Size, r.Ready
		next.Status.Created = r.Created
		next.Status.Reason = ""
		if !r.Ready {
			next.Status.Reason = "it is cut, and the plugin still works on it"
		}
	}
	switch op.Status.State {
	case api.OperationSucceeded:
		next.Status.Operation = ""
		if snap.Desired == api.Present {
			next.Status.State = api.SnapshotReady
		}
	case api.OperationFailed:
		next.Status.Operation = ""
		if snap.Desired == api.Present {
			next.Status.State = api.SnapshotFailed
		}
	case api.OperationWaiting, api.OperationAssigned, api.OperationCancelled:
		if fit.Same(next.Status, snap.Status) {
			return
		}
	}
	tx.PutSnapshot(&next)
	if next.Owner == api.OwnerSchedule && !op.Open() {
		exceeded(tx, &next)
	}
}

// exceeded notes at a volume that its schedule has made more snapshots than are
// to stay.
func exceeded(tx *state.Tx, snap *api.Snapshot) {
	vol := tx.Volume(snap.Namespace, snap.VolumeID)
	if vol == nil || vol.UID != snap.VolumeUID || vol.Status.Schedule == nil || vol.Status.Schedule.Excess || len(Excess(tx.View, vol)) == 0 {
		return
	}
	next, schedule := *vol, *vol.Status.Schedule
	schedule.Excess = true
	next.Status.Schedule = &schedule
	tx.PutVolume(&next)
}

// snapshotDeleted takes over what became of a call that deletes a snapshot.
func snapshotDeleted(tx *state.Tx, op *api.Operation) {
	snap := tx.Snapshot(op.Namespace, op.SnapshotID)
	if snap == nil || snap.Status.Operation != op.ID {
		return
	}
	if op.Status.State == api.OperationSucceeded {
		tx.DeleteSnapshot(snap)
		if vol := tx.Volume(snap.Namespace, snap.VolumeID); vol != nil {
			hurry(tx, vol.Status.Operation, api.OperationDelete)
		}
		return
	}
	next := *snap
	next.Status.Reason = op.Status.Code + ": " + op.Status.Message
	if next.Status.Reason != snap.Status.Reason {
		tx.PutSnapshot(&next)
	}
}

// hurrySnapshot tries to delete a snapshot again when a volume that was made
// from it is gone.
func hurrySnapshot(tx *state.Tx, vol *api.Volume) {
	if snap := tx.Snapshot(vol.Namespace, api.SnapshotID(vol.Spec.SnapshotID)); snap != nil {
		hurry(tx, snap.Status.Operation, api.OperationDeleteSnapshot)
	}
}

// hurrySnapshots tries again to make snapshots of a volume when a node has let
// go of it: some plugins make none of what is in use.
func hurrySnapshots(tx *state.Tx, ns api.NamespaceID, vol api.VolumeID) {
	for s := range tx.VolumeSnapshots(ns, vol) {
		hurry(tx, s.Status.Operation, api.OperationSnapshot)
	}
}

// hurry ends the wait of a call that was refused because something is in use:
// some of what uses it is gone now.
func hurry(tx *state.Tx, id api.OperationID, kind api.OperationKind) {
	op := tx.Operation(id)
	if op == nil || op.Kind != kind || op.Status.State != api.OperationWaiting || op.Status.Code != codeFailedPrecondition || op.Status.Next.IsZero() {
		return
	}
	next := *op
	next.Status.Next = time.Time{}
	tx.PutOperation(&next)
}
