package httpapi

import (
	"context"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/server/inquiry"
	"github.com/berth-dev/berth/internal/state"
)

// importVolume registers a volume that exists already. Its plugin is asked
// first whether it does, and can be used so.
func (h *Handler) importVolume(r *request) (any, error) {
	var spec api.VolumeSpec
	if err := r.decode(&spec); err != nil {
		return nil, err
	}
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	check, err := r.flag("check")
	if err != nil {
		return nil, err
	}
	id, v := api.VolumeID(r.PathValue("id")), h.Log.View()
	if !spec.Registered() {
		return nil, &api.Error{Code: api.CodeInvalid, Message: "the volume has a problem", Fields: []api.Field{{
			Path: "external_id", Message: "is missing", Mend: "give the plugin's id of the volume: berth plugin volumes lists them"}}}
	}
	if v.Volume(r.namespace(), id) != nil {
		return nil, api.Errorf(api.CodeConflict, "volume %s is there already", id)
	}
	prepare := h.applyVolume
	if check {
		prepare = h.plannedVolume
	}
	apply, err := prepare(r.namespace(), id, spec, 0)
	if err != nil {
		return nil, err
	}
	apply.IfAbsent, apply.Trace = true, r.trace()
	ctx, cancel := context.WithTimeout(r.Context(), questionTime)
	defer cancel()
	notes, err := h.verify(ctx, v, &spec, apply)
	if err != nil {
		return nil, err
	}
	if check {
		return h.couldImport(ctx, apply, notes)
	}
	if _, err := h.propose(r, apply); err != nil {
		return nil, err
	}
	v = h.Log.View()
	vol := v.Volume(r.namespace(), id)
	if vol == nil {
		return nil, api.Errorf(api.CodeConflict, "volume %s was deleted in the meantime", id)
	}
	info := h.volumeInfo(v, vol)
	info.Warnings = append(volumeWarnings(v, vol), noted(notes)...)
	return info, nil
}

// noted are notes as warnings.
func noted(notes []string) (warnings []api.Field) {
	for _, n := range notes {
		warnings = append(warnings, api.Field{Message: n})
	}
	return warnings
}

// couldImport is the volume that an import would register. The state is asked
// whether it takes it, on a copy.
func (h *Handler) couldImport(ctx context.Context, apply *command.ApplyVolume, notes []string) (any, error) {
	if _, err := h.Plan.Plan(ctx, Specs{Volumes: []*command.ApplyVolume{apply}}); err != nil {
		return nil, err
	}
	vol := &api.Volume{
		Namespace: apply.Namespace, ID: apply.ID, Desired: api.Present, Spec: apply.Spec,
		Status: api.VolumeStatus{State: api.VolumeReady, ExternalID: apply.Spec.ExternalID},
	}
	if apply.Found != nil {
		vol.Status.Capacity, vol.Status.Context, vol.Status.AccessibleTopology = apply.Found.Capacity, apply.Found.Context, apply.Found.AccessibleTopology
	}
	return api.VolumeInfo{Volume: vol, Warnings: append(volumeWarnings(h.Log.View(), vol), noted(notes)...)}, nil
}

// verify asks the plugin about a volume that is to be registered, and fills in
// what it says. A plugin without controllers cannot be asked.
func (h *Handler) verify(ctx context.Context, v state.View, spec *api.VolumeSpec, apply *command.ApplyVolume) (notes []string, err error) {
	instances := slices.Collect(v.Instances(spec.PluginID))
	plugin := fit.NewPlugin(spec.PluginID, instances)
	switch {
	case !plugin.Known():
		return nil, api.Errorf(api.CodeUnavailable, "%s", plugin.Unknown())
	case !slices.ContainsFunc(instances, func(i *api.Instance) bool { return i.ServesController() }):
		return []string{"the plugin has no controller that could be asked: whether the volume exists shows when it is first used"}, nil
	}
	var near []api.Topology
	if spec.TopologyRequest != nil {
		near = spec.TopologyRequest.Required
	}
	found, place, err := h.findExternal(ctx, v, spec, near)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		notes = append(notes, "the plugin does not say what it has: capacity and context are not known")
	default:
		apply.Found = &api.FoundVolume{Capacity: found.Capacity, Context: found.Context, AccessibleTopology: found.AccessibleTopology}
	}
	q := api.ValidateQuestion{
		ExternalID: spec.ExternalID, Context: spec.Context, Capabilities: spec.Capabilities,
		MountOptions: spec.MountOptions, Parameters: spec.Parameters, Secrets: spec.Secrets,
	}
	if len(q.Context) == 0 && found != nil {
		q.Context = found.Context
	}
	refusal, err := h.Ask.Validate(ctx, place, q)
	switch {
	case err != nil && strings.Contains(err.Error(), "UNIMPLEMENTED"):
		notes = append(notes, "the plugin does not check how volumes may be used")
	case err != nil:
		return nil, err
	case refusal != "":
		return nil, &api.Error{Code: api.CodeInvalid, Message: "the volume has a problem", Fields: []api.Field{{
			Path: "capability", Message: "is refused by the plugin: " + refusal, Mend: "ask for a use that the volume was made for"}}}
	}
	return notes, nil
}

