// Package command is the verbs: one type for every kind of write that the log
// can carry, with the checks and the arithmetic of applying it.
//
// It owns what may change in the state and when. It has no clock, no random
// source, no I/O and no effect of map order: time is the entry's, ids and
// choices are fields that the proposer set. A write that rests on a read
// carries the versions that it read.
//
// Invariants: every check comes before the first write; Apply answers a typed
// *api.Error and then has written nothing; applying one log to two stores
// gives stores that save to the same bytes.
//
// What is in the log stays in the log: kinds are never renamed, and a change
// of what Apply does waits for a feature level. DESIGN.md says more.
package command
