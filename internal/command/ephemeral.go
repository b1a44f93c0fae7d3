package command

import (
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// EphemeralVolume is the volume that an allocation would own for a request,
// before its node is known.
func EphemeralVolume(ns api.NamespaceID, alloc api.AllocID, r *api.VolumeRequest) *api.Volume {
	return &api.Volume{
		Namespace: ns, ID: api.EphemeralID(alloc, r.Name), Owner: alloc,
		Desired: api.Present,
		Spec:    r.Ephemeral.Spec(r),
		Status:  api.VolumeStatus{State: api.VolumeCreating},
	}
}

// ephemeral are the volumes that are to be made for an allocation, by request.
// Each must be reachable from the allocation's node, in the plugin's own words.
func (c *PlaceAllocation) ephemeral(tx *state.Tx, alloc *api.Allocation, group *api.TaskGroup) (map[string]*api.Volume, error) {
	made := map[string]*api.Volume{}
	for _, r := range group.Attached() {
		if r.Ephemeral == nil {
			continue
		}
		vol := EphemeralVolume(c.Namespace, alloc.ID, r)
		if tx.Volume(c.Namespace, vol.ID) != nil {
			return nil, conflict("volume %s is there already", vol.ID)
		}
		instance := fit.NodeInstance(slices.Collect(tx.NodePlugin(c.NodeID, vol.Spec.PluginID)))
		if instance == nil {
			return nil, conflict("node %s does not run plugin %s", c.NodeID, vol.Spec.PluginID)
		}
		if len(instance.Topology) > 0 {
			vol.Spec.TopologyRequest = &api.TopologyRequest{Required: []api.Topology{instance.Topology}, Preferred: []api.Topology{instance.Topology}}
		}
		made[r.Name] = vol
	}
	return made, nil
}

// endEphemeral has a volume deleted whose allocation has let go of it: nothing
// of it is mounted or attached any more.
func endEphemeral(tx *state.Tx, a *api.Attachment) {
	vol := tx.Volume(a.Namespace, a.VolumeID)
	if vol == nil || vol.Owner != a.AllocID || vol.Desired == api.Absent {
		return
	}
	next := *vol
	next.Desired = api.Absent
	next.Status.State = api.VolumeDeleting
	tx.PutVolume(&next)
}

// touchOwner has the node of a volume's owner hear that it will not be made: the
// allocation has failed by that.
func touchOwner(tx *state.Tx, vol *api.Volume) {
	if vol.Owner == "" {
		return
	}
	if a := tx.Allocation(vol.Owner); a != nil {
		tx.Touch(a.NodeID)
	}
}
