package httpapi

import (
	"crypto/rand"
	"encoding/hex"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

func volumes() listing[*api.Volume] {
	return listing[*api.Volume]{modified: state.View.VolumesIndex, rows: byNamespace(state.Volumes())}
}

func (h *Handler) getVolume(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		vol := v.Volume(r.namespace(), api.VolumeID(r.PathValue("id")))
		if vol == nil {
			return nil, 0, noSuch("volume", r.PathValue("id"), r.namespace())
		}
		return h.volumeInfo(v, vol), explained(v), nil
	})
}

func (h *Handler) volumeInfo(v state.View, vol *api.Volume) api.VolumeInfo {
	return api.VolumeInfo{
		Volume:       vol,
		Publications: collect(v.VolumePublications(vol.Namespace, vol.ID)),
		Attachments:  collect(v.Holders(vol.Namespace, vol.ID)),
		Operations:   collect(v.VolumeOperations(vol.Namespace, vol.ID)),
		Snapshots:    slices.DeleteFunc(collect(v.VolumeSnapshots(vol.Namespace, vol.ID)), func(s *api.Snapshot) bool { return s.VolumeUID != vol.UID }),
		Findings:     collect(v.VolumeFindings(vol.Namespace, vol.ID)),
		Waits:        h.Explain.Volume(v, vol),
		Queue:        h.Explain.Queue(v, vol),
	}
}

func (h *Handler) putVolume(r *request) (any, error) {
	var spec api.VolumeSpec
	if err := r.decode(&spec); err != nil {
		return nil, err
	}
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	id := api.VolumeID(r.PathValue("id"))
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	apply, err := h.applyVolume(r.namespace(), id, spec, version)
	if err != nil {
		return nil, err
	}
	apply.IfAbsent, apply.Trace = r.ifAbsent, r.trace()
	if _, err := h.propose(r, apply); err != nil {
		return nil, err
	}
	v := h.Log.View()
	vol := v.Volume(r.namespace(), id)
	if vol == nil {
		return nil, api.Errorf(api.CodeNotFound, "volume %s was written, and has been deleted since", id)
	}
	info := h.volumeInfo(v, vol)
	info.Warnings = volumeWarnings(v, vol)
	return info, nil
}

func (h *Handler) deleteVolume(r *request) (any, error) {
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	id := api.VolumeID(r.PathValue("id"))
	remove := &command.DeleteVolume{Namespace: r.namespace(), ID: id, Version: version, Reclaim: api.Reclaim(r.query.Get("reclaim")), Trace: r.trace()}
	if err := remove.Validate(); err != nil {
		return nil, err
	}
	old := h.Log.View().Volume(r.namespace(), id)
	if _, err := h.propose(r, remove); err != nil {
		return nil, err
	}
	v := h.Log.View()
	if vol := v.Volume(r.namespace(), id); vol != nil {
		return h.volumeInfo(v, vol), nil
	}
	if old == nil {
		return nil, nil
	}
	// It is gone already. Who asked is to know nevertheless what became of it.
	gone := *old
	gone.Desired, gone.Status.State = api.Absent, api.VolumeDeleting
	if remove.Reclaim != "" {
		gone.Reclaim = remove.Reclaim
	}
	return api.VolumeInfo{Volume: &gone}, nil
}

// explained is the index of the last change to what an explanation of a volume
// may rest on.
func explained(v state.View) uint64 { return explanation(v.Quiet()) }

// explanation is explained, and watches the tables.
func explanation(v state.View) uint64 {
	return max(v.VolumesIndex(), v.AttachmentsIndex(), v.PublicationsIndex(), v.OperationsIndex(), v.InstancesIndex(), v.NodesIndex(), v.SnapshotsIndex(), v.FindingsIndex(),
		v.JobsIndex(), v.AllocationsIndex())
}

// notRecovering refuses a change while a restored cluster waits for its
// operator: what it would rest on may not be true.
func (h *Handler) notRecovering() error {
	if c := h.Log.View().Cluster(); c != nil && c.Generation.Recovering {
		if c.Generation.Confirmed {
			return api.Errorf(api.CodeRecovering, "the cluster is recovering (%s): nothing is changed until its nodes have ended what the restored state "+
				"does not know; berth system recovery names them", c.Generation.Reason)
		}
		return api.Errorf(api.CodeRecovering,
			"the cluster is recovering (%s): nothing is changed until an operator confirms with berth system recovery confirm", c.Generation.Reason)
	}
	return nil
}

// newVolumeUID is the UID of a new volume: it tells the cluster, and is else
// random.
func newVolumeUID(v state.View) string {
	cluster := ""
	if c := v.Cluster(); c != nil {
		cluster = c.ID
	}
	return fit.VolumeUID(cluster, newUID())
}

// newUID is 128 random bits in hex.
func newUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func noSuch(noun, id string, ns api.NamespaceID) error {
	if ns == "" {
		return api.Errorf(api.CodeNotFound, "%s %s does not exist", noun, id)
	}
	return api.Errorf(api.CodeNotFound, "%s %s does not exist in namespace %s", noun, id, ns)
}

// collect makes a list that is empty rather than null in JSON.
func collect[T any](rows func(func(*T) bool)) []*T {
	all := []*T{}
	return slices.AppendSeq(all, rows)
}
