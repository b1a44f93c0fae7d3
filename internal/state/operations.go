package state

import (
	"iter"
	"time"

	"github.com/berth-dev/berth/api"
)

const (
	operationsOpen = iota + 1
	operationsWaiting
	operationsExecutor
	operationsCalls
	operationsVolumes
	operationsNoRoom
	operationsEnded
	operationsVolume
)

func operationsTable() *table[api.Operation] {
	return define[api.Operation](tableOperations,
		unique(primary, func(b []byte, o *api.Operation) []byte { return appendKey(b, string(o.ID)) }),
		unique(operationsOpen, func(b []byte, o *api.Operation) []byte {
			if !o.Open() {
				return nil
			}
			return appendKey(b, o.Name)
		}),
		unique(operationsWaiting, func(b []byte, o *api.Operation) []byte {
			if o.Status.State != api.OperationWaiting {
				return nil
			}
			if !o.Status.Next.IsZero() {
				return appendKey(b, string(o.PluginID), waitsForTime, timePart(o.Status.Next), string(o.ID))
			}
			return appendKey(b, string(o.PluginID), waitsForTurn, timePart(o.Place()), string(o.ID))
		}),
		unique(operationsVolumes, func(b []byte, o *api.Operation) []byte {
			if !o.Open() {
				return nil
			}
			return appendKey(b, string(o.Namespace), string(o.VolumeID), timePart(o.Place()), string(o.ID))
		}),
		unique(operationsNoRoom, func(b []byte, o *api.Operation) []byte {
			open := o.Status.State == api.OperationWaiting && (o.Kind == api.OperationCreate || o.Kind == api.OperationPublish)
			given := o.Status.State == api.OperationCancelled && (o.Kind == api.OperationCreate || o.Kind == api.OperationPublish)
			if o.Status.Code != "RESOURCE_EXHAUSTED" || !open && !given {
				return nil
			}
			order := number(0)
			if given {
				order = number(1) // behind those that wait
			}
			return appendKey(b, string(o.PluginID), string(o.NodeID), order, string(o.ID))
		}),
		unique(operationsCalls, func(b []byte, o *api.Operation) []byte {
			if o.Status.State != api.OperationAssigned {
				return nil
			}
			return appendKey(b, string(o.PluginID), string(o.ID))
		}),
		shared(operationsExecutor, func(b []byte, o *api.Operation) []byte {
			if o.Status.State != api.OperationAssigned {
				return nil
			}
			return appendKey(b, string(o.Status.Executor))
		}),
		shared(operationsEnded, func(b []byte, o *api.Operation) []byte {
			if o.Open() {
				return nil
			}
			return appendKey(b, timePart(o.ModifyTime))
		}),
		shared(operationsVolume, func(b []byte, o *api.Operation) []byte { return appendKey(b, string(o.Namespace), string(o.VolumeID)) }),
	)
}

// Operation is the operation of that id, or nil.
func (v View) Operation(id api.OperationID) *api.Operation {
	return first[api.Operation](v, tableOperations, primary, key(string(id)))
}

// OpenOperation is the open operation of that name, or nil.
func (v View) OpenOperation(name string) *api.Operation {
	return first[api.Operation](v, tableOperations, operationsOpen, key(name))
}

// Operations yields all operations by id.
func (v View) Operations() iter.Seq[*api.Operation] {
	return rows[api.Operation](v, tableOperations, primary, nil)
}

// VolumeOperations yields the operations on a volume, open and ended.
func (v View) VolumeOperations(ns api.NamespaceID, vol api.VolumeID) iter.Seq[*api.Operation] {
	return rows[api.Operation](v, tableOperations, operationsVolume, key(string(ns), string(vol)))
}

// The two queues of a plugin.
const (
	waitsForTurn = "0" // not tried yet, by their places
	waitsForTime = "1" // to be tried again, by when
)

// WaitingOperations yields the operations that no agent has, by plugin.
func (v View) WaitingOperations() iter.Seq[*api.Operation] {
	return rows[api.Operation](v, tableOperations, operationsWaiting, nil)
}

