// Package visit carries a command that a person runs where a task runs: what it
// reads, what it writes, the size of its terminal, its signals and its end, all
// in frames of one connection. docs/design/0039-commands-in-tasks.md says why.
//
// It never starts a process, and never knows what kind of task it visits.
// Invariants: the command ends with the connection, and so does all of its
// session, unless it waits in the kernel, where nothing ends it; whatever a visitor sends, what waits for a command that does not read
// is at most one window, so that a size, a signal or a farewell behind it is
// heard; nothing that the command wrote before its end is lost, however slowly
// it is read.
package visit
