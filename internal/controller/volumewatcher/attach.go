package volumewatcher

import (
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// attach has the volume published to the node, then lets the claimed
// attachments go on to the node's part.
func (p *pass) attach(claimed []*api.Attachment) {
	plugin := p.plugin()
	switch {
	case p.pub.Status.Operation != "":
		p.wait(claimed, "waits for operation %s", p.pub.Status.Operation)
	case p.pub.Status.Outcome == api.OutcomePublished:
		if p.readOnlyInTheWay(claimed) {
			return
		}
		for _, a := range claimed {
			p.advance(a, api.ControllerPublished, false)
		}
	case !plugin.Known():
		p.wait(claimed, "no node runs plugin %s", p.pub.PluginID)
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

// readOnlyInTheWay waits if the provider has the volume attached read-only and
// somebody wants to write: it must be detached by its readers first.
func (p *pass) readOnlyInTheWay(claimed []*api.Attachment) bool {
	if !p.pub.Status.ReadOnly || !slices.ContainsFunc(claimed, (*api.Attachment).Writes) {
		return false
	}
	p.wait(claimed, "volume %s is attached to node %s read-only, until its readers there are gone", p.vol.ID, p.pub.NodeID)
	return true
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
	first := claimed[0]
	reader := func(a *api.Attachment) bool { return !a.Writes() }
	everybodyReads := !slices.ContainsFunc(p.holders, (*api.Attachment).Writes) && slices.ContainsFunc(claimed, reader)
	p.open(api.OperationPublish, api.OperationRequest{Publish: &api.PublishRequest{
		ExternalID:     p.vol.Status.ExternalID,
		ExternalNodeID: instance.ExternalNodeID,
		Capability:     api.Capability{AccessMode: first.AccessMode, AttachmentMode: first.AttachmentMode},
		MountOptions:   p.vol.Spec.MountOptions,
		ReadOnly:       everybodyReads && plugin.Can(api.CapPublishReadonly),
		Context:        p.vol.Status.Context,
	}})
}
