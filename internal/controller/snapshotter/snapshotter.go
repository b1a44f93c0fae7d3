// Package snapshotter brings snapshots into being and out of it: what users ask
// for, what schedules ask for, and what need not stay any longer.
//
// It never calls a plugin and never chooses a node. Invariant: the intent to make
// a snapshot is in the log before anybody makes it, its row is not forgotten
// while the plugin may have it, a schedule has at most one snapshot that is being
// made, and retention deletes nothing that is to stay.
package snapshotter

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// Controller settles snapshots, and keeps schedules.
type Controller struct{}

// Name implements controller.Controller.
func (Controller) Name() string { return "snapshotter" }

// The keys of what the clock does.
const (
	Schedules controller.Key = "schedules"
	Retention controller.Key = "retention"
)

const snapshotKey = "snapshot/"

// Key is the key of a snapshot.
func Key(ns api.NamespaceID, id api.SnapshotID) controller.Key {
	return controller.Key(snapshotKey + string(ns) + "/" + string(id))
}

// Pending implements controller.Controller.
func (Controller) Pending(v state.View) iter.Seq[controller.Key] {
	return func(yield func(controller.Key) bool) {
		for s := range v.UnsettledSnapshots() {
			if !yield(Key(s.Namespace, s.ID)) {
				return
			}
		}
		if some(v.ScheduledVolumes()) && !yield(Schedules) {
			return
		}
		if some(v.ExpiringSnapshots()) {
			yield(Retention)
		}
	}
}

func some[T any](rows iter.Seq[T]) bool {
	for range rows {
		return true
	}
	return false
}

// Reconcile implements controller.Controller.
func (Controller) Reconcile(v state.View, now time.Time, k controller.Key) (controller.Plan, error) {
	switch k {
	case Schedules:
		return schedules(v, now), nil
	case Retention:
		return retention(v, now), nil
	}
	name, isSnapshot := strings.CutPrefix(string(k), snapshotKey)
	ns, id, ok := strings.Cut(name, "/")
	if !ok || !isSnapshot {
		return controller.Plan{}, fmt.Errorf("key %q names no snapshot", k)
	}
	s := v.Snapshot(api.NamespaceID(ns), api.SnapshotID(id))
	switch {
	case s == nil:
		return controller.Plan{}, nil
	case s.Desired == api.Absent:
		return remove(v, now, s), nil
	case s.Status.State == api.SnapshotCreating:
		return create(v, s), nil
	}
	return controller.Plan{}, nil
}

func subject(s *api.Snapshot) string { return "snapshot " + string(s.Namespace) + "/" + string(s.ID) }

// create opens the operation that makes the snapshot.
func create(v state.View, s *api.Snapshot) (p controller.Plan) {
	wait := func(format string, args ...any) controller.Plan {
		p.Wait(subject(s), fmt.Sprintf(format, args...), s.ModifyTime, time.Time{})
		return p
	}
	if op := s.Status.Operation; op != "" {
		return wait("waits for operation %s", op)
	}
	vol := v.Volume(s.Namespace, s.VolumeID)
	if vol == nil || vol.UID != s.VolumeUID || vol.Status.ExternalID == "" {
		return wait("its volume %s is gone, and nothing can be cut any more; delete the snapshot", s.VolumeID)
	}
	if why := cannot(v, s); why != "" {
		return wait("%s", why)
	}
	p.Add(&command.OpenOperation{
		OperationKind: api.OperationSnapshot,
		Namespace:     s.Namespace,
		VolumeID:      s.VolumeID,
		SnapshotID:    s.ID,
		PluginID:      s.PluginID,
		Version:       s.Version,
		Request: api.OperationRequest{Snapshot: &api.SnapshotRequest{
			Name: CSIName(s), SourceID: vol.Status.ExternalID, Parameters: s.Spec.Parameters,
		}},
	})
	return p
}

// CSIName is the name of CreateSnapshot. It is made from the snapshot's UID, so
// that no other snapshot of the same id is ever taken for it.
func CSIName(s *api.Snapshot) string { return "berth-snap-" + s.UID }

