package volumewatcher

import (
	"fmt"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
)

// attach has the volume published to the node, then lets the claimed
// attachments go on to the node's part.
func (p *pass) attach(claimed []*api.Attachment) {
	plugin := p.plugin()
	op := p.pub.Status.Operation
	switch why := p.changes(); {
	case p.vol.Status.State == api.VolumeCreating:
		if p.leaveUnmade(claimed) {
			return
		}
		p.wait(claimed, "volume %s is being created", p.vol.ID)
	case p.vol.Status.State == api.VolumeFailed:
		p.wait(claimed, "volume %s could not be created: %s; node %s is to end the allocation", p.vol.ID, p.vol.Status.Reason, p.pub.NodeID)
	case op != "" && op.Kind() != api.OperationNodeExpand:
		if p.leaveFull(claimed) {
			return
		}
		p.wait(claimed, "waits for operation %s", op)
	case why != "":
		p.wait(claimed, "%s", why)
	case p.pub.Status.Outcome == api.OutcomePublished:
		if p.readOnlyInTheWay(claimed) {
			p.makeWay(claimed)
			return
		}
		for _, a := range claimed {
			p.advance(a, api.ControllerPublished, false)
		}
	case !plugin.Known():
		p.wait(claimed, "%s", plugin.Unknown())
	case plugin.ControllerMissing():
		p.wait(claimed, "plugin %s has a controller service, and no node runs a controller instance of it", p.pub.PluginID)
	case !plugin.Attaches() && p.pub.Status.Outcome == api.OutcomeNone:
		for _, a := range claimed {
			p.advance(a, api.ControllerPublished, true)
		}
	default:
		p.publish(claimed, plugin)
	}
}

// changes says for which change or copy of the volume its next user waits, or "":
// a call that an agent has, and an expansion that must not be in use.
func (p *pass) changes() string {
	if id := command.Called(p.v, p.vol); id != "" {
		return fmt.Sprintf("waits for operation %s", id)
	}
	return command.ExpandsFirst(p.v, p.vol)
}

// readOnlyInTheWay reports whether the provider has the volume attached
// read-only and somebody wants to write.
func (p *pass) readOnlyInTheWay(claimed []*api.Attachment) bool {
	return p.pub.Status.ReadOnly && slices.ContainsFunc(claimed, (*api.Attachment).Writes)
}

// makeWay has the volume detached as soon as no reader on the node uses it;
// then it is attached again for writing. Who has not begun waits, also to read:
// else the writer's turn might never come.
func (p *pass) makeWay(claimed []*api.Attachment) {
	if len(claimed) < len(p.holders) || p.pub.Status.Staged {
		p.wait(claimed, "volume %s is attached to node %s read-only, until its readers there are gone", p.vol.ID, p.pub.NodeID)
		return
	}
	p.unpublish(claimed)
}

// publish opens the operation, once the node's name at the provider is known.
func (p *pass) publish(claimed []*api.Attachment, plugin fit.Plugin) {
	instance := fit.NodeInstance(slices.Collect(p.v.NodePlugin(p.pub.NodeID, p.pub.PluginID)))
	switch {
	case instance == nil:
		p.wait(claimed, "node %s does not run plugin %s", p.pub.NodeID, p.pub.PluginID)
		return
	case !instance.Healthy:
		p.wait(claimed, "plugin %s on node %s is not healthy: %s", p.pub.PluginID, p.pub.NodeID, instance.Reason)
		return
	case instance.ExternalNodeID == "":
		p.wait(claimed, "plugin %s has not told its name for node %s", p.pub.PluginID, p.pub.NodeID)
		return
	}
	// Whoever writes needs the most.
	first := claimed[0]
	if i := slices.IndexFunc(claimed, (*api.Attachment).Writes); i >= 0 {
		first = claimed[i]
	}
	everybodyReads := !slices.ContainsFunc(p.holders, (*api.Attachment).Writes)
	request := &api.PublishRequest{
		ExternalID:     p.vol.Status.ExternalID,
		ExternalNodeID: instance.ExternalNodeID,
		Capability:     api.Capability{AccessMode: first.AccessMode, AttachmentMode: first.AttachmentMode},
		MountOptions:   p.vol.Spec.MountOptions,
		ReadOnly:       everybodyReads && plugin.Can(api.CapPublishReadonly),
		Context:        p.vol.Status.Context,
	}
	if p.pub.MayBeAttached() && !p.asked(request) {
		p.unpublish(claimed)
		return
	}
	p.open(api.OperationPublish, api.OperationRequest{Publish: request})
}

// asked reports whether the provider was asked for the same before. Asked for
// something else while it has the volume attached, it must answer
// ALREADY_EXISTS (CSI, ControllerPublishVolume Errors); and what is attached
// under another name of the node would never be detached.
func (p *pass) asked(r *api.PublishRequest) bool {
	s := p.pub.Status
	return s.ExternalNodeID == r.ExternalNodeID && s.ReadOnly == r.ReadOnly && s.Capability == r.Capability
}
