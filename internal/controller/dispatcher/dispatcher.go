// Package dispatcher gives waiting operations to the agents that make their
// calls: oldest first, a bounded number for each plugin, each node and each
// volume.
//
// It never opens an operation, never ends one, and never makes a call. It has
// one key for each plugin, so that one plugin's queue keeps no other's, and an
// operation that waits for its turn costs nothing. Invariant: no more calls to
// a plugin are under way than its limits allow; a call that hangs gives its
// slot back in time; and whatever waits is served when a slot is free and an
// agent can make its call.
package dispatcher

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// Controller assigns operations.
type Controller struct {
	limits Limits
}

// New returns a dispatcher with these limits.
func New(limits Limits) Controller { return Controller{limits} }

// Name implements controller.Controller.
func (Controller) Name() string { return "dispatcher" }

// Key is the key of a plugin's queue.
func Key(plugin api.PluginID) controller.Key { return controller.Key(plugin) }

// Pending implements controller.Controller.
func (Controller) Pending(v state.View) iter.Seq[controller.Key] {
	return func(yield func(controller.Key) bool) {
		for plugin := range v.WaitingPlugins() {
			if !yield(Key(plugin)) {
				return
			}
		}
	}
}

// maxAssigned bounds the operations that one plan assigns.
const maxAssigned = 256

// Reconcile implements controller.Controller. It reads the calls that are under
// way, and of the queue only as much as there are slots: operations that wait
// for one are passed over only where the nodes or the volume that they need
// are at their limits, and others are not. A node to which as many volumes are
// being attached as may be is passed over for the price of the look.
func (c Controller) Reconcile(v state.View, now time.Time, k controller.Key) (controller.Plan, error) {
	var p controller.Plan
	s := c.survey(v, now, api.PluginID(k))
	if s.full() {
		p.Wait("plugin "+string(k), s.fullReason(), time.Time{}, s.nextSlot())
		return p, nil
	}
	why := ""
	for op := range v.Queue(s.plugin.ID, now) {
		if why != "" && s.targetFull(op) {
			continue
		}
		node, reason := s.place(op)
		if why == "" {
			why = "operation " + string(op.ID) + " " + reason
		}
		if node != "" {
			p.Add(&command.AssignOperation{ID: op.ID, Version: op.Version, Executor: node, Limit: api.Duration(s.bounds.timeout)})
			s.take(op, node)
		}
		if s.full() || !s.anyNode() || len(p.Commands) == maxAssigned {
			break
		}
	}
	if len(p.Commands) > 0 {
		return p, nil
	}
	if why != "" {
		p.Wait("plugin "+string(k), why, time.Time{}, s.nextSlot())
	}
	p.WakeAt(v.NextTry(s.plugin.ID, now))
	return p, nil
}

// first says what is to happen before a refused call is tried at once.
func first(v state.View, op *api.Operation) string {
	if op.Status.Code != "FAILED_PRECONDITION" || op.Kind != api.OperationPublish && op.Kind != api.OperationExpand {
		return ""
	}
	var nodes []string
	for pub := range v.VolumePublications(op.Namespace, op.VolumeID) {
		if pub.NodeID != op.NodeID && pub.MayBeAttached() {
			nodes = append(nodes, string(pub.NodeID))
		}
	}
	switch {
	case len(nodes) == 0 && op.Kind != api.OperationPublish:
		return ""
	case len(nodes) == 0:
		return ". No other node of this cluster has it attached: detach it at the provider"
	case len(nodes) == 1:
		return ". It is tried at once when the volume is detached from node " + nodes[0]
	}
	return ". It is tried at once when the volume is detached from one of the nodes " + strings.Join(nodes, ", ")
}

// Explain says what a waiting operation waits for.
func (c Controller) Explain(v state.View, now time.Time, op *api.Operation) []api.Wait {
	if op.Status.State != api.OperationWaiting {
		return nil
	}
	w := api.Wait{Subject: "operation " + string(op.ID), Since: op.ModifyTime}
	if now.Before(op.Status.Next) {
		w.Reason = fmt.Sprintf("attempt %d answered %s%s", op.Status.Attempt, fit.Said(op), first(v, op))
		w.Next = op.Status.Next
		return []api.Wait{w}
	}
	s := c.survey(v, now, op.PluginID)
	nodes, reason := s.executors(op)
	switch {
	case len(nodes) == 0:
		w.Reason = reason
		return []api.Wait{w}
	case s.full():
		w.Reason = s.fullReason()
	default:
		node, reason := s.place(op)
		if node != "" {
			return nil
		}
		w.Reason = reason
	}
	w.Next = s.nextSlot()
	return []api.Wait{w}
}
