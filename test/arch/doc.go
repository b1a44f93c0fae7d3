// Package arch keeps the architecture true: who may import whom, which package
// is the one home of a dependency, and that every package says what it is for.
// The picture is in ARCHITECTURE.md; its twin is the table in picture.go, and
// the tests of this package compare it with the tree.
//
// It reads source files and never builds them, so it sees what build tags hide.
// Invariant: a package, a level or a dependency that the tables do not name
// fails, and so does a line of the tables that the tree no longer needs.
package arch
