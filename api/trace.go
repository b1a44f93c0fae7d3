package api

import (
	"strconv"
	"strings"
)

// HeaderTrace names the trace that a request belongs to (W3C Trace Context).
const HeaderTrace = "traceparent"

// TraceContext is the span of a caller below which what a request leads to is
// told to an OpenTelemetry collector: a traceparent of version 00, 55 bytes of
// lower case. Empty is none.
type TraceContext string

// ParseTraceContext reads a traceparent. What cannot be read is none: a broken
// trace breaks no request (W3C Trace Context, section 4.3). Of a version that is
// not known yet, the part is taken that version 00 has.
func ParseTraceContext(header string) TraceContext {
	version, rest, _ := strings.Cut(header, "-")
	id, rest, _ := strings.Cut(rest, "-")
	span, rest, _ := strings.Cut(rest, "-")
	flags, more, _ := strings.Cut(rest, "-")
	if !hexOf(version, 2) || !hexOf(id, 32) || !hexOf(span, 16) || !hexOf(flags, 2) || version == "ff" || version == "00" && (more != "" || strings.HasSuffix(header, "-")) ||
		strings.Trim(id, "0") == "" || strings.Trim(span, "0") == "" {
		return ""
	}
	sampled := "00"
	if n, err := strconv.ParseUint(flags, 16, 8); err == nil && n&1 == 1 {
		sampled = "01"
	}
	return TraceContext("00-" + id + "-" + span + "-" + sampled)
}

// Valid reports whether it is none, or as ParseTraceContext makes it.
func (t TraceContext) Valid() bool { return t == "" || ParseTraceContext(string(t)) == t }

// hexOf reports whether s is so many digits of lower case.
func hexOf(s string, length int) bool {
	return len(s) == length && strings.Trim(s, "0123456789abcdef") == ""
}
