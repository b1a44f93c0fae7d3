package command

import (
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// ReportFacts takes over what an agent says about its node.
type ReportFacts struct {
	Report api.Report `json:"report"`
}

// Kind implements Command.
func (*ReportFacts) Kind() Kind { return "node.report" }

// Validate implements Command.
func (c *ReportFacts) Validate() error {
	var p api.Problems
	p.Name("node_id", string(c.Report.NodeID))
	if c.Report.Sequence == 0 {
		p.Add("sequence", "is 0", "count reports from 1")
	}
	for i := range c.Report.Facts.Instances {
		f := &c.Report.Facts.Instances[i]
		p.Name("facts.instances.plugin_id", string(f.PluginID))
		if f.AllocID != "" {
			p.Name("facts.instances.alloc_id", string(f.AllocID))
		}
		switch f.Type {
		case api.InstanceNode, api.InstanceController, api.InstanceMonolith:
		default:
			p.Addf("facts.instances.type", "use node, controller or monolith", "is %q for plugin %s", f.Type, f.PluginID)
		}
	}
	for i := range c.Report.Facts.Allocations {
		validateAlloc(&p, &c.Report.Facts.Allocations[i])
	}
	for i := range c.Report.Facts.Operations {
		if f := &c.Report.Facts.Operations[i]; f.Code == "" {
			p.Addf("facts.operations", "give the gRPC code", "has no code for %s", f.ID)
		}
	}
	return p.Err("the report")
}

func validateAlloc(p *api.Problems, f *api.AllocFact) {
	switch f.Status.State {
	case api.AllocPending, api.AllocRunning, api.AllocComplete, api.AllocFailed:
	case api.AllocLost: // that is for the servers to say
		fallthrough
	default:
		p.Addf("facts.allocations", "use pending, running, complete or failed", "has the state %q for %s", f.Status.State, f.ID.Short())
	}
}

// Apply implements Command. A report is applied once: one that comes again or
// late changes nothing, and one of an ended session or epoch is refused.
// Facts about what is not the node's are passed over.
func (c *ReportFacts) Apply(tx *state.Tx) error {
	r := &c.Report
	id, node := tx.Identity(r.NodeID), tx.Node(r.NodeID)
	if err := CheckSession(tx.View, r.NodeID, r.Session, r.Epoch); err != nil {
		return err
	}
	if r.Sequence <= id.Sequence {
		return nil
	}
	putDrivers(tx, node, r.Facts.Drivers)
	for i := range r.Facts.Instances {
		putInstance(tx, r.NodeID, &r.Facts.Instances[i])
	}
	for i := range r.Facts.Operations {
		endAttempt(tx, r.NodeID, &r.Facts.Operations[i])
	}
	for i := range r.Facts.Publications {
		putStaged(tx, r.NodeID, &r.Facts.Publications[i])
	}
	for i := range r.Facts.Attachments {
		putAttachment(tx, r.NodeID, &r.Facts.Attachments[i])
	}
	for i := range r.Facts.Allocations {
		putAllocation(tx, r.NodeID, &r.Facts.Allocations[i])
	}
	putCleared(tx, r.NodeID, &r.Facts)
	putRemains(tx, r.NodeID, r.Facts.Remains)
	putUndone(tx, r.NodeID, r.Facts.Undone)
	next := *id
	next.Sequence = r.Sequence
	tx.PutIdentity(&next)
	return nil
}

// putCleared notes that a node runs nothing that the servers do not know.
func putCleared(tx *state.Tx, id api.NodeID, f *api.Facts) {
	generation := f.Cleared
	node, cluster := tx.Node(id), tx.Cluster()
	if cluster == nil || generation != cluster.Generation.Number || node.Status.Cleared >= generation {
		return
	}
	next := *node
	next.Status.Cleared = generation
	tx.PutNode(&next)
	for i := range f.Left {
		putLeft(tx, node, &f.Left[i])
	}
	endRecovery(tx)
}

// putLeft notes that the provider may have a volume attached to a node of which
// the restored state does not know it. Without the node's name at the provider
// nothing is noted: an unpublish without one means all nodes (CSI spec,
// ControllerUnpublishVolume).
func putLeft(tx *state.Tx, node *api.Node, f *api.LeftVolume) {
	vol := tx.Volume(f.Namespace, f.VolumeID)
	if vol == nil || vol.Spec.PluginID != f.PluginID || vol.Status.ExternalID != f.ExternalID ||
		tx.Publication(f.Namespace, f.VolumeID, node.ID) != nil {
		return
	}
	instance := fit.NodeInstance(slices.Collect(tx.NodePlugin(node.ID, f.PluginID)))
	if instance == nil || instance.ExternalNodeID == "" {
		return
	}
	tx.PutPublication(&api.Publication{
		Namespace: f.Namespace, VolumeID: f.VolumeID, NodeID: node.ID, PluginID: f.PluginID,
		Status: api.PublicationStatus{
			ExternalNodeID: instance.ExternalNodeID, Outcome: api.OutcomeUncertain, NodeEpoch: node.Status.Epoch, Left: true,
		},
	})
}

// CheckSession answers an error unless the session is the node's current one.
func CheckSession(v state.View, node api.NodeID, session string, epoch uint64) error {
	id := v.Identity(node)
	switch {
	case id == nil:
		return api.Errorf(api.CodeStaleSession, "node %s is not registered", node)
	case id.Session != session:
		return api.Errorf(api.CodeStaleSession, "the session of node %s has ended: its agent registered again, or another one did", node)
	case id.Epoch != epoch:
		return api.Errorf(api.CodeStaleSession, "epoch %d of node %s has ended; it is in epoch %d", epoch, node, id.Epoch)
	}
	return nil
}

func putInstance(tx *state.Tx, node api.NodeID, f *api.InstanceFact) {
	old := tx.Instance(node, f)
	if f.Gone {
		if old != nil {
			tx.DeleteInstance(old)
		}
		return
	}
	next := &api.Instance{PluginID: f.PluginID, NodeID: node, AllocID: f.AllocID}
	if old != nil {
		if sameInstance(&old.InstanceStatus, &f.InstanceStatus) {
			return
		}
		copied := *old
		next = &copied
	}
	next.InstanceStatus = f.InstanceStatus
	tx.PutInstance(next)
}

func putStaged(tx *state.Tx, node api.NodeID, f *api.PublicationFact) {
	pub := tx.Publication(f.Namespace, f.VolumeID, node)
	if pub == nil || f.Staged && tx.Node(node).Status.Owes {
		return // what is left of an ended epoch counts no more
	}
	if pub.Status.Staged != f.Staged {
		next := *pub
		next.Status.Staged = f.Staged
		if f.Staged {
			// What was in use when a node was to grow it may not have been now.
			next.Status.NodeExpansionRefused = ""
		}
		tx.PutPublication(&next)
		pub = &next
		if !f.Staged {
			hurrySnapshots(tx, f.Namespace, f.VolumeID)
		}
	}
	if f.Grown > 0 {
		grown(tx, pub, f.Grown)
	}
}

// putAttachment takes over how far the node is. It only ever moves forward,
// and only to what a node can know.
func putAttachment(tx *state.Tx, node api.NodeID, f *api.AttachmentFact) {
	a := tx.Attachment(f.AllocID, f.Name)
	if a == nil || a.NodeID != node || !a.Holds() {
		return
	}
	next := *a
	switch f.State {
	case api.NodePublished:
		if a.Status.State == api.ControllerPublished {
			step(tx, &next, api.NodePublished, false)
			next.Status.TargetPath = f.TargetPath
		}
	case api.NodeDetached:
		if a.Status.State.Before(api.NodeDetached) {
			step(tx, &next, api.NodeDetached, false)
		}
	case "", api.Claimed, api.ControllerPublished, api.Unpublishing, api.ControllerDetached, api.Freed:
	}
	next.Status.Problem = f.Problem
	if next.Status.State == a.Status.State && sameProblem(a.Status.Problem, f.Problem) {
		return
	}
	tx.PutAttachment(&next)
}

// putAllocation takes over how an allocation is. It only ever moves forward,
// and an end is final.
func putAllocation(tx *state.Tx, node api.NodeID, f *api.AllocFact) {
	a := tx.Allocation(f.ID)
	if a == nil || a.NodeID != node || a.Terminal() {
		return
	}
	next := *a
	next.Status = f.Status
	next.Status.Events = boundEvents(f.Status.Events)
	next.Status.Checks = boundChecks(f.Status.Checks)
	if f.Status.State == api.AllocPending {
		next.Status.State = a.Status.State
	}
	if sameAlloc(&a.Status, &next.Status) {
		return
	}
	if next.Status.State == api.AllocRunning && (a.Running.IsZero() || startedAgain(&a.Status, &next.Status)) {
		next.Running = tx.Now()
	}
	judgeChecks(tx, &next)
	if !next.Terminal() {
		falter(tx, a, &next)
	}
	tx.PutAllocation(&next)
	if next.Terminal() {
		beginRelease(tx, a.ID)
		unsettleJob(tx, a.Namespace, a.JobID)
	}
}

// judgeChecks notes since when the checks of an allocation pass, as the revision
// has them that it runs.
func judgeChecks(tx *state.Tx, a *api.Allocation) {
	rev := tx.Revision(a.JobUID, a.Revision)
	if rev == nil {
		return
	}
	group := rev.Spec.Group(a.Group)
	switch {
	case group == nil || !group.Required() || !a.Status.Passes(group):
		a.Passing = time.Time{}
	case a.Passing.IsZero():
		a.Passing = tx.Now()
	}
}

// forgetChecks forgets how those checks were of which another group asks something
// else: what passed was another one of the same name.
func forgetChecks(a *api.Allocation, was, is *api.TaskGroup) {
	before, now := askedOf(was), askedOf(is)
	a.Status.Checks = slices.DeleteFunc(slices.Clone(a.Status.Checks), func(c api.CheckStatus) bool {
		key := api.CheckKey(c.Service, c.Name)
		asked, still := now[key]
		return still && !fit.Same(before[key], asked) // its agent asks afresh, and whatever it says is news
	})
}

// askedOf are the checks of a group by what names them.
func askedOf(g *api.TaskGroup) map[string]api.ServiceCheck {
	all := map[string]api.ServiceCheck{}
	for i := range g.Services {
		s := &g.Services[i]
		for j := range s.Checks {
			all[api.CheckKey(s.Name, s.Checks[j].Name)] = g.Asked(s, &s.Checks[j])
		}
	}
	return all
}

// boundChecks are what an agent says of checks. It says no more.
func boundChecks(checks []api.CheckStatus) []api.CheckStatus {
	checks = slices.Clone(checks[:min(len(checks), api.MaxChecks)])
	for i := range checks {
		if c := &checks[i]; len(c.Output) > api.MaxCheckOutput {
			c.Output = strings.ToValidUTF8(c.Output[:api.MaxCheckOutput], "")
		}
	}
	return checks
}

// falter notes that an allocation is not healthy any more. One that falters again
// and again has faltered when it did first.
func falter(tx *state.Tx, old, next *api.Allocation) {
	rules := rulesOf(tx.View, old)
	ok, at := fit.Healthy(old, rules, tx.Now())
	if still, _ := fit.Healthy(next, rules, tx.Now()); !ok || still {
		return
	}
	well := tx.Now().Sub(at) + time.Duration(rules.MinHealthyTime)
	if old.Faltered.IsZero() || well >= api.SteadyTime {
		next.Faltered = tx.Now()
	}
}

// rulesOf are those by which an allocation is healthy: of its job, as that is now.
func rulesOf(v state.View, a *api.Allocation) api.Update {
	if job := v.Job(a.Namespace, a.JobID); job != nil && job.UID == a.JobUID {
		if group := job.Spec.Group(a.Group); group != nil {
			return job.Spec.UpdateOf(group)
		}
	}
	return api.DefaultUpdate()
}

// maxEventMessage is how many bytes of what a driver says are kept.
const maxEventMessage = 1 << 10

// boundEvents are the last events of an allocation's tasks. An agent says no
// more; an agent that does fills no server.
func boundEvents(events []api.TaskEvent) []api.TaskEvent {
	events = events[max(0, len(events)-api.MaxTaskEvents):]
	cloned := false
	for i, e := range events {
		if len(e.Message) <= maxEventMessage {
			continue
		}
		if !cloned {
			events, cloned = slices.Clone(events), true
		}
		events[i].Message = strings.ToValidUTF8(e.Message[:maxEventMessage], "")
	}
	return events
}

// startedAgain reports whether a task has been started since the last report.
func startedAgain(before, now *api.AllocStatus) bool {
	for name, t := range now.Tasks {
		if old, known := before.Tasks[name]; known && !t.Started.Equal(old.Started) {
			return true
		}
	}
	return false
}

// endAttempt takes over the outcome of a call. Only the agent that has the
// operation, and only about its current attempt, is believed.
func endAttempt(tx *state.Tx, node api.NodeID, f *api.OperationFact) {
	op := tx.Operation(f.ID)
	if op == nil || op.Status.State != api.OperationAssigned || op.Status.Executor != node || op.Status.Attempt != f.Attempt {
		return
	}
	verdict, message := judge(tx, op, f)
	if there := found(tx, op, f); there != nil {
		known := *f
		known.Result, f = *there, &known
		verdict, message = fit.Verdict{Certain: true}, words(message, "the plugin lists it as "+there.ExternalID)
	}
	next := *op
	next.Status.Code, next.Status.Message, next.Status.Duration = f.Code, message, f.Duration
	if !verdict.Certain {
		next.Status.Uncertain = true
	}
	switch {
	case working(op.Kind, &f.Result, verdict):
		// It is cut. The same call again asks how far it is.
		next.Status.State = api.OperationWaiting
		next.Status.Next = tx.Now().Add(fit.Backoff(string(op.ID), next.Status.Attempt))
	case verdict.Done:
		next.Status.State = api.OperationSucceeded
		next.Status.Ended = tx.Now()
	case verdict.Retry, next.Status.Uncertain && f.Code != "OK" && f.Result.ExternalID == "" && fit.Makes(op.Kind) && !cut(tx, op):
		// That this attempt was refused does not say that an earlier one made
		// nothing: to give up would be to lose what it may have made.
		next.Status.State = api.OperationWaiting
		next.Status.Failures++
		next.Status.Next = tx.Now().Add(fit.Pause(&next))
		elsewhere(&next)
		search(tx, &next)
	default:
		next.Status.State = api.OperationFailed
		next.Status.Failures++
		next.Status.Ended = tx.Now()
	}
	tx.PutOperation(&next)
	tx.TouchOperations(node)
	applyOutcome(tx, &next, f, verdict)
	if next.Status.State == api.OperationSucceeded {
		hasten(tx, &next)
	}
}

// elsewhere has a create prefer another topology, after a plugin had no room in
// the one that it tried. The request is frozen all the same from the first
// attempt whose effect is not known.
func elsewhere(op *api.Operation) {
	if op.Status.Code != "RESOURCE_EXHAUSTED" || op.Status.Uncertain || op.Request.Create == nil {
		return
	}
	if t := fit.Elsewhere(op.Request.Create.TopologyRequest); t != nil {
		request := *op.Request.Create
		if request.First == nil {
			request.First = request.TopologyRequest
		}
		request.TopologyRequest = t
		op.Request.Create = &request
	}
}

// applyOutcome changes what the operation was about.
func applyOutcome(tx *state.Tx, op *api.Operation, f *api.OperationFact, verdict fit.Verdict) {
	switch op.Kind {
	case api.OperationCreate:
		created(tx, op, &f.Result)
	case api.OperationDelete:
		deleted(tx, op)
	case api.OperationPublish, api.OperationUnpublish:
		published(tx, op, f, verdict)
	case api.OperationSnapshot:
		snapshotted(tx, op, f.Result.Snapshot)
	case api.OperationDeleteSnapshot:
		snapshotDeleted(tx, op)
	case api.OperationExpand:
		expanded(tx, op, &f.Result)
	case api.OperationModify:
		modified(tx, op)
	case api.OperationNodeExpand:
		nodeExpanded(tx, op, &f.Result)
	}
}

func created(tx *state.Tx, op *api.Operation, r *api.OperationResult) {
	vol := tx.Volume(op.Namespace, op.VolumeID)
	if vol == nil || vol.Status.Operation != op.ID {
		return
	}
	next := *vol
	next.Status.Reason = ""
	switch op.Status.State {
	case api.OperationSucceeded:
		next.Status.Operation = ""
		next.Status.ExternalID = r.ExternalID
		next.Status.Capacity = r.Capacity
		next.Status.Context = r.Context
		next.Status.AccessibleTopology = r.AccessibleTopology
		next.Status.MutableParameters = op.Request.Create.MutableParameters
		if vol.Desired == api.Present {
			next.Status.State = api.VolumeReady
		}
	case api.OperationFailed:
		next.Status.Operation = ""
		next.Status.Reason = op.Status.Code + ": " + op.Status.Message
		if r.ExternalID != "" && otherVolume(tx, op, r.ExternalID) == nil {
			// It is there, and is not as was asked for: not forgotten.
			next.Status.ExternalID, next.Status.Capacity, next.Status.Context = r.ExternalID, r.Capacity, r.Context
			next.Status.AccessibleTopology = r.AccessibleTopology
			next.Status.Reason = op.Status.Message
		}
		if vol.Desired == api.Present {
			next.Status.State = api.VolumeFailed
			touchOwner(tx, vol)
		}
	case api.OperationWaiting, api.OperationAssigned, api.OperationCancelled:
		next.Status.Reason = op.Status.Code + ": " + op.Status.Message
		if vol.Status.Reason == next.Status.Reason {
			return
		}
	}
	tx.PutVolume(&next)
}

func deleted(tx *state.Tx, op *api.Operation) {
	vol := tx.Volume(op.Namespace, op.VolumeID)
	if vol == nil || vol.Status.Operation != op.ID {
		return
	}
	if op.Status.State == api.OperationSucceeded {
		forget(tx, vol)
		hurrySnapshot(tx, vol)
		return
	}
	next := *vol
	next.Status.Reason = op.Status.Code + ": " + op.Status.Message
	if next.Status.Reason != vol.Status.Reason {
		tx.PutVolume(&next)
	}
}

// lingers is until when an attempt to publish may still be running.
func lingers(tx *state.Tx, op *api.Operation, f *api.OperationFact) time.Time {
	if op.Kind != api.OperationPublish || f.NotSent {
		return time.Time{}
	}
	return fit.Lingers(f.Code, op.Status.Deadline, tx.Now())
}

func published(tx *state.Tx, op *api.Operation, f *api.OperationFact, verdict fit.Verdict) {
	pub := tx.Publication(op.Namespace, op.VolumeID, op.NodeID)
	if pub == nil || pub.Status.Operation != op.ID {
		return
	}
	next := *pub
	switch {
	case verdict.Done && op.Kind == api.OperationPublish:
		next.Status.Operation = ""
		next.Status.Outcome = api.OutcomePublished
		next.Status.Left = false
		next.Status.PublishContext = f.Result.PublishContext
	case verdict.Done:
		next.Status.Operation = ""
		next.Status.Outcome = api.OutcomeDetached
		next.Status.PublishContext = nil
	case op.Status.State == api.OperationFailed && f.Seen != nil:
		// It is attached under another name of the node: that is to be undone.
		next.Status.Operation = ""
		next.Status.ExternalNodeID = otherName(tx, op, f.Seen.Nodes)
	default:
		// The provider may have it attached or not: it stays uncertain, and
		// the operation goes on.
		next.Status.Lingers = lingers(tx, op, f)
		if next.Status.Lingers.After(pub.Status.Lingers) {
			tx.PutPublication(&next)
		}
		return
	}
	next.Status.Lingers = time.Time{}
	tx.PutPublication(&next)
	if next.Status.Outcome == api.OutcomePublished {
		tx.Touch(op.NodeID)
	}
}
