package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Topic is the noun that an event is about.
type Topic string

// The topics.
const (
	TopicCluster     Topic = "cluster"
	TopicNode        Topic = "node"
	TopicInstance    Topic = "instance"
	TopicVolume      Topic = "volume"
	TopicPublication Topic = "publication"
	TopicAttachment  Topic = "attachment"
	TopicOperation   Topic = "operation"
	TopicJob         Topic = "job"
	TopicAllocation  Topic = "allocation"
	TopicSnapshot    Topic = "snapshot"
	TopicFinding     Topic = "finding"
	TopicRoom        Topic = "room"
	TopicVariable    Topic = "variable"
)

// Topics lists all topics.
func Topics() []Topic {
	return []Topic{
		TopicCluster, TopicNode, TopicInstance, TopicVolume, TopicPublication, TopicAttachment,
		TopicOperation, TopicJob, TopicAllocation, TopicSnapshot, TopicFinding, TopicRoom, TopicVariable,
	}
}

// EventKind is what happened to a row.
type EventKind string

// The kinds of events.
const (
	EventCreated EventKind = "created"
	EventChanged EventKind = "changed"
	EventDeleted EventKind = "deleted"
)

// Event says how one row is now. Events are levels, not edges: one that is read
// twice says the same.
type Event struct {
	Topic Topic     `json:"topic"`
	Kind  EventKind `json:"kind"`
	// Namespace is empty for nouns that have none.
	Namespace NamespaceID `json:"namespace,omitempty"`
	// Key is the row's id. What has several parts joins them with a slash: a
	// publication's volume/node, an attachment's allocation/name, an instance's
	// plugin/node and, if it runs as a task, /allocation, a room's plugin/id.
	Key string `json:"key"`
	// Row is the noun as the API lists it, null if it was deleted.
	Row json.RawMessage `json:"row"`
}

// EventFrame is a line of the stream: what one commit changed, or, without
// events, the word that nothing else has happened up to Index.
type EventFrame struct {
	// Index is where to resume: the stream has said all up to it.
	Index uint64 `json:"index"`
	// Generation is that of the cluster. Indexes of another one tell of another
	// past.
	Generation uint64 `json:"generation,omitempty"`
	// Time is when the commit was planned, zero without events.
	Time   time.Time `json:"time,omitzero"`
	Events []Event   `json:"events,omitempty"`
	// Error is why the stream ends here.
	Error *Error `json:"error,omitempty"`
}

// TopicFilter chooses events: all of a topic, or those of one key.
type TopicFilter struct {
	Topic Topic
	// Key is empty for all.
	Key string
}

// ParseTopic reads a filter as people write it: volume, or volume:pg. The
// problem says what is wrong with it, nil for nothing.
func ParseTopic(text string) (filter TopicFilter, problem *Field) {
	name, key, keyed := strings.Cut(text, ":")
	filter = TopicFilter{Topic: Topic(name), Key: key}
	switch {
	case !slices.Contains(Topics(), filter.Topic):
		var p Problems
		oneOf(&p, "topic", filter.Topic, Topics()...)
		return filter, &p.fields[0]
	case keyed && key == "":
		return filter, &Field{Path: "topic", Message: fmt.Sprintf("is %q, which names no id", text), Mend: "write " + name + " for all, or " + name + ":ID"}
	}
	return filter, nil
}

// String is the filter as ParseTopic reads it.
func (f TopicFilter) String() string {
	if f.Key == "" {
		return string(f.Topic)
	}
	return string(f.Topic) + ":" + f.Key
}

// Admits reports whether the filter chooses an event.
func (f TopicFilter) Admits(e *Event) bool {
	return f.Topic == e.Topic && (f.Key == "" || f.Key == e.Key)
}
