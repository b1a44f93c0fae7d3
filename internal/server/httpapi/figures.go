package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/frame"
)

// maxFigures bounds what an agent may answer.
const maxFigures = 1 << 20

// figures asks an allocation's node what its tasks use.
func (h *Handler) figures(r *request) (any, error) {
	v := h.Log.View()
	a, err := findAllocation(v, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if a.Terminal() {
		return nil, api.Errorf(api.CodeConflict, "allocation %s has ended: nothing of it runs", a.ID.Short())
	}
	if err := h.inContact(v, a.NodeID); err != nil {
		return nil, err
	}
	s, err := h.Streams.Open(r.Context(), a.NodeID, api.StreamOffer{Kind: api.StreamFigures, Figures: a.ID})
	if err != nil {
		return nil, r.unlessGone(err)
	}
	defer s.Close()
	defer context.AfterFunc(r.Context(), s.Interrupt)()
	var answer bytes.Buffer
	for {
		kind, payload, err := s.Next()
		switch {
		case errors.Is(err, io.EOF):
			var f api.AllocFigures
			if err := json.Unmarshal(answer.Bytes(), &f); err != nil || f.AllocID != a.ID {
				return nil, api.Errorf(api.CodeInternal, "the agent of node %s answers with something else", a.NodeID)
			}
			return f, nil
		case err != nil:
			return nil, r.unlessGone(err)
		case kind != frame.Data || answer.Len()+len(payload) > maxFigures:
			return nil, api.Errorf(api.CodeInternal, "the agent of node %s answers with something else", a.NodeID)
		}
		answer.Write(payload)
	}
}