// findExternal looks for a volume at its plugin, in all places that would know
// of it: the volume, nil if the plugin does not say, and the place that has it.
func (h *Handler) findExternal(ctx context.Context, v state.View, spec *api.VolumeSpec, near []api.Topology) (*api.ExternalVolume, inquiry.Place, error) {
	for _, capability := range []string{api.CapGetVolume, api.CapListVolumes} {
		var last error
		places := inquiry.Places(v, spec.PluginID, capability)
		for _, p := range places {
			if !p.Sees(near) {
				continue
			}
			found, err := h.lookUp(ctx, p, capability, spec.ExternalID)
			switch {
			case err == nil:
				return found, p, nil
			case api.CodeOf(err) != api.CodeNotFound:
				last = err
			}
		}
		switch {
		case last != nil:
			return nil, inquiry.Place{}, last
		case len(places) > 0:
			return nil, inquiry.Place{}, api.Errorf(api.CodeNotFound, "plugin %s has no volume %q", spec.PluginID, spec.ExternalID)
		}
	}
	p, err := inquiry.Near(v, spec.PluginID, "", near)
	return nil, p, err
}

// lookUp looks for a volume in one place.
func (h *Handler) lookUp(ctx context.Context, p inquiry.Place, capability, id string) (*api.ExternalVolume, error) {
	if capability == api.CapGetVolume {
		found, err := h.Ask.Volume(ctx, p, id)
		return &found, err
	}
	var found *api.ExternalVolume
	err := h.Ask.Volumes(ctx, p, func() { found = nil }, func(v api.ExternalVolume) error {
		if v.ExternalID == id {
			found = &v
		}
		return nil
	})
	if err == nil && found == nil {
		err = api.Errorf(api.CodeNotFound, "it is not listed")
	}
	return found, err
}

// deleteFound has a volume deleted that nobody knows: on the word of a person it
// is registered and deleted in one step, and goes the way of all volumes.
func (h *Handler) deleteFound(r *request) (any, error) {
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	v, id := h.Log.View(), api.FindingID(r.PathValue("id"))
	f := v.Finding(id)
	switch {
	case f == nil:
		return nil, noSuch("finding", string(id), "")
	case !f.Kind.Unclaimed():
		return nil, api.Errorf(api.CodeInvalid, "finding %s is about volume %s of namespace %s, which the cluster knows: delete that", id, f.VolumeID, f.Namespace)
	case len(f.Nodes) > 0:
		return nil, api.Errorf(api.CodeInUse, "the provider has it attached to %s: somebody may use it; detach it there first", strings.Join(f.Nodes, ", "))
	}
	spec := api.VolumeSpec{PluginID: f.PluginID, ExternalID: f.ExternalID, Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}}}
	apply := &command.ApplyVolume{Namespace: api.DefaultNamespace, ID: api.VolumeID(id), UID: newVolumeUID(v), Spec: spec}
	_, err := h.propose(r,
		&command.RecordFindings{Clear: []command.ClearFinding{{ID: id, Version: f.Version}}}, apply,
		&command.DeleteVolume{Namespace: apply.Namespace, ID: apply.ID, Reclaim: api.ReclaimDelete})
	if err != nil {
		return nil, err
	}
	v = h.Log.View()
	if vol := v.Volume(apply.Namespace, apply.ID); vol != nil {
		return h.volumeInfo(v, vol), nil
	}
	return api.VolumeInfo{Volume: &api.Volume{
		Namespace: apply.Namespace, ID: apply.ID, UID: apply.UID, Desired: api.Absent, Reclaim: api.ReclaimDelete, Spec: spec,
		Status: api.VolumeStatus{State: api.VolumeDeleting, ExternalID: f.ExternalID},
	}}, nil
}
