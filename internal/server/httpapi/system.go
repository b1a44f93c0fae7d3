package httpapi

import (
	"net/http"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

func (h *Handler) status(r *request) (any, error) {
	leader, _ := h.Log.Leader()
	s := api.Status{ServerID: h.ServerID, Leader: leader, Version: h.Version, Counters: h.Counters()}
	if !h.Log.Ready() {
		return s, nil
	}
	v := h.Log.View()
	s.Index = v.Index()
	if c := v.Cluster(); c != nil {
		s.ClusterID, s.FeatureLevel, s.Generation = c.ID, c.FeatureLevel, c.Generation
	}
	for n := range v.Nodes() {
		s.Nodes++
		s.NodesReady += one(n.Status.State == api.NodeReady)
	}
	for range v.Volumes("") {
		s.Volumes++
	}
	for range v.Jobs("") {
		s.Jobs++
	}
	s.Waits = h.Explain.Everything(v)
	return s, nil
}

// saveSnapshot streams the whole state.
func (h *Handler) saveSnapshot(r *request) (any, error) {
	r.w.Header().Set("Content-Type", "application/octet-stream")
	r.streamed = true
	if err := h.Log.Save(r.w); err != nil {
		// The status is on its way already: only a cut stream can tell.
		panic(http.ErrAbortHandler)
	}
	return nil, nil
}

func (h *Handler) restoreSnapshot(r *request) (any, error) {
	if err := h.Log.Restore(r.Context(), r.Body); err != nil {
		return nil, err
	}
	return h.recovery(r)
}

func (h *Handler) recovery(*request) (any, error) { return recoveryOf(h.Log.View()), nil }

func recoveryOf(v state.View) api.Recovery {
	var rec api.Recovery
	c := v.Cluster()
	if c == nil {
		return rec
	}
	rec.Generation = c.Generation
	for n := range v.Nodes() {
		if c.Generation.Recovering && n.Status.Generation < c.Generation.Number {
			rec.Missing = append(rec.Missing, n.ID)
		}
	}
	return rec
}

func (h *Handler) confirmRecovery(r *request) (any, error) {
	var body struct {
		Number uint64 `json:"number"`
		Force  bool   `json:"force"`
	}
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	if _, err := h.Log.Propose(r.Context(), &command.ConfirmGeneration{Number: body.Number, Force: body.Force}); err != nil {
		return nil, err
	}
	return h.recovery(r)
}
