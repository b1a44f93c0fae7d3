package state

import (
	"iter"

	"github.com/berth-dev/berth/api"
)

const (
	findingsByPlugin = iota + 1
	findingsByVolume
)

func findingsTable() *table[api.Finding] {
	return define[api.Finding](tableFindings,
		unique(primary, func(b []byte, f *api.Finding) []byte { return appendKey(b, string(f.ID)) }),
		shared(findingsByPlugin, func(b []byte, f *api.Finding) []byte { return appendKey(b, string(f.PluginID), f.ExternalID) }),
		shared(findingsByVolume, func(b []byte, f *api.Finding) []byte {
			if f.VolumeID == "" || f.Kind.Unclaimed() {
				return nil
			}
			return appendKey(b, string(f.Namespace), string(f.VolumeID))
		}),
	)
}

// Findings has the key id.
func Findings() Table[api.Finding] { return tableOf[api.Finding](findingsTable()) }

// Finding is the finding of that id, or nil.
func (v View) Finding(id api.FindingID) *api.Finding {
	return first[api.Finding](v, tableFindings, primary, key(string(id)))
}

// PluginFindings yields what was found with a plugin.
func (v View) PluginFindings(plugin api.PluginID) iter.Seq[*api.Finding] {
	return rows[api.Finding](v, tableFindings, findingsByPlugin, key(string(plugin)))
}

// ExternalFindings yields what was found with a volume by the plugin's id of it.
func (v View) ExternalFindings(plugin api.PluginID, external string) iter.Seq[*api.Finding] {
	return func(yield func(*api.Finding) bool) {
		for f := range rows[api.Finding](v, tableFindings, findingsByPlugin, key(string(plugin), external)) {
			if f.PluginID == plugin && f.ExternalID == external && !yield(f) {
				return
			}
		}
	}
}

// VolumeFindings yields what was found with a volume that the cluster knows.
func (v View) VolumeFindings(ns api.NamespaceID, vol api.VolumeID) iter.Seq[*api.Finding] {
	return rows[api.Finding](v, tableFindings, findingsByVolume, key(string(ns), string(vol)))
}

// FindingsIndex is when a finding was last written.
func (v View) FindingsIndex() uint64 { return v.modified(tableFindings) }

// PutFinding stores a new finding, or a changed copy.
func (tx *Tx) PutFinding(f *api.Finding) { put(tx, tableFindings, f) }

// DeleteFinding removes a finding that is there.
func (tx *Tx) DeleteFinding(f *api.Finding) { remove(tx, tableFindings, f) }
