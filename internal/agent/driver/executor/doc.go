// Package executor runs one task under one supervisor: a process of the same
// binary that outlives the agent, so that a task notices nothing of an agent's
// restart. DESIGN.md beside this file says why it is built as it is.
//
// It has two sides. Tasks is the agent's: it starts supervisors, finds them
// again, and clears away what is left when one has died. Main is the
// supervisor's: it starts the task, keeps its output, tells how it ended, and
// goes. They meet in the task's run directory:
//
//	lock             held by the supervisor as long as it lives
//	spec.json        what to run; written before anything is started
//	state.json       the supervisor, then the task, or why it did not start
//	exit.json        how the task ended; written when no process of it is left
//	sock             control: JSON over HTTP
//	supervisor.log   the supervisor's own words
//	root/            mount points of an isolated task's root file system
//	container/       libcontainer's state
//
// A program that links it is its own supervisor, when its arguments are
// `executor DIR`, and its own first process of every isolated task (package
// first). It becomes so before its main is called.
//
// It never decides what to run or when to run it again.
//
// Invariants: the lock is held if and only if a supervisor lives, or is being
// started. A task does not outlive its supervisor. A task that is reported as
// ended has no process left.
package executor
