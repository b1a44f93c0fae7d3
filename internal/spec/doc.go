// Package spec reads volume files and job files, and turns them into the
// structs of package api. The files are written in HCL or JSON, with the names
// of Nomad's volume and job specifications as far as Berth has the thing they
// name; what the API answers is read too.
//
// It owns the language of the files: which blocks and attributes there are,
// what they are called, what their values look like, and the words in which a
// mistake is explained. It never opens a file, never asks a server, and never
// calculates: a file holds plain values, those of its variables and locals are
// put in their places when it is read, and the only thing that is filled in later
// is ${NAME}, or ${attr.name} and the like, in a task's config, env and templates,
// on the node.
//
// Invariants: every problem of a file is reported at once, with its line and
// column, the field, what is wrong and what to write instead. No input makes
// the package panic, or use more than a bounded amount of stack and memory.
// What the tables do not name is refused, and so nothing that a user wrote is
// dropped in silence.
package spec
