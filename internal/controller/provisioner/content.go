package provisioner

import (
	"fmt"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// content is what a new volume begins as.
type content struct {
	// snapshot or clone is the plugin's id of it.
	snapshot, clone string
	// of is the snapshot, where it is one of the namespace.
	of *api.Snapshot
}

// source is what the new volume is to begin as, if anything, and why a volume
// with content cannot be made yet.
func source(v state.View, vol *api.Volume, plugin fit.Plugin) (c content, why string) {
	s := &vol.Spec
	cannot := func(what, capability string) string {
		return fmt.Sprintf("plugin %s cannot make a volume from %s: no controller instance of it has the capability %s", s.PluginID, what, capability)
	}
	switch {
	case s.SnapshotID != "" && !plugin.Can(api.CapCreateDeleteSnapshot):
		return c, cannot("a snapshot", api.CapCreateDeleteSnapshot)
	case s.SnapshotID != "":
		return fromSnapshot(v, vol)
	case s.CloneID == "":
		return c, ""
	case !plugin.Can(api.CapCloneVolume):
		return c, cannot("another volume", api.CapCloneVolume)
	}
	original := v.Volume(vol.Namespace, api.VolumeID(s.CloneID))
	switch {
	case original == nil || original.Spec.PluginID != s.PluginID || original.ID == vol.ID:
		return content{clone: s.CloneID}, "" // the plugin's own id
	case original.Status.State != api.VolumeReady:
		return c, fmt.Sprintf("volume %s, of which it is to be a copy, is %s", original.ID, original.Status.State)
	}
	return content{clone: original.Status.ExternalID}, ""
}

// fromSnapshot is the snapshot of the namespace and the plugin that the spec
// names, else one by the plugin's own id.
func fromSnapshot(v state.View, vol *api.Volume) (c content, why string) {
	s := &vol.Spec
	snap := v.Snapshot(vol.Namespace, api.SnapshotID(s.SnapshotID))
	switch {
	case snap == nil || snap.PluginID != s.PluginID:
		return content{snapshot: s.SnapshotID}, ""
	case snap.Status.State != api.SnapshotReady:
		return c, fmt.Sprintf("snapshot %s, as which it is to begin, is %s%s", snap.ID, snap.Status.State, because(snap.Status.Reason))
	case s.CapacityMax > 0 && s.CapacityMax < snap.Status.Size:
		return c, fmt.Sprintf("snapshot %s has %d bytes, more than capacity_max (%d): delete the volume, and apply it with more", snap.ID, snap.Status.Size, s.CapacityMax)
	}
	return content{snapshot: snap.Status.ExternalID, of: snap}, ""
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return " (" + reason + ")"
}

// capacity is the least size of the volume: what its user asks for, else that of
// the snapshot.
func capacity(s *api.VolumeSpec, c content) int64 {
	if s.CapacityMin == 0 && c.of != nil {
		return c.of.Status.Size
	}
	return s.CapacityMin
}

// snapshots is why a volume cannot go before snapshots of it, or "". Whether one
// can go that has snapshots is the plugin's to say.
func snapshots(v state.View, vol *api.Volume) string {
	if s := command.BeingSnapshotted(v, vol); s != nil {
		return fmt.Sprintf("snapshot %s of it is being made; wait for it, or delete it", s.ID)
	}
	if len(vol.Secrets) == 0 {
		return ""
	}
	if names := snapshotNames(v, vol); len(names) > 0 {
		return "it has secrets, without which its snapshots cannot be deleted: delete them first: " + strings.Join(names, ", ")
	}
	return ""
}

// snapshotNames are the snapshots of the volume that are there.
func snapshotNames(v state.View, vol *api.Volume) (names []string) {
	for s := range v.VolumeSnapshots(vol.Namespace, vol.ID) {
		if s.VolumeUID == vol.UID {
			names = append(names, string(s.ID))
		}
	}
	return names
}

// dependants names the snapshots that may be why a plugin does not delete a
// volume.
func dependants(v state.View, vol *api.Volume, op *api.Operation) string {
	if op.Kind != api.OperationDelete || op.Status.Code != "FAILED_PRECONDITION" {
		return ""
	}
	names := snapshotNames(v, vol)
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("; the plugin says FAILED_PRECONDITION (%s), and these snapshots of it are there: %s; it goes when they are gone, or when the plugin lets it",
		op.Status.Message, strings.Join(names, ", "))
}
