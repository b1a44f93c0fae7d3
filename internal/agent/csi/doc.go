// Package csi is the typed client of the Container Storage Interface, version
// 1.12: the one place where Berth's nouns and the specification's messages
// meet. It owns the connection to one driver and the translation both ways.
//
// It never decides and never repeats a call: retries, deadlines and the rule
// of one call per volume belong to its callers. It never trusts an answer that
// the specification does not allow, never shows a protobuf type, and never
// logs a secret or a mount flag.
//
// Invariant: an error of every exported call is an *Error, whose Code is a
// gRPC code by its name in the specification, whatever went wrong.
package csi
