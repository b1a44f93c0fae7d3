package command

import (
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cron"
	"github.com/berth-dev/berth/internal/fit"
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
	// IfAbsent: only if there is no such volume.
	IfAbsent bool `json:"if_absent,omitempty"`
	// Secrets are the volume's from now on, sealed; without names it has none
	// any more. Nil leaves those that it has.
	Secrets *api.SealedSecrets `json:"secrets,omitempty"`
	// Found is what the plugin says of a volume that is registered, if it was
	// asked.
	Found *api.FoundVolume `json:"found,omitempty"`
	// Trace is that of the request.
	Trace api.TraceContext `json:"trace,omitempty"`
}

// Kind implements Command.
func (*ApplyVolume) Kind() Kind { return "volume.apply" }

// Validate implements Command.
func (c *ApplyVolume) Validate() error {
	var p api.Problems
	p.Name("namespace", string(c.Namespace))
	p.VolumeID("id", string(c.ID))
	p.Merge(c.Spec.Validate())
	if s := c.Spec.SnapshotSchedule; s != nil && s.Cron != "" {
		if message, mend := cron.Problem(s.Cron); message != "" {
			p.Add("snapshot_schedule.cron", message, mend)
		}
	}
	if c.Spec.Secrets != nil {
		p.Add("secrets", "are not sealed", "propose them sealed")
	}
	if s := c.Secrets; s != nil && (len(s.Names) > 0) != (len(s.Box) > 0 && s.KeyID != "") {
		p.Add("secrets", "are not whole", "give names, key and box, or none of them")
	}
	validateTrace(&p, c.Trace)
	return p.Err("volume " + string(c.ID))
}

// Apply implements Command. The same spec again changes nothing.
func (c *ApplyVolume) Apply(tx *state.Tx) error {
	old := tx.Volume(c.Namespace, c.ID)
	if err := checkVersion("volume", string(c.ID), metaOf(old), c.Version); err != nil {
		return err
	}
	if err := checkAbsent("volume", string(c.ID), metaOf(old), c.IfAbsent); err != nil {
		return err
	}
	if old == nil {
		if err := c.alone(tx); err != nil {
			return err
		}
		c.claim(tx)
		status := begin(tx, &c.Spec)
		c.fill(&status)
		status.Trace = c.Trace
		tx.PutVolume(&api.Volume{
			Namespace: c.Namespace, ID: c.ID, UID: c.UID,
			Desired: api.Present,
			Spec:    c.Spec,
			Status:  status,
			Secrets: c.putSecrets(tx),
		})
		return nil
	}
	if old.Owner != "" {
		return conflict("volume %s was made for allocation %s, and is as its job says: change the job", c.ID, old.Owner.Short())
	}
	same := fit.Same(old.Spec, c.Spec)
	// Secrets alone can be changed at any time: what waits, for a deletion too,
	// may wait because they are wrong.
	if old.Desired == api.Absent && (!same || c.Secrets == nil) {
		return conflict("volume %s is being deleted; wait until it is gone", c.ID)
	}
	next := *old
	switch {
	case same && c.Secrets == nil && !refused(old):
		return nil
	case same && old.Status.State != api.VolumeFailed:
		again(tx, &next)
	case old.Status.State == api.VolumeFailed:
		if err := c.retry(tx, old, &next); err != nil {
			return err
		}
	case old.Status.State == api.VolumeCreating:
		return conflict("volume %s is being created from an earlier spec; wait, or delete it", c.ID)
	default:
		if err := c.change(tx, old, &next); err != nil {
			return err
		}
		next.Status.Schedule = rescheduled(old, c.Spec.SnapshotSchedule)
	}
	if c.Secrets != nil {
		next.Secrets = c.putSecrets(tx)
	}
	if !same || next.Status.State != old.Status.State || refused(old) != refused(&next) || !slices.Equal(next.Secrets, old.Secrets) {
		next.Status.Trace = c.Trace
		tx.PutVolume(&next)
	}
	return nil
}