// cannot is why the plugin makes and deletes no snapshots, or "".
func cannot(v state.View, s *api.Snapshot) string {
	plugin := fit.NewPlugin(s.PluginID, slices.Collect(v.Instances(s.PluginID)))
	switch {
	case !plugin.Known():
		return plugin.Unknown()
	case !plugin.Can(api.CapCreateDeleteSnapshot):
		return fmt.Sprintf("plugin %s cannot make or delete snapshots: no controller instance of it has the capability %s",
			s.PluginID, api.CapCreateDeleteSnapshot)
	}
	return ""
}

// remove deletes the snapshot at the plugin, as soon as nobody makes it any more.
func remove(v state.View, now time.Time, s *api.Snapshot) (p controller.Plan) {
	if op := v.Operation(s.Status.Operation); op != nil {
		return withdraw(v, now, s, op)
	}
	if s.Status.ExternalID == "" {
		p.Add(&command.ForgetSnapshot{Namespace: s.Namespace, ID: s.ID, Version: s.Version})
		return p
	}
	if why := cannot(v, s); why != "" {
		p.Wait(subject(s), why, s.ModifyTime, time.Time{})
		return p
	}
	p.Add(&command.OpenOperation{
		OperationKind: api.OperationDeleteSnapshot,
		Namespace:     s.Namespace,
		VolumeID:      s.VolumeID,
		SnapshotID:    s.ID,
		PluginID:      s.PluginID,
		Version:       s.Version,
		Request:       api.OperationRequest{DeleteSnapshot: &api.DeleteSnapshotRequest{ExternalID: s.Status.ExternalID}},
	})
	return p
}

// withdraw ends the operation that makes a snapshot which is to go, if it is
// known what that has made; or says what the open operation waits for.
func withdraw(v state.View, now time.Time, s *api.Snapshot, op *api.Operation) (p controller.Plan) {
	known := !op.Status.Uncertain || s.Status.ExternalID != ""
	if op.Kind == api.OperationSnapshot && op.Status.State == api.OperationWaiting && known {
		if until := command.Lingering(op); until.After(now) {
			p.Wait(subject(s), fmt.Sprintf("an attempt of operation %s may still be running", op.ID), op.ModifyTime, until)
			return p
		}
		p.Add(&command.CancelOperation{ID: op.ID, Version: op.Version, Reason: "the snapshot is to be deleted"})
		return p
	}
	p.Wait(subject(s), fmt.Sprintf("waits for operation %s", op.ID)+dependants(v, s, op), s.ModifyTime, time.Time{})
	return p
}

// dependants names the volumes that may be why a plugin does not delete a
// snapshot.
func dependants(v state.View, s *api.Snapshot, op *api.Operation) string {
	if op.Status.Code != "FAILED_PRECONDITION" {
		return ""
	}
	var names []string
	for vol := range v.VolumesFromSnapshot(s.Namespace, string(s.ID)) {
		if vol.Spec.PluginID == s.PluginID {
			names = append(names, string(vol.ID))
		}
	}
	said := "; the plugin says that it is in use (" + op.Status.Message + ")"
	if len(names) == 0 {
		return said + "; it is tried again"
	}
	return said + ", and these volumes were made from it: " + strings.Join(names, ", ") + "; it goes when they are gone, or when the plugin lets it"
}

// maxDeleted bounds what one plan deletes.
const maxDeleted = 256

// retention deletes the snapshots whose time is over. Of one from which a volume
// is being made it reads that volume, and looks again when it changes.
func retention(v state.View, now time.Time) (p controller.Plan) {
	for s := range v.ExpiringSnapshots() {
		if e := s.Expires(); now.Before(e) {
			p.WakeAt(e)
			break
		}
		if vol := command.BeingMadeFrom(v, s); vol != nil {
			p.Wait(subject(s), fmt.Sprintf("its time is over, and volume %s is being made from it", vol.ID), s.Expires(), time.Time{})
			continue
		}
		if p.Add(&command.DeleteSnapshot{Namespace: s.Namespace, ID: s.ID, Version: s.Version, Retention: true}); len(p.Commands) == maxDeleted {
			break
		}
	}
	if len(p.Commands) > 0 {
		p.Waits = nil
	}
	return p
}
