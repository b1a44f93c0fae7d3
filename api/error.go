package api

import (
	"errors"
	"fmt"
	"strings"
)

// Code is what a caller can tell errors apart by. One table in httpapi maps
// codes to HTTP status, one in cli to exit status.
type Code string

// The codes. Those marked (retry) may succeed when repeated unchanged.
const (
	// CodeInvalid: the input is wrong; Fields says where and how to mend it.
	CodeInvalid Code = "invalid"
	// CodeNotFound: the named object does not exist.
	CodeNotFound Code = "not_found"
	// CodeConflict: the object moved since it was read, or another object
	// stands in the way.
	CodeConflict Code = "conflict"
	// CodeInUse: something still holds the object; the message names the holder.
	CodeInUse Code = "in_use"
	// CodeForbidden: the caller is known and may not do this, or its secret is wrong.
	CodeForbidden Code = "forbidden"
	// CodeUnavailable (retry): no leader, a lost connection, a queue that is
	// full. Nothing was done.
	CodeUnavailable Code = "unavailable"
	// CodeUncertain (retry): the outcome is not known, for instance because
	// leadership was lost while the write was on its way. Look before you repeat.
	CodeUncertain Code = "uncertain"
	// CodeWrongCluster: the agent has pinned another cluster's id.
	CodeWrongCluster Code = "wrong_cluster"
	// CodeIdentityInUse: another live agent has this node's identity.
	CodeIdentityInUse Code = "identity_in_use"
	// CodeStaleSession: the agent's session or epoch has ended; it must
	// register again.
	CodeStaleSession Code = "stale_session"
	// CodeRolledBack (retry): the servers know less than they once did; a new
	// generation begins.
	CodeRolledBack Code = "rolled_back"
	// CodeRecovering (retry): a restored cluster waits for its operator's word.
	CodeRecovering Code = "recovering"
	// CodeGone: the events after that index are no longer kept, or are of
	// another state. Read what there is, and follow from now on.
	CodeGone Code = "gone"
	// CodeMethodNotAllowed: the path is known, and takes other methods.
	CodeMethodNotAllowed Code = "method_not_allowed"
	// CodeTooLarge: the body exceeds its limit.
	CodeTooLarge Code = "too_large"
	// CodeInternal: a fault of Berth's own. Its detail is in the server's log.
	CodeInternal Code = "internal"
)

// Codes lists all codes, for tables that must have a row for each.
func Codes() []Code {
	return []Code{
		CodeInvalid, CodeNotFound, CodeConflict, CodeInUse, CodeForbidden, CodeUnavailable, CodeUncertain,
		CodeWrongCluster, CodeIdentityInUse, CodeStaleSession, CodeRolledBack, CodeRecovering, CodeGone, CodeMethodNotAllowed, CodeTooLarge, CodeInternal,
	}
}

// Error is what a caller gets to see. It is the body of every HTTP error.
type Error struct {
	Code    Code    `json:"code"`
	Message string  `json:"message"`
	Fields  []Field `json:"fields,omitempty"`
	// Retry: the same request may succeed later, unchanged.
	Retry bool `json:"retry,omitempty"`
}

// Field is one problem in one place of the input.
type Field struct {
	// Path names the field in the spec's own words: group["db"].task["pg"].driver.
	Path    string `json:"path"`
	Message string `json:"message"`
	// Mend is what to write instead.
	Mend string `json:"mend,omitempty"`

	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

func (e *Error) Error() string {
	if len(e.Fields) == 0 {
		return e.Message
	}
	var b strings.Builder
	b.WriteString(e.Message)
	for _, f := range e.Fields {
		b.WriteString("\n  ")
		b.WriteString(f.String())
	}
	return b.String()
}

// String is the problem as one line: file:line:column: path message; mend. A
// problem of the whole file has no line.
func (f Field) String() string {
	var b strings.Builder
	switch {
	case f.File != "" && f.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", f.File, f.Line, f.Column)
	case f.File != "":
		b.WriteString(f.File)
		b.WriteString(": ")
	}
	if f.Path != "" {
		b.WriteString(f.Path)
		b.WriteByte(' ')
	}
	b.WriteString(f.Message)
	if f.Mend != "" {
		b.WriteString("; ")
		b.WriteString(f.Mend)
	}
	return b.String()
}

// Is lets errors.Is compare by code: errors.Is(err, &api.Error{Code: api.CodeNotFound}).
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == "" && t.Fields == nil
}

// Errorf builds an Error; codes that invite a retry set Retry.
func Errorf(code Code, format string, args ...any) *Error {
	retry := code == CodeUnavailable || code == CodeUncertain ||
		code == CodeRolledBack || code == CodeRecovering
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Retry: retry}
}

// CodeOf is the code of the first Error in err's chain, CodeInternal for any
// other error, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// Problems collects what a validator finds; a validator returns all of it, not
// the first. The zero value is ready.
type Problems struct {
	fields []Field
}

// Add notes one problem of the field at path.
func (p *Problems) Add(path, message, mend string) {
	p.fields = append(p.fields, Field{Path: path, Message: message, Mend: mend})
}

// Addf is Add with a formatted message.
func (p *Problems) Addf(path, mend, format string, args ...any) {
	p.Add(path, fmt.Sprintf(format, args...), mend)
}

// Merge takes over the problems of another validator, or an error's message.
func (p *Problems) Merge(err error) {
	if err == nil {
		return
	}
	var e *Error
	if errors.As(err, &e) && len(e.Fields) > 0 {
		p.fields = append(p.fields, e.Fields...)
		return
	}
	p.Add("", err.Error(), "")
}

// Err is nil, or one CodeInvalid error about what, with every problem.
func (p *Problems) Err(what string) error {
	if len(p.fields) == 0 {
		return nil
	}
	count := fmt.Sprintf("%d problems", len(p.fields))
	if len(p.fields) == 1 {
		count = "a problem"
	}
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s has %s", what, count), Fields: p.fields}
}

// Name checks a name that a user chose for a thing.
func (p *Problems) Name(path, name string) {
	if message, mend := nameProblem(name); message != "" {
		p.Add(path, message, mend)
	}
}

// VolumeID checks a user's name for a volume, which may be one of a family.
func (p *Problems) VolumeID(path, id string) {
	if message, mend := volumeIDProblem(id); message != "" {
		p.Add(path, message, mend)
	}
}

// oneOf checks an enumerated string; the mend lists what is allowed.
func oneOf[T ~string](p *Problems, path string, got T, allowed ...T) {
	words := make([]string, len(allowed))
	for i, a := range allowed {
		if got == a {
			return
		}
		words[i] = string(a)
	}
	p.Addf(path, "use one of "+strings.Join(words, ", "), "is %q", string(got))
}