// WaitingPlugins yields the plugins that operations wait for a call of. Its
// cost is that of the plugins, not of the operations.
func (v View) WaitingPlugins() iter.Seq[api.PluginID] {
	return func(yield func(api.PluginID) bool) {
		row := peek[api.Operation](v, tableOperations, operationsWaiting, nil)
		for row != nil {
			if !yield(row.PluginID) {
				return
			}
			// No part of a key holds the byte that ends it.
			row = from[api.Operation](v, tableOperations, operationsWaiting, append([]byte(row.PluginID), 1))
		}
	}
}

// Queue yields the operations that a plugin's next calls are for: those that
// were not tried yet by their places, and those whose time to be tried again
// has come by that time, as one queue.
func (v View) Queue(plugin api.PluginID, now time.Time) iter.Seq[*api.Operation] {
	return func(yield func(*api.Operation) bool) {
		untried := pull[api.Operation](v, tableOperations, operationsWaiting, key(string(plugin), waitsForTurn))
		tried := pull[api.Operation](v, tableOperations, operationsWaiting, key(string(plugin), waitsForTime))
		a, b := untried(), tried()
		for {
			if b != nil && b.Status.Next.After(now) {
				b = nil
			}
			switch {
			case a == nil && b == nil:
				return
			case b == nil || a != nil && !a.Place().After(b.Status.Next):
				if !yield(a) {
					return
				}
				a = untried()
			default:
				if !yield(b) {
					return
				}
				b = tried()
			}
		}
	}
}

// NextTry is when the next operation of a plugin is to be tried again after
// now, zero if none is. It notes nothing: Queue does.
func (v View) NextTry(plugin api.PluginID, now time.Time) time.Time {
	k := key(string(plugin), waitsForTime, timePart(now))
	k[len(k)-1]++ // behind all of this very moment
	if op := from[api.Operation](v, tableOperations, operationsWaiting, k); op != nil && op.PluginID == plugin && !op.Status.Next.IsZero() {
		return op.Status.Next
	}
	return time.Time{}
}

// Calls yields the operations whose calls to a plugin are with agents.
func (v View) Calls(plugin api.PluginID) iter.Seq[*api.Operation] {
	return rows[api.Operation](v, tableOperations, operationsCalls, key(string(plugin)))
}

// Exhausted yields the operations that were refused last for want of room: to
// publish to a node; without a node, to create. Those that wait come before those
// that were given up since.
func (v View) Exhausted(plugin api.PluginID, node api.NodeID) iter.Seq[*api.Operation] {
	return rows[api.Operation](v, tableOperations, operationsNoRoom, key(string(plugin), string(node)))
}

// LastPlace is the last of the open operations on a volume in its plugin's
// queue, or nil.
func (v View) LastPlace(ns api.NamespaceID, vol api.VolumeID) *api.Operation {
	return last[api.Operation](v, tableOperations, operationsVolumes, key(string(ns), string(vol)))
}

// OpenOperations yields the open operations on a volume by their places, or on
// all volumes if both are empty.
func (v View) OpenOperations(ns api.NamespaceID, vol api.VolumeID) iter.Seq[*api.Operation] {
	if ns == "" && vol == "" {
		return rows[api.Operation](v, tableOperations, operationsVolumes, nil)
	}
	return rows[api.Operation](v, tableOperations, operationsVolumes, key(string(ns), string(vol)))
}

// NodeOperations yields the operations that a node's agent has.
func (v View) NodeOperations(executor api.NodeID) iter.Seq[*api.Operation] {
	return rows[api.Operation](v, tableOperations, operationsExecutor, key(string(executor)))
}

// EndedOperations yields the operations that have ended, oldest first.
func (v View) EndedOperations() iter.Seq[*api.Operation] {
	return rows[api.Operation](v, tableOperations, operationsEnded, nil)
}

// OperationsIndex is when an operation was last written.
func (v View) OperationsIndex() uint64 { return v.modified(tableOperations) }

// PutOperation stores a new operation, or a changed copy.
func (tx *Tx) PutOperation(o *api.Operation) { put(tx, tableOperations, o) }

// DeleteOperation removes an operation that is there.
func (tx *Tx) DeleteOperation(o *api.Operation) { remove(tx, tableOperations, o) }
