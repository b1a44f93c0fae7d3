// Package api holds Berth's nouns: plain structs that are at once the rows of
// the state, the bodies of the HTTP API, the output of the command line and
// the input of the scheduler. It owns their names, their JSON shape and their
// validation. It never does I/O, never reads a clock, and imports the standard
// library only.
//
// Invariants: a Spec is written by its user and a Status by the system; every
// Status field has one writer, which its comment names. Objects that came out
// of the state are immutable: copy, change, put.
//
// Sizes are bytes, times are UTC, durations are Go duration strings ("30s") in
// JSON and HCL.
package api
