package main

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
)

// fault answers a method's next calls with an error.
type fault struct {
	method string
	code   codes.Code
	left   int
}

// faults are used up in the order in which they were given. It is a flag.Value.
type faults []fault

// String is empty: the flag has no default to show.
func (f *faults) String() string { return "" }

// Set adds the fault METHOD:CODE:N, with CODE spelled as in the CSI specification.
func (f *faults) Set(arg string) error {
	method, rest, _ := strings.Cut(arg, ":")
	name, count, ok := strings.Cut(rest, ":")
	if !ok {
		return fmt.Errorf("want METHOD:CODE:N")
	}
	number, ok := code.Code_value[name]
	if !ok || number == int32(codes.OK) {
		return fmt.Errorf("%q is no gRPC error code; they look like RESOURCE_EXHAUSTED", name)
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 {
		return fmt.Errorf("%q is no number of calls, 1 or more", count)
	}
	*f = append(*f, fault{method: method, code: codes.Code(number), left: n}) //nolint:gosec // it is in the table of codes
	return nil
}

// next uses up one fault of method, if one is left.
func (f faults) next(method string) (codes.Code, bool) {
	for i := range f {
		if f[i].method == method && f[i].left > 0 {
			f[i].left--
			return f[i].code, true
		}
	}
	return codes.OK, false
}
