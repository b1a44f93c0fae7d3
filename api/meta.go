package api

import "time"

// Meta is what every row of the state carries. Its only writer is the state.
type Meta struct {
	// Version counts the writes of this object, from 1. A conditional write
	// carries the version that it read. Proposed but uncommitted writes count
	// too, so the leader can predict it.
	Version uint64 `json:"version"`
	// CreateIndex and ModifyIndex are log indexes. They serve polling only:
	// no decision rests on them.
	CreateIndex uint64 `json:"create_index"`
	ModifyIndex uint64 `json:"modify_index"`
	// CreateTime and ModifyTime are command time, which never runs backwards.
	CreateTime time.Time `json:"create_time,omitzero"`
	ModifyTime time.Time `json:"modify_time,omitzero"`
}

// GetMeta lets the state stamp any noun without knowing it.
func (m *Meta) GetMeta() *Meta { return m }

// Wait says what something waits for. It is computed from the state by the
// controller that would act, not stored, so it is never out of date.
type Wait struct {
	// Subject is the object that waits, as kind and id: volume default/pg.
	Subject string `json:"subject"`
	// Reason is a sentence for a person.
	Reason string    `json:"reason"`
	Since  time.Time `json:"since,omitzero"`
	// Next is when it is tried again without any other event; zero if only an
	// event can help.
	Next time.Time `json:"next,omitzero"`
}

// Topology is one set of segments: where a node is, or where a volume can be
// reached. Keys compare without regard to case (CSI spec, Topology).
type Topology map[string]string
