package command

import (
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// GrowVolume has the nodes expand a volume of a plugin whose controller does
// not: the next node that stages it, and those that use it now.
type GrowVolume struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.VolumeID    `json:"id"`
	Version   uint64          `json:"version"`
}

// Kind implements Command.
func (*GrowVolume) Kind() Kind { return "volume.grow" }

// Validate implements Command.
func (c *GrowVolume) Validate() error { return nil }

// Apply implements Command.
func (c *GrowVolume) Apply(tx *state.Tx) error {
	vol := tx.Volume(c.Namespace, c.ID)
	if vol == nil || vol.Version != c.Version {
		return conflict("volume %s has changed", c.ID)
	}
	if e := vol.Status.Expansion; e == nil || e.Refused != "" || vol.Status.NodeExpansion == vol.Spec.CapacityMin {
		return conflict("volume %s is not to be expanded", c.ID)
	}
	next := *vol
	growOnNodes(tx, &next, vol.Spec.CapacityMin)
	tx.PutVolume(&next)
	return nil
}

// growOnNodes notes that what is on the volume is to grow: on every node that
// the volume is on, and on the next one that stages it, so that no crash forgets
// it. The caller stores the volume.
func growOnNodes(tx *state.Tx, vol *api.Volume, size int64) {
	vol.Status.NodeExpansion = size
	for pub := range tx.VolumePublications(vol.Namespace, vol.ID) {
		next := *pub
		next.Status.NodeExpansion, next.Status.NodeExpansionRefused = size, ""
		tx.PutPublication(&next)
		tx.Touch(pub.NodeID)
	}
}

// expanded takes over how a ControllerExpandVolume ended. The size that is
// believed is the one that the plugin answered.
func expanded(tx *state.Tx, op *api.Operation, r *api.OperationResult) {
	vol := tx.Volume(op.Namespace, op.VolumeID)
	if vol == nil || vol.Status.Operation != op.ID {
		return
	}
	next := *vol
	asked := op.Request.Expand
	current := asked.CapacityMin == vol.Spec.CapacityMin && asked.CapacityMax == vol.Spec.CapacityMax
	next.Status.Reason = answerOf(op)
	switch op.Status.State {
	case api.OperationSucceeded:
		next.Status.Operation, next.Status.Reason = "", ""
		if next.Status.Capacity = r.Capacity; r.Capacity == 0 {
			next.Status.Capacity = asked.CapacityMin
		}
		next.Status.Expansion = nil
		if vol.Spec.CapacityMin > next.Status.Capacity {
			next.Status.Expansion = &api.Expansion{From: asked.CapacityMin, Since: tx.Now()}
		}
		if plugin := pluginOf(tx.View, vol); r.NodeExpansionRequired && (plugin.Undecided() != "" || plugin.NodeCan(api.CapExpandVolume)) {
			growOnNodes(tx, &next, next.Status.Capacity)
		}
	case api.OperationFailed:
		next.Status.Operation, next.Status.Reason = "", ""
		if e := vol.Status.Expansion; e != nil && current {
			ended := *e
			ended.Refused = answerOf(op)
			next.Status.Expansion = &ended
		}
	case api.OperationWaiting, api.OperationAssigned, api.OperationCancelled:
		if e := vol.Status.Expansion; e != nil && !e.Offline && op.Status.Code == "FAILED_PRECONDITION" && InUse(tx.View, vol) != "" {
			learned := *e
			learned.Offline = true
			next.Status.Expansion = &learned
		}
		if next.Status.Reason == vol.Status.Reason && next.Status.Expansion == vol.Status.Expansion {
			return
		}
	}
	tx.PutVolume(&next)
}

// modified takes over how a ControllerModifyVolume ended.
func modified(tx *state.Tx, op *api.Operation) {
	vol := tx.Volume(op.Namespace, op.VolumeID)
	if vol == nil || vol.Status.Operation != op.ID {
		return
	}
	next := *vol
	asked := op.Request.Modify.MutableParameters
	next.Status.Reason = answerOf(op)
	switch op.Status.State {
	case api.OperationSucceeded:
		next.Status.Operation, next.Status.Reason = "", ""
		next.Status.MutableParameters = asked
		next.Status.Modification = wanted(tx, vol.Spec.MutableParameters, asked)
	case api.OperationFailed:
		next.Status.Operation, next.Status.Reason = "", ""
		if m := vol.Status.Modification; m != nil && fit.Same(asked, vol.Spec.MutableParameters) {
			next.Status.Modification = &api.Modification{Since: m.Since, Refused: answerOf(op)}
		}
	case api.OperationWaiting, api.OperationAssigned, api.OperationCancelled:
		if next.Status.Reason == vol.Status.Reason {
			return
		}
	}
	tx.PutVolume(&next)
}

// wanted is the wish for parameters that the plugin does not have, or nil.
func wanted(tx *state.Tx, want, has map[string]string) *api.Modification {
	if !fit.Wanting(want, has) {
		return nil
	}
	return &api.Modification{Since: tx.Now()}
}

// nodeExpanded takes over how a NodeExpandVolume ended.
func nodeExpanded(tx *state.Tx, op *api.Operation, r *api.OperationResult) {
	pub := tx.Publication(op.Namespace, op.VolumeID, op.NodeID)
	if pub == nil || pub.Status.Operation != op.ID {
		return
	}
	next := *pub
	switch op.Status.State {
	case api.OperationSucceeded:
		next.Status.Operation = ""
		tx.PutPublication(&next)
		grown(tx, &next, max(r.Capacity, op.Request.NodeExpand.CapacityMin))
	case api.OperationFailed:
		next.Status.Operation = ""
		next.Status.NodeExpansionRefused = answerOf(op)
		tx.PutPublication(&next)
	case api.OperationWaiting, api.OperationAssigned, api.OperationCancelled:
	}
}

// grown notes that a node has had what is on the volume grown to a size.
func grown(tx *state.Tx, pub *api.Publication, size int64) {
	if s := pub.Status; s.NodeExpansion > 0 && size >= s.NodeExpansion {
		next := *pub
		next.Status.NodeExpansion, next.Status.NodeExpansionRefused = 0, ""
		tx.PutPublication(&next)
		tx.Touch(pub.NodeID)
	}
	vol := tx.Volume(pub.Namespace, pub.VolumeID)
	if vol == nil || vol.Status.NodeExpansion == 0 || size < vol.Status.NodeExpansion {
		return
	}
	next := *vol
	next.Status.NodeExpansion = 0
	if next.Status.Expansion != nil && size >= vol.Spec.CapacityMin {
		// No controller has expanded it: the node's word is all that there is.
		next.Status.Capacity, next.Status.Expansion = size, nil
	}
	tx.PutVolume(&next)
}

// answerOf is the last answer to an operation's call, for people.
func answerOf(op *api.Operation) string { return op.Status.Code + ": " + op.Status.Message }
