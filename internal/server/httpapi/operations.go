package httpapi

import (
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

func (h *Handler) listOperations(r *request) (any, error) {
	ns := api.NamespaceID(r.URL.Query().Get("namespace"))
	vol := api.VolumeID(r.URL.Query().Get("volume"))
	return h.block(r, func(v state.View) (any, uint64, error) {
		at := v.OperationsIndex()
		all := []*api.Operation{}
		for op := range v.Quiet().Operations() {
			if (ns == "" || op.Namespace == ns) && (vol == "" || op.VolumeID == vol) {
				all = append(all, op)
			}
		}
		return all, at, nil
	})
}

func (h *Handler) getOperation(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		op := v.Operation(api.OperationID(r.PathValue("id")))
		if op == nil {
			return nil, 0, noSuch("operation", r.PathValue("id"), "")
		}
		return op, op.ModifyIndex, nil
	})
}
