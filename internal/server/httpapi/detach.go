package httpapi

import (
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// detachVolume takes a volume off nodes, and answers what that is about. It
// does not wait: the nodes and the provider have their parts in it.
func (h *Handler) detachVolume(r *request) (any, error) {
	var ask api.DetachRequest
	if err := r.decode(&ask); err != nil {
		return nil, err
	}
	if err := ask.Validate(); err != nil {
		return nil, err
	}
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	v, id := h.Log.View(), api.VolumeID(r.PathValue("id"))
	vol := v.Volume(r.namespace(), id)
	if vol == nil {
		return nil, noSuch("volume", string(id), r.namespace())
	}
	from := known(v, vol, ask.DetachFrom)
	detach := &command.DetachVolume{Namespace: vol.Namespace, ID: vol.ID, UID: vol.UID, From: from, Stop: ask.Stop, By: ask.By}
	if err := detach.Validate(); err != nil {
		return nil, err
	}
	before := command.Detaching(v, vol, from)
	if _, err := h.propose(r, detach); err != nil {
		return nil, err
	}
	return h.detaching(before, vol, from), nil
}

// known is where a volume is to be detached, by the name under which the state
// has it: what only the provider had attached is kept under one of its own, if
// the provider's is none that a node can have, once it is being detached.
func known(v state.View, vol *api.Volume, from api.DetachFrom) api.DetachFrom {
	if from.NodeID == "" || v.Publication(vol.Namespace, vol.ID, from.NodeID) != nil {
		return from
	}
	for pub := range v.VolumePublications(vol.Namespace, vol.ID) {
		if pub.Status.Left && pub.Status.ExternalNodeID == string(from.NodeID) {
			from.NodeID = pub.NodeID
		}
	}
	return from
}

// detaching is what a detachment is about, as it stands now. What it was about
// when it was asked for and is gone already is not there any more.
func (h *Handler) detaching(before command.Held, vol *api.Volume, from api.DetachFrom) api.Detach {
	v := h.Log.View()
	d := api.Detach{Attachments: []*api.Attachment{}, Stopped: []*api.Allocation{}, Publications: []*api.Publication{}}
	for _, at := range before.Attachments {
		if now := v.Attachment(at.AllocID, at.Name); now != nil && now.Holds() {
			d.Attachments = append(d.Attachments, now)
		}
	}
	for _, a := range before.Running {
		d.Stopped = append(d.Stopped, orBefore(v, a))
	}
	if now := v.Volume(vol.Namespace, vol.ID); now != nil && now.UID == vol.UID {
		d.Publications = append(d.Publications, command.Detaching(v, now, known(v, now, from)).Publications...)
		d.Waits = h.Explain.Volume(v, now)
	}
	return d
}

func orBefore(v state.View, a *api.Allocation) *api.Allocation {
	if now := v.Allocation(a.ID); now != nil {
		return now
	}
	return a
}
