// Package keyring seals what must not be readable at rest, and opens it again.
// It owns the root keys of a cluster, in one file that only its owner can read.
//
// It never writes a key anywhere else, and never says one in an error. Invariant:
// what was sealed for one purpose cannot be opened for another, and a key that
// was in the file stays in it.
package keyring
