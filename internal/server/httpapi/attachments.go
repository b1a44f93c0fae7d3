package httpapi

import (
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

func attachments() listing[*api.Attachment] {
	return listing[*api.Attachment]{
		modified: state.View.AttachmentsIndex, rows: byID(state.Attachments()),
		namespace: func(a *api.Attachment) api.NamespaceID { return a.Namespace },
	}
}

func (h *Handler) getAttachment(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		a := v.Attachment(api.AllocID(r.PathValue("allocation")), r.PathValue("name"))
		if a == nil {
			return nil, 0, noSuch("attachment", r.PathValue("allocation")+"/"+r.PathValue("name"), "")
		}
		return a, a.ModifyIndex, nil
	})
}

func publications() listing[*api.Publication] {
	return listing[*api.Publication]{modified: state.View.PublicationsIndex, rows: byNamespace(state.Publications())}
}

func (h *Handler) getPublication(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		p := v.Publication(r.namespace(), api.VolumeID(r.PathValue("volume")), api.NodeID(r.PathValue("node")))
		if p == nil {
			return nil, 0, noSuch("publication", r.PathValue("volume")+"/"+r.PathValue("node"), r.namespace())
		}
		return p, p.ModifyIndex, nil
	})
}
