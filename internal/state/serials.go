package state

import "github.com/berth-dev/berth/api"

// tableSerials has one row a series of numbers that are never used twice.
const tableSerials = "serials"

// Serial is the last number of a series.
type Serial struct {
	Series string `json:"series"`
	Last   uint64 `json:"last"`
}

const serialOperations = "operations"

func serialsTable() definition {
	return define[Serial](tableSerials, unique(primary, func(s *Serial) []byte { return key(s.Series) }))
}

// NextOperationID names a new operation.
func (tx *Tx) NextOperationID(name string) api.OperationID {
	next := Serial{Series: serialOperations, Last: 1}
	if s := first[Serial](tx.View, tableSerials, primary, key(serialOperations)); s != nil {
		next.Last = s.Last + 1
	}
	insert(tx, tableSerials, &next)
	return api.NewOperationID(name, next.Last)
}