// retry makes a changed spec of a volume that could not be created a new try,
// under the same name at the plugin. Nothing was made, or what was made is not as
// asked for.
func (c *ApplyVolume) retry(tx *state.Tx, old, next *api.Volume) error {
	if err := c.alone(tx); err != nil {
		return err
	}
	made := !old.Spec.Registered() && old.Status.ExternalID != ""
	if made && (c.Spec.Registered() || c.Spec.PluginID != old.Spec.PluginID) {
		return conflict("plugin %s has made volume %s as %q, not as asked for; delete it before it is to be another one",
			old.Spec.PluginID, c.ID, old.Status.ExternalID)
	}
	c.claim(tx)
	next.Spec = c.Spec
	next.Status = begin(tx, &c.Spec)
	if made {
		next.Status.ExternalID = old.Status.ExternalID
	}
	return nil
}

// rescheduled is where a volume's snapshot schedule is under another spec. Other
// times begin anew: what an earlier schedule missed is not made up for. What was
// made counts on.
func rescheduled(old *api.Volume, schedule *api.SnapshotSchedule) *api.ScheduleStatus {
	was := old.Status.Schedule
	if schedule == nil || was == nil {
		return nil
	}
	next := *was
	if s := old.Spec.SnapshotSchedule; s == nil || s.Cron != schedule.Cron {
		next.Next, next.Skipped = time.Time{}, 0
	}
	next.Excess = true
	return &next
}

// putSecrets stores the sealed secrets, has the nodes that hold the volume hear
// of them, and answers their names.
func (c *ApplyVolume) putSecrets(tx *state.Tx) []string {
	old := tx.VolumeSecrets(c.Namespace, c.ID)
	if c.Secrets == nil {
		return nil
	}
	for h := range tx.Holders(c.Namespace, c.ID) {
		tx.Touch(h.NodeID)
	}
	if len(c.Secrets.Names) == 0 {
		if old != nil {
			tx.DeleteVolumeSecrets(old)
		}
		return nil
	}
	next := &api.VolumeSecrets{Namespace: c.Namespace, VolumeID: c.ID}
	if old != nil {
		copied := *old
		next = &copied
	}
	next.SealedSecrets = *c.Secrets
	tx.PutVolumeSecrets(next)
	hastenVolume(tx, c.Namespace, c.ID, "PERMISSION_DENIED", "UNAUTHENTICATED")
	return c.Secrets.Names
}

// forget removes a volume's row, and what is sealed for it.
func forget(tx *state.Tx, vol *api.Volume) {
	if secrets := tx.VolumeSecrets(vol.Namespace, vol.ID); secrets != nil {
		tx.DeleteVolumeSecrets(secrets)
	}
	forgetFindings(tx, vol)
	tx.DeleteVolume(vol)
}

// begin is the status of a volume that nobody has touched: one that is to be
// made, or one that is there already.
func begin(tx *state.Tx, s *api.VolumeSpec) api.VolumeStatus {
	if !s.Registered() {
		return api.VolumeStatus{State: api.VolumeCreating}
	}
	status := api.VolumeStatus{State: api.VolumeReady, ExternalID: s.ExternalID, Context: s.Context}
	status.Modification = wanted(tx, s.MutableParameters, nil)
	if s.TopologyRequest != nil {
		status.AccessibleTopology = s.TopologyRequest.Required
	}
	return status
}

// alone refuses to register what another volume is already: each would be
// written to as if it were the only one, and deleted with the other's data.
func (c *ApplyVolume) alone(tx *state.Tx) error {
	if !c.Spec.Registered() {
		return nil
	}
	for vol := range tx.VolumesByExternalID(c.Spec.PluginID, c.Spec.ExternalID) {
		return conflict("external_id %q of plugin %s is volume %s of namespace %s already; use that one, or delete it first",
			c.Spec.ExternalID, c.Spec.PluginID, vol.ID, vol.Namespace)
	}
	return nil
}

// fill puts what was found into what the spec leaves open.
func (c *ApplyVolume) fill(s *api.VolumeStatus) {
	if c.Found == nil || !c.Spec.Registered() {
		return
	}
	s.Capacity = c.Found.Capacity
	if len(s.Context) == 0 {
		s.Context = c.Found.Context
	}
	if len(s.AccessibleTopology) == 0 {
		s.AccessibleTopology = c.Found.AccessibleTopology
	}
}

// claim notes that a volume is not unknown any more.
func (c *ApplyVolume) claim(tx *state.Tx) {
	if c.Spec.Registered() {
		claim(tx, c.Spec.PluginID, c.Spec.ExternalID)
	}
}

