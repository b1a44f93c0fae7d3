package consensus

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync/atomic"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

var _ raft.BatchingFSM = (*fsm)(nil)

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
func (f *fsm) Apply(l *raft.Log) any { return f.apply(l, f.read(l)) }

// ApplyBatch applies entries one after the other, and answers for each its error
// or nil. They are read at once: a server that starts has thousands of them.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	entries := make([]read, len(logs))
	var reading errgroup.Group
	reading.SetLimit(runtime.GOMAXPROCS(0))
	for i, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		if len(logs) == 1 {
			entries[i] = f.read(l)
			continue
		}
		reading.Go(func() error {
			entries[i] = f.read(l)
			return nil
		})
	}
	_ = reading.Wait() // each has its own error
	answers := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogCommand { // the others are raft's own
			answers[i] = f.apply(l, entries[i])
		}
	}
	return answers
}

func (f *fsm) apply(l *raft.Log, r read) any {
	f.bytes.Add(int64(len(l.Data)))
	if r.err != nil {
		panic(fmt.Errorf("log entry %d cannot be read, and this server must not go on: %w", l.Index, r.err))
	}
	err := recovered(func() error { return r.entry.Apply(f.store, l.Index) })
	if err == nil {
		return nil
	}
	if !errors.Is(err, command.ErrVoid) {
		f.diverged.Add(1)
		f.log.Error("entry failed after it was planned", "index", l.Index, "error", err)
	}
	return err
}

// read is an entry, or why it cannot be read.
type read struct {
	entry *command.Entry
	err   error
}

// read reads an entry, unless it is one that this server has just made.
func (f *fsm) read(l *raft.Log) read {
	if entry := f.sent.find(l.Data); entry != nil {
		return read{entry: entry}
	}
	entry, err := f.codec.Decode(l.Data)
	return read{entry, err}
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
