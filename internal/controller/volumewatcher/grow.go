package volumewatcher

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
)

// grow has the node grow what is on the volume, while that is mounted there.
// What the node mounts anew, it grows by itself. Whatever is left to grow is
// waited for: a key without a wait is one that is settled.
func (p *pass) grow() {
	s := p.pub.Status
	mounted := p.in(api.NodePublished)
	switch {
	case s.Operation.Kind() == api.OperationNodeExpand && len(mounted) == 0:
		if op := p.v.Operation(s.Operation); op != nil && op.Status.State == api.OperationWaiting {
			p.plan.Add(&command.CancelOperation{ID: op.ID, Version: op.Version, Reason: "nobody on the node has the volume mounted any more"})
			return
		}
		p.waitToGrow("is to grow on node %s: waits for operation %s", p.pub.NodeID, s.Operation)
	case s.NodeExpansion == 0:
	case s.Operation != "":
		p.waitToGrow("is to grow on node %s: waits for operation %s", p.pub.NodeID, s.Operation)
	case len(mounted) == 0:
		p.waitToGrow("is to grow on node %s, when it is mounted there", p.pub.NodeID)
	case s.NodeExpansionRefused != "":
		p.waitToGrow("keeps its size on node %s: %s; it grows when it is mounted next, so stop what uses it there, and start it again",
			p.pub.NodeID, s.NodeExpansionRefused)
	default:
		p.growMounted(mounted)
	}
}

func (p *pass) growMounted(mounted []*api.Attachment) {
	plugin := p.plugin()
	if !plugin.NodeCan(api.CapExpandVolume) {
		p.waitToGrow("is to grow on node %s, and no instance of plugin %s there has the capability %s", p.pub.NodeID, p.pub.PluginID, api.CapExpandVolume)
		return
	}
	by := mounted[0]
	if i := slices.IndexFunc(mounted, (*api.Attachment).Writes); i >= 0 {
		by = mounted[i]
	}
	p.open(api.OperationNodeExpand, api.OperationRequest{NodeExpand: &api.NodeExpandRequest{
		ExternalID:   p.vol.Status.ExternalID,
		CapacityMin:  p.pub.Status.NodeExpansion,
		CapacityMax:  largest(p.vol.Spec.CapacityMax, p.pub.Status.NodeExpansion),
		Capability:   api.Capability{AccessMode: by.AccessMode, AttachmentMode: by.AttachmentMode},
		MountOptions: fit.Overlay(p.vol.Spec.MountOptions, by.MountOptions),
	}})
}

// largest is the bound of a size, unless it has been passed already.
func largest(limit, size int64) int64 {
	if limit < size {
		return 0
	}
	return limit
}

func (p *pass) waitToGrow(format string, args ...any) {
	p.plan.Wait(fmt.Sprintf("volume %s/%s", p.pub.Namespace, p.pub.VolumeID), fmt.Sprintf(format, args...), p.pub.ModifyTime, time.Time{})
}
