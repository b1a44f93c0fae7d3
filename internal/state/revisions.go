package state

import (
	"bytes"
	"encoding/binary"
	"iter"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
)

// Revision is one spec that was applied for a job. Allocations name the
// revision that they run, so that a row of theirs stays narrow.
type Revision struct {
	JobUID   string `json:"job_uid"`
	Revision uint64 `json:"revision"`
	// Applied is when; zero in states that did not note it yet.
	Applied time.Time   `json:"applied,omitzero"`
	Spec    api.JobSpec `json:"spec"`
}

func revisionsTable() *table[Revision] {
	return define[Revision](tableRevisions, unique(primary, func(b []byte, r *Revision) []byte {
		return binary.BigEndian.AppendUint64(appendKey(b, r.JobUID), r.Revision)
	}))
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

// NewestRevisions yields the specs of a job, newest first, by keys that go on
// from one.
func (v View) NewestRevisions(uid string, from Key) iter.Seq2[Key, *Revision] {
	all := slices.Collect(v.Revisions(uid))
	return func(yield func(Key, *Revision) bool) {
		for _, r := range slices.Backward(all) {
			k := Key(binary.BigEndian.AppendUint64(nil, ^r.Revision))
			if bytes.Compare(k, from) >= 0 && !yield(k, r) {
				return
			}
		}
	}
}

// PutRevision stores a spec.
func (tx *Tx) PutRevision(r *Revision) { insert(tx, tableRevisions, r) }

// DeleteRevision removes a spec that is there.
func (tx *Tx) DeleteRevision(r *Revision) { remove(tx, tableRevisions, r) }
