package httpapi

import (
	"fmt"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

func operations() listing[*api.Operation] {
	return listing[*api.Operation]{
		modified: state.View.OperationsIndex, rows: byID(state.Operations()),
		namespace: func(op *api.Operation) api.NamespaceID { return op.Namespace },
	}
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

// abandonOperation gives up a create whose outcome is not known, on the word of
// an operator.
func (h *Handler) abandonOperation(r *request) (any, error) {
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	id := api.OperationID(r.PathValue("id"))
	v := h.Log.View()
	op := v.Operation(id)
	if op == nil {
		return nil, noSuch("operation", string(id), "")
	}
	switch {
	case version > 0 && version != op.Version:
		return nil, api.Errorf(api.CodeConflict, "operation %s is at version %d, and the change was made for version %d", id, op.Version, version)
	case !op.Open():
		return nil, api.Errorf(api.CodeConflict, "operation %s has ended: it is %s", id, op.Status.State)
	case !command.CanBeAbandoned(op.Kind):
		return nil, api.Errorf(api.CodeConflict, "operation %s undoes something: it cannot be given up, or that would stay for ever", id)
	case op.Status.State == api.OperationAssigned:
		return nil, api.Errorf(api.CodeConflict, "node %s makes the call of operation %s: try again when it has answered", op.Status.Executor, id)
	}
	reason := "its " + string(op.Kind) + " was given up: "
	switch r := op.Request; {
	case r.Create != nil:
		reason += fmt.Sprintf("the provider may have a volume named %s", r.Create.Name)
	case r.Snapshot != nil:
		reason += fmt.Sprintf("the provider may have a snapshot named %s", r.Snapshot.Name)
	default:
		reason += "the provider may have made the change"
	}
	if _, err := h.propose(r, &command.CancelOperation{ID: id, Version: op.Version, Reason: reason, Abandon: true}); err != nil {
		return nil, err
	}
	return h.Log.View().Operation(id), nil
}
