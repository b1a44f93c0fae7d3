package state

import (
	"iter"

	"github.com/berth-dev/berth/api"
)

const (
	volumesUnsettled = iota + 1
	volumesExternal
	volumesScheduled
	volumesContent
)

func volumesTable() *table[api.Volume] {
	id := func(b []byte, v *api.Volume) []byte { return appendKey(b, string(v.Namespace), string(v.ID)) }
	return define[api.Volume](tableVolumes,
		unique(primary, id),
		unique(volumesUnsettled, func(b []byte, v *api.Volume) []byte {
			if VolumeSettled(v) {
				return nil
			}
			return id(b, v)
		}),
		shared(volumesExternal, func(b []byte, v *api.Volume) []byte {
			if v.Status.ExternalID == "" {
				return nil
			}
			return appendKey(b, string(v.Spec.PluginID), v.Status.ExternalID)
		}),
		shared(volumesScheduled, func(b []byte, v *api.Volume) []byte {
			if !Scheduled(v) {
				return nil
			}
			if s := v.Status.Schedule; s != nil && !s.Next.IsZero() && !s.Excess {
				return appendKey(b, timePart(s.Next))
			}
			return appendKey(b, number(0))
		}),
		shared(volumesContent, func(b []byte, v *api.Volume) []byte {
			if v.Spec.SnapshotID == "" {
				return nil
			}
			return appendKey(b, string(v.Namespace), v.Spec.SnapshotID)
		}),
	)
}

// VolumeSettled reports whether nothing is left to do for the volume itself
// but to wait for its open operation.
func VolumeSettled(v *api.Volume) bool {
	if v.Desired == api.Absent {
		// A create that is still open may have to be cancelled.
		return v.Status.Operation.Kind() == api.OperationDelete
	}
	switch v.Status.State {
	case api.VolumeReady:
		return !changing(v)
	case api.VolumeFailed:
		return true
	case api.VolumeCreating, api.VolumeDeleting:
	}
	return v.Status.Operation != ""
}

// changing reports whether the volume is to be changed, or has a call open that
// would change it: that may have to be cancelled.
func changing(v *api.Volume) bool {
	e, m := v.Status.Expansion, v.Status.Modification
	switch v.Status.Operation.Kind() {
	case api.OperationExpand, api.OperationModify:
		return true
	case api.OperationCreate, api.OperationDelete, api.OperationPublish, api.OperationUnpublish, api.OperationNodeExpand,
		api.OperationSnapshot, api.OperationDeleteSnapshot:
	}
	return e != nil && e.Refused == "" || m != nil && m.Refused == ""
}

// Volume is the volume of that name, or nil.
func (v View) Volume(ns api.NamespaceID, id api.VolumeID) *api.Volume {
	return first[api.Volume](v, tableVolumes, primary, key(string(ns), string(id)))
}

// Volumes yields the volumes of a namespace by id, or all if ns is empty.
func (v View) Volumes(ns api.NamespaceID) iter.Seq[*api.Volume] {
	if ns == "" {
		return rows[api.Volume](v, tableVolumes, primary, nil)
	}
	return rows[api.Volume](v, tableVolumes, primary, key(string(ns)))
}

// VolumesByExternalID yields the volumes that a plugin knows by that id: one, if
// the plugin keeps to the specification.
func (v View) VolumesByExternalID(plugin api.PluginID, external string) iter.Seq[*api.Volume] {
	return func(yield func(*api.Volume) bool) {
		for vol := range rows[api.Volume](v, tableVolumes, volumesExternal, key(string(plugin), external)) {
			if vol.Spec.PluginID == plugin && vol.Status.ExternalID == external && !yield(vol) {
				return
			}
		}
	}
}

// Scheduled reports whether snapshots of the volume are made by the clock now:
// it has a schedule, and is there.
func Scheduled(v *api.Volume) bool {
	return v.Spec.SnapshotSchedule != nil && v.Desired == api.Present && v.Status.State == api.VolumeReady
}

// ScheduledVolumes yields the volumes that are there and have a snapshot
// schedule: first those of which something is to be planned, then the one whose
// snapshot is due next, and so on.
func (v View) ScheduledVolumes() iter.Seq[*api.Volume] {
	return rows[api.Volume](v, tableVolumes, volumesScheduled, nil)
}

// VolumesFromSnapshot yields the volumes of a namespace whose content is, or is
// to be, the snapshot that their spec calls so.
func (v View) VolumesFromSnapshot(ns api.NamespaceID, snapshot string) iter.Seq[*api.Volume] {
	return rows[api.Volume](v, tableVolumes, volumesContent, key(string(ns), snapshot))
}

// PluginVolumes yields the volumes that a plugin has an id for, by that id.
func (v View) PluginVolumes(plugin api.PluginID) iter.Seq[*api.Volume] {
	return rows[api.Volume](v, tableVolumes, volumesExternal, key(string(plugin)))
}

// UnsettledVolumes yields the volumes that wait for the provisioner.
func (v View) UnsettledVolumes() iter.Seq[*api.Volume] {
	return rows[api.Volume](v, tableVolumes, volumesUnsettled, nil)
}

// VolumesIndex is when a volume was last written.
func (v View) VolumesIndex() uint64 { return v.modified(tableVolumes) }

// PutVolume stores a new volume, or a changed copy.
func (tx *Tx) PutVolume(vol *api.Volume) { put(tx, tableVolumes, vol) }

// DeleteVolume removes a volume that is there.
func (tx *Tx) DeleteVolume(vol *api.Volume) { remove(tx, tableVolumes, vol) }
