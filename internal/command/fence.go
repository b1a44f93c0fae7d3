package command

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// FenceNode takes it as a fact that a node can write to nothing any more, on
// evidence. Its epoch ends with all that was in it.
type FenceNode struct {
	NodeID   api.NodeID   `json:"node_id"`
	Evidence api.Evidence `json:"evidence"`
	// Force fences a node also while its agent is in contact.
	Force bool `json:"force,omitempty"`
}

// Kind implements Command.
func (*FenceNode) Kind() Kind { return "node.fence" }

// Validate implements Command.
func (c *FenceNode) Validate() error {
	var p api.Problems
	p.Name("node_id", string(c.NodeID))
	p.Merge(c.Evidence.Validate())
	switch c.Evidence.Kind {
	case api.EvidenceOperator, api.EvidenceAgent:
	case api.EvidenceReported, api.EvidenceDetach, api.EvidenceLease:
		p.Addf("evidence.kind", "use operator or fence-agent", "is %q, which fences no node", c.Evidence.Kind)
	}
	return p.Err("the fence")
}

// Apply implements Command. In one entry the epoch ends, so that nothing is
// believed that was said in it; the node's allocations are lost, and are
// replaced elsewhere; what is the node's part in letting go of volumes is
// passed over; and the calls that it had are free for another, when they can
// have no effect any more. A node that is fenced and has not come back holds
// nothing new: to fence it again changes nothing.
func (c *FenceNode) Apply(tx *state.Tx) error {
	node, id := tx.Node(c.NodeID), tx.Identity(c.NodeID)
	if node == nil || id == nil {
		return api.Errorf(api.CodeNotFound, "node %s does not exist", c.NodeID)
	}
	if node.Status.State == api.NodeReady && !c.Force {
		return api.Errorf(api.CodeInUse, "node %s is ready: its agent is in contact, and what it runs goes on. Stop its jobs instead, "+
			"or switch the machine off first and wait until it is down", c.NodeID)
	}
	if node.Status.Fence != nil {
		return nil
	}
	evidence := c.Evidence
	evidence.Time, evidence.Epoch = tx.Now(), id.Epoch
	tx.PutIdentity(&state.Identity{NodeID: c.NodeID, SecretHash: id.SecretHash, Session: id.Session, Epoch: id.Epoch + 1})
	next := *node
	next.Status.Epoch, next.Status.Owes, next.Status.Fence = id.Epoch+1, true, &evidence
	tx.PutNode(&next)
	loseAllocations(tx, c.NodeID, &evidence)
	for pub := range tx.NodePublications(c.NodeID, "") {
		unstage(tx, pub)
		endExpansion(tx, pub, &evidence)
	}
	for op := range tx.NodeOperations(c.NodeID) {
		freeOperation(tx, op, &evidence)
	}
	tx.Touch(c.NodeID)
	unsettleEverywhere(tx)
	return nil
}

// loseAllocations ends what the node ran, and passes over its part in letting
// go of volumes, also for those that had ended or were ending.
func loseAllocations(tx *state.Tx, node api.NodeID, evidence *api.Evidence) {
	for a := range tx.NodeAllocations(node) {
		if !a.Terminal() {
			next := *a
			next.Status = lost(tx, a, evidence)
			tx.PutAllocation(&next)
			unsettleJob(tx, a.Namespace, a.JobID)
		}
		for at := range tx.AllocAttachments(a.ID) {
			passOver(tx, at, evidence)
		}
	}
}

// lost is the status of an allocation whose node was fenced. What its tasks did
// last is kept.
func lost(tx *state.Tx, a *api.Allocation, evidence *api.Evidence) api.AllocStatus {
	why := fmt.Sprintf("node %s was fenced", a.NodeID)
	tasks := make(map[string]api.TaskStatus, len(a.Status.Tasks))
	for name, t := range a.Status.Tasks {
		if t.State != api.TaskEnded {
			t.State, t.Ended, t.Reason, t.Next = api.TaskEnded, tx.Now(), why, time.Time{}
		}
		tasks[name] = t
	}
	if a.Status.Tasks == nil {
		tasks = nil
	}
	return api.AllocStatus{
		State: api.AllocLost, Tasks: tasks, Ended: tx.Now(),
		Problem: &api.Problem{Step: "run", Message: why + " (" + evidence.String() + ")", Since: tx.Now()},
	}
}

// passOver moves an attachment past the node's steps, on evidence.
func passOver(tx *state.Tx, a *api.Attachment, evidence *api.Evidence) {
	if !a.Status.State.Before(api.NodeDetached) {
		return
	}
	next := *a
	if a.Wanted() {
		step(tx, &next, api.Unpublishing, false)
	}
	step(tx, &next, api.NodeDetached, true)
	next.Status.Steps[len(next.Status.Steps)-1].Evidence = evidence
	next.Status.Problem = nil
	tx.PutAttachment(&next)
}

// unstage notes that what the node has staged counts no more.
func unstage(tx *state.Tx, pub *api.Publication) {
	if !pub.Status.Staged {
		return
	}
	next := *pub
	next.Status.Staged = false
	tx.PutPublication(&next)
}

// endExpansion ends a call that only the fenced node could make, and has not been
// given.
func endExpansion(tx *state.Tx, pub *api.Publication, evidence *api.Evidence) {
	op := tx.Operation(pub.Status.Operation)
	if op == nil || op.Kind != api.OperationNodeExpand || op.Status.State != api.OperationWaiting {
		return
	}
	next := *op
	next.Status.State, next.Status.Ended = api.OperationCancelled, tx.Now()
	next.Status.Message = fmt.Sprintf("node %s, which was to make the call, was fenced (%s)", op.NodeID, evidence)
	tx.PutOperation(&next)
	releaseSubject(tx, op)
}

