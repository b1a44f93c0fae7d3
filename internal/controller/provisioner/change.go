package provisioner

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// changing is one pass over a volume that is there, and may be wanted larger or
// with other parameters.
type changing struct {
	v      state.View
	vol    *api.Volume
	plugin fit.Plugin
	plan   controller.Plan
}

// change brings a volume that is there to what its spec says of it now. It
// changes parameters first: that waits for less.
func change(v state.View, vol *api.Volume) controller.Plan {
	c := &changing{v: v, vol: vol}
	if id := vol.Status.Operation; id != "" {
		if op := v.Operation(id); op != nil {
			c.opened(op)
		}
		return c.plan
	}
	if vol.Status.Modification != nil || vol.Status.Expansion != nil {
		c.plugin = fit.NewPlugin(vol.Spec.PluginID, slices.Collect(v.Instances(vol.Spec.PluginID)))
	}
	if m := vol.Status.Modification; m != nil {
		c.modify(m)
	}
	if e := vol.Status.Expansion; e != nil && len(c.plan.Commands) == 0 {
		c.expand(e)
	}
	if len(c.plan.Commands) == 0 && vol.Status.NodeExpansion > 0 {
		c.grows()
	}
	return c.plan
}

func (c *changing) wait(since time.Time, format string, args ...any) {
	c.plan.Wait("volume "+string(Key(c.vol.Namespace, c.vol.ID)), fmt.Sprintf(format, args...), since, time.Time{})
}

// opened cancels a call that asks for what is not wanted any more, if that has
// certainly changed nothing.
func (c *changing) opened(op *api.Operation) {
	outdated := ""
	switch r := op.Request; {
	case r.Expand != nil && c.vol.Status.Expansion == nil:
		outdated = "the volume is not to be expanded any more"
	case r.Expand != nil && (r.Expand.CapacityMin != c.vol.Spec.CapacityMin || r.Expand.CapacityMax != c.vol.Spec.CapacityMax):
		outdated = "the volume is to have another size"
	case r.Modify != nil && !fit.Same(r.Modify.MutableParameters, c.vol.Spec.MutableParameters):
		outdated = "the volume is to have other parameters"
	}
	if outdated != "" && op.Status.State == api.OperationWaiting && !op.Status.Uncertain {
		c.plan.Add(&command.CancelOperation{ID: op.ID, Version: op.Version, Reason: outdated})
		return
	}
	c.wait(c.vol.ModifyTime, "waits for operation %s", op.ID)
}

func (c *changing) modify(m *api.Modification) {
	switch {
	case m.Refused != "":
		c.wait(m.Since, "keeps its parameters: they were refused with %s; correct mutable_parameters, or put the old values back, and apply it again", m.Refused)
	case c.plugin.Undecided() != "":
		c.wait(m.Since, "%s", c.plugin.Undecided())
	case c.plugin.CannotModify() != "":
		c.wait(m.Since, "%s", c.plugin.CannotModify())
	default:
		c.open(api.OperationModify, api.OperationRequest{Modify: &api.ModifyRequest{
			ExternalID: c.vol.Status.ExternalID, MutableParameters: c.vol.Spec.MutableParameters,
		}})
	}
}

// expand opens the call of the controller or, where the controller has none,
// leaves it to the nodes. Where the volume must not be in use, it waits for who
// uses it.
func (c *changing) expand(e *api.Expansion) {
	switch {
	case e.Refused != "":
		c.wait(e.Since, "keeps its size: the expansion was refused with %s; ask for another size, or put the old one back (capacity_min of %s), and apply it again",
			e.Refused, fit.Size(e.From))
	case c.plugin.Undecided() != "":
		c.wait(e.Since, "%s", c.plugin.Undecided())
	case c.plugin.CannotExpand() != "":
		c.wait(e.Since, "%s", c.plugin.CannotExpand())
	case !c.plugin.Can(api.CapExpandVolume):
		c.leaveToNodes()
	case command.Offline(c.v, c.vol) && command.InUse(c.v, c.vol) != "":
		c.wait(e.Since, "is expanded when nobody uses it, since plugin %s does not expand volumes that are in use: %s; stop what uses it, and it goes on",
			c.vol.Spec.PluginID, command.InUse(c.v, c.vol))
	default:
		c.open(api.OperationExpand, api.OperationRequest{Expand: &api.ExpandRequest{
			ExternalID:   c.vol.Status.ExternalID,
			CapacityMin:  c.vol.Spec.CapacityMin,
			CapacityMax:  c.vol.Spec.CapacityMax,
			Capability:   c.vol.Spec.Capabilities[0],
			MountOptions: c.vol.Spec.MountOptions,
		}})
	}
}

// leaveToNodes has the nodes expand the volume.
func (c *changing) leaveToNodes() {
	if c.vol.Status.NodeExpansion != c.vol.Spec.CapacityMin {
		c.plan.Add(&command.GrowVolume{Namespace: c.vol.Namespace, ID: c.vol.ID, Version: c.vol.Version})
	}
}

// grows says on which node what is on the volume is to grow.
func (c *changing) grows() {
	for pub := range c.v.VolumePublications(c.vol.Namespace, c.vol.ID) {
		if pub.Status.NodeExpansion > 0 && pub.Status.NodeExpansionRefused == "" {
			c.wait(c.vol.ModifyTime, "grows to %s on node %s", fit.Size(c.vol.Status.NodeExpansion), pub.NodeID)
			return
		}
	}
	c.wait(c.vol.ModifyTime, "grows to %s on the node that mounts it next", fit.Size(c.vol.Status.NodeExpansion))
}

func (c *changing) open(kind api.OperationKind, r api.OperationRequest) {
	c.plan.Add(&command.OpenOperation{
		OperationKind: kind, Namespace: c.vol.Namespace, VolumeID: c.vol.ID, PluginID: c.vol.Spec.PluginID, Version: c.vol.Version, Request: r,
	})
}
