// Package probe makes the checks of services on a node: when each is asked next,
// and what its answers make of it.
//
// It never touches a task, and reports nothing itself: who gave it a check is told
// when that turns, and when tasks are to be started again for it.
//
// Invariant: of a check there is one probe at a time, of an allocation there are
// maxOfOne, of all checks maxProbes; none outlives Run.
package probe
