package command

import (
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// PlaceAllocation puts one instance of a group on a node, and takes all the
// holds that it needs in the same entry.
type PlaceAllocation struct {
	Namespace api.NamespaceID `json:"namespace"`
	JobID     api.JobID       `json:"job_id"`
	JobUID    string          `json:"job_uid"`
	Revision  uint64          `json:"revision"`
	// Serial is the job's next: two plans made from one reading cannot both win.
	Serial    uint64     `json:"serial"`
	Group     string     `json:"group"`
	Index     int        `json:"index"`
	NodeID    api.NodeID `json:"node_id"`
	NodeEpoch uint64     `json:"node_epoch"`
	// Replaces is the ended allocation that this one follows.
	Replaces api.AllocID `json:"replaces,omitempty"`
	// Beside: it has not ended, and is stopped when this one is healthy.
	Beside   bool      `json:"beside,omitempty"`
	Failures int       `json:"failures,omitempty"`
	Failing  time.Time `json:"failing,omitzero"`
	// Ports are the numbers of the group's ports, in its order.
	Ports []int `json:"ports,omitempty"`
}

// Kind implements Command.
func (*PlaceAllocation) Kind() Kind { return "allocation.place" }

// Validate implements Command.
func (c *PlaceAllocation) Validate() error {
	var p api.Problems
	if c.Index < 0 {
		p.Add("index", "is negative", "count from 0")
	}
	return p.Err("the placement")
}

// Apply implements Command.
func (c *PlaceAllocation) Apply(tx *state.Tx) error {
	job := tx.Job(c.Namespace, c.JobID)
	if job == nil || job.UID != c.JobUID || job.Desired != api.Present || job.Revision != c.Revision || job.Status.Serial+1 != c.Serial {
		return conflict("job %s has changed", c.JobID)
	}
	group := job.Spec.Group(c.Group)
	if group == nil || c.Index >= group.Count && !job.Spec.Type.Everywhere() {
		return conflict("job %s has no %s[%d]", c.JobID, c.Group, c.Index)
	}
	if c.Beside && !fit.Beside(&job.Spec, group) {
		return conflict("group %s of job %s has one allocation for each place", c.Group, c.JobID)
	}
	node := tx.Node(c.NodeID)
	if node == nil || node.Status.Epoch != c.NodeEpoch {
		return conflict("node %s has changed", c.NodeID)
	}
	if !node.Places(group) && !(job.Spec.Type.Everywhere() && Needed(tx.View, node, group)) {
		return conflict("node %s has changed", c.NodeID)
	}
	replaced, err := c.predecessor(tx, job.Spec.Type.Everywhere())
	if err != nil {
		return err
	}
	alloc := &api.Allocation{
		ID:        api.NewAllocID(job.UID, c.Serial),
		Namespace: c.Namespace, JobID: c.JobID, JobUID: job.UID, Revision: c.Revision,
		Group: c.Group, Index: c.Index, NodeID: c.NodeID,
		Desired: api.DesireRun, Failures: c.Failures, Failing: c.Failing,
		Status: api.AllocStatus{State: api.AllocPending},
	}
	if alloc.Ports, err = c.ports(tx, node, group); err != nil {
		return err
	}
	alloc.Resources = group.Resources()
	made, err := c.ephemeral(tx, alloc, group)
	if err != nil {
		return err
	}
	attachments, err := c.holds(tx, alloc, group, made)
	if err != nil {
		return err
	}
	tx.PutAllocation(alloc)
	for _, r := range group.Attached() {
		if vol := made[r.Name]; vol != nil {
			vol.UID = newUID(tx, string(alloc.ID), vol.ID)
			if replaced == nil || replaced.Revision != c.Revision {
				vol.Status.Trace = job.Status.Trace // its apply led to it, and not what has happened since
			}
			tx.PutVolume(vol)
		}
	}
	for _, a := range attachments {
		takeHold(tx, a, node.Status.Epoch)
	}
	if replaced != nil {
		next := *replaced
		next.Replaced = true
		tx.PutAllocation(&next)
	}
	next := *job
	next.Status.Serial = c.Serial
	tx.PutJob(&next)
	tx.Touch(c.NodeID)
	return nil
}

// predecessor checks that nobody else has the place in the group: its number,
// or its node if the job runs everywhere.
func (c *PlaceAllocation) predecessor(tx *state.Tx, everywhere bool) (*api.Allocation, error) {
	var found *api.Allocation
	for a := range tx.PlaceAllocations(c.JobUID, c.Group, c.Index) {
		if a.Replaced {
			continue // it goes when the one behind it is healthy
		}
		if err := c.follows(a); err != nil {
			return nil, err
		}
		found = a
	}
	if everywhere {
		for a := range tx.NodeAllocations(c.NodeID) {
			if a.JobUID != c.JobUID || a.Group != c.Group || a.Replaced {
				continue
			}
			if err := c.follows(a); err != nil {
				return nil, err
			}
			found = a
		}
	}
	if found == nil && c.Replaces != "" {
		return nil, conflict("allocation %s was replaced already", c.Replaces.Short())
	}
	return found, nil
}

// follows checks that an allocation that has the place is the one that ended
// and is to be replaced.
func (c *PlaceAllocation) follows(a *api.Allocation) error {
	if a.ID != c.Replaces {
		return conflict("%s is there already: allocation %s", a.Name(), a.ID.Short())
	}
	if !a.Terminal() && (!c.Beside || a.Desired != api.DesireRun || a.Revision >= c.Revision) {
		return conflict("allocation %s has not ended", a.ID.Short())
	}
	return nil
}

// ports checks the numbers of the group's ports, and that they and its
// resources are free on the node.
func (c *PlaceAllocation) ports(tx *state.Tx, node *api.Node, group *api.TaskGroup) ([]api.AllocatedPort, error) {
	if len(c.Ports) != len(group.Ports) {
		return nil, conflict("group %s has %d ports, and the placement %d", group.Name, len(group.Ports), len(c.Ports))
	}
	used := fit.NewUsage()
	if resources := group.Resources(); len(group.Ports) > 0 || resources != (api.Resources{}) {
		for a := range tx.NodeAllocations(c.NodeID) {
			used.Add(a)
		}
		if reason := used.Resources(node, resources); reason != "" {
			return nil, conflict("%s", reason)
		}
	}
	var ports []api.AllocatedPort
	for i, p := range group.Ports {
		if reason := used.Port(node, p, c.Ports[i]); reason != "" {
			return nil, conflict("%s", reason)
		}
		ports = append(ports, api.AllocatedPort{Name: p.Name, Number: c.Ports[i]})
	}
	return ports, nil
}

// holds checks every volume request of the group against the volumes and
// whoever holds them, the group's own earlier requests included.
func (c *PlaceAllocation) holds(tx *state.Tx, alloc *api.Allocation, group *api.TaskGroup, made map[string]*api.Volume) ([]*api.Attachment, error) {
	var taken []*api.Attachment
	if reason := fit.HostVolumes(tx.Node(alloc.NodeID), group); reason != "" {
		return nil, conflict("%s", reason)
	}
	for _, req := range group.Attached() {
		if vol := made[req.Name]; vol != nil {
			taken = append(taken, newAttachment(alloc, req, vol))
			continue
		}
		id := req.VolumeFor(alloc.Index)
		vol := tx.Volume(c.Namespace, id)
		if reason := fit.Request(vol, id, req); reason != "" {
			return nil, conflict("%s", reason)
		}
		want := newAttachment(alloc, req, vol)
		holders := slices.Collect(tx.Holders(c.Namespace, vol.ID))
		for _, own := range taken {
			if own.VolumeID == vol.ID {
				holders = append(holders, own)
			}
		}
		instance := fit.NodeInstance(slices.Collect(tx.NodePlugin(c.NodeID, vol.Spec.PluginID)))
		if reason := fit.Hold(want, holders, instance); reason != "" {
			return nil, conflict("volume %s: %s", vol.ID, reason)
		}
		taken = append(taken, want)
	}
	return taken, fitsLimit(tx, c.NodeID, taken)
}

// fitsLimit checks the plugins' maximum of volumes on a node.
func fitsLimit(tx *state.Tx, node api.NodeID, taken []*api.Attachment) error {
	for _, a := range taken {
		instance := fit.NodeInstance(slices.Collect(tx.NodePlugin(node, a.PluginID)))
		limit := fit.VolumeLimit(instance, func() fit.Plugin { return fit.NewPlugin(a.PluginID, slices.Collect(tx.Instances(a.PluginID))) })
		if limit == 0 {
			continue
		}
		if reason := fit.VolumeRoom(node, a.PluginID, limit, tx.NodePublications(node, a.PluginID), taken); reason != "" {
			return conflict("%s", reason)
		}
	}
	return nil
}

func newAttachment(alloc *api.Allocation, req *api.VolumeRequest, vol *api.Volume) *api.Attachment {
	return &api.Attachment{
		AllocID: alloc.ID, Name: req.Name,
		Namespace: alloc.Namespace, VolumeID: vol.ID, PluginID: vol.Spec.PluginID,
		NodeID: alloc.NodeID, JobID: alloc.JobID,
		ReadOnly: req.ReadOnly, AccessMode: req.AccessMode, AttachmentMode: req.AttachmentMode,
		MountOptions: fit.Overlay(vol.Spec.MountOptions, req.MountOptions),
		FSGroup:      req.FSGroup, FSGroupPolicy: req.FSGroupPolicy,
	}
}

// takeHold stores a claimed attachment and, for the first on its node, the
// publication that it will use.
func takeHold(tx *state.Tx, a *api.Attachment, epoch uint64) {
	step(tx, a, api.Claimed, false)
	tx.PutAttachment(a)
	old := tx.Publication(a.Namespace, a.VolumeID, a.NodeID)
	if old != nil && old.Status.NodeEpoch != epoch {
		// What is said of it from now on is said of this epoch.
		next := *old
		next.Status.NodeEpoch = epoch
		tx.PutPublication(&next)
	}
	if old == nil {
		pub := &api.Publication{
			Namespace: a.Namespace, VolumeID: a.VolumeID, NodeID: a.NodeID, PluginID: a.PluginID,
			Status: api.PublicationStatus{Outcome: api.OutcomeNone, NodeEpoch: epoch},
		}
		if vol := tx.Volume(a.Namespace, a.VolumeID); vol != nil {
			pub.Status.NodeExpansion = vol.Status.NodeExpansion
		}
		tx.PutPublication(pub)
	}
}

// StopAllocation says that an allocation is to end, or, if it has ended, that
// it gets no successor.
type StopAllocation struct {
	ID      api.AllocID `json:"id"`
	Version uint64      `json:"version"`
	Reason  string      `json:"reason"`
	// Refused: its plugin refused to make a volume of its own. Its successor waits
	// as that of one that failed.
	Refused bool `json:"refused,omitempty"`
}

// Kind implements Command.
func (*StopAllocation) Kind() Kind { return "allocation.stop" }

// Validate implements Command.
func (c *StopAllocation) Validate() error {
	var p api.Problems
	if c.Reason == "" {
		p.Add("reason", "is empty", "say why")
	}
	return p.Err("the stop")
}

// Apply implements Command.
func (c *StopAllocation) Apply(tx *state.Tx) error {
	alloc := tx.Allocation(c.ID)
	if alloc == nil || alloc.Version != c.Version {
		return conflict("allocation %s has changed", c.ID.Short())
	}
	next := *alloc
	next.Desired, next.DesiredReason = api.DesireStop, c.Reason
	next.Replaced = alloc.Replaced || alloc.Terminal()
	next.Refused = alloc.Refused || c.Refused
	tx.PutAllocation(&next)
	beginRelease(tx, c.ID)
	tx.Touch(alloc.NodeID)
	return nil
}

// beginRelease turns the attachments of an allocation that ends towards the
// exit. The agent unpublishes and unstages; the volumewatcher does the rest.
func beginRelease(tx *state.Tx, id api.AllocID) {
	for a := range tx.AllocAttachments(id) {
		if !a.Wanted() {
			continue
		}
		next := *a
		step(tx, &next, api.Unpublishing, false)
		tx.PutAttachment(&next)
	}
}

// collectable says whether an allocation's row can go.
func collectable(tx *state.Tx, a *api.Allocation) error {
	if !a.Terminal() {
		return conflict("allocation %s has not ended", a.ID.Short())
	}
	for at := range tx.AllocAttachments(a.ID) {
		if at.Holds() {
			return conflict("allocation %s still holds volume %s", a.ID.Short(), at.VolumeID)
		}
	}
	if job := tx.Job(a.Namespace, a.JobID); job != nil && job.UID == a.JobUID && !a.Replaced {
		return conflict("allocation %s has no successor", a.ID.Short())
	}
	return nil
}
