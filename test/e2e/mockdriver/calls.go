package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// call is a line of the calls file. Request and Response are protobuf's JSON
// with the specification's field names: 64-bit integers are strings, and a
// field that is zero is absent.
type call struct {
	// Time is when the call was answered.
	Time     time.Time       `json:"time"`
	Method   string          `json:"method"`
	Request  json.RawMessage `json:"request"`
	Response json.RawMessage `json:"response,omitempty"`
	// Code is OK or the error's, spelled as in the specification; Message is
	// the error's.
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
}

// calls is the record of what was asked and answered.
type calls struct {
	lines *json.Encoder
}

func newCalls(w io.Writer) calls {
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	return calls{lines: lines}
}

// add writes the line of one call. The encoder makes one write of it, so a
// reader sees whole lines, and they outlive the process.
func (c calls) add(method string, request, reply proto.Message, answer error) error {
	st := status.Convert(answer)
	line := call{
		Time:    time.Now().UTC(),
		Method:  method,
		Code:    code.Code(st.Code()).String(), //nolint:gosec // codes are below 17
		Message: st.Message(),
	}
	format := protojson.MarshalOptions{UseProtoNames: true}
	var err error
	if line.Request, err = format.Marshal(request); err != nil {
		return fmt.Errorf("encode request of %s: %w", method, err)
	}
	if answer == nil {
		if line.Response, err = format.Marshal(reply); err != nil {
			return fmt.Errorf("encode response of %s: %w", method, err)
		}
	}
	if err := c.lines.Encode(line); err != nil {
		return fmt.Errorf("record %s: %w", method, err)
	}
	return nil
}
