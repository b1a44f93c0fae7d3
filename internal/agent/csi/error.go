package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The gRPC codes by the names that the specification uses (CSI spec, Error
// Scheme).
const (
	CodeOK                 = "OK"
	CodeCancelled          = "CANCELLED"
	CodeUnknown            = "UNKNOWN"
	CodeInvalidArgument    = "INVALID_ARGUMENT"
	CodeDeadlineExceeded   = "DEADLINE_EXCEEDED"
	CodeNotFound           = "NOT_FOUND"
	CodeAlreadyExists      = "ALREADY_EXISTS"
	CodePermissionDenied   = "PERMISSION_DENIED"
	CodeResourceExhausted  = "RESOURCE_EXHAUSTED"
	CodeFailedPrecondition = "FAILED_PRECONDITION"
	CodeAborted            = "ABORTED"
	CodeOutOfRange         = "OUT_OF_RANGE"
	CodeUnimplemented      = "UNIMPLEMENTED"
	CodeInternal           = "INTERNAL"
	CodeUnavailable        = "UNAVAILABLE"
	CodeDataLoss           = "DATA_LOSS"
	CodeUnauthenticated    = "UNAUTHENTICATED"
)

// Error is why a call did not succeed: a driver's refusal, or that there was
// no answer.
type Error struct {
	// Method is the call: NodeStageVolume.
	Method string
	// Code is one of the names above. A driver that cannot be reached, or dies
	// during the call, is UNAVAILABLE; an answer that breaks the specification
	// is INTERNAL.
	Code string
	// Message is the driver's, made fit for people: valid UTF-8, no control
	// characters, at most 4 KiB.
	Message string
	// Unsent: the call did not leave, so the driver has certainly done nothing.
	Unsent bool
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Method + ": " + e.Code
	}
	return e.Method + ": " + e.Code + ": " + e.Message
}

// CodeOf is the code of the first Error in err's chain, and OK for nil. Other
// errors are DEADLINE_EXCEEDED or CANCELLED if a context ended, else UNKNOWN.
func CodeOf(err error) string {
	var e *Error
	switch {
	case err == nil:
		return CodeOK
	case errors.As(err, &e):
		return e.Code
	default:
		return codeName(status.FromContextError(err).Code())
	}
}

// codeName is UNKNOWN for codes that gRPC does not have.
func codeName(c codes.Code) string {
	if name, known := code.Code_name[int32(c)]; known { //nolint:gosec // a code that is too large is not known
		return name
	}
	return CodeUnknown
}

// unsent is the error of a call that could not be made.
func unsent(ctx context.Context, method string, err error) *Error {
	code := CodeUnavailable
	if ctx.Err() != nil {
		code = CodeOf(ctx.Err())
	}
	return &Error{Method: method, Code: code, Message: clean(err.Error()), Unsent: true}
}

// invalid is the error of a request that must not be sent.
func invalid(method, format string, args ...any) *Error {
	return &Error{
		Method: method, Code: CodeInvalidArgument,
		Message: clean(fmt.Sprintf(format, args...)), Unsent: true,
	}
}

// broken is the error of an answer that the specification does not allow.
func broken(method, format string, args ...any) *Error {
	message := "the driver broke the CSI specification: " + fmt.Sprintf(format, args...)
	return &Error{Method: method, Code: CodeInternal, Message: clean(message)}
}

// answered is the error of a call that was sent.
func answered(method string, err error) *Error {
	s := status.Convert(err)
	switch {
	// What gRPC finds in messages has codes that mean other things in the
	// specification; only its text tells them apart.
	case strings.HasPrefix(s.Message(), "grpc: error while marshaling"):
		return invalid(method, "the request cannot be encoded: %s", s.Message())
	case s.Code() == codes.ResourceExhausted && strings.HasPrefix(s.Message(), "grpc: received message"):
		return broken(method, "%s", s.Message())
	}
	return &Error{Method: method, Code: codeName(s.Code()), Message: clean(s.Message())}
}

// maxMessage bounds what a driver can put into the state and onto screens.
const maxMessage = 4 << 10

// clean makes a driver's words fit for people.
func clean(message string) string {
	message = strings.ToValidUTF8(message, string(utf8.RuneError))
	message = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, message)
	message = strings.TrimSpace(message)
	if len(message) <= maxMessage {
		return message
	}
	const more = "…"
	cut := maxMessage - len(more)
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + more
}
