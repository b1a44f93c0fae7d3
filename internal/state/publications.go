package state

import (
	"iter"

	"github.com/berth-dev/berth/api"
)

const (
	publicationsByNode = iota + 1
	publicationsGrowing
	publicationsLeft
)

func publicationsTable() *table[api.Publication] {
	return define[api.Publication](tablePublications,
		unique(primary, func(b []byte, p *api.Publication) []byte {
			return appendKey(b, string(p.Namespace), string(p.VolumeID), string(p.NodeID))
		}),
		unique(publicationsLeft, func(b []byte, p *api.Publication) []byte {
			if !p.Status.Left {
				return nil
			}
			return appendKey(b, string(p.Namespace), string(p.VolumeID), string(p.NodeID))
		}),
		shared(publicationsByNode, func(b []byte, p *api.Publication) []byte { return appendKey(b, string(p.NodeID), string(p.PluginID)) }),
		unique(publicationsGrowing, func(b []byte, p *api.Publication) []byte {
			if p.Status.NodeExpansion == 0 || p.Status.NodeExpansionRefused != "" {
				return nil
			}
			return appendKey(b, string(p.Namespace), string(p.VolumeID), string(p.NodeID))
		}),
	)
}

// Publication is the presence of a volume on a node, or nil.
func (v View) Publication(ns api.NamespaceID, vol api.VolumeID, node api.NodeID) *api.Publication {
	return first[api.Publication](v, tablePublications, primary, key(string(ns), string(vol), string(node)))
}

// VolumePublications yields the publications of a volume by node.
func (v View) VolumePublications(ns api.NamespaceID, vol api.VolumeID) iter.Seq[*api.Publication] {
	return rows[api.Publication](v, tablePublications, primary, key(string(ns), string(vol)))
}

// NodePublications yields the publications of a plugin's volumes on a node, or
// all there if plugin is empty.
func (v View) NodePublications(node api.NodeID, plugin api.PluginID) iter.Seq[*api.Publication] {
	if plugin == "" {
		return rows[api.Publication](v, tablePublications, publicationsByNode, key(string(node)))
	}
	return rows[api.Publication](v, tablePublications, publicationsByNode, key(string(node), string(plugin)))
}

// GrowingPublications yields the publications whose nodes are to grow what is
// on their volumes.
func (v View) GrowingPublications() iter.Seq[*api.Publication] {
	return rows[api.Publication](v, tablePublications, publicationsGrowing, nil)
}

// LeftPublications yields the publications that a recovery found, and that are
// to be detached.
func (v View) LeftPublications() iter.Seq[*api.Publication] {
	return rows[api.Publication](v, tablePublications, publicationsLeft, nil)
}

// PublicationsIndex is when a publication was last written.
func (v View) PublicationsIndex() uint64 { return v.modified(tablePublications) }

// PutPublication stores a new publication, or a changed copy.
func (tx *Tx) PutPublication(p *api.Publication) { put(tx, tablePublications, p) }

// DeletePublication removes a publication that is there.
func (tx *Tx) DeletePublication(p *api.Publication) { remove(tx, tablePublications, p) }
