package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Room is what a plugin said how much it can still make, in one topology and of
// one set of parameters (CSI spec, GetCapacity). It is a hint: rounded up, and
// perhaps not true any more. Its writer is RecordRooms.
type Room struct {
	Meta
	PluginID PluginID `json:"plugin_id"`
	ID       RoomID   `json:"id"`
	RoomFact
	// Told is when the plugin last said it so.
	Told time.Time `json:"told"`
}

// RoomFact is what a plugin said of its room.
type RoomFact struct {
	Topology   Topology          `json:"topology"`
	Parameters map[string]string `json:"parameters,omitempty"`
	AvailableCapacity
}

// RoomID is made from the topology and the parameters.
type RoomID string

// NewRoomID is the id of the room in a topology for volumes with parameters.
// Keys of topologies compare without regard to case.
func NewRoomID(t Topology, parameters map[string]string) RoomID {
	var b strings.Builder
	segments := make([]string, 0, len(t))
	for k, v := range t {
		segments = append(segments, fmt.Sprintf("%q=%q", strings.ToLower(k), v))
	}
	slices.Sort(segments)
	b.WriteString(strings.Join(segments, ","))
	for _, k := range slices.Sorted(maps.Keys(parameters)) {
		fmt.Fprintf(&b, ";%q=%q", k, parameters[k])
	}
	sum := sha256.Sum256([]byte(b.String()))
	return RoomID(hex.EncodeToString(sum[:8]))
}
