package state

import (
	"iter"

	"github.com/berth-dev/berth/api"
)

const tableOperations = "operations"

const (
	operationsOpen     = "open"
	operationsWaiting  = "waiting"
	operationsExecutor = "executor"
	operationsEnded    = "ended"
	operationsVolume   = "volume"
)

func operationsTable() definition {
	return define[api.Operation](tableOperations,
		unique(primary, func(o *api.Operation) []byte { return key(string(o.ID)) }),
		unique(operationsOpen, func(o *api.Operation) []byte {
			if !o.Open() {
				return nil
			}
			return key(o.Name)
		}),
		unique(operationsWaiting, func(o *api.Operation) []byte {
			if o.Status.State != api.OperationWaiting {
				return nil
			}
			return key(string(o.ID))
		}),
		shared(operationsExecutor, func(o *api.Operation) []byte {
			if o.Status.State != api.OperationAssigned {
				return nil
			}
			return key(string(o.Status.Executor))
		}),
		shared(operationsEnded, func(o *api.Operation) []byte {
			if o.Open() {
				return nil
			}
			return key(timePart(o.ModifyTime))
		}),
		shared(operationsVolume, func(o *api.Operation) []byte { return key(string(o.Namespace), string(o.VolumeID)) }),
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

// WaitingOperations yields the operations that no agent has.
func (v View) WaitingOperations() iter.Seq[*api.Operation] {
	return rows[api.Operation](v, tableOperations, operationsWaiting, nil)
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
