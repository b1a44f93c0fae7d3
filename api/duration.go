package api

import (
	"encoding/json"
	"reflect"
	"time"
)

// Duration is a time.Duration that JSON carries as a string: "1m30s".
type Duration time.Duration

// String is time.Duration's.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the string form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// maxShown is how much of what is no duration an error repeats.
const maxShown = 40

// UnmarshalJSON reads the string form. null leaves the duration as it is. The
// error is one of types, to which encoding/json adds the field.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	var s string
	if json.Unmarshal(b, &s) == nil {
		if v, err := time.ParseDuration(s); err == nil {
			*d = Duration(v)
			return nil
		}
	}
	if len(b) > maxShown {
		b = append(b[:maxShown:maxShown], "..."...)
	}
	return &json.UnmarshalTypeError{Value: string(b), Type: reflect.TypeFor[Duration]()}
}
