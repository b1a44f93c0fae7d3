package server

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller/provisioner"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/suggest"
)

// volumeName is a volume's namespace and id.
type volumeName struct {
	ns api.NamespaceID
	id api.VolumeID
}

// volumesToBe asks the provisioner about the volumes of a plan: it writes into
// each what that waits for, and takes those for made, on the fork, that a plugin
// could make now. So what their jobs do when they are there is planned as well.
// It answers those that it took for made. One may be the content of another,
// wherever they stand in the files. When ctx ends, the others say that they were
// not looked at.
func volumesToBe(ctx context.Context, tx *state.Tx, plans []api.VolumePlan) (map[volumeName]bool, error) {
	made := map[volumeName]bool{}
	copies := map[volumeName][]int{} // of which volume those are to be copies
	next := make([]int, 0, len(plans))
	for i := range plans {
		next = append(next, i)
		if vol := tx.Volume(plans[i].Namespace, plans[i].ID); vol.Spec.CloneID != "" {
			of := volumeName{vol.Namespace, api.VolumeID(vol.Spec.CloneID)}
			copies[of] = append(copies[of], i)
		}
	}
	for len(next) > 0 {
		p := &plans[next[0]]
		next = next[1:]
		name := volumeName{p.Namespace, p.ID}
		if made[name] {
			continue
		}
		vol := tx.Volume(p.Namespace, p.ID)
		if ctx.Err() != nil {
			p.Waits = []api.Wait{{Subject: "volume " + string(provisioner.Key(vol.Namespace, vol.ID)), Reason: "the plan took too long, and did not look at it; plan fewer objects at a time", Since: tx.Now()}}
			continue
		}
		request, err := toBe(tx, vol, p)
		if err != nil {
			return nil, fmt.Errorf("ask the provisioner: %w", hidden{err})
		}
		if request != nil {
			takeForMade(tx, vol, request)
			made[name] = true
			next = append(next, copies[name]...)
		}
	}
	return made, nil
}

// toBe is the call that would make a volume now, or nil if there is none: it is
// there, or waits for something, which p then says.
func toBe(tx *state.Tx, vol *api.Volume, p *api.VolumePlan) (*api.CreateRequest, error) {
	p.Waits = nil
	plugin := fit.NewPlugin(vol.Spec.PluginID, slices.Collect(tx.Instances(vol.Spec.PluginID)))
	waits := func(why string) {
		p.Waits = []api.Wait{{Subject: "volume " + string(provisioner.Key(vol.Namespace, vol.ID)), Reason: why, Since: tx.Now()}}
	}
	if !plugin.Known() && p.Action != api.PlanNone {
		waits(plugin.Unknown() + meant(tx.View, vol.Spec.PluginID))
		return nil, nil
	}
	if state.VolumeSettled(vol) {
		return nil, nil
	}
	next, err := provisioner.Controller{}.Reconcile(tx.View, tx.Now(), provisioner.Key(vol.Namespace, vol.ID))
	if err != nil {
		return nil, err
	}
	p.Waits = next.Waits
	for _, c := range next.Commands {
		open, ok := c.(*command.OpenOperation)
		if !ok {
			continue
		}
		_, why := plugin.Executors(nil, "", func(id api.NodeID) bool {
			n := tx.Node(id)
			return n != nil && n.Takes()
		})
		if why != "" {
			waits(why)
			return nil, nil
		}
		return open.Request.Create, nil
	}
	return nil, nil
}

// takeForMade writes on the fork what a plugin would answer. It may choose one of
// the topologies that it is asked for: any of them may be it.
func takeForMade(tx *state.Tx, vol *api.Volume, request *api.CreateRequest) {
	made := *vol
	made.Status.State = api.VolumeReady
	made.Status.ExternalID = "planned/" + string(provisioner.Key(vol.Namespace, vol.ID))
	made.Status.Capacity = request.CapacityMin
	if request.TopologyRequest != nil {
		made.Status.AccessibleTopology = request.TopologyRequest.Required
	}
	tx.PutVolume(&made)
}

// meant says which plugin a mistyped id most likely stands for.
func meant(v state.View, id api.PluginID) string {
	known := map[string]bool{}
	for i := range v.Instances("") {
		known[string(i.PluginID)] = true
	}
	if near := suggest.Nearest(string(id), slices.Sorted(maps.Keys(known))); near != "" && !known[string(id)] {
		return "; did you mean " + near + "?"
	}
	return ""
}

// waitsFor are the volumes that an allocation of the plan waits for: those that are
// only taken for made.
func waitsFor(v state.View, made map[volumeName]bool, id api.AllocID) (ids []api.VolumeID) {
	for a := range v.AllocAttachments(id) {
		if made[volumeName{a.Namespace, a.VolumeID}] && !slices.Contains(ids, a.VolumeID) {
			ids = append(ids, a.VolumeID)
		}
	}
	return ids
}
