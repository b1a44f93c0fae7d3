package state

import (
	"iter"

	"github.com/berth-dev/berth/api"
)

func roomsTable() *table[api.Room] {
	return define[api.Room](tableRooms,
		unique(primary, func(b []byte, r *api.Room) []byte { return appendKey(b, string(r.PluginID), string(r.ID)) }),
	)
}

// Rooms has the key plugin and id.
func Rooms() Table[api.Room] { return tableOf[api.Room](roomsTable()) }

// Room is what a plugin said of a topology and parameters, or nil.
func (v View) Room(plugin api.PluginID, id api.RoomID) *api.Room {
	return first[api.Room](v, tableRooms, primary, key(string(plugin), string(id)))
}

// PluginRooms yields what a plugin said of its room, by id, or what all did if
// plugin is empty.
func (v View) PluginRooms(plugin api.PluginID) iter.Seq[*api.Room] {
	if plugin == "" {
		return rows[api.Room](v, tableRooms, primary, nil)
	}
	return rows[api.Room](v, tableRooms, primary, key(string(plugin)))
}

// RoomsIndex is when a room was last written.
func (v View) RoomsIndex() uint64 { return v.modified(tableRooms) }

// PutRoom stores a new room, or a changed copy.
func (tx *Tx) PutRoom(r *api.Room) { put(tx, tableRooms, r) }

// DeleteRoom removes a room that is there.
func (tx *Tx) DeleteRoom(r *api.Room) { remove(tx, tableRooms, r) }
