package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/controller/dispatcher"
	"github.com/berth-dev/berth/internal/controller/drainer"
	"github.com/berth-dev/berth/internal/controller/provisioner"
	"github.com/berth-dev/berth/internal/controller/scheduler"
	"github.com/berth-dev/berth/internal/controller/snapshotter"
	"github.com/berth-dev/berth/internal/controller/volumewatcher"
	"github.com/berth-dev/berth/internal/state"
)

// explainer asks the controllers what they would do, and for what they wait.
// They are pure, so asking costs nothing and changes nothing.
type explainer struct {
	// dispatcher is the one that decides now; nil has no limits of its own.
	dispatcher *atomic.Pointer[dispatcher.Controller]
}

// dispatches is the dispatcher that decides now.
func (e explainer) dispatches() dispatcher.Controller {
	if e.dispatcher == nil {
		return dispatcher.Controller{}
	}
	return *e.dispatcher.Load()
}

// Volume says what a volume, its operations and its attachments wait for.
func (e explainer) Volume(v state.View, vol *api.Volume) []api.Wait {
	waits := ask(v, provisioner.Controller{}, provisioner.Key(vol.Namespace, vol.ID))
	for s := range v.VolumeSnapshots(vol.Namespace, vol.ID) {
		if s.Status.State == api.SnapshotCreating || s.Status.State == api.SnapshotDeleting {
			waits = append(waits, ask(v, snapshotter.Controller{}, snapshotter.Key(s.Namespace, s.ID))...)
		}
	}
	for op := range v.VolumeOperations(vol.Namespace, vol.ID) {
		waits = append(waits, e.operation(v, op)...)
	}
	last := controller.Key("")
	for a := range v.Holders(vol.Namespace, vol.ID) {
		if k := volumewatcher.Key(a.Namespace, a.VolumeID, a.NodeID); k != last {
			waits = append(waits, ask(v, volumewatcher.Controller{}, k)...)
			last = k
		}
		waits = append(waits, onNode(v, a)...)
	}
	for pub := range v.VolumePublications(vol.Namespace, vol.ID) {
		if pub.Status.Left {
			waits = append(waits, ask(v, volumewatcher.Controller{}, volumewatcher.Key(pub.Namespace, pub.VolumeID, pub.NodeID))...)
		}
	}
	return waits
}

// queued is of how many of the jobs that wait for a volume is said why: each is
// looked at as if it were to be placed.
const queued = 8

// Queue says who waits for a volume, in the order in which they get it.
func (explainer) Queue(v state.View, vol *api.Volume) (queue []api.QueuedJob) {
	jobs, places := scheduler.Queue(v, vol)
	for i, job := range jobs {
		q := api.QueuedJob{JobID: job.ID, Priority: cmp.Or(job.Spec.Priority, api.DefaultPriority), Since: job.Status.Waiting}
		if i < queued {
			q.Places = slices.DeleteFunc(ask(v, scheduler.Controller{}, scheduler.JobKey(job.Namespace, job.ID)),
				func(w api.Wait) bool { return !slices.Contains(places[job.UID], w.Subject) })
			if len(q.Places) == 0 {
				continue // it gets it now
			}
		}
		queue = append(queue, q)
	}
	return queue
}

// Snapshot says what a snapshot and its operations wait for.
func (e explainer) Snapshot(v state.View, s *api.Snapshot) []api.Wait {
	waits := ask(v, snapshotter.Controller{}, snapshotter.Key(s.Namespace, s.ID))
	if op := v.Operation(s.Status.Operation); op != nil {
		waits = append(waits, e.operation(v, op)...)
	}
	return waits
}

// operation says what an open operation waits for: an agent, or its answer.
func (e explainer) operation(v state.View, op *api.Operation) []api.Wait {
	switch op.Status.State {
	case api.OperationWaiting:
		return e.dispatches().Explain(v, time.Now().UTC(), op)
	case api.OperationAssigned:
		reason := "node " + string(op.Status.Executor) + " makes the call"
		if n := v.Node(op.Status.Executor); n == nil || n.Status.State != api.NodeReady {
			reason = "node " + string(op.Status.Executor) + " has the call, and is down" + elseFence(op.Status.Executor)
		} else if !op.Status.Deadline.IsZero() {
			reason += ", until " + op.Status.Deadline.UTC().Format(time.RFC3339) + " at the latest"
		}
		return []api.Wait{{Subject: "operation " + string(op.ID), Reason: reason, Since: op.Status.Assigned}}
	case api.OperationSucceeded, api.OperationFailed, api.OperationCancelled:
	}
	return nil
}

