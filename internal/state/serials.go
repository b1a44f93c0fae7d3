package state

import "github.com/berth-dev/berth/api"

// Serial is the last number of a series.
type Serial struct {
	Series string `json:"series"`
	Last   uint64 `json:"last"`
}

// The series.
const (
	serialOperations = "operations"
	serialCopies     = "copies"
)

func serialsTable() *table[Serial] {
	return define[Serial](tableSerials, unique(primary, func(b []byte, s *Serial) []byte { return appendKey(b, s.Series) }))
}

// NextOperationID names a new operation.
func (tx *Tx) NextOperationID(name string) api.OperationID {
	return api.NewOperationID(name, tx.next(serialOperations))
}

// NextCopy numbers a volume that is made like another.
func (tx *Tx) NextCopy() uint64 { return tx.next(serialCopies) }

// next is the next number of a series.
func (tx *Tx) next(series string) uint64 {
	next := Serial{Series: series, Last: 1}
	if s := first[Serial](tx.View, tableSerials, primary, key(series)); s != nil {
		next.Last = s.Last + 1
	}
	insert(tx, tableSerials, &next)
	return next.Last
}
