package command

import (
	"fmt"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// One call at a time for each volume (CSI spec, Concurrency). Calls that
// change the volume itself while it may be on nodes, expand and modify, do not
// keep it from being attached and detached by being open: they may wait for
// days, for a provider with room or for who uses the volume. So they take turns
// with the calls for its publications when an agent is to get one.

// Changes reports whether calls of the kind change a volume that may be in use.
func Changes(kind api.OperationKind) bool {
	return kind == api.OperationExpand || kind == api.OperationModify
}

// Blocked says why no agent may have an operation's call yet, or "".
func Blocked(v state.View, op *api.Operation) string {
	vol := v.Volume(op.Namespace, op.VolumeID)
	if vol == nil {
		return ""
	}
	if other := Busy(v, op); other != "" {
		return fmt.Sprintf("waits for operation %s", other)
	}
	if op.Kind.Subject() == api.SubjectPublication {
		if other := Called(v, vol); other != "" {
			return fmt.Sprintf("waits for operation %s", other)
		}
		return ""
	}
	if !Changes(op.Kind) && op.Kind != api.OperationSnapshot {
		return ""
	}
	for pub := range v.VolumePublications(op.Namespace, op.VolumeID) {
		if pub.Status.Operation == "" {
			if a := mounting(v, pub); a != nil {
				return fmt.Sprintf("node %s is about to mount volume %s for allocation %s", pub.NodeID, vol.ID, a.AllocID.Short())
			}
			continue
		}
		if other := v.Operation(pub.Status.Operation); other != nil && other.Status.State == api.OperationAssigned {
			return fmt.Sprintf("waits for operation %s", other.ID)
		}
	}
	if op.Kind == api.OperationExpand && Offline(v, vol) {
		return InUse(v, vol)
	}
	return ""
}

// Called is the call that an agent has and that changes or copies the volume, or
// "". No node is told to mount the volume meanwhile, also where the plugin has
// nothing to attach.
func Called(v state.View, vol *api.Volume) api.OperationID {
	if Changes(vol.Status.Operation.Kind()) {
		if op := v.Operation(vol.Status.Operation); op != nil && op.Status.State == api.OperationAssigned {
			return op.ID
		}
	}
	return snapshotting(v, vol, "")
}

// mounting is an attachment that the node is at this moment about to stage or
// publish, or nil: also one that was told to go meanwhile, since the node may
// still be at it. One that it has a problem with is between two tries, which may
// be for long.
func mounting(v state.View, pub *api.Publication) *api.Attachment {
	if n := v.Node(pub.NodeID); n == nil || n.Status.State != api.NodeReady {
		return nil
	}
	for h := range v.NodeHolders(pub.Namespace, pub.VolumeID, pub.NodeID) {
		if (h.Status.State == api.ControllerPublished || cutShort(h)) && h.Status.Problem == nil {
			return h
		}
	}
	return nil
}

// cutShort reports whether an attachment was told to go after its node was told
// to mount it, and before the node said that it did.
func cutShort(h *api.Attachment) bool {
	if h.Status.State != api.Unpublishing {
		return false
	}
	var told, mounted, leaves api.AttachmentStep
	for _, s := range h.Status.Steps {
		switch s.State {
		case api.ControllerPublished:
			told = s
		case api.NodePublished:
			mounted = s
		case api.Unpublishing:
			leaves = s
		case api.Claimed, api.NodeDetached, api.ControllerDetached, api.Freed:
		}
	}
	neverTold := told.Skipped && !told.Time.Before(leaves.Time)
	return mounted.Skipped && !neverTold
}

// Offline reports whether the volume is expanded only while nothing uses it: as
// its plugin says beforehand, or has said when it was asked.
func Offline(v state.View, vol *api.Volume) bool {
	if e := vol.Status.Expansion; e != nil && e.Offline {
		return true
	}
	return pluginOf(v, vol).Offline()
}

func pluginOf(v state.View, vol *api.Volume) fit.Plugin {
	var instances []*api.Instance
	for i := range v.Instances(vol.Spec.PluginID) {
		instances = append(instances, i)
	}
	return fit.NewPlugin(vol.Spec.PluginID, instances)
}

// InUse says who has the volume attached, staged or mounted, or may have; "" if
// nobody does.
func InUse(v state.View, vol *api.Volume) string {
	for pub := range v.VolumePublications(vol.Namespace, vol.ID) {
		if !pub.MayBeAttached() && !usedOnNode(v, pub) {
			continue
		}
		for h := range v.NodeHolders(vol.Namespace, vol.ID, pub.NodeID) {
			if h.Status.State.Before(api.NodeDetached) {
				return fmt.Sprintf("allocation %s of job %s uses volume %s on node %s", h.AllocID.Short(), h.JobID, vol.ID, pub.NodeID)
			}
		}
		return fmt.Sprintf("volume %s is still attached to node %s", vol.ID, pub.NodeID)
	}
	return ""
}

// eager is how often an expansion is tried before it lets who waits for the
// volume go before it.
const eager = 4

// ExpandsFirst is the expansion for which whoever is to use the volume next
// waits, or "". One that can only be made while nobody uses the volume comes
// before the next user: else its turn might never come. It is given a few
// tries, and as long as somebody can make the call: else the user's might not.
func ExpandsFirst(v state.View, vol *api.Volume) string {
	e := vol.Status.Expansion
	if e == nil || e.Refused != "" || !Offline(v, vol) || InUse(v, vol) != "" {
		return ""
	}
	plugin := pluginOf(v, vol)
	if !plugin.Can(api.CapExpandVolume) {
		return ""
	}
	executors, _ := plugin.Executors(nil, "", func(id api.NodeID) bool {
		n := v.Node(id)
		return n != nil && n.Takes()
	})
	if len(executors) == 0 && !plugin.Attaches() {
		return "" // where it attaches, nobody could do that either
	}
	if vol.Status.Operation == "" {
		return fmt.Sprintf("volume %s is to be expanded first, while nobody uses it", vol.ID)
	}
	// A modification that has the turn gives it to the expansion, not to the user.
	if op := v.Operation(vol.Status.Operation); op != nil && Changes(op.Kind) && op.Status.Failures < eager {
		return fmt.Sprintf("volume %s is expanded first, while nobody uses it: waits for operation %s", vol.ID, op.ID)
	}
	return ""
}
