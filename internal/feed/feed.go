// Package feed keeps the last commits for those who follow them. It lives in
// each server's memory, outside the replicated state, and what it tells was
// committed: the same commits, at the same indexes, on every server.
//
// It never waits for anybody who follows, and never leaves out anything
// silently: who asks for what is no longer kept is told so. Invariant: of each
// table, either every change after an index is kept, or the horizon of the table
// is behind that index.
package feed

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// How much is kept: so many rows at most, of log entries of so many bytes.
const (
	maxRows  = 16 << 10
	maxBytes = 32 << 20
)

// Feed follows the state as its Observer. It is safe for concurrent use.
type Feed struct {
	topics []topic

	mu     sync.Mutex // guards all below
	frames []*Frame   // oldest first
	rows   int
	bytes  int
	// head is the last commit, also of rows that nobody is told of.
	head uint64
	// horizon is, for each table, the last change that is not kept.
	horizon map[string]uint64
	// changed is closed when there is a new frame; nil if nobody waits.
	changed chan struct{}
}

// New returns a feed in which nothing has happened.
func New() *Feed { return &Feed{topics: topics(), horizon: map[string]uint64{}} }

// Committed implements state.Observer.
func (f *Feed) Committed(c state.Commit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.head = c.Index
	if len(c.Changes) == 0 {
		return
	}
	f.frames = append(f.frames, newFrame(c))
	f.rows += len(c.Changes)
	f.bytes += c.Bytes
	for len(f.frames) > 1 && (f.rows > maxRows || f.bytes > maxBytes) {
		f.forget()
	}
	f.wake()
}

// forget gives up the oldest frame.
func (f *Feed) forget() {
	old := f.frames[0]
	f.frames[0] = nil
	f.frames = f.frames[1:]
	f.rows -= len(old.commit.Changes)
	f.bytes -= old.commit.Bytes
	for i := range old.commit.Changes {
		f.horizon[old.commit.Changes[i].Table] = old.Index
	}
}

// Replaced implements state.Observer. Of what came before nothing is known but
// when each table last changed.
func (f *Feed) Replaced(v state.View) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frames, f.rows, f.bytes, f.head = nil, 0, 0, v.Index()
	for _, t := range f.topics {
		f.horizon[t.table] = v.Modified(t.table)
	}
	f.wake()
}

func (f *Feed) wake() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// Head is the index of the last commit.
func (f *Feed) Head() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head
}

// batch is how many frames are handed out at once.
const batch = 256

// Next answers the frames after an index, oldest first, and up to where they
// tell everything. If there are none it waits for one until ctx ends. The error
// is CodeGone if a change of one of the topics after the index is not kept, or
// the index lies ahead. No topics are all.
func (f *Feed) Next(ctx context.Context, after uint64, of []api.Topic) (frames []*Frame, upTo uint64, err error) {
	for {
		frames, upTo, changed, err := f.look(after, of)
		if err != nil || len(frames) > 0 {
			return frames, upTo, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, upTo, nil
		}
	}
}

func (f *Feed) look(after uint64, of []api.Topic) (frames []*Frame, upTo uint64, changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if oldest := f.oldest(of); after < oldest || after > f.head {
		return nil, 0, nil, gone(after, oldest, f.head)
	}
	first := sort.Search(len(f.frames), func(i int) bool { return f.frames[i].Index > after })
	if rest := f.frames[first:]; len(rest) > 0 {
		frames = slices.Clone(rest[:min(len(rest), batch)])
		upTo = frames[len(frames)-1].Index
		return frames, upTo, nil, nil
	}
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return nil, f.head, f.changed, nil
}

// oldest is the least index after which everything is kept.
func (f *Feed) oldest(of []api.Topic) (index uint64) {
	for _, t := range f.topics {
		if len(of) == 0 || slices.Contains(of, t.topic) {
			index = max(index, f.horizon[t.table])
		}
	}
	return index
}

// gone says what there is instead of what was asked for.
func gone(after, oldest, head uint64) error {
	e := api.Errorf(api.CodeGone, "the events after index %d are no longer kept: read what there is, and follow from now on", after)
	if after > head {
		e.Message = fmt.Sprintf("the state has not come to index %d: it is another one, or an older copy; read what there is, and follow from now on", after)
	}
	e.Fields = []api.Field{{Path: "index", Message: fmt.Sprintf("is %d", after), Mend: fmt.Sprintf("use %d to %d, or leave it out", oldest, head)}}
	return e
}
