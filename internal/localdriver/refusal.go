package localdriver

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refusal is an answer with a code of the CSI specification. Wrapping it keeps
// the code and the whole text.
type refusal struct {
	code codes.Code
	text string
}

func (r *refusal) Error() string { return r.text }

// GRPCStatus is how the grpc package finds the code in a chain of errors.
func (r *refusal) GRPCStatus() *status.Status { return status.New(r.code, r.text) }

func refuse(code codes.Code, format string, args ...any) error {
	return &refusal{code: code, text: fmt.Sprintf(format, args...)}
}
