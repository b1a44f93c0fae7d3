// Package state is the replicated state in memory: immutable rows in
// tables, one file per table, with narrow indexes such as "volumes
// that are not settled". View reads one consistent moment; Tx writes.
//
// It owns the rows and their indexes. It never decides anything, never reads a
// clock, and does no I/O but to save and restore itself. Only package command
// writes through a Tx, and only package consensus begins one.
//
// Invariants: a row that was put is never changed again: read, copy, change,
// put. Every put raises the row's version by one. A commit is visible whole or
// not at all. The same writes give the same bytes when saved.
package state
