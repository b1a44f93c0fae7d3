package httpapi

import (
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

func snapshots() listing[*api.Snapshot] {
	return listing[*api.Snapshot]{modified: state.View.SnapshotsIndex, rows: byNamespace(state.Snapshots())}
}

func (h *Handler) getSnapshot(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		s := v.Snapshot(r.namespace(), api.SnapshotID(r.PathValue("id")))
		if s == nil {
			return nil, 0, noSuch("snapshot", r.PathValue("id"), r.namespace())
		}
		return h.snapshotInfo(v, s), explained(v), nil
	})
}

func (h *Handler) snapshotInfo(v state.View, s *api.Snapshot) api.SnapshotInfo {
	info := api.SnapshotInfo{Snapshot: s, Waits: h.Explain.Snapshot(v, s)}
	for op := range v.VolumeOperations(s.Namespace, s.VolumeID) {
		if op.SnapshotID == s.ID {
			info.Operations = append(info.Operations, op)
		}
	}
	for vol := range v.VolumesFromSnapshot(s.Namespace, string(s.ID)) {
		if vol.Spec.PluginID == s.PluginID {
			info.Volumes = append(info.Volumes, vol.ID)
		}
	}
	return info
}

// putSnapshot asks for a snapshot. It is there when it is ready.
func (h *Handler) putSnapshot(r *request) (any, error) {
	var creation api.SnapshotCreation
	if err := r.decode(&creation); err != nil {
		return nil, err
	}
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	id := api.SnapshotID(r.PathValue("id"))
	create := &command.CreateSnapshot{
		Namespace: r.namespace(), ID: id, UID: newUID(), VolumeID: creation.VolumeID, Owner: api.OwnerUser, Spec: creation.Spec, IfAbsent: r.ifAbsent,
	}
	if err := create.Validate(); err != nil {
		return nil, err
	}
	if _, err := h.propose(r, create); err != nil {
		return nil, err
	}
	v := h.Log.View()
	s := v.Snapshot(r.namespace(), id)
	if s == nil {
		return nil, api.Errorf(api.CodeNotFound, "snapshot %s was written, and has been deleted since", id)
	}
	return h.snapshotInfo(v, s), nil
}

func (h *Handler) deleteSnapshot(r *request) (any, error) {
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	id := api.SnapshotID(r.PathValue("id"))
	old := h.Log.View().Snapshot(r.namespace(), id)
	if _, err := h.propose(r, &command.DeleteSnapshot{Namespace: r.namespace(), ID: id, Version: version}); err != nil {
		return nil, err
	}
	v := h.Log.View()
	switch s := v.Snapshot(r.namespace(), id); {
	case s != nil:
		return h.snapshotInfo(v, s), nil
	case old == nil:
		return nil, nil
	}
	// It is gone already.
	gone := *old
	gone.Desired, gone.Status.State = api.Absent, api.SnapshotDeleting
	return api.SnapshotInfo{Snapshot: &gone}, nil
}
