package consensus

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// Stores is where raft keeps what must survive.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	closer    io.Closer
}

// cachedEntries is how many recent entries are kept decoded for replication.
const cachedEntries = 512

// keptSnapshots is how many snapshots stay on disk: one that is torn must not
// be the only one.
const keptSnapshots = 2

// OpenStores opens, or makes, the files below dir.
func OpenStores(dir string, log *slog.Logger) (Stores, error) {
	entries := filepath.Join(dir, "wal")
	if err := os.MkdirAll(entries, 0o700); err != nil {
		return Stores{}, fmt.Errorf("make log directory: %w", err)
	}
	logger := newRaftLogger(log)
	w, err := wal.Open(entries, wal.WithLogger(logger))
	if err != nil {
		return Stores{}, fmt.Errorf("open log in %s: %w", entries, err)
	}
	cached, err := raft.NewLogCache(cachedEntries, w)
	if err != nil {
		return Stores{}, errors.Join(fmt.Errorf("open log cache: %w", err), w.Close())
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, logger)
	if err != nil {
		return Stores{}, errors.Join(fmt.Errorf("open snapshots in %s: %w", dir, err), w.Close())
	}
	return Stores{Log: cached, Stable: w, Snapshots: snapshots, closer: w}, nil
}

// MemoryStores keeps everything in memory, for simulations.
func MemoryStores() Stores {
	s := raft.NewInmemStore()
	return Stores{Log: s, Stable: s, Snapshots: raft.NewInmemSnapshotStore()}
}

// Close closes the files.
func (s Stores) Close() error {
	if s.closer == nil {
		return nil
	}
	if err := s.closer.Close(); err != nil {
		return fmt.Errorf("close log: %w", err)
	}
	return nil
}
