package command

import (
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// Collect removes rows that are history. Only what was last written before
// Before goes, whatever was chosen.
type Collect struct {
	Before      time.Time         `json:"before"`
	Operations  []api.OperationID `json:"operations,omitempty"`
	Allocations []api.AllocID     `json:"allocations,omitempty"`
	Jobs        []JobName         `json:"jobs,omitempty"`
	Attachments []AttachmentName  `json:"attachments,omitempty"`
	Snapshots   []SnapshotName    `json:"snapshots,omitempty"`
	Nodes       []api.NodeID      `json:"nodes,omitempty"`
}

// SnapshotName names a snapshot.
type SnapshotName struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.SnapshotID  `json:"id"`
}

// AttachmentName names an attachment.
type AttachmentName struct {
	AllocID api.AllocID `json:"alloc_id"`
	Name    string      `json:"name"`
}

// JobName names a job.
type JobName struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.JobID       `json:"id"`
}

// Kind implements Command.
func (*Collect) Kind() Kind { return "collect" }

// Validate implements Command.
func (c *Collect) Validate() error {
	var p api.Problems
	if c.Before.IsZero() {
		p.Add("before", "is missing", "say up to when")
	}
	return p.Err("the collection")
}

// Apply implements Command. An allocation takes its freed attachments along,
// a job the specs of its revisions. A node goes as by ForgetNode.
func (c *Collect) Apply(tx *state.Tx) error {
	operations, allocations, jobs, err := c.check(tx)
	if err != nil {
		return err
	}
	attachments, err := c.freed(tx)
	if err != nil {
		return err
	}
	snapshots, nodes, err := c.left(tx)
	if err != nil {
		return err
	}
	for _, s := range snapshots {
		tx.DeleteSnapshot(s)
	}
	for _, n := range nodes {
		forgetNode(tx, n)
	}
	if len(nodes) > 0 {
		unsettleEverywhere(tx)
	}
	for _, at := range attachments {
		tx.DeleteAttachment(at)
		tx.Touch(at.NodeID)
	}
	for _, o := range operations {
		tx.DeleteOperation(o)
	}
	for _, a := range allocations {
		for at := range tx.AllocAttachments(a.ID) {
			tx.DeleteAttachment(at)
		}
		tx.DeleteAllocation(a)
		tx.Touch(a.NodeID)
	}
	for _, j := range jobs {
		for r := range tx.Revisions(j.UID) {
			tx.DeleteRevision(r)
		}
		tx.DeleteJob(j)
	}
	return nil
}

// check finds the rows, each once.
func (c *Collect) check(tx *state.Tx) (ops []*api.Operation, allocs []*api.Allocation, jobs []*api.Job, err error) {
	for _, id := range c.Operations {
		o := tx.Operation(id)
		if o == nil || o.Open() || !o.ModifyTime.Before(c.Before) || slices.Contains(ops, o) {
			return nil, nil, nil, conflict("operation %s is not to be collected", id)
		}
		ops = append(ops, o)
	}
	for _, id := range c.Allocations {
		a := tx.Allocation(id)
		if a == nil || !a.ModifyTime.Before(c.Before) || slices.Contains(allocs, a) {
			return nil, nil, nil, conflict("allocation %s is not to be collected", id.Short())
		}
		if err := collectable(tx, a); err != nil {
			return nil, nil, nil, err
		}
		allocs = append(allocs, a)
	}
	for _, name := range c.Jobs {
		j := tx.Job(name.Namespace, name.ID)
		if j == nil || j.Desired == api.Present || !j.ModifyTime.Before(c.Before) || slices.Contains(jobs, j) {
			return nil, nil, nil, conflict("job %s is not to be collected", name.ID)
		}
		for a := range tx.JobAllocations(j.UID) {
			return nil, nil, nil, conflict("job %s still has allocation %s", name.ID, a.ID.Short())
		}
		jobs = append(jobs, j)
	}
	return ops, allocs, jobs, nil
}

// freed finds the attachments, each once. One that goes with its allocation is
// not chosen by itself.
func (c *Collect) freed(tx *state.Tx) (found []*api.Attachment, err error) {
	for _, name := range c.Attachments {
		at := tx.Attachment(name.AllocID, name.Name)
		if at == nil || at.Holds() || !at.ModifyTime.Before(c.Before) || slices.Contains(found, at) || slices.Contains(c.Allocations, name.AllocID) {
			return nil, conflict("attachment %s of allocation %s is not to be collected", name.Name, name.AllocID.Short())
		}
		if a := tx.Allocation(name.AllocID); a != nil && !a.Terminal() {
			return nil, conflict("allocation %s has not ended", name.AllocID.Short())
		}
		found = append(found, at)
	}
	return found, nil
}

// left finds the snapshots that were never made and the nodes that are gone,
// each once.
func (c *Collect) left(tx *state.Tx) (snapshots []*api.Snapshot, nodes []*api.Node, err error) {
	for _, name := range c.Snapshots {
		s := tx.Snapshot(name.Namespace, name.ID)
		if s == nil || !state.NeverMade(s) || !s.ModifyTime.Before(c.Before) || slices.Contains(snapshots, s) {
			return nil, nil, conflict("snapshot %s is not to be collected", name.ID)
		}
		snapshots = append(snapshots, s)
	}
	for _, id := range c.Nodes {
		n := tx.Node(id)
		if n == nil || !n.ModifyTime.Before(c.Before) || !Gone(tx.View, n) || slices.Contains(nodes, n) {
			return nil, nil, conflict("node %s is not to be collected", id)
		}
		nodes = append(nodes, n)
	}
	return snapshots, nodes, nil
}

// Gone reports whether nothing would be missed of a node: it is down, has
// nothing that anybody knows of, and nobody has said that it is to stay without
// allocations. If it ever comes back, it registers as one that was forgotten.
func Gone(v state.View, n *api.Node) bool {
	return n.Status.State == api.NodeDown && !n.Spec.Ineligible && n.Spec.Drain == nil && MayHold(v, n) == ""
}
