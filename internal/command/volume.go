package command

import (
	"reflect"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// ApplyVolume creates a volume or changes its spec.
type ApplyVolume struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.VolumeID    `json:"id"`
	// UID is the volume's if it is new.
	UID  string         `json:"uid"`
	Spec api.VolumeSpec `json:"spec"`
	// Version is the version that the change rests on: 0 for any.
	Version uint64 `json:"version,omitempty"`
}

// Kind implements Command.
func (*ApplyVolume) Kind() Kind { return "volume.apply" }

// Validate implements Command.
func (c *ApplyVolume) Validate() error {
	var p api.Problems
	p.Name("namespace", string(c.Namespace))
	p.Name("id", string(c.ID))
	p.Merge(c.Spec.Validate())
	return p.Err("volume " + string(c.ID))
}

// Apply implements Command. The same spec again changes nothing.
func (c *ApplyVolume) Apply(tx *state.Tx) error {
	old := tx.Volume(c.Namespace, c.ID)
	if err := checkVersion("volume", string(c.ID), metaOf(old), c.Version); err != nil {
		return err
	}
	if old == nil {
		tx.PutVolume(&api.Volume{
			Namespace: c.Namespace, ID: c.ID, UID: c.UID,
			Desired: api.Present,
			Spec:    c.Spec,
			Status:  api.VolumeStatus{State: api.VolumeCreating},
		})
		return nil
	}
	if old.Desired == api.Absent {
		return conflict("volume %s is being deleted; wait until it is gone", c.ID)
	}
	if reflect.DeepEqual(old.Spec, c.Spec) {
		return nil
	}
	next := *old
	switch {
	case old.Status.State == api.VolumeFailed:
		// Nothing was made: the changed spec is a new try.
		next.Spec = c.Spec
		next.Status = api.VolumeStatus{State: api.VolumeCreating}
	case old.Status.State == api.VolumeCreating:
		return conflict("volume %s is being created from an earlier spec; wait, or delete it", c.ID)
	default:
		if err := immutable(&old.Spec, &c.Spec); err != nil {
			return err
		}
		next.Spec = c.Spec
	}
	tx.PutVolume(&next)
	return nil
}

// immutable names every field that differs and cannot be changed once the
// plugin has made the volume.
func immutable(old, changed *api.VolumeSpec) error {
	var p api.Problems
	const mend = "put the old value back, or make a new volume"
	check := func(path string, was, is any) {
		if !reflect.DeepEqual(was, is) {
			p.Add(path, "cannot be changed once the volume is made", mend)
		}
	}
	check("plugin_id", old.PluginID, changed.PluginID)
	check("capacity_min", old.CapacityMin, changed.CapacityMin)
	check("capacity_max", old.CapacityMax, changed.CapacityMax)
	check("capability", old.Capabilities, changed.Capabilities)
	check("mount_options", old.MountOptions, changed.MountOptions)
	check("parameters", old.Parameters, changed.Parameters)
	check("topology_request", old.TopologyRequest, changed.TopologyRequest)
	return p.Err("the volume")
}

// DeleteVolume says that a volume is to go.
type DeleteVolume struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.VolumeID    `json:"id"`
	Version   uint64          `json:"version,omitempty"`
}

// Kind implements Command.
func (*DeleteVolume) Kind() Kind { return "volume.delete" }

// Validate implements Command.
func (c *DeleteVolume) Validate() error { return nil }

// Apply implements Command. It is refused while anything holds the volume,
// long before any plugin is asked.
func (c *DeleteVolume) Apply(tx *state.Tx) error {
	old := tx.Volume(c.Namespace, c.ID)
	if old == nil {
		return api.Errorf(api.CodeNotFound, "volume %s does not exist in namespace %s", c.ID, c.Namespace)
	}
	if err := checkVersion("volume", string(c.ID), metaOf(old), c.Version); err != nil {
		return err
	}
	if old.Desired == api.Absent {
		return nil
	}
	for h := range tx.Holders(c.Namespace, c.ID) {
		return api.Errorf(api.CodeInUse, "volume %s is held by allocation %s of job %s on node %s (%s)",
			c.ID, h.AllocID.Short(), h.JobID, h.NodeID, h.Status.State)
	}
	next := *old
	next.Desired = api.Absent
	next.Status.State = api.VolumeDeleting
	tx.PutVolume(&next)
	return nil
}

// ForgetVolume removes the row of a volume that the plugin never made.
type ForgetVolume struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.VolumeID    `json:"id"`
	Version   uint64          `json:"version"`
}

// Kind implements Command.
func (*ForgetVolume) Kind() Kind { return "volume.forget" }

// Validate implements Command.
func (c *ForgetVolume) Validate() error { return nil }

// Apply implements Command.
func (c *ForgetVolume) Apply(tx *state.Tx) error {
	vol := tx.Volume(c.Namespace, c.ID)
	if vol == nil || vol.Version != c.Version {
		return conflict("volume %s has changed", c.ID)
	}
	if vol.Desired != api.Absent || vol.Status.ExternalID != "" || vol.Status.Operation != "" {
		return conflict("volume %s is not one that was never made", c.ID)
	}
	tx.DeleteVolume(vol)
	return nil
}

// metaOf is a row's meta, or nil for no row.
func metaOf[T any, P interface {
	*T
	GetMeta() *api.Meta
}](row P) *api.Meta {
	if row == nil {
		return nil
	}
	return row.GetMeta()
}

// checkVersion answers a conflict if a write rests on another version than
// the stored one. want 0 rests on none.
func checkVersion(noun, id string, stored *api.Meta, want uint64) error {
	if want == 0 {
		return nil
	}
	if stored == nil {
		return conflict("%s %s is gone", noun, id)
	}
	if stored.Version != want {
		return conflict("%s %s is at version %d, and the change was made for version %d", noun, id, stored.Version, want)
	}
	return nil
}
