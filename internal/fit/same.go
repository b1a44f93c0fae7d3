package fit

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Same reports whether two specs, or two values of one field of a spec, say
// the same. Specs are kept as JSON that leaves out what is empty: what comes
// from the log has no list where its user wrote one with nothing in it.
func Same[T any](a, b T) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	keptA, errA := kept(a)
	keptB, errB := kept(b)
	return errA == nil && errB == nil && bytes.Equal(keptA, keptB)
}

func kept[T any](v T) ([]byte, error) {
	return json.Marshal(struct {
		Value T `json:"value,omitempty"`
	}{v})
}
