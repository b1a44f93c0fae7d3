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
	var f api.AllocFigures
	if err := h.askNode(r, a.NodeID, api.StreamOffer{Kind: api.StreamFigures, Figures: a.ID}, &f); err != nil {
		return nil, err
	}
	if f.AllocID != a.ID {
		return nil, somethingElse(a.NodeID)
	}
	return f, nil
}

// askNode asks an agent for one value.
func (h *Handler) askNode(r *request, node api.NodeID, offer api.StreamOffer, into any) error {
	s, err := h.Streams.Open(r.Context(), node, offer)
	if err != nil {
		return r.unlessGone(err)
	}
	defer s.Close()
	defer context.AfterFunc(r.Context(), s.Interrupt)()
	var answer bytes.Buffer
	for {
		kind, payload, err := s.Next()
		switch {
		case errors.Is(err, io.EOF):
			if json.Unmarshal(answer.Bytes(), into) != nil {
				return somethingElse(node)
			}
			return nil
		case err != nil:
			return r.unlessGone(err)
		case kind != frame.Data || answer.Len()+len(payload) > maxFigures:
			return somethingElse(node)
		}
		answer.Write(payload)
	}
}

func somethingElse(node api.NodeID) error {
	return api.Errorf(api.CodeInternal, "the agent of node %s answers with something else", node)
}
