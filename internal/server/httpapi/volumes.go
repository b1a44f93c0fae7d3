package httpapi

import (
	"crypto/rand"
	"encoding/hex"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

func (h *Handler) listVolumes(r *request) (any, error) {
	ns := api.NamespaceID(r.URL.Query().Get("namespace"))
	return h.block(r, func(v state.View) (any, uint64, error) {
		at := v.VolumesIndex()
		return collect(v.Quiet().Volumes(ns)), at, nil
	})
}

func (h *Handler) getVolume(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		vol := v.Volume(r.namespace(), api.VolumeID(r.PathValue("id")))
		if vol == nil {
			return nil, 0, noSuch("volume", r.PathValue("id"), r.namespace())
		}
		q := v.Quiet()
		return h.volumeInfo(v, vol), max(q.VolumesIndex(), q.AttachmentsIndex(), q.PublicationsIndex(), q.OperationsIndex()), nil
	})
}

func (h *Handler) volumeInfo(v state.View, vol *api.Volume) api.VolumeInfo {
	return api.VolumeInfo{
		Volume:       vol,
		Publications: collect(v.VolumePublications(vol.Namespace, vol.ID)),
		Attachments:  collect(v.Holders(vol.Namespace, vol.ID)),
		Operations:   collect(v.VolumeOperations(vol.Namespace, vol.ID)),
		Waits:        h.Explain.Volume(v, vol),
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
	if _, err := h.Log.Propose(r.Context(), &command.ApplyVolume{
		Namespace: r.namespace(), ID: id, UID: newUID(), Spec: spec, Version: version,
	}); err != nil {
		return nil, err
	}
	v := h.Log.View()
	vol := v.Volume(r.namespace(), id)
	if vol == nil {
		return nil, api.Errorf(api.CodeConflict, "volume %s was deleted in the meantime", id)
	}
	return h.volumeInfo(v, vol), nil
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
	if _, err := h.Log.Propose(r.Context(), &command.DeleteVolume{Namespace: r.namespace(), ID: id, Version: version}); err != nil {
		return nil, err
	}
	v := h.Log.View()
	if vol := v.Volume(r.namespace(), id); vol != nil {
		return h.volumeInfo(v, vol), nil
	}
	return nil, nil
}

// notRecovering refuses a change while a restored cluster waits for its
// operator: what it would rest on may not be true.
func (h *Handler) notRecovering() error {
	if c := h.Log.View().Cluster(); c != nil && c.Generation.Recovering {
		return api.Errorf(api.CodeRecovering,
			"the cluster is recovering (%s): nothing is changed until an operator confirms with berth system recovery confirm", c.Generation.Reason)
	}
	return nil
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
