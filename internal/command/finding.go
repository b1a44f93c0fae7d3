package command

import (
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// RecordFindings puts down what differs between a plugin and the state, and
// clears what differs no more.
type RecordFindings struct {
	Put   []PutFinding   `json:"put,omitempty"`
	Clear []ClearFinding `json:"clear,omitempty"`
}

// PutFinding is a finding that is new, or has changed since Version.
type PutFinding struct {
	Version uint64          `json:"version,omitempty"`
	Found   api.Observation `json:"found"`
}

// ClearFinding is a finding of that version that is gone.
type ClearFinding struct {
	ID      api.FindingID `json:"id"`
	Version uint64        `json:"version"`
}

// maxFindings bounds one command.
const maxFindings = 500

// Kind implements Command.
func (*RecordFindings) Kind() Kind { return "finding.record" }

// Validate implements Command.
func (c *RecordFindings) Validate() error {
	var p api.Problems
	for i := range c.Put {
		o := &c.Put[i].Found
		if !slices.Contains(api.FindingKinds(), o.Kind) || o.PluginID == "" || o.ExternalID == "" {
			p.Addf("put", "name the kind, the plugin and the plugin's id of the volume", "has a finding of %q that names no volume of a plugin", o.Kind)
		}
	}
	if len(c.Put)+len(c.Clear) > maxFindings {
		p.Addf("put", "record them in several steps", "has more than %d findings", maxFindings)
	}
	return p.Err("the findings")
}

// Apply implements Command. What was found rests on what was known: a finding
// about a volume that has come, gone or changed its name meanwhile is refused.
func (c *RecordFindings) Apply(tx *state.Tx) error {
	seen := map[api.FindingID]bool{}
	for i := range c.Put {
		p := &c.Put[i]
		if err := p.check(tx); err != nil {
			return err
		}
		if seen[p.Found.ID()] {
			return conflict("finding %s is there twice", p.Found.ID())
		}
		seen[p.Found.ID()] = true
	}
	for _, gone := range c.Clear {
		if f := tx.Finding(gone.ID); f == nil || f.Version != gone.Version || seen[gone.ID] {
			return conflict("finding %s has changed", gone.ID)
		}
		seen[gone.ID] = true
	}
	for i := range c.Put {
		next := &api.Finding{ID: c.Put[i].Found.ID()}
		if old := tx.Finding(next.ID); old != nil {
			if fit.Same(old.Observation, c.Put[i].Found) {
				continue
			}
			copied := *old
			next = &copied
		}
		next.Observation = c.Put[i].Found
		tx.PutFinding(next)
	}
	for _, gone := range c.Clear {
		tx.DeleteFinding(tx.Finding(gone.ID))
	}
	return nil
}

func (p *PutFinding) check(tx *state.Tx) error {
	o := &p.Found
	var version uint64
	if old := tx.Finding(o.ID()); old != nil {
		version = old.Version
	}
	if version != p.Version {
		return conflict("finding %s has changed", o.ID())
	}
	var known *api.Volume
	for vol := range tx.VolumesByExternalID(o.PluginID, o.ExternalID) {
		known = vol
	}
	switch {
	case o.Kind.Unclaimed() && known != nil:
		return conflict("external_id %q of plugin %s is volume %s of namespace %s", o.ExternalID, o.PluginID, known.ID, known.Namespace)
	case !o.Kind.Unclaimed() && (known == nil || known.Namespace != o.Namespace || known.ID != o.VolumeID):
		return conflict("external_id %q of plugin %s is not volume %s of namespace %s any more", o.ExternalID, o.PluginID, o.VolumeID, o.Namespace)
	}
	return nil
}

// retain notes that a volume that the cluster made stays with its plugin, and
// is known no more.
func retain(tx *state.Tx, vol *api.Volume) {
	o := api.Observation{
		Kind: api.FindingRetained, PluginID: vol.Spec.PluginID, ExternalID: vol.Status.ExternalID, Namespace: vol.Namespace, VolumeID: vol.ID,
		Capacity: vol.Status.Capacity, Message: "it was volume " + string(vol.ID) + " of namespace " + string(vol.Namespace) + ", and was left to the plugin when that was deleted",
		Since: tx.Now(),
	}
	next := &api.Finding{ID: o.ID()}
	if old := tx.Finding(next.ID); old != nil {
		copied := *old
		next = &copied
	}
	next.Observation = o
	tx.PutFinding(next)
}

// forgetFindings removes what was found with a volume.
func forgetFindings(tx *state.Tx, vol *api.Volume) {
	for f := range tx.VolumeFindings(vol.Namespace, vol.ID) {
		tx.DeleteFinding(f)
	}
}

// claim removes what was found with a volume that nobody knew, and that is known
// from now on.
func claim(tx *state.Tx, plugin api.PluginID, external string) {
	for f := range tx.ExternalFindings(plugin, external) {
		if f.Kind.Unclaimed() {
			tx.DeleteFinding(f)
		}
	}
}