// onNode says what keeps a node from an attachment's next step.
func onNode(v state.View, a *api.Attachment) []api.Wait {
	step := map[api.AttachmentState]string{api.ControllerPublished: "mount", api.Unpublishing: "unmount"}[a.Status.State]
	if a.Status.State == api.NodePublished && a.Status.Problem != nil {
		step = "mount" // again, after a restart of the machine
	}
	if step == "" {
		return nil
	}
	if p := a.Status.Problem; p != nil && p.Step == api.StepPlugin && a.Status.State == api.NodePublished {
		return []api.Wait{{
			Subject: "attachment " + a.AllocID.Short() + "/" + a.Name,
			Reason:  "on node " + string(a.NodeID) + " it is mounted, and can be neither unmounted nor grown now: " + p.Message, Since: p.Since,
		}}
	}
	w := api.Wait{
		Subject: "attachment " + a.AllocID.Short() + "/" + a.Name,
		Reason:  "node " + string(a.NodeID) + " is to " + step + " it",
		Since:   a.ModifyTime,
	}
	if n := v.Node(a.NodeID); n == nil || n.Status.State != api.NodeReady {
		w.Reason += ", and is down: start its agent; until it answers, the volume may still be in use there" + elseFence(a.NodeID)
		return []api.Wait{w}
	}
	if p := a.Status.Problem; p != nil {
		w.Reason += ": " + strings.TrimSuffix(p.Step+": "+p.Code, ": ") + ": " + p.Message
		w.Since, w.Next = p.Since, p.Next
	}
	return []api.Wait{w}
}

// Job says what a job waits for, and what its allocations do.
func (e explainer) Job(v state.View, job *api.Job) []api.Wait {
	waits := ask(v, scheduler.Controller{}, scheduler.JobKey(job.Namespace, job.ID))
	waits = append(waits, ask(v, scheduler.Controller{}, scheduler.HealthKey(job.Namespace, job.ID))...)
	looks := maxLooks
	for a := range v.LiveAllocations(job.UID) {
		waits = append(waits, onLostNode(v, a)...)
		waits = append(waits, problem(a)...)
		if a.Status.State == api.AllocPending && looks > 0 {
			looks--
			waits = append(waits, e.ofVolumes(v, a)...)
		}
	}
	type said struct{ subject, reason string }
	seen := map[said]bool{}
	return slices.DeleteFunc(waits, func(w api.Wait) bool { // several may wait for one thing
		again := seen[said{w.Subject, w.Reason}]
		seen[said{w.Subject, w.Reason}] = true
		return again
	})
}

// maxLooks is of how many allocations of a job the volumes are looked at.
const maxLooks = 16

// Allocation says what keeps an allocation from running, or from ending: its
// volumes, and its node.
func (e explainer) Allocation(v state.View, a *api.Allocation) []api.Wait {
	waits := slices.Concat(onLostNode(v, a), problem(a), e.ofVolumes(v, a))
	if len(waits) > 0 || a.Terminal() {
		return waits
	}
	w := api.Wait{Subject: "allocation " + a.ID.Short() + " " + a.Name(), Since: a.ModifyTime}
	switch {
	case a.Desired == api.DesireStop:
		w.Reason = "node " + string(a.NodeID) + " is to end its tasks"
	case a.Status.State == api.AllocPending:
		w.Reason = "node " + string(a.NodeID) + " is to start its tasks"
	default:
		return nil
	}
	return []api.Wait{w}
}

// ofVolumes says what the volumes of an allocation wait for.
func (e explainer) ofVolumes(v state.View, a *api.Allocation) (waits []api.Wait) {
	for at := range v.AllocAttachments(a.ID) {
		vol := v.Volume(at.Namespace, at.VolumeID)
		if !at.Holds() || vol == nil {
			continue
		}
		for _, w := range e.Volume(v, vol) {
			// What concerns the other holders of the volume does not concern it.
			if strings.Contains(w.Subject, a.ID.Short()) || !strings.HasPrefix(w.Subject, "attachment") {
				waits = append(waits, w)
			}
		}
	}
	return waits
}

// onLostNode says that nobody knows how an allocation is whose node is down. It
// may well be running, so nothing is placed in its stead.
func onLostNode(v state.View, a *api.Allocation) []api.Wait {
	n := v.Node(a.NodeID)
	if a.Terminal() || n != nil && n.Status.State == api.NodeReady {
		return nil
	}
	w := api.Wait{
		Subject: "allocation " + a.ID.Short() + " " + a.Name(),
		Reason:  "node " + string(a.NodeID) + " is down: it may still be running there, and is neither ended nor moved until the node's agent is back" + elseFence(a.NodeID),
	}
	if n != nil {
		w.Since = n.ModifyTime
	}
	return []api.Wait{w}
}

// elseFence says what an operator can do about a node that does not come back.
func elseFence(id api.NodeID) string {
	return fmt.Sprintf("; if the machine is off or cut off from its storage, say so with 'berth node fence %s'", id)
}

// problem says what keeps a node from running an allocation, or from ending it.
func problem(a *api.Allocation) []api.Wait {
	p := a.Status.Problem
	if p == nil || a.Terminal() {
		return nil
	}
	return []api.Wait{{
		Subject: "allocation " + a.ID.Short() + " " + a.Name(),
		Reason:  strings.TrimPrefix(p.Step+": "+p.Message, ": "), Since: p.Since, Next: p.Next,
	}}
}

