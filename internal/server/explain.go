package server

import (
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/controller/provisioner"
	"github.com/berth-dev/berth/internal/controller/scheduler"
	"github.com/berth-dev/berth/internal/controller/volumewatcher"
	"github.com/berth-dev/berth/internal/state"
)

// explainer asks the controllers what they would do, and for what they wait.
// They are pure, so asking costs nothing and changes nothing.
type explainer struct{}

// Volume says what a volume, its operations and its attachments wait for.
func (explainer) Volume(v state.View, vol *api.Volume) []api.Wait {
	waits := ask(v, provisioner.Controller{}, provisioner.Key(vol.Namespace, vol.ID))
	for op := range v.VolumeOperations(vol.Namespace, vol.ID) {
		waits = append(waits, operation(v, op)...)
	}
	last := controller.Key("")
	for a := range v.Holders(vol.Namespace, vol.ID) {
		if k := volumewatcher.Key(a.Namespace, a.VolumeID, a.NodeID); k != last {
			waits = append(waits, ask(v, volumewatcher.Controller{}, k)...)
			last = k
		}
		waits = append(waits, onNode(a)...)
	}
	return waits
}

// operation says what an open operation waits for: an agent, or its answer.
func operation(v state.View, op *api.Operation) []api.Wait {
	switch op.Status.State {
	case api.OperationWaiting:
		return ask(v, scheduler.Controller{}, scheduler.OperationKey(op.ID))
	case api.OperationAssigned:
		reason := "node " + string(op.Status.Executor) + " makes the call"
		if n := v.Node(op.Status.Executor); n == nil || n.Status.State != api.NodeReady {
			reason = "node " + string(op.Status.Executor) + " has the call, and is down"
		}
		return []api.Wait{{Subject: "operation " + string(op.ID), Reason: reason, Since: op.Status.Assigned}}
	case api.OperationSucceeded, api.OperationFailed, api.OperationCancelled:
	}
	return nil
}

// onNode says what keeps a node from an attachment's next step.
func onNode(a *api.Attachment) []api.Wait {
	w := api.Wait{Subject: "attachment " + a.AllocID.Short() + "/" + a.Name, Since: a.ModifyTime}
	switch a.Status.State {
	case api.ControllerPublished:
		w.Reason = "node " + string(a.NodeID) + " is to mount it"
	case api.Unpublishing:
		w.Reason = "node " + string(a.NodeID) + " is to unmount it"
	case api.Claimed, api.NodePublished, api.NodeDetached, api.ControllerDetached, api.Freed:
		return nil
	}
	if p := a.Status.Problem; p != nil {
		w.Reason += ": " + strings.TrimSuffix(p.Step+": "+p.Code, ": ") + ": " + p.Message
		w.Since, w.Next = p.Since, p.Next
	}
	return []api.Wait{w}
}

// Job says what a job waits for, and what its allocations do.
func (explainer) Job(v state.View, job *api.Job) []api.Wait {
	waits := ask(v, scheduler.Controller{}, scheduler.JobKey(job.Namespace, job.ID))
	for a := range v.LiveAllocations(job.UID) {
		if p := a.Status.Problem; p != nil && !a.Terminal() {
			waits = append(waits, api.Wait{
				Subject: "allocation " + a.ID.Short() + " " + a.Name(),
				Reason:  p.Step + ": " + p.Message, Since: p.Since, Next: p.Next,
			})
		}
	}
	return waits
}

// Everything says what waits in the whole cluster.
func (e explainer) Everything(v state.View) []api.Wait {
	var waits []api.Wait
	for vol := range v.UnsettledVolumes() {
		waits = append(waits, ask(v, provisioner.Controller{}, provisioner.Key(vol.Namespace, vol.ID))...)
	}
	for op := range v.WaitingOperations() {
		waits = append(waits, operation(v, op)...)
	}
	for k := range (volumewatcher.Controller{}).Pending(v) {
		waits = append(waits, ask(v, volumewatcher.Controller{}, k)...)
	}
	for job := range v.UnsettledJobs() {
		waits = append(waits, e.Job(v, job)...)
	}
	return waits
}

func ask(v state.View, c controller.Controller, k controller.Key) []api.Wait {
	plan, err := c.Reconcile(v, time.Now().UTC(), k)
	if err != nil {
		return []api.Wait{{Subject: string(k), Reason: err.Error()}}
	}
	return plan.Waits
}
