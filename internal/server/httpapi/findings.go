package httpapi

import (
	"context"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

func findings() listing[*api.Finding] {
	return listing[*api.Finding]{
		modified: state.View.FindingsIndex, rows: byID(state.Findings()),
		namespace: func(f *api.Finding) api.NamespaceID { return f.Namespace },
	}
}

func (h *Handler) getFinding(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		f := v.Finding(api.FindingID(r.PathValue("id")))
		if f == nil {
			return nil, 0, noSuch("finding", r.PathValue("id"), "")
		}
		return f, f.ModifyIndex, nil
	})
}

func (h *Handler) sweepReports(*request) (any, error) { return h.Sweep.Reports(), nil }

// sweepNow compares while the caller waits.
func (h *Handler) sweepNow(r *request) (any, error) {
	var ask api.SweepRequest
	if err := r.decode(&ask); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), questionTime)
	defer cancel()
	return h.Sweep.Sweep(ctx, ask.PluginID)
}