// Node says what the drain of a node waits for: what is still there, and for each
// why. Of one that is not drained it says nothing.
func (e explainer) Node(v state.View, n *api.Node) []api.Wait {
	if n.Spec.Drain == nil {
		return nil
	}
	waits := ask(v, drainer.Controller{}, drainer.Key(n.ID))
	left := command.Undrained(v, n)
	stays := staying(v, left.Allocations)
	volumes := map[string]bool{}
	for _, a := range left.Allocations {
		if w, ok := stays[scheduler.DrainSubject(a)]; ok && a.Desired == api.DesireRun {
			if n.Status.State != api.NodeReady {
				w.Reason += elseFence(n.ID)
			}
			waits = append(waits, w)
		} else {
			waits = append(waits, e.Allocation(v, a)...)
		}
		for at := range v.AllocAttachments(a.ID) {
			volumes[string(at.Namespace)+"/"+string(at.VolumeID)] = true
		}
	}
	for _, pub := range left.Publications {
		if !volumes[string(pub.Namespace)+"/"+string(pub.VolumeID)] {
			waits = append(waits, onItsWay(v, pub)...)
			if op := v.Operation(pub.Status.Operation); op != nil {
				waits = append(waits, e.operation(v, op)...)
			}
		}
	}
	return waits
}

// staying says why allocations are not told to leave yet, by what they are called.
func staying(v state.View, allocs []*api.Allocation) map[string]api.Wait {
	stays := map[string]api.Wait{}
	for _, w := range scheduler.Staying(v, time.Now().UTC(), allocs) {
		stays[w.Subject] = w
	}
	return stays
}

// onItsWay says what the release of a volume from a node waits for.
func onItsWay(v state.View, pub *api.Publication) []api.Wait {
	if v.Volume(pub.Namespace, pub.VolumeID) == nil {
		return nil
	}
	waits := ask(v, volumewatcher.Controller{}, volumewatcher.Key(pub.Namespace, pub.VolumeID, pub.NodeID))
	for at := range v.Holders(pub.Namespace, pub.VolumeID) {
		if at.NodeID == pub.NodeID {
			waits = append(waits, onNode(v, at)...)
		}
	}
	return waits
}

// Everything says what waits in the whole cluster: for the servers, and for the
// agents.
func (e explainer) Everything(v state.View) []api.Wait {
	waits := recovery(v)
	for vol := range v.UnsettledVolumes() {
		waits = append(waits, ask(v, provisioner.Controller{}, provisioner.Key(vol.Namespace, vol.ID))...)
	}
	for s := range v.UnsettledSnapshots() {
		waits = append(waits, ask(v, snapshotter.Controller{}, snapshotter.Key(s.Namespace, s.ID))...)
	}
	for op := range v.WaitingOperations() {
		waits = append(waits, e.operation(v, op)...)
	}
	for n := range v.Nodes() {
		for op := range v.NodeOperations(n.ID) {
			waits = append(waits, e.operation(v, op)...)
		}
	}
	for k := range (volumewatcher.Controller{}).Pending(v) {
		waits = append(waits, ask(v, volumewatcher.Controller{}, k)...)
	}
	for a := range v.AllocAttachments("") {
		waits = append(waits, onNode(v, a)...)
	}
	for n := range v.DrainingNodes() {
		waits = append(waits, e.Node(v, n)...)
	}
	for job := range v.UnsettledJobs() {
		waits = append(waits, ask(v, scheduler.Controller{}, scheduler.JobKey(job.Namespace, job.ID))...)
	}
	for job := range v.UnstableJobs() {
		waits = append(waits, ask(v, scheduler.Controller{}, scheduler.HealthKey(job.Namespace, job.ID))...)
	}
	for a := range v.Allocations() {
		waits = append(waits, onLostNode(v, a)...)
		waits = append(waits, problem(a)...)
	}
	return waits
}

// recovery says what a restored cluster waits for.
func recovery(v state.View) (waits []api.Wait) {
	c := v.Cluster()
	if c == nil || !c.Generation.Recovering {
		return nil
	}
	w := api.Wait{Subject: "cluster", Since: c.Generation.Since}
	if !c.Generation.Confirmed {
		w.Reason = "an operator is to confirm the restored state: see berth system recovery"
		return []api.Wait{w}
	}
	for id := range command.Clearing(v) {
		w.Reason = "node " + string(id) + " is to end what the restored state does not know"
		waits = append(waits, w)
	}
	return waits
}

func ask(v state.View, c controller.Controller, k controller.Key) []api.Wait {
	plan, err := c.Reconcile(v, time.Now().UTC(), k)
	if err != nil {
		return []api.Wait{{Subject: c.Name() + " " + string(k), Reason: err.Error()}}
	}
	return plan.Waits
}
