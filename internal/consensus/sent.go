package consensus

import (
	"bytes"
	"slices"
	"sync"

	"github.com/berth-dev/berth/internal/command"
)

// sentEntries are the entries that this server has handed to raft, as they were
// read when they were planned: to read each of them again when it is committed
// would be half of the work on it. There are at most maxInFlight. It is safe
// for concurrent use.
type sentEntries struct {
	mu      sync.Mutex // guards entries
	entries []sentEntry
}

type sentEntry struct {
	data  []byte
	entry *command.Entry
}

func (s *sentEntries) add(data []byte, entry *command.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, sentEntry{data, entry})
}

// find is the entry with exactly these bytes, or nil.
func (s *sentEntries) find(data []byte) *command.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if bytes.Equal(e.data, data) {
			return e.entry
		}
	}
	return nil
}

func (s *sentEntries) remove(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = slices.DeleteFunc(s.entries, func(e sentEntry) bool { return &e.data[0] == &data[0] })
}
