package state

import (
	"encoding/binary"
	"iter"

	"github.com/berth-dev/berth/api"
)

const tableRevisions = "revisions"

// Revision is one spec that was applied for a job. Allocations name the
// revision that they run, so that a row of theirs stays narrow.
type Revision struct {
	JobUID   string      `json:"job_uid"`
	Revision uint64      `json:"revision"`
	Spec     api.JobSpec `json:"spec"`
}

func revisionsTable() definition {
	return define[Revision](tableRevisions, unique(primary, func(r *Revision) []byte { return revisionKey(r.JobUID, r.Revision) }))
}

func revisionKey(uid string, revision uint64) []byte {
	return binary.BigEndian.AppendUint64(key(uid), revision)
}

// Revision is one spec of a job, or nil.
func (v View) Revision(uid string, revision uint64) *Revision {
	return first[Revision](v, tableRevisions, primary, revisionKey(uid, revision))
}

// Revisions yields the specs of a job, oldest first.
func (v View) Revisions(uid string) iter.Seq[*Revision] {
	return rows[Revision](v, tableRevisions, primary, key(uid))
}

// PutRevision stores a spec.
func (tx *Tx) PutRevision(r *Revision) { insert(tx, tableRevisions, r) }

// DeleteRevision removes a spec that is there.
func (tx *Tx) DeleteRevision(r *Revision) { remove(tx, tableRevisions, r) }
