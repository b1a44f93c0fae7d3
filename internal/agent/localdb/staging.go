package localdb

import (
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/berth-dev/berth/api"
)

// Staging is one volume on this node: where it is staged, and who uses it
// there. It is stored before the first call, and forgotten after the last, so
// that a restarted agent still knows who uses a staging path.
type Staging struct {
	Namespace  api.NamespaceID `json:"namespace"`
	VolumeID   api.VolumeID    `json:"volume_id"`
	PluginID   api.PluginID    `json:"plugin_id"`
	ExternalID string          `json:"external_id"`
	// StagingPath is where the plugin stages it. Called: NodeStageVolume may
	// have been called, so NodeUnstageVolume must be. Staged: it answered OK,
	// in the boot BootID, and left a mount there if Mounted.
	StagingPath string `json:"staging_path"`
	Called      bool   `json:"called,omitempty"`
	Staged      bool   `json:"staged,omitempty"`
	Mounted     bool   `json:"mounted,omitempty"`
	BootID      string `json:"boot_id,omitempty"`
	// Capability is what NodeStageVolume was first called with: whoever repeats
	// the call repeats its arguments (CSI spec, Error Scheme).
	Capability api.Capability `json:"capability,omitzero"`
	// Group is the group that NodeStageVolume was called with; 0 if with none.
	Group int `json:"group,omitempty"`
	// Grown is the size in bytes to which what is on the volume was grown since it
	// was staged; 0 if it was not.
	Grown int64 `json:"grown,omitempty"`
	// Refusal is what the plugin said when what is on the volume was to grow while
	// it was in use; nil if it did not, or something was published or unpublished
	// since.
	Refusal *Refusal `json:"refusal,omitempty"`
	// Users are the attachments that are published, or may be.
	Users []User `json:"users"`
}

// Refusal is an answer FAILED_PRECONDITION to NodeExpandVolume. The call is not
// to be repeated while the volume is in use (CSI spec, NodeExpandVolume Errors).
type Refusal struct {
	Size    int64  `json:"size"` // that was asked for, in bytes
	Message string `json:"message"`
}

// User is one attachment's use of a volume.
type User struct {
	AllocID api.AllocID `json:"alloc_id"`
	Name    string      `json:"name"`
	// TargetPath is where the plugin publishes it. Published: NodePublishVolume
	// answered OK, in the boot of the staging, and left a mount there if Mounted.
	TargetPath string `json:"target_path"`
	Published  bool   `json:"published,omitempty"`
	Mounted    bool   `json:"mounted,omitempty"`
	// Group is the group that the volume is given to for it; 0 for none. Given:
	// it was, by the plugin or the agent, since it was published.
	Group int  `json:"group,omitempty"`
	Given bool `json:"given,omitempty"`
}

// Key names a volume on this node. A NUL can be in neither name, so that no
// two volumes share a key.
func (s *Staging) Key() string { return StagingKey(s.Namespace, s.VolumeID) }

// StagingKey names a volume on this node.
func StagingKey(ns api.NamespaceID, vol api.VolumeID) string {
	return string(ns) + "\x00" + string(vol)
}

// Staging reads one volume's staging, or nil.
func (db *DB) Staging(ns api.NamespaceID, vol api.VolumeID) (*Staging, error) {
	var s Staging
	found := false
	err := db.bolt.View(func(tx *bbolt.Tx) (err error) {
		found, err = get(tx, bucketStagings, StagingKey(ns, vol), &s)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read staging of volume %s: %w", vol, err)
	}
	if !found {
		return nil, nil
	}
	return &s, nil
}

// PutStaging stores a staging. One that begins is refused on a full disk with a
// *FullError.
func (db *DB) PutStaging(s *Staging) error {
	return db.transact("store staging of volume "+string(s.VolumeID),
		func(tx *bbolt.Tx) error { return put(tx, bucketStagings, s.Key(), s) },
		func(tx *bbolt.Tx) bool { return lacks(tx, bucketStagings, s.Key()) })
}

// DeleteStaging forgets a staging.
func (db *DB) DeleteStaging(ns api.NamespaceID, vol api.VolumeID) error {
	return db.write("forget staging of volume "+string(vol), func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketStagings)).Delete([]byte(StagingKey(ns, vol)))
	})
}

// Stagings reads all stagings.
func (db *DB) Stagings() ([]Staging, error) { return all[Staging](db, bucketStagings) }
