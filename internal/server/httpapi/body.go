package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
)

// bodyTime is how long a body may take to arrive.
const bodyTime = 30 * time.Second

// decode reads the body as JSON, strictly.
func (r *request) decode(v any) error {
	conn := http.NewResponseController(r.w)
	_ = conn.SetReadDeadline(time.Now().Add(bodyTime)) // what has no deadlines, waits for nobody
	var read bytes.Buffer
	dec := json.NewDecoder(io.TeeReader(r.Body, &read))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return r.bodyError(err, &read, v)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return bodyProblem("body", "has something after its JSON", "send one object")
	}
	_ = conn.SetReadDeadline(time.Time{})
	return nil
}

// bodyError says in the caller's words why a body cannot be read. Of names that
// are not known it tells all, and what was meant: for that it reads the rest.
func (r *request) bodyError(err error, read *bytes.Buffer, v any) error {
	if !strings.HasPrefix(err.Error(), unknownField) {
		return bodyError(err)
	}
	if _, err := io.Copy(read, r.Body); err != nil {
		return bodyError(err)
	}
	if fields := unknownNames(read.Bytes(), reflect.TypeOf(v)); len(fields) > 0 {
		return &api.Error{Code: api.CodeInvalid, Message: "the request's body has " + problems(len(fields)), Fields: fields}
	}
	return bodyError(err)
}

func problems(n int) string {
	if n == 1 {
		return "a problem"
	}
	return strconv.Itoa(n) + " problems"
}

// unknownField begins the errors of encoding/json about names.
const unknownField = "json: unknown field "

// bodyError says in the caller's words why a body cannot be read.
func bodyError(err error) error {
	const mend = "send one object of JSON"
	var (
		large  *http.MaxBytesError
		syntax *json.SyntaxError
		kind   *json.UnmarshalTypeError
		slow   net.Error
	)
	switch unknown, isUnknown := strings.CutPrefix(err.Error(), unknownField); {
	case errors.As(err, &large):
		return api.Errorf(api.CodeTooLarge, "the request's body is larger than %d bytes", large.Limit)
	case errors.As(err, &slow) && slow.Timeout():
		return bodyProblem("body", fmt.Sprintf("did not arrive within %s", bodyTime), mend)
	case errors.Is(err, io.EOF):
		return bodyProblem("body", "is empty", mend)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return bodyProblem("body", "ends in the middle of its JSON", mend)
	case errors.As(err, &syntax):
		return bodyProblem("body", fmt.Sprintf("is no JSON at byte %d: %v", syntax.Offset, syntax), mend)
	case errors.As(err, &kind):
		path := kind.Field
		if path == "" {
			path = "body"
		}
		return bodyProblem(path, "is of the wrong kind: "+kind.Value, "give "+kindName(kind.Type))
	case isUnknown:
		name, _ := strconv.Unquote(unknown) // encoding/json quoted it
		return bodyProblem(name, "is not a known name", "correct it, or remove it")
	}
	return bodyProblem("body", err.Error(), mend)
}

func bodyProblem(path, message, mend string) error {
	return &api.Error{
		Code: api.CodeInvalid, Message: "the request's body has a problem",
		Fields: []api.Field{{Path: path, Message: message, Mend: mend}},
	}
}

// kindName is what JSON calls a type of Go.
func kindName(t reflect.Type) string {
	if t == reflect.TypeFor[api.Duration]() {
		return `a duration such as "30s"`
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "an object"
	}
	return "a whole number"
}
