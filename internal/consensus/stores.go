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
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
)

// Stores is where raft keeps what must survive.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	// Free is how many bytes are free for them, for whom opens them to set;
	// nil means without a limit.
	Free func() (uint64, error)
	// Failed has the error of a write to the log, once there was one: what the
	// file then holds is known only when it is read again. nil never has one.
	Failed <-chan error
	closer io.Closer
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
	snapshots, err := openSnapshots(dir, logger)
	if err != nil {
		return Stores{}, errors.Join(err, files.Close())
	}
	failed := make(chan error, 1)
	return Stores{
		Log: &watchedLog{cached, failed}, Stable: w, Snapshots: snapshots,
		Failed: failed, closer: files,
	}, nil
}

// watchedLog is a log whose first failed write is told: the log remembers more
// than it has written then, and refuses everything until it is opened again.
type watchedLog struct {
	*raft.LogCache
	failed chan<- error
}

// StoreLog implements raft.LogStore.
func (l *watchedLog) StoreLog(one *raft.Log) error { return l.StoreLogs([]*raft.Log{one}) }

// StoreLogs implements raft.LogStore.
func (l *watchedLog) StoreLogs(logs []*raft.Log) error {
	err := l.LogCache.StoreLogs(logs)
	if err != nil {
		select {
		case l.failed <- err:
		default: // the first is told already
		}
	}
	return err
}

// snapshotStore is raft's own, which leaves the directory of a snapshot behind
// that could not be begun, or whose server was killed: on a full disk, one every
// few seconds.
type snapshotStore struct {
	raft.SnapshotStore
	dir       string
	beginning sync.Mutex // held while one is begun
}

// openSnapshots opens the snapshots below dir. What is unfinished is removed:
// nobody goes on with it.
func openSnapshots(dir string, logger hclog.Logger) (*snapshotStore, error) {
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, logger)
	if err != nil {
		return nil, fmt.Errorf("open snapshots in %s: %w", dir, err)
	}
	s := &snapshotStore{SnapshotStore: files, dir: filepath.Join(dir, "snapshots")}
	unfinished, err := s.unfinished()
	if err != nil {
		return nil, err
	}
	for _, one := range unfinished {
		if err := os.RemoveAll(one); err != nil {
			return nil, fmt.Errorf("remove an unfinished snapshot: %w", err)
		}
	}
	return s, nil
}

// unfinished are the directories of snapshots that are being written, or were.
func (s *snapshotStore) unfinished() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list unfinished snapshots: %w", err)
	}
	var unfinished []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			unfinished = append(unfinished, filepath.Join(s.dir, e.Name()))
		}
	}
	return unfinished, nil
}

// Create implements raft.SnapshotStore. One that fails leaves nothing.
func (s *snapshotStore) Create( //nolint:revive // raft's own arguments
	version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, trans raft.Transport,
) (raft.SnapshotSink, error) {
	s.beginning.Lock()
	defer s.beginning.Unlock()
	before, err := s.unfinished()
	if err != nil {
		return nil, err
	}
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	if err == nil {
		return sink, nil
	}
	after, left := s.unfinished()
	for _, one := range after {
		if !slices.Contains(before, one) {
			left = errors.Join(left, os.RemoveAll(one))
		}
	}
	return nil, errors.Join(err, left)
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
