package consensus

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
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
	// The log does not close its database of segments, so it gets one that can
	// be closed, and with that be opened again.
	meta := &metadb.BoltMetaDB{}
	w, err := wal.Open(entries, wal.WithLogger(logger), wal.WithMetaStore(meta))
	if err != nil {
		return Stores{}, errors.Join(fmt.Errorf("open log in %s: %w", entries, err), meta.Close())
	}
	files := closers{w, meta}
	cached, err := raft.NewLogCache(cachedEntries, w)
	if err != nil {
		return Stores{}, errors.Join(fmt.Errorf("open log cache: %w", err), files.Close())
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, logger)
	if err != nil {
		return Stores{}, errors.Join(fmt.Errorf("open snapshots in %s: %w", dir, err), files.Close())
	}
	return Stores{Log: cached, Stable: w, Snapshots: snapshots, closer: files}, nil
}

// keyServerID is where the server's id is, beside its votes.
const keyServerID = "BerthServerID"

// ServerID is the id of the server that these stores belong to. It is made once,
// from a name for people and eight random hex digits. The machine may get
// another name, and the server with its log stays who it is; one that lost its
// log is another server, and cannot vote twice as this one.
func (s Stores) ServerID(name string) (string, error) {
	known, err := s.Stable.Get([]byte(keyServerID))
	if err != nil && err.Error() != "not found" { // raft knows this error by its text, too
		return "", fmt.Errorf("read the server's id: %w", err)
	}
	if len(known) > 0 {
		return string(known), nil
	}
	var suffix [4]byte
	_, _ = rand.Read(suffix[:]) // never fails
	id := name + "-" + hex.EncodeToString(suffix[:])
	if err := s.Stable.Set([]byte(keyServerID), []byte(id)); err != nil {
		return "", fmt.Errorf("write the server's id: %w", err)
	}
	return id, nil
}

// closers are closed in their order.
type closers []io.Closer

func (all closers) Close() (err error) {
	for _, c := range all {
		err = errors.Join(err, c.Close())
	}
	return err
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