// immutable names every field that differs and cannot be changed once the
// plugin has made the volume.
func immutable(p *api.Problems, old, changed *api.VolumeSpec) {
	keep(p, "plugin_id", old.PluginID, changed.PluginID)
	keep(p, "capability", old.Capabilities, changed.Capabilities)
	keep(p, "mount_options", old.MountOptions, changed.MountOptions)
	keep(p, "parameters", old.Parameters, changed.Parameters)
	keep(p, "topology_request", old.TopologyRequest, changed.TopologyRequest)
	keep(p, "external_id", old.ExternalID, changed.ExternalID)
	keep(p, "context", old.Context, changed.Context)
	keep(p, "snapshot_id", old.SnapshotID, changed.SnapshotID)
	keep(p, "clone_id", old.CloneID, changed.CloneID)
}

func keep[T any](p *api.Problems, path string, was, is T) {
	if !fit.Same(was, is) {
		p.Add(path, "cannot be changed once the volume is made", "put the old value back, or make a new volume")
	}
}

// DeleteVolume says that a volume is to go.
type DeleteVolume struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.VolumeID    `json:"id"`
	Version   uint64          `json:"version,omitempty"`
	// Reclaim is what becomes of the data; empty means what fits the volume.
	Reclaim api.Reclaim `json:"reclaim,omitempty"`
	// Trace is that of the request.
	Trace api.TraceContext `json:"trace,omitempty"`
}

// Kind implements Command.
func (*DeleteVolume) Kind() Kind { return "volume.delete" }

// Validate implements Command.
func (c *DeleteVolume) Validate() error {
	var p api.Problems
	if c.Reclaim != "" && !slices.Contains(api.Reclaims(), c.Reclaim) {
		p.Addf("reclaim", "use delete or retain", "is %q", c.Reclaim)
	}
	validateTrace(&p, c.Trace)
	return p.Err("the deletion")
}

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
	next := *old
	if c.Reclaim != "" {
		next.Reclaim = c.Reclaim
	}
	if old.Desired == api.Absent {
		if next.Retained() != old.Retained() {
			return conflict("volume %s is being deleted already, with reclaim %s", c.ID, reclaimed(old))
		}
		return nil
	}
	for h := range tx.Holders(c.Namespace, c.ID) {
		return api.Errorf(api.CodeInUse, "volume %s is held by allocation %s of job %s on node %s (%s)",
			c.ID, h.AllocID.Short(), h.JobID, h.NodeID, h.Status.State)
	}
	next.Desired = api.Absent
	next.Status.State, next.Status.Trace = api.VolumeDeleting, c.Trace
	tx.PutVolume(&next)
	// What has to be found before it can be deleted is looked for now.
	hastenVolume(tx, c.Namespace, c.ID, codeAlreadyExists)
	return nil
}

// reclaimed is what becomes of the volume's data, whoever chose it.
func reclaimed(vol *api.Volume) api.Reclaim {
	if vol.Retained() {
		return api.ReclaimRetain
	}
	return api.ReclaimDelete
}

// ForgetVolume removes the row of a volume that the plugin never made, or that
// it is to keep.
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
	if vol.Desired != api.Absent || vol.Status.ExternalID != "" && !vol.Retained() || vol.Status.Operation != "" {
		return conflict("volume %s is not one that was never made", c.ID)
	}
	for pub := range tx.VolumePublications(c.Namespace, c.ID) {
		return conflict("volume %s may still be attached to node %s", c.ID, pub.NodeID)
	}
	if s := BeingSnapshotted(tx.View, vol); s != nil {
		return conflict("snapshot %s of volume %s is being made", s.ID, c.ID)
	}
	forget(tx, vol)
	if vol.Status.ExternalID != "" && !vol.Spec.Registered() {
		retain(tx, vol)
	}
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

// checkAbsent answers a conflict if a write rests on there being nothing yet,
// and there is. What is being deleted is there until it is gone.
func checkAbsent(noun, id string, stored *api.Meta, ifAbsent bool) error {
	if !ifAbsent || stored == nil {
		return nil
	}
	return conflict("%s %s is there already, at version %d, and was to be created", noun, id, stored.Version)
}
