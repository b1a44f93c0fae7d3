package httpapi

import (
	"context"
	"strconv"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// poll is the long poll of an agent: it answers as soon as the node is to do
// something newer than the index that the agent has, or streams are wanted from
// it, or the wait is over.
func (h *Handler) poll(r *request, node api.NodeID, session string, epoch uint64) (any, error) {
	since, wait, err := r.poll()
	if err != nil {
		return nil, err
	}
	brief, err := r.flag("brief")
	if err != nil {
		return nil, err
	}
	defer h.Streams.Polling(node)()
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	for {
		watch := state.NewWatch()
		v := h.Log.View().Watching(watch)
		if err := command.CheckSession(v.Quiet(), node, session, epoch); err != nil {
			return nil, err
		}
		h.Contacts.Seen(node, session)
		row := v.AssignmentVersion(node)
		if row == nil {
			return nil, api.Errorf(api.CodeStaleSession, "node %s is not registered", node)
		}
		streams, changed, next := h.Streams.Offers(node)
		if since == 0 || row.Index > since || len(streams) > 0 || ctx.Err() != nil {
			r.w.Header().Set(api.HeaderIndex, strconv.FormatUint(max(row.Index, 1), 10))
			answer := assignmentsHead(v.Quiet(), node, row.Index)
			switch {
			case len(streams) > 0 && row.Index <= since:
			case brief && since > 0 && row.AllocationsIndex() <= since:
				answer.Operations, answer.Same = collect(v.Quiet().NodeOperations(node)), true
			default:
				answer = assignmentsOf(v.Quiet(), node, since, row.Index)
			}
			answer.Streams = streams
			return answer, nil
		}
		watch.Also(changed)
		waitUntil(ctx, watch, next)
	}
}

// waitUntil returns when what was watched has changed, or at that time if it is
// not zero, or when ctx ends.
func waitUntil(ctx context.Context, watch *state.Watch, at time.Time) {
	if !at.IsZero() {
		bounded, cancel := context.WithDeadline(ctx, at)
		defer cancel()
		ctx = bounded
	}
	_ = watch.Wait(ctx) // whoever asks looks again
}

// assignmentsOf is the whole of what a node is to do. What has not changed
// after since is named only.
func assignmentsOf(v state.View, node api.NodeID, since, at uint64) *api.Assignments {
	all := assignmentsHead(v, node, at)
	all.Operations = collect(v.NodeOperations(node))
	for a := range v.NodeAllocations(node) {
		all.Allocations = append(all.Allocations, allocAssignment(v, a, since))
	}
	return all
}

// assignmentsHead says of which state assignments are, and names none.
func assignmentsHead(v state.View, node api.NodeID, at uint64) *api.Assignments {
	head := &api.Assignments{Index: at, Allocations: []api.AllocAssignment{}}
	if c := v.Cluster(); c != nil {
		head.ClusterID, head.Generation = c.ID, c.Generation
	}
	if id := v.Identity(node); id != nil {
		head.Epoch = id.Epoch
	}
	if n := v.Node(node); n != nil {
		head.Owes, head.Fence = n.Status.Owes, n.Status.Fence
	}
	return head
}

func allocAssignment(v state.View, a *api.Allocation, since uint64) api.AllocAssignment {
	if since > 0 && !changedAfter(v, a, since) {
		return api.AllocAssignment{ID: a.ID}
	}
	full := api.AllocAssignment{ID: a.ID, Allocation: a}
	for at := range v.AllocAttachments(a.ID) {
		assigned := api.AttachmentAssignment{Attachment: *at}
		if vol := v.Volume(at.Namespace, at.VolumeID); vol != nil {
			assigned.ExternalID = vol.Status.ExternalID
			assigned.Context = vol.Status.Context
			assigned.StageOptions = vol.Spec.MountOptions
			assigned.CapacityMax = vol.Spec.CapacityMax
			if vol.Owner != "" && vol.Status.State == api.VolumeFailed {
				assigned.Refused = vol.Status.Reason
			}
		}
		assigned.Secrets = v.VolumeSecrets(at.Namespace, at.VolumeID) != nil
		if pub := v.Publication(at.Namespace, at.VolumeID, at.NodeID); pub != nil {
			assigned.PublishContext = pub.Status.PublishContext
			assigned.NodeExpansion = pub.Status.NodeExpansion
		}
		full.Attachments = append(full.Attachments, assigned)
	}
	if rev := v.Revision(a.JobUID, a.Revision); rev != nil {
		full.Group = rev.Spec.Group(a.Group)
		full.JobType, full.Meta = rev.Spec.Type, rev.Spec.Meta
	}
	return full
}

// changedAfter reports whether an allocation, or something that its agent is
// told with it, has changed after an index. What the node has said itself is not
// said again: that an allocation has ended, after which it takes it down and
// needs no word, and that it is done with an attachment. Who begins a session
// hears of all.
func changedAfter(v state.View, a *api.Allocation, since uint64) bool {
	if a.Status.State == api.AllocComplete || a.Status.State == api.AllocFailed {
		return false
	}
	if a.ModifyIndex > since {
		return true
	}
	for at := range v.AllocAttachments(a.ID) {
		if !at.Status.State.Before(api.NodeDetached) {
			continue
		}
		if at.ModifyIndex > since {
			return true
		}
		if pub := v.Publication(at.Namespace, at.VolumeID, at.NodeID); pub != nil && pub.ModifyIndex > since {
			return true
		}
		if vol := v.Volume(at.Namespace, at.VolumeID); vol != nil && vol.Owner != "" && vol.ModifyIndex > since {
			return true
		}
		if secrets := v.VolumeSecrets(at.Namespace, at.VolumeID); secrets != nil && secrets.ModifyIndex > since {
			return true
		}
	}
	return false
}

func headerNumber(r *request, name string) (uint64, error) {
	n, err := strconv.ParseUint(r.Header.Get(name), 10, 64)
	if err != nil {
		return 0, api.Errorf(api.CodeInvalid, "header %s is %q, not a number", name, r.Header.Get(name))
	}
	return n, nil
}
