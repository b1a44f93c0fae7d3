// Package statetest builds a world for tests from text, and prints one back.
//
// A world has one row a line: a noun, a space and JSON. A line that begins
// with white space goes on with the one before, one that begins with # is a
// comment. Whatever a line leaves out has its default; what it says stands,
// also a zero. A time may be written as "now", "now-5m" or "now+1h30m".
//
//	node        {"id":"n1","status":{"state":"ready"}}
//	volume      {"id":"pg","status":{"state":"ready"}}
//	job         {"id":"db","spec":{"groups":[{"name":"g","count":1,"volumes":[{"source":"pg"}]}]}}
//	allocation  {"id":"a1","job_id":"db","node_id":"n1"}
//
// The defaults, all of them in nouns.go: every noun is as it was born, so that
// nothing is ready, healthy, published or running unless its line says so. The
// namespace is default, the plugin disk, every version 1, created and modified
// an hour ago at index 1. A volume that is said to be ready has an external
// id; a job has the revision row of its spec; a node has an identity and an
// assignment version.
//
// It owns the text form and its defaults. It never checks that a world is one
// that commands could have made: a test may want it otherwise. Invariant: a
// world that was printed loads as the rows that it was printed from, and equal
// states print as equal text.
package statetest
