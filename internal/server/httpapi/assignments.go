package httpapi

import (
	"strconv"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// assignmentsOf is the whole of what a node is to do. What has not changed
// after since is named only.
func assignmentsOf(v state.View, node api.NodeID, since, at uint64) *api.Assignments {
	all := &api.Assignments{Index: at, Allocations: []api.AllocAssignment{}, Operations: collect(v.NodeOperations(node))}
	if c := v.Cluster(); c != nil {
		all.ClusterID, all.Generation = c.ID, c.Generation
	}
	if id := v.Identity(node); id != nil {
		all.Epoch = id.Epoch
	}
	for a := range v.NodeAllocations(node) {
		all.Allocations = append(all.Allocations, allocAssignment(v, a, since))
	}
	return all
}

func allocAssignment(v state.View, a *api.Allocation, since uint64) api.AllocAssignment {
	full := api.AllocAssignment{ID: a.ID, Allocation: a}
	changed := a.ModifyIndex
	for at := range v.AllocAttachments(a.ID) {
		assigned := api.AttachmentAssignment{Attachment: *at}
		changed = max(changed, at.ModifyIndex)
		if vol := v.Volume(at.Namespace, at.VolumeID); vol != nil {
			assigned.ExternalID = vol.Status.ExternalID
			assigned.Context = vol.Status.Context
			assigned.StageOptions = vol.Spec.MountOptions
		}
		if pub := v.Publication(at.Namespace, at.VolumeID, at.NodeID); pub != nil {
			assigned.PublishContext = pub.Status.PublishContext
			changed = max(changed, pub.ModifyIndex)
		}
		full.Attachments = append(full.Attachments, assigned)
	}
	if changed <= since {
		return api.AllocAssignment{ID: a.ID}
	}
	if rev := v.Revision(a.JobUID, a.Revision); rev != nil {
		full.Group = rev.Spec.Group(a.Group)
		full.JobType = rev.Spec.Type
	}
	return full
}

func headerNumber(r *request, name string) (uint64, error) {
	n, err := strconv.ParseUint(r.Header.Get(name), 10, 64)
	if err != nil {
		return 0, api.Errorf(api.CodeInvalid, "header %s is %q, not a number", name, r.Header.Get(name))
	}
	return n, nil
}
