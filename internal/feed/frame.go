package feed

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/state"
)

// Frame is what one commit changed.
type Frame struct {
	Index  uint64
	Time   time.Time
	commit state.Commit
	once   sync.Once
	events []api.Event
}

func newFrame(c state.Commit) *Frame {
	// What was removed is told of by its name only, and is not kept.
	for i := range c.Changes {
		if change := &c.Changes[i]; change.Removed {
			change.Row = removed{label: labelOf(change.Row)}
		}
	}
	return &Frame{Index: c.Index, Time: c.Time, commit: c}
}

// removed stands for a row that was removed.
type removed struct {
	state.Noun
	label label
}

// label is what a row is known by; the zero label if nobody is told of it.
type label struct {
	topic     api.Topic
	namespace api.NamespaceID
	key       string
}

// Rows yields the rows that were written and are still there, in the order of
// the changes. They are shared: nobody may change them.
func (f *Frame) Rows() iter.Seq[state.Noun] {
	return func(yield func(state.Noun) bool) {
		for i := range f.commit.Changes {
			if c := &f.commit.Changes[i]; !c.Removed && !yield(c.Row) {
				return
			}
		}
	}
}

// Events are the changes of the frame, those of each row as one. They are made
// when the first who follows asks for them.
func (f *Frame) Events() []api.Event {
	f.once.Do(func() {
		at := map[label]int{}
		for i := range f.commit.Changes {
			change := &f.commit.Changes[i]
			l := labelOf(change.Row)
			if l == (label{}) {
				continue
			}
			if _, seen := at[l]; !seen {
				at[l] = len(f.events)
				f.events = append(f.events, api.Event{Topic: l.topic, Namespace: l.namespace, Key: l.key, Kind: f.first(change)})
			}
			f.then(&f.events[at[l]], change)
		}
		kept := f.events[:0]
		for _, e := range f.events {
			if e.Kind != "" {
				kept = append(kept, e)
			}
		}
		f.events = kept
	})
	return f.events
}

// first is created if the row was not there before the commit, else changed.
func (f *Frame) first(c *state.Change) api.EventKind {
	if !c.Removed && c.Row.GetMeta().CreateIndex == f.Index {
		return api.EventCreated
	}
	return api.EventChanged
}

// then brings the event of a row on to its next change. One that came and went
// within the commit was never there, which is no kind.
func (f *Frame) then(e *api.Event, c *state.Change) {
	existed := e.Kind == api.EventChanged || e.Kind == api.EventDeleted
	if c.Removed {
		e.Row, e.Kind = nil, ""
		if existed {
			e.Kind = api.EventDeleted
		}
		return
	}
	row, err := json.Marshal(c.Row)
	if err != nil {
		panic(fmt.Errorf("encode %s %s: %w", e.Topic, e.Key, err)) // it was in the log as JSON
	}
	e.Row, e.Kind = row, api.EventCreated
	if existed {
		e.Kind = api.EventChanged
	}
}

// topic says which table events are about.
type topic struct {
	topic api.Topic
	table string
}

func topics() []topic {
	return []topic{
		{api.TopicCluster, "cluster"},
		{api.TopicNode, state.Nodes().Name()},
		{api.TopicInstance, state.Instances().Name()},
		{api.TopicVolume, state.Volumes().Name()},
		{api.TopicPublication, state.Publications().Name()},
		{api.TopicAttachment, state.Attachments().Name()},
		{api.TopicOperation, state.Operations().Name()},
		{api.TopicJob, state.Jobs().Name()},
		{api.TopicAllocation, state.Allocations().Name()},
		{api.TopicSnapshot, state.Snapshots().Name()},
		{api.TopicFinding, state.Findings().Name()},
		{api.TopicRoom, state.Rooms().Name()},
		{api.TopicVariable, state.Variables().Name()},
	}
}

// labelOf says what a row is known by.
func labelOf(row state.Noun) label {
	switch r := row.(type) {
	case removed:
		return r.label
	case *api.Cluster:
		return label{topic: api.TopicCluster, key: r.ID}
	case *api.Node:
		return label{topic: api.TopicNode, key: string(r.ID)}
	case *api.Instance:
		return label{topic: api.TopicInstance, key: strings.TrimSuffix(fmt.Sprintf("%s/%s/%s", r.PluginID, r.NodeID, r.AllocID), "/")}
	case *api.Volume:
		return label{api.TopicVolume, r.Namespace, string(r.ID)}
	case *api.Publication:
		return label{api.TopicPublication, r.Namespace, fmt.Sprintf("%s/%s", r.VolumeID, r.NodeID)}
	case *api.Attachment:
		return label{api.TopicAttachment, r.Namespace, fmt.Sprintf("%s/%s", r.AllocID, r.Name)}
	case *api.Operation:
		return label{api.TopicOperation, r.Namespace, string(r.ID)}
	case *api.Job:
		return label{api.TopicJob, r.Namespace, string(r.ID)}
	case *api.Allocation:
		return label{api.TopicAllocation, r.Namespace, string(r.ID)}
	case *api.Snapshot:
		return label{api.TopicSnapshot, r.Namespace, string(r.ID)}
	case *api.Finding:
		return label{api.TopicFinding, r.Namespace, string(r.ID)}
	case *api.Room:
		return label{topic: api.TopicRoom, key: string(r.PluginID) + "/" + string(r.ID)}
	case *api.Variable:
		return label{api.TopicVariable, r.Namespace, string(r.Path)}
	}
	return label{} // a test names it
}
