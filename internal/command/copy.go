package command

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// CopyVolume makes a volume of a family like another one of it: with its spec
// and its secrets, and with no content. The intent is in the log before anybody
// creates; the rest is the provisioner's.
type CopyVolume struct {
	Namespace api.NamespaceID `json:"namespace"`
	ID        api.VolumeID    `json:"id"`
	From      api.VolumeID    `json:"from"`
	// Version is From's, as it was read.
	Version uint64 `json:"version"`
}

// Kind implements Command.
func (*CopyVolume) Kind() Kind { return "volume.copy" }

// Validate implements Command.
func (c *CopyVolume) Validate() error {
	var p api.Problems
	p.VolumeID("id", string(c.ID))
	p.VolumeID("from", string(c.From))
	family, _, ok := c.ID.Family()
	if of, _, member := c.From.Family(); !ok || !member || of != family {
		p.Addf("id", "name two volumes of one family", "is %q, and it is to be made like %q", c.ID, c.From)
	}
	return p.Err("the copy")
}

// Apply implements Command. What is sealed for one volume of a family can be
// opened for the others.
func (c *CopyVolume) Apply(tx *state.Tx) error {
	from := tx.Volume(c.Namespace, c.From)
	if from == nil || from.Version != c.Version || from.Desired == api.Absent || from.Spec.Registered() {
		return conflict("volume %s has changed", c.From)
	}
	if tx.Volume(c.Namespace, c.ID) != nil {
		return conflict("volume %s is there already", c.ID)
	}
	vol := &api.Volume{
		Namespace: c.Namespace, ID: c.ID, UID: newUID(tx, from.UID, c.ID),
		Desired: api.Present,
		Spec:    from.Spec,
		Status:  begin(tx, &from.Spec),
		Secrets: from.Secrets,
	}
	if sealed := tx.VolumeSecrets(c.Namespace, c.From); sealed != nil {
		next := &api.VolumeSecrets{Namespace: c.Namespace, VolumeID: c.ID, SealedSecrets: sealed.SealedSecrets}
		if old := tx.VolumeSecrets(c.Namespace, c.ID); old != nil {
			next.Meta = old.Meta
		}
		tx.PutVolumeSecrets(next)
	}
	tx.PutVolume(vol)
	return nil
}

// newUID is a new volume's UID. It begins as those of its cluster do, and is else made from that of
// whatever it is made for, which is random, from a number that is given once in a generation,
// and from the generation: servers that were put back to a backup count anew.
func newUID(tx *state.Tx, from string, id api.VolumeID) string {
	generation, cluster := uint64(0), ""
	if c := tx.Cluster(); c != nil {
		generation, cluster = c.Generation.Number, c.ID
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d/%d", from, id, generation, tx.NextCopy()))
	return fit.VolumeUID(cluster, hex.EncodeToString(sum[:16]))
}
