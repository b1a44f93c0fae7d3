// Package drainer ends the drains of nodes.
//
// It moves nothing: who placed an allocation takes it away again, and that is
// the scheduler, which alone knows where else it fits. Invariant: a drain is
// over when nothing runs on the node that was to go, and no volume of it is
// there any more, as far as the node and the provider have said; never before,
// whatever its deadline.
package drainer

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/state"
)

// Controller settles drains.
type Controller struct{}

// Name implements controller.Controller.
func (Controller) Name() string { return "drainer" }

// Key is the key of a node.
func Key(id api.NodeID) controller.Key { return controller.Key(id) }

// Pending implements controller.Controller.
func (Controller) Pending(v state.View) iter.Seq[controller.Key] {
	return func(yield func(controller.Key) bool) {
		for node := range v.DrainingNodes() {
			if !yield(Key(node.ID)) {
				return
			}
		}
	}
}

// Reconcile implements controller.Controller.
func (Controller) Reconcile(v state.View, _ time.Time, k controller.Key) (plan controller.Plan, err error) {
	node := v.Node(api.NodeID(k))
	if node == nil || node.Spec.Drain == nil {
		return plan, nil
	}
	left := command.Undrained(v, node)
	if left.None() {
		plan.Add(&command.FinishDrain{NodeID: node.ID, Version: node.Version})
		return plan, nil
	}
	plan.Wait("node "+string(node.ID), "is being drained: "+said(left)+" to go", node.Spec.Drain.Started, time.Time{})
	return plan, nil
}

// said is what is left, in words.
func said(left command.Left) string {
	var parts []string
	if n := len(left.Allocations); n > 0 {
		parts = append(parts, count(n, "allocation"))
	}
	if n := len(left.Publications); n > 0 {
		parts = append(parts, count(n, "volume"))
	}
	verb := " are"
	if len(left.Allocations)+len(left.Publications) == 1 {
		verb = " is"
	}
	return strings.Join(parts, " and ") + verb
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
