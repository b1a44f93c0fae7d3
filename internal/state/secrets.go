package state

import "github.com/berth-dev/berth/api"

func secretsTable() *table[api.VolumeSecrets] {
	return define[api.VolumeSecrets](tableSecrets,
		unique(primary, func(b []byte, s *api.VolumeSecrets) []byte {
			return appendKey(b, string(s.Namespace), string(s.VolumeID))
		}))
}

// VolumeSecrets are the sealed secrets of a volume, or nil if it has none.
func (v View) VolumeSecrets(ns api.NamespaceID, vol api.VolumeID) *api.VolumeSecrets {
	return first[api.VolumeSecrets](v, tableSecrets, primary, key(string(ns), string(vol)))
}

// AnySecrets reports whether anything is sealed.
func (v View) AnySecrets() bool {
	return peek[api.VolumeSecrets](v, tableSecrets, primary, nil) != nil || peek[VariableContent](v, tableContents, primary, nil) != nil
}

// PutVolumeSecrets stores sealed secrets, or others in their place.
func (tx *Tx) PutVolumeSecrets(s *api.VolumeSecrets) { put(tx, tableSecrets, s) }

// DeleteVolumeSecrets removes secrets that are there.
func (tx *Tx) DeleteVolumeSecrets(s *api.VolumeSecrets) { remove(tx, tableSecrets, s) }
