package command

import (
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// RecordRooms puts down how much room a plugin has, and takes out what is not
// known any more. It rests on nothing: what was said last counts.
type RecordRooms struct {
	PluginID api.PluginID   `json:"plugin_id"`
	Put      []api.RoomFact `json:"put,omitempty"`
	Clear    []api.RoomID   `json:"clear,omitempty"`
}

// maxRooms bounds one command.
const maxRooms = 500

// Kind implements Command.
func (*RecordRooms) Kind() Kind { return "room.record" }

// Validate implements Command.
func (c *RecordRooms) Validate() error {
	var p api.Problems
	if c.PluginID == "" {
		p.Add("plugin_id", "is missing", "name the plugin")
	}
	for i := range c.Put {
		if r := &c.Put[i]; r.Available < 0 || r.Maximum < 0 || r.Minimum < 0 {
			p.Add("put", "has a negative number of bytes", "leave it out")
		}
	}
	if len(c.Put)+len(c.Clear) > maxRooms {
		p.Addf("put", "record them in several steps", "has more than %d rooms", maxRooms)
	}
	return p.Err("the rooms")
}

// Apply implements Command. What is the same is told anew; what is not there
// need not be cleared.
func (c *RecordRooms) Apply(tx *state.Tx) error {
	for _, id := range c.Clear {
		if r := tx.Room(c.PluginID, id); r != nil {
			tx.DeleteRoom(r)
		}
	}
	for i := range c.Put {
		next := &api.Room{PluginID: c.PluginID, ID: api.NewRoomID(c.Put[i].Topology, c.Put[i].Parameters)}
		if old := tx.Room(next.PluginID, next.ID); old != nil {
			if old.Told.Equal(tx.Now()) && fit.Same(old.RoomFact, c.Put[i]) {
				continue
			}
			copied := *old
			next = &copied
		}
		next.RoomFact, next.Told = c.Put[i], tx.Now()
		tx.PutRoom(next)
	}
	return nil
}
