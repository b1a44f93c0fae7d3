// Package assignment is the agent's side of the conversation with the servers:
// it registers, pulls this node's desired work by long poll, and reports facts
// in batches.
//
// It never decides what to do with an assignment, and it never goes back to an
// older one. Invariants: an agent talks to the cluster that it pinned and to no
// other; a report has its sequence in the local database before it is sent, and
// is applied once; no fact is lost before the servers have it, and none is said
// again that has not changed; facts are flushed at once when no report is in
// flight.
package assignment
