package httpapi

import "github.com/berth-dev/berth/api"

// signalAllocation sends a signal to tasks that run.
func (h *Handler) signalAllocation(r *request) (any, error) {
	v := h.Log.View()
	a, err := findAllocation(v, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	var req api.SignalRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	if err := req.Validate(); err != nil {
		return nil, err
	}
	if req.Task != "" {
		if err := hasTask(v, a, req.Task); err != nil {
			return nil, err
		}
	}
	if a.Terminal() {
		return nil, api.Errorf(api.CodeConflict, "allocation %s has ended: nothing of it runs", a.ID.Short())
	}
	asker, err := r.asker()
	if err != nil {
		return nil, err
	}
	if err := h.inContact(v, a.NodeID); err != nil {
		return nil, err
	}
	h.out.Info("signal asked for", "alloc", a.ID.Short(), "task", req.Task, "signal", req.Signal, "node", a.NodeID, "by", asker.By, "from", asker.From)
	var done api.Signalled
	offer := api.StreamOffer{Kind: api.StreamSignal, Signal: &api.SignalOffer{AllocID: a.ID, Asker: asker, SignalRequest: req}}
	if err := h.askNode(r, a.NodeID, offer, &done); err != nil {
		return nil, err
	}
	if done.AllocID != a.ID {
		return nil, somethingElse(a.NodeID)
	}
	return done, nil
}
