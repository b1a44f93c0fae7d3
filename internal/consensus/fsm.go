package consensus

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// fsm applies committed entries to the state. raft calls it from one goroutine.
type fsm struct {
	store *state.Store
	codec *command.Codec
	sent  *sentEntries
	log   *slog.Logger
	// bytes counts what was applied since the last snapshot.
	bytes atomic.Int64
	// saved is the size of the last snapshot that this server took.
	saved atomic.Int64
	// diverged counts entries that were planned without an error and failed
	// when applied. It is zero unless there is a fault in Berth.
	diverged atomic.Int64
}

// Apply applies one entry and answers its error, or nil. An entry that cannot
// be read stops the server: to go on would be to diverge from the others.
func (f *fsm) Apply(l *raft.Log) any {
	f.bytes.Add(int64(len(l.Data)))
	entry, err := f.read(l.Data)
	if err != nil {
		panic(fmt.Errorf("log entry %d cannot be read, and this server must not go on: %w", l.Index, err))
	}
	err = recovered(func() error { return entry.Apply(f.store, l.Index) })
	if err == nil {
		return nil
	}
	if !errors.Is(err, command.ErrVoid) {
		f.diverged.Add(1)
		f.log.Error("entry failed after it was planned", "index", l.Index, "error", err)
	}
	return err
}

// read reads an entry, unless it is one that this server has just made.
func (f *fsm) read(data []byte) (*command.Entry, error) {
	if entry := f.sent.find(data); entry != nil {
		return entry, nil
	}
	return f.codec.Decode(data)
}

// Snapshot keeps the current moment; raft calls Persist while new entries are
// applied.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	return &moment{fsm: f, view: f.store.View(), bytes: f.bytes.Load()}, nil
}

// Restore replaces the state by a saved one.
func (f *fsm) Restore(r io.ReadCloser) (err error) {
	defer func() { err = errors.Join(err, r.Close()) }()
	saved, err := state.Load(r)
	if err != nil {
		return err
	}
	f.store.Restore(saved)
	return nil
}

// moment is one consistent view that raft writes to its snapshot store.
type moment struct {
	fsm   *fsm
	view  state.View
	bytes int64 // of the fsm's, that the view holds
}

// Persist writes the view. The log that it holds counts no more, once it is
// written: a snapshot that failed is soon tried again.
func (m *moment) Persist(sink raft.SnapshotSink) error {
	size := &counter{w: sink}
	if err := m.view.Save(size); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	m.fsm.bytes.Add(-m.bytes)
	m.fsm.saved.Store(size.n)
	return nil
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// Release has nothing to release: a view is garbage when nobody holds it.
func (*moment) Release() {}

// recovered runs f and turns a panic into an error.
func recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{value: p, stack: stack()}
		}
	}()
	return f()
}
