package command

import (
	"fmt"
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
	pub := publicationOf(tx, op)
	if pub == nil || !until.After(pub.Status.Lingers) {
		return
	}
	changed := *pub
	changed.Status.Lingers = until
	tx.PutPublication(&changed)
}

// putUndone notes that nothing of a node's earlier epochs is left there.
func putUndone(tx *state.Tx, id api.NodeID, epoch uint64) {
	node := tx.Node(id)
	if !node.Status.Owes || epoch != node.Status.Epoch {
		return
	}
	next := *node
	next.Status.Owes, next.Status.Fence = false, nil
	tx.PutNode(&next)
	tx.Touch(id)
	unsettleEverywhere(tx)
}
