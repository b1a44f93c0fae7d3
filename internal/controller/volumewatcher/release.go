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
		p.open(api.OperationUnpublish, api.OperationRequest{Unpublish: &api.UnpublishRequest{
			ExternalID:     p.vol.Status.ExternalID,
			ExternalNodeID: p.pub.Status.ExternalNodeID,
		}})
	default:
		p.free(leaving)
	}
}

// cancelOrWait ends a publish that nobody needs any more and that no agent
// has; any other operation is waited for.
func (p *pass) cancelOrWait(leaving []*api.Attachment) {
	op := p.v.Operation(p.pub.Status.Operation)
	if op != nil && op.Kind == api.OperationPublish && op.Status.State == api.OperationWaiting {
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
		p.plan.Add(&command.AdvanceAttachment{
			AllocID: a.AllocID, Name: a.Name, Version: a.Version,
			To: api.ControllerDetached, Skipped: !asked,
		})
		p.plan.Add(&command.AdvanceAttachment{
			AllocID: a.AllocID, Name: a.Name, Version: a.Version + 1, To: api.Freed,
		})
	}
	p.plan.Add(&command.ForgetPublication{
		Namespace: p.pub.Namespace, VolumeID: p.pub.VolumeID, NodeID: p.pub.NodeID, Version: p.pub.Version,
	})
}
