package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
)

// enough is how many fitting nodes are compared; the first found come from a
// place in the fleet that differs from slot to slot.
const enough = 8

// place puts one instance of a group on a node, or says why none will do.
func (p *pass) place(group *api.TaskGroup, index int, replaces api.AllocID, failures int) {
	if p.fleet == nil {
		p.fleet = newFleet(p.v)
	}
	subject := slot(p.job, group, index)
	requests, reason := p.volumes(group)
	if reason != "" {
		p.plan.Wait(subject, reason, p.job.ModifyTime, time.Time{})
		return
	}
	serial := p.job.Status.Serial + uint64(p.placed) + 1 //nolint:gosec // a small count
	node, why := p.choose(group, requests, serial)
	if node == nil {
		p.plan.Wait(subject, why, p.job.ModifyTime, time.Time{})
		return
	}
	p.plan.Add(&command.PlaceAllocation{
		Namespace: p.job.Namespace, JobID: p.job.ID, JobUID: p.job.UID, Revision: p.job.Revision,
		Serial: serial, Group: group.Name, Index: index,
		NodeID: node.ID, NodeEpoch: node.Status.Epoch,
		Replaces: replaces, Failures: failures,
	})
	p.placed++
	p.fleet.take(node.ID, p.attachments(requests, node.ID, serial))
}

// wanted is one volume request with the volume that it is for.
type wanted struct {
	request *api.VolumeRequest
	volume  *api.Volume
}

// volumes finds the group's volumes. The reason is why they are of no use yet.
func (p *pass) volumes(group *api.TaskGroup) ([]wanted, string) {
	var all []wanted
	for i := range group.Volumes {
		r := &group.Volumes[i]
		vol := p.v.Volume(p.job.Namespace, r.Source)
		if reason := fit.Request(vol, r); reason != "" {
			return nil, reason
		}
		all = append(all, wanted{r, vol})
	}
	return all, ""
}

// attachments are what a placement on the node would hold.
func (p *pass) attachments(requests []wanted, node api.NodeID, serial uint64) []*api.Attachment {
	var all []*api.Attachment
	for _, w := range requests {
		all = append(all, &api.Attachment{
			AllocID: api.NewAllocID(p.job.UID, serial), Name: w.request.Name,
			Namespace: p.job.Namespace, VolumeID: w.volume.ID, PluginID: w.volume.Spec.PluginID,
			NodeID: node, JobID: p.job.ID,
			ReadOnly: w.request.ReadOnly, AccessMode: w.request.AccessMode, AttachmentMode: w.request.AttachmentMode,
			Status: api.AttachmentStatus{State: api.Claimed},
		})
	}
	return all
}

// choose finds the least loaded of some nodes that fit. If none does, it says
// how many nodes were turned down for which reason.
func (p *pass) choose(group *api.TaskGroup, requests []wanted, serial uint64) (*api.Node, string) {
	reasons := map[string]int{}
	var fitting []*api.Node
	for node := range p.fleet.from(serial) {
		if reason := p.rejects(node, group, requests, serial); reason != "" {
			reasons[reason]++
			continue
		}
		if fitting = append(fitting, node); len(fitting) == enough {
			break
		}
	}
	if len(fitting) > 0 {
		return slices.MinFunc(fitting, func(a, b *api.Node) int { return p.fleet.load(a.ID) - p.fleet.load(b.ID) }), ""
	}
	if len(reasons) == 0 {
		return nil, "the cluster has no nodes"
	}
	var parts []string
	for _, r := range slices.Sorted(maps.Keys(reasons)) {
		if reasons[r] > 1 {
			r = fmt.Sprintf("%s (%d nodes)", r, reasons[r])
		}
		parts = append(parts, r)
	}
	return nil, "no node fits: " + strings.Join(parts, "; ")
}

// rejects says why a node will not do, or "". Where all nodes may have the
// same reason, the reason names no node.
func (p *pass) rejects(node *api.Node, group *api.TaskGroup, requests []wanted, serial uint64) string {
	if node.Status.State != api.NodeReady {
		return fmt.Sprintf("node %s is %s", node.ID, node.Status.State)
	}
	for i := range group.Tasks {
		if reason := rejectsTask(node, &group.Tasks[i]); reason != "" {
			return reason
		}
	}
	attachments := p.attachments(requests, node.ID, serial)
	for i, w := range requests {
		if reason := p.rejectsVolume(node, w.volume); reason != "" {
			return reason
		}
		holders := slices.Collect(p.v.Holders(w.volume.Namespace, w.volume.ID))
		holders = append(holders, p.fleet.held(w.volume)...)
		holders = append(holders, attachments[:i]...)
		if reason := holdReason(attachments[i], holders); reason != "" {
			return reason
		}
	}
	return p.fleet.full(node.ID, attachments)
}

// holdReason is fit.Hold for the holders of one volume.
func holdReason(want *api.Attachment, holders []*api.Attachment) string {
	holders = slices.DeleteFunc(holders, func(h *api.Attachment) bool {
		return h.VolumeID != want.VolumeID || h.Namespace != want.Namespace
	})
	if reason := fit.Hold(want, holders); reason != "" {
		return fmt.Sprintf("volume %s: %s", want.VolumeID, reason)
	}
	return ""
}

func rejectsTask(node *api.Node, task *api.Task) string {
	driver, ok := node.Status.Drivers[task.Driver]
	switch {
	case !ok:
		return fmt.Sprintf("node %s has no driver %s", node.ID, task.Driver)
	case !driver.Healthy:
		return fmt.Sprintf("driver %s on node %s is not healthy: %s", task.Driver, node.ID, driver.Reason)
	case len(task.VolumeMounts) > 0 && !driver.MountsVolumes:
		return fmt.Sprintf("driver %s cannot mount volumes", task.Driver)
	}
	return ""
}

func (p *pass) rejectsVolume(node *api.Node, vol *api.Volume) string {
	instance := p.fleet.instance(vol.Spec.PluginID, node.ID)
	switch {
	case instance == nil:
		return fmt.Sprintf("node %s does not run plugin %s", node.ID, vol.Spec.PluginID)
	case !instance.Healthy:
		return fmt.Sprintf("plugin %s on node %s is not healthy: %s", vol.Spec.PluginID, node.ID, instance.Reason)
	case !fit.Reachable(vol.Status.AccessibleTopology, instance.Topology):
		return fmt.Sprintf("volume %s cannot be reached from node %s", vol.ID, node.ID)
	}
	return ""
}
