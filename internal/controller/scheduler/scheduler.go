// Package scheduler chooses nodes: for allocations, and for operations.
//
// It never starts or stops anything itself; it says what is wanted. Invariant:
// an allocation is placed together with all the holds that it needs, in one
// plan, or not at all; and no slot of a group ever has two allocations that
// are meant to run.
package scheduler

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// Controller settles jobs, and assigns operations.
type Controller struct{}

// Name implements controller.Controller.
func (Controller) Name() string { return "scheduler" }

const (
	jobKey       = "job/"
	healthKey    = "health/"
	operationKey = "operation/"
)

// JobKey is the key of a job.
func JobKey(ns api.NamespaceID, id api.JobID) controller.Key {
	return controller.Key(jobKey + string(ns) + "/" + string(id))
}

// HealthKey is the key of a job whose newest revision is being watched.
func HealthKey(ns api.NamespaceID, id api.JobID) controller.Key {
	return controller.Key(healthKey + string(ns) + "/" + string(id))
}

// OperationKey is the key of an operation that waits for an agent.
func OperationKey(id api.OperationID) controller.Key {
	return controller.Key(operationKey + string(id))
}

// Pending implements controller.Controller.
func (Controller) Pending(v state.View) iter.Seq[controller.Key] {
	return func(yield func(controller.Key) bool) {
		for op := range v.WaitingOperations() {
			if !yield(OperationKey(op.ID)) {
				return
			}
		}
		for job := range v.UnsettledJobs() {
			if !yield(JobKey(job.Namespace, job.ID)) {
				return
			}
		}
		for job := range v.UnstableJobs() {
			if !yield(HealthKey(job.Namespace, job.ID)) {
				return
			}
		}
	}
}

// Reconcile implements controller.Controller.
func (Controller) Reconcile(v state.View, now time.Time, k controller.Key) (controller.Plan, error) {
	if id, ok := strings.CutPrefix(string(k), operationKey); ok {
		return assign(v, now, api.OperationID(id)), nil
	}
	for prefix, reconcile := range map[string]func(state.View, time.Time, api.NamespaceID, api.JobID) controller.Plan{
		jobKey: reconcileJob, healthKey: reconcileHealth,
	} {
		name, is := strings.CutPrefix(string(k), prefix)
		if ns, id, ok := strings.Cut(name, "/"); is && ok {
			return reconcile(v, now, api.NamespaceID(ns), api.JobID(id)), nil
		}
	}
	return controller.Plan{}, fmt.Errorf("key %q names no job and no operation", k)
}

// callLimit is how long a plugin may take for one call.
const callLimit = 2 * time.Minute

// assign gives a waiting operation to an agent.
func assign(v state.View, now time.Time, id api.OperationID) (p controller.Plan) {
	op := v.Operation(id)
	if op == nil || op.Status.State != api.OperationWaiting {
		return p
	}
	subject := "operation " + string(id)
	if now.Before(op.Status.Next) {
		p.Wait(subject, fmt.Sprintf("attempt %d answered %s", op.Status.Attempt, fit.Said(op)),
			op.ModifyTime, op.Status.Next)
		return p
	}
	plugin := fit.NewPlugin(op.PluginID, slices.Collect(v.Instances(op.PluginID)))
	executor, reason := plugin.Executor(near(v, op), op.NodeID, op.Name, func(node api.NodeID) bool {
		n := v.Node(node)
		return n != nil && n.Status.State == api.NodeReady
	})
	if executor == "" {
		p.Wait(subject, reason, op.ModifyTime, time.Time{})
		return p
	}
	p.Add(&command.AssignOperation{ID: id, Version: op.Version, Executor: executor, Limit: api.Duration(callLimit)})
	return p
}

// near is where the operation's volume is, or is to be.
func near(v state.View, op *api.Operation) []api.Topology {
	if op.Request.Create != nil && op.Request.Create.TopologyRequest != nil {
		return op.Request.Create.TopologyRequest.Required
	}
	if vol := v.Volume(op.Namespace, op.VolumeID); vol != nil {
		return vol.Status.AccessibleTopology
	}
	return nil
}
