package httpapi

import (
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

func (h *Handler) listAllocations(r *request) (any, error) {
	ns := api.NamespaceID(r.URL.Query().Get("namespace"))
	return h.block(r, func(v state.View) (any, uint64, error) {
		at := v.AllocationsIndex()
		all := []*api.Allocation{}
		for a := range v.Quiet().Allocations() {
			if ns == "" || a.Namespace == ns {
				all = append(all, a)
			}
		}
		return all, at, nil
	})
}

func (h *Handler) getAllocation(r *request) (any, error) {
	return h.block(r, func(v state.View) (any, uint64, error) {
		a, err := findAllocation(v, r.PathValue("id"))
		if err != nil {
			return nil, 0, err
		}
		q := v.Quiet()
		info := api.AllocationInfo{Allocation: a, Attachments: collect(v.AllocAttachments(a.ID)), Waits: h.allocWaits(v, a)}
		return info, max(q.AllocationsIndex(), q.AttachmentsIndex(), q.OperationsIndex()), nil
	})
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
	for _, a := range found {
		ids = append(ids, a.ID.Short()+" "+a.Name())
	}
	return nil, api.Errorf(api.CodeConflict, "%d allocations or more begin with %s: %s", len(found), prefix, strings.Join(ids, ", "))
}

// maxAmbiguous is how many candidates an error lists.
const maxAmbiguous = 5

// allocWaits is what the volumes of an allocation wait for.
func (h *Handler) allocWaits(v state.View, a *api.Allocation) []api.Wait {
	var waits []api.Wait
	for at := range v.AllocAttachments(a.ID) {
		vol := v.Volume(at.Namespace, at.VolumeID)
		if !at.Holds() || vol == nil {
			continue
		}
		for _, w := range h.Explain.Volume(v, vol) {
			if strings.Contains(w.Subject, a.ID.Short()) || !strings.HasPrefix(w.Subject, "attachment") {
				waits = append(waits, w)
			}
		}
	}
	return waits
}