// freeOperation takes a call back from a fenced node. It may still be on its
// way, or running at the provider, until its deadline and some time after:
// nobody makes it again before, and what undoes it waits as long. A call that
// only that node can make ends with it.
func freeOperation(tx *state.Tx, op *api.Operation, evidence *api.Evidence) {
	next := *op
	next.Status.Uncertain = true
	next.Status.Code = "UNAVAILABLE"
	next.Status.Message = fmt.Sprintf("node %s, which had the call, was fenced (%s)", op.Status.Executor, evidence)
	if op.Kind == api.OperationNodeExpand {
		next.Status.State, next.Status.Ended = api.OperationCancelled, tx.Now()
		tx.PutOperation(&next)
		releaseSubject(tx, op)
		return
	}
	until := fit.Lingers(next.Status.Code, op.Status.Deadline, tx.Now())
	next.Status.State, next.Status.Next = api.OperationWaiting, until
	tx.PutOperation(&next)
	if op.Kind == api.OperationSnapshot {
		freeVolume(tx, op) // its slot is that of a call which an agent has
	}
	pub := publicationOf(tx, op)
	if pub == nil || !until.After(pub.Status.Lingers) {
		return
	}
	changed := *pub
	changed.Status.Lingers = until
	tx.PutPublication(&changed)
}

// ForgetNode removes a node that is gone.
type ForgetNode struct {
	NodeID api.NodeID `json:"node_id"`
	// Version is the node's, 0 for any.
	Version uint64 `json:"version,omitempty"`
}

// Kind implements Command.
func (*ForgetNode) Kind() Kind { return "node.forget" }

// Validate implements Command.
func (c *ForgetNode) Validate() error {
	var p api.Problems
	p.Name("node_id", string(c.NodeID))
	return p.Err("the node")
}

// Apply implements Command. Its row, its identity, its plugin instances and its
// assignments go. What is still to be detached from it goes on: that rests on
// the publications. If its agent comes back, it registers in an epoch that is
// later than any it knows, and undoes first what is left.
func (c *ForgetNode) Apply(tx *state.Tx) error {
	node := tx.Node(c.NodeID)
	if node == nil {
		return api.Errorf(api.CodeNotFound, "node %s does not exist", c.NodeID)
	}
	if c.Version > 0 && c.Version != node.Version {
		return conflict("node %s is at version %d, and the change was made for version %d", c.NodeID, node.Version, c.Version)
	}
	if node.Status.State == api.NodeReady {
		return api.Errorf(api.CodeInUse, "node %s is ready: its agent is in contact; stop it first, or it would register again", c.NodeID)
	}
	if reason := MayHold(tx.View, node); reason != "" {
		return api.Errorf(api.CodeInUse, "%s; if the machine is off or cut off from its storage, use 'berth node fence %s' first", reason, c.NodeID)
	}
	forgetNode(tx, node)
	unsettleEverywhere(tx)
	return nil
}

// forgetNode removes a node with its plugin instances. The jobs that run on every
// node are to be told.
func forgetNode(tx *state.Tx, node *api.Node) {
	for _, i := range slices.Collect(tx.NodeInstances(node.ID)) {
		tx.DeleteInstance(i)
	}
	tx.DeleteNode(node)
}

// MayHold says what a node may still run, use or do, as far as is known, or "".
// Nothing is left of a node that is fenced.
func MayHold(v state.View, node *api.Node) string {
	if node.Status.Fence != nil {
		return ""
	}
	for a := range v.NodeAllocations(node.ID) {
		if !a.Terminal() {
			return fmt.Sprintf("node %s may still run allocation %s of job %s", node.ID, a.ID.Short(), a.JobID)
		}
		for at := range v.AllocAttachments(a.ID) {
			if at.Status.State.Before(api.NodeDetached) {
				return fmt.Sprintf("node %s may still have volume %s mounted for allocation %s of job %s", node.ID, at.VolumeID, a.ID.Short(), a.JobID)
			}
		}
	}
	for pub := range v.NodePublications(node.ID, "") {
		if pub.Status.Staged {
			return fmt.Sprintf("node %s may still have volume %s staged", node.ID, pub.VolumeID)
		}
	}
	for op := range v.NodeOperations(node.ID) {
		return fmt.Sprintf("node %s may still make the call of operation %s", node.ID, op.ID)
	}
	if node.Status.Owes {
		return fmt.Sprintf("node %s has not said yet that nothing is left of what it ran before", node.ID)
	}
	return ""
}

// putRemains notes what a node could not undo yet of its earlier epochs.
func putRemains(tx *state.Tx, id api.NodeID, what string) {
	node := tx.Node(id)
	if what == "" || !node.Status.Owes || node.Status.Remains == what {
		return
	}
	next := *node
	next.Status.Remains = what
	tx.PutNode(&next)
}

// putUndone notes that nothing of a node's earlier epochs is left there.
func putUndone(tx *state.Tx, id api.NodeID, epoch uint64) {
	node := tx.Node(id)
	if !node.Status.Owes || epoch != node.Status.Epoch {
		return
	}
	next := *node
	next.Status.Owes, next.Status.Fence, next.Status.Remains = false, nil, ""
	tx.PutNode(&next)
	for pub := range tx.NodePublications(id, "") {
		// A provider may have refused to detach what was still in use there.
		hastenVolume(tx, pub.Namespace, pub.VolumeID, codeFailedPrecondition)
	}
	tx.Touch(id)
	unsettleEverywhere(tx)
}
