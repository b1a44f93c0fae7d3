package state

import (
	"time"
)

// Log is where the log stands.
type Log struct {
	// Last is the entry that was applied last.
	Last EntryID `json:"last"`
	// Clock is the highest command time.
	Clock time.Time `json:"clock"`
}

// EntryID names an entry of the log by the leadership that planned it and its
// number there. The next entry names the one that it was planned on.
type EntryID struct {
	// Leadership is a random number for each time that a server leads.
	Leadership string `json:"leadership,omitempty"`
	Sequence   uint64 `json:"sequence,omitempty"`
}

func logTable() *table[Log] {
	return define[Log](tableLog, unique(primary, func(b []byte, _ *Log) []byte { return appendKey(b, "") }))
}

// Log is where the log stands; the zero Log before the first entry.
func (v View) Log() Log {
	if l := first[Log](v, tableLog, primary, key("")); l != nil {
		return *l
	}
	return Log{}
}

// PutLog notes the entry that is applied.
func (tx *Tx) PutLog(l Log) { insert(tx, tableLog, &l) }
