package httpapi

import (
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

func allocations() listing[*api.Allocation] {
	return listing[*api.Allocation]{
		modified: state.View.AllocationsIndex, rows: byID(state.Allocations()),
		namespace: func(a *api.Allocation) api.NamespaceID { return a.Namespace },
	}
}

func (h *Handler) getAllocation(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		a, err := findAllocation(v, r.PathValue("id"))
		if err != nil {
			return nil, 0, err
		}
		info := api.AllocationInfo{Allocation: a, Attachments: collect(v.AllocAttachments(a.ID)), Waits: h.Explain.Allocation(v, a)}
		if node := v.Quiet().Node(a.NodeID); node != nil {
			info.Address = node.Status.Profile.Address
		}
		return info, max(v.Quiet().AllocationsIndex(), explained(v)), nil
	})
}

// restartAllocation asks for a restart. The node carries it out: what is asked
// for is a level, which outlasts every agent.
func (h *Handler) restartAllocation(r *request) (any, error) {
	var ask api.RestartRequest
	if err := r.decode(&ask); err != nil {
		return nil, err
	}
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	a, err := findAllocation(h.Log.View(), r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	by, err := r.user()
	if err != nil {
		return nil, err
	}
	restart := &command.RestartAllocation{ID: a.ID, Task: ask.Task, Number: ask.Number, By: by}
	if restart.Task == "" {
		restart.Task = api.AllTasks
	}
	if restart.Number == 0 {
		restart.Number = a.Asked[restart.Task] + 1
	}
	if _, err := h.propose(r, restart); err != nil {
		return nil, err
	}
	if now := h.Log.View().Allocation(a.ID); now != nil {
		a = now
	}
	return a, nil
}

// findAllocation finds an allocation by any unambiguous prefix of its id.
func findAllocation(v state.View, prefix string) (*api.Allocation, error) {
	var found []*api.Allocation
	for a := range v.AllocationsWithPrefix(prefix) {
		if found = append(found, a); len(found) > maxAmbiguous {
			break
		}
	}
	switch len(found) {
	case 0:
		return nil, api.Errorf(api.CodeNotFound, "allocation %s does not exist", prefix)
	case 1:
		return found[0], nil
	}
	var ids []string
	for _, a := range found[:min(len(found), maxAmbiguous)] {
		ids = append(ids, string(a.ID[:min(len(a.ID), len(prefix)+api.ShortIDLength)])+" "+a.Name())
	}
	if len(found) > maxAmbiguous {
		ids = append(ids, "and others")
	}
	return nil, api.Errorf(api.CodeConflict, "several allocations begin with %s: %s", prefix, strings.Join(ids, ", "))
}

// maxAmbiguous is how many candidates an error lists.
const maxAmbiguous = 5
