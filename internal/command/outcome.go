package command

import (
	"fmt"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// judge says what came of an attempt: what its code means, and whether what
// else is known agrees. Where it does not, message says so.
func judge(tx *state.Tx, op *api.Operation, f *api.OperationFact) (v fit.Verdict, message string) {
	if f.NotSent {
		return fit.Verdict{Certain: true, Retry: true}, f.Message
	}
	v = fit.Judge(op.Kind, f.Code)
	if op.Kind == api.OperationCreate && op.Request.Create != nil && f.Result.ExternalID != "" {
		if other := otherVolume(tx, op, f.Result.ExternalID); other != nil {
			return fit.Verdict{Certain: true}, words(f.Message, fmt.Sprintf("the plugin answered with %s, which is volume %s of namespace %s: "+
				"two names are one to it. Delete this volume; nothing becomes of the other", f.Result.ExternalID, other.ID, other.Namespace))
		}
	}
	if !v.Done {
		return v, f.Message
	}
	switch {
	case op.Kind == api.OperationUnpublish:
		doubt, renamed := doubt(tx, op, f.Seen, v.Agreed)
		if doubt != "" {
			return fit.Verdict{Certain: v.Agreed || renamed, Retry: !renamed}, words(f.Message, doubt)
		}
	case op.Kind == api.OperationCreate && op.Request.Create != nil:
		if wrong := fit.Mismatch(op.Request.Create, &f.Result); wrong != "" {
			return fit.Verdict{Certain: true}, words(f.Message, wrong)
		}
	}
	return v, f.Message
}

// otherVolume is another volume that the plugin knows by an id, or nil.
func otherVolume(tx *state.Tx, op *api.Operation, external string) *api.Volume {
	for vol := range tx.VolumesByExternalID(op.PluginID, external) {
		if vol.Namespace != op.Namespace || vol.ID != op.VolumeID {
			return vol
		}
	}
	return nil
}

// found is the volume that a create was refused for, if the plugin lists it, and
// there is no better way to have it: it is to be deleted, or it was asked for in
// all ways. What a list says of a volume may be less than what a create does.
func found(tx *state.Tx, op *api.Operation, f *api.OperationFact) *api.OperationResult {
	r := op.Request.Create
	if op.Kind != api.OperationCreate || r == nil || f.Code != codeAlreadyExists || f.Seen == nil || f.Seen.Found == nil {
		return nil
	}
	vol := tx.Volume(op.Namespace, op.VolumeID)
	if vol == nil || vol.Desired == api.Present && !fit.Searched(r) || otherVolume(tx, op, f.Seen.Found.ExternalID) != nil {
		return nil
	}
	return f.Seen.Found
}

// search has the next attempt of a create look for the volume that the plugin
// says is there.
func search(tx *state.Tx, op *api.Operation) {
	if op.Request.Create == nil || op.Status.Code != codeAlreadyExists {
		return
	}
	request := *op.Request.Create
	request.Search++
	vol := tx.Volume(op.Namespace, op.VolumeID)
	request.Loose = vol != nil && vol.Desired == api.Absent
	op.Request.Create = &request
}

func words(message, more string) string {
	if message == "" {
		return more
	}
	return message + "; " + more
}

// doubt says why an answer that a volume is detached is not believed. What was
// read back counts most, but against OK only once: lists may be late, and an OK
// that is repeated is believed. Where nothing was read, OK is believed, and NOT_FOUND only
// of a node that has said itself that it let go of the volume, or is gone, or
// in a later epoch: a wrong name of the node is answered in the same way.
// renamed reports that the volume is attached under another name of the node.
func doubt(tx *state.Tx, op *api.Operation, seen *api.VolumeSeen, notFound bool) (why string, renamed bool) {
	switch {
	case seen != nil && seen.Gone:
		return "", false
	case !notFound && op.Status.Code == "OK":
		return "", false
	case seen != nil && seen.NodesKnown:
		return attachedStill(tx, op, seen.Nodes)
	case !notFound:
		return "", false
	}
	pub, node, id := publicationOf(tx, op), tx.Node(op.NodeID), tx.Identity(op.NodeID)
	if pub == nil || node == nil || id == nil || id.Epoch > pub.Status.NodeEpoch || !usedOnNode(tx.View, pub) {
		return "", false
	}
	return fmt.Sprintf("node %s has not said that it let go of the volume, and the plugin does not say where it is attached", op.NodeID), false
}

// attachedStill says where the provider has the volume attached, if that is the
// node, by any of its names.
func attachedStill(tx *state.Tx, op *api.Operation, nodes []string) (why string, renamed bool) {
	if r := op.Request.Unpublish; r != nil && slices.Contains(nodes, r.ExternalNodeID) {
		return fmt.Sprintf("the plugin says that the volume is still attached to node %s", r.ExternalNodeID), false
	}
	if other := otherName(tx, op, nodes); other != "" {
		return fmt.Sprintf("the plugin says that the volume is attached to node %s under the name %s", op.NodeID, other), true
	}
	return "", false
}

// otherName is a name under which the provider has the volume attached to the
// operation's node, and which is not the one that was asked for.
func otherName(tx *state.Tx, op *api.Operation, nodes []string) string {
	if i := fit.NodeInstance(slices.Collect(tx.NodePlugin(op.NodeID, op.PluginID))); i != nil && slices.Contains(nodes, i.ExternalNodeID) {
		return i.ExternalNodeID
	}
	return ""
}

// hasten lets what waits for the end of an operation be tried at once: a
// publish that was refused because the volume was attached elsewhere, or
// because the node had no room, when a volume is detached there; whatever was
// refused because a volume had snapshots, when one is gone. Each end hastens
// what named it, once; how often it was refused is not forgotten.
func hasten(tx *state.Tx, done *api.Operation) {
	switch done.Kind {
	case api.OperationUnpublish:
		hastenVolume(tx, done.Namespace, done.VolumeID, "FAILED_PRECONDITION")
		hastenOne(tx, done.PluginID, done.NodeID)
	case api.OperationDelete:
		hastenOne(tx, done.PluginID, "")
	case api.OperationDeleteSnapshot:
		hastenVolume(tx, done.Namespace, done.VolumeID, "FAILED_PRECONDITION")
	case api.OperationCreate, api.OperationPublish, api.OperationExpand, api.OperationModify, api.OperationNodeExpand, api.OperationSnapshot:
	}
}

// hastenVolume lets the calls for a volume be tried at once
// that were refused with one of the codes.
func hastenVolume(tx *state.Tx, ns api.NamespaceID, vol api.VolumeID, codes ...string) {
	for _, op := range slices.Collect(tx.OpenOperations(ns, vol)) {
		if slices.Contains(codes, op.Status.Code) {
			tryNow(tx, op)
		}
	}
}

// hastenOne lets the first of the calls be tried at once that were refused for
// want of room on a node, or at the provider.
func hastenOne(tx *state.Tx, plugin api.PluginID, node api.NodeID) {
	for op := range tx.Exhausted(plugin, node) {
		if op.Status.State == api.OperationWaiting { // else none waits
			tryNow(tx, op)
		}
		return
	}
}

// tryNow makes now the time of an operation's next attempt.
func tryNow(tx *state.Tx, op *api.Operation) {
	if op.Status.State != api.OperationWaiting || !op.Status.Next.After(tx.Now()) {
		return
	}
	next := *op
	next.Status.Next = tx.Now()
	tx.PutOperation(&next)
}
