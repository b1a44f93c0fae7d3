// Package provisioner brings volumes into being, changes them, and brings them
// out of it: from a volume's spec to a create operation, from a larger size or
// other parameters to expand and modify operations, from a deletion to a delete
// operation.
//
// It never calls a plugin and never chooses a node. Invariant: the intent to
// create is in the log before anybody creates, and a volume's row is not
// forgotten while the plugin may have it.
package provisioner

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

// Controller settles volumes.
type Controller struct{}

// Name implements controller.Controller.
func (Controller) Name() string { return "provisioner" }

// Key is the key of a volume.
func Key(ns api.NamespaceID, id api.VolumeID) controller.Key {
	return controller.Key(string(ns) + "/" + string(id))
}

// Pending implements controller.Controller.
func (Controller) Pending(v state.View) iter.Seq[controller.Key] {
	return func(yield func(controller.Key) bool) {
		for vol := range v.UnsettledVolumes() {
			if !yield(Key(vol.Namespace, vol.ID)) {
				return
			}
		}
	}
}

// Reconcile implements controller.Controller.
func (Controller) Reconcile(v state.View, now time.Time, k controller.Key) (controller.Plan, error) {
	ns, id, ok := strings.Cut(string(k), "/")
	if !ok {
		return controller.Plan{}, fmt.Errorf("key %q names no volume", k)
	}
	vol := v.Volume(api.NamespaceID(ns), api.VolumeID(id))
	switch {
	case vol == nil:
		return controller.Plan{}, nil
	case vol.Desired == api.Absent:
		return remove(v, vol), nil
	case vol.Status.State == api.VolumeCreating:
		return create(v, now, vol), nil
	case vol.Status.State == api.VolumeReady:
		return change(v, vol), nil
	}
	return controller.Plan{}, nil
}

// maxRequisite bounds how many topologies a request names. Where every node is
// its own topology, a big cluster leaves the choice to the plugin.
const maxRequisite = 64

// create opens the operation that makes the volume.
func create(v state.View, now time.Time, vol *api.Volume) (p controller.Plan) {
	subject := "volume " + string(Key(vol.Namespace, vol.ID))
	if op := vol.Status.Operation; op != "" {
		p.Wait(subject, fmt.Sprintf("waits for operation %s", op)+noRoom(v, now, vol), vol.ModifyTime, time.Time{})
		return p
	}
	plugin := fit.NewPlugin(vol.Spec.PluginID, slices.Collect(v.Instances(vol.Spec.PluginID)))
	switch why := plugin.CannotCreate(); {
	case why != "":
		p.Wait(subject, why, vol.ModifyTime, time.Time{})
		return p
	case len(vol.Spec.MutableParameters) > 0 && plugin.CannotModify() != "":
		p.Wait(subject, plugin.CannotModify()+"; take mutable_parameters out of its file", vol.ModifyTime, time.Time{})
		return p
	}
	content, why := source(v, vol, plugin)
	if why != "" {
		p.Wait(subject, why, vol.ModifyTime, time.Time{})
		return p
	}
	p.Add(&command.OpenOperation{
		OperationKind: api.OperationCreate,
		Namespace:     vol.Namespace,
		VolumeID:      vol.ID,
		PluginID:      vol.Spec.PluginID,
		Version:       vol.Version,
		Request: api.OperationRequest{Create: &api.CreateRequest{
			Name:              fit.CSIName(vol.UID),
			CapacityMin:       capacity(&vol.Spec, content),
			CapacityMax:       vol.Spec.CapacityMax,
			Capabilities:      vol.Spec.Capabilities,
			MountOptions:      vol.Spec.MountOptions,
			Parameters:        vol.Spec.Parameters,
			MutableParameters: vol.Spec.MutableParameters,
			TopologyRequest:   topology(v, now, vol, plugin, content),
			SnapshotID:        content.snapshot,
			CloneID:           content.clone,
		}},
	})
	return p
}

// topology is where the volume must be reachable: as its user asks, else where
// its snapshot is, else from the nodes that run the plugin (CSI spec, TopologyRequirement). Plugins
// without topology get no request: an empty one breaks some of them.
func topology(v state.View, now time.Time, vol *api.Volume, plugin fit.Plugin, c content) *api.TopologyRequest {
	if !plugin.HasTopology() {
		return nil
	}
	order := func(all []api.Topology) []api.Topology {
		if len(all) < 2 {
			return nil
		}
		return fit.ByRoom(all, roomFor(v.Quiet(), vol), capacity(&vol.Spec, c), vol.UID, now)
	}
	if asked := vol.Spec.TopologyRequest; asked != nil {
		if len(asked.Preferred) > 0 {
			return asked
		}
		return &api.TopologyRequest{Required: asked.Required, Preferred: order(asked.Required)}
	}
	if c.of != nil && len(c.of.Status.AccessibleTopology) > 0 {
		there := c.of.Status.AccessibleTopology
		return &api.TopologyRequest{Required: there, Preferred: order(there)}
	}
	quiet := v.Quiet()
	requisite := plugin.Topologies(func(id api.NodeID) bool {
		n := quiet.Node(id)
		return n != nil && n.Takes()
	})
	preferred := order(requisite)
	if len(requisite) > maxRequisite && preferred != nil {
		requisite, preferred = preferred[:maxRequisite], preferred[:maxRequisite]
	}
	if len(requisite) == 0 || len(requisite) > maxRequisite {
		return nil
	}
	return &api.TopologyRequest{Required: requisite, Preferred: preferred}
}

// remove deletes the volume at the plugin, as soon as nothing holds it.
func remove(v state.View, vol *api.Volume) (p controller.Plan) {
	subject := "volume " + string(Key(vol.Namespace, vol.ID))
	if op := v.Operation(vol.Status.Operation); op != nil {
		cancels := command.Changes(op.Kind) || op.Kind == api.OperationCreate && !op.Status.Uncertain
		if op.Status.State == api.OperationWaiting && cancels {
			p.Add(&command.CancelOperation{ID: op.ID, Version: op.Version, Reason: "the volume is to be deleted"})
			return p
		}
		p.Wait(subject, fmt.Sprintf("waits for operation %s", op.ID)+dependants(v, vol, op), vol.ModifyTime, time.Time{})
		return p
	}
	for pub := range v.VolumePublications(vol.Namespace, vol.ID) {
		p.Wait(subject, fmt.Sprintf("is still published to node %s", pub.NodeID), pub.ModifyTime, time.Time{})
		return p
	}
	if why := snapshots(v, vol); why != "" {
		p.Wait(subject, why, vol.ModifyTime, time.Time{})
		return p
	}
	if vol.Status.ExternalID == "" || vol.Retained() {
		p.Add(&command.ForgetVolume{Namespace: vol.Namespace, ID: vol.ID, Version: vol.Version})
		return p
	}
	p.Add(&command.OpenOperation{
		OperationKind: api.OperationDelete,
		Namespace:     vol.Namespace,
		VolumeID:      vol.ID,
		PluginID:      vol.Spec.PluginID,
		Version:       vol.Version,
		Request:       api.OperationRequest{Delete: &api.DeleteRequest{ExternalID: vol.Status.ExternalID}},
	})
	return p
}
