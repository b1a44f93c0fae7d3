package volumewatcher

import (
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
)

// release detaches the volume from the node, which no attachment uses any
// more, and frees all of them.
func (p *pass) release(leaving []*api.Attachment) {
	switch {
	case p.pub.Status.Operation != "":
		p.cancelOrWait(leaving)
	case p.pub.Status.Staged:
		p.wait(leaving, "node %s has volume %s still staged", p.pub.NodeID, p.vol.ID)
	case p.pub.MayBeAttached():
		p.unpublish(leaving)
	default:
		p.free(leaving)
	}
}

// unpublish opens the operation that detaches the volume, by the name that the
// provider knew the node by when it attached it. A publish that may still be
// running could come to its effect after it, and is waited for; so is the node,
// when it has not said yet that it is done for somebody else.
func (p *pass) unpublish(waiting []*api.Attachment) {
	if p.pub.Status.Operation != "" {
		p.cancelOrWait(waiting)
		return
	}
	if len(waiting) < len(p.holders) {
		p.wait(waiting, "node %s has not ended yet what it has volume %s for", p.pub.NodeID, p.vol.ID)
		return
	}
	if until := p.pub.Status.Lingers; until.After(p.now) {
		p.waitUntil(until, waiting, "a publish of volume %s to node %s got no answer, and may still be running", p.vol.ID, p.pub.NodeID)
		return
	}
	p.open(api.OperationUnpublish, api.OperationRequest{Unpublish: &api.UnpublishRequest{
		ExternalID:     p.vol.Status.ExternalID,
		ExternalNodeID: p.pub.Status.ExternalNodeID,
		ReadBack:       !p.pub.Status.Lingers.IsZero(),
	}})
}

// cancelOrWait ends a publish that nobody needs any more and that no agent
// has; any other operation is waited for.
func (p *pass) cancelOrWait(leaving []*api.Attachment) {
	op := p.v.Operation(p.pub.Status.Operation)
	if op != nil && (op.Kind == api.OperationPublish || op.Kind == api.OperationNodeExpand) && op.Status.State == api.OperationWaiting {
		p.plan.Add(&command.CancelOperation{ID: op.ID, Version: op.Version, Reason: "nobody on the node needs the volume any more"})
		return
	}
	p.wait(leaving, "waits for operation %s", p.pub.Status.Operation)
}

// free frees the attachments and forgets the publication. Whether the
// provider was asked to detach shows in its outcome.
func (p *pass) free(leaving []*api.Attachment) {
	asked := p.pub.Status.Outcome == api.OutcomeDetached
	for _, a := range leaving {
		version := a.Version
		if a.Status.State.Before(api.ControllerDetached) {
			p.advance(a, api.ControllerDetached, !asked)
			version++
		}
		p.plan.Add(&command.AdvanceAttachment{AllocID: a.AllocID, Name: a.Name, Version: version, To: api.Freed})
	}
	p.plan.Add(&command.ForgetPublication{
		Namespace: p.pub.Namespace, VolumeID: p.pub.VolumeID, NodeID: p.pub.NodeID, Version: p.pub.Version,
	})
}
