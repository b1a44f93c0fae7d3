// Package allocrunner runs one allocation on this node: hooks up in order, down
// in reverse. It owns the Hook shape, the order, retries, records and what is
// reported of an allocation.
//
// It never mounts, starts or stops anything itself: hooks do. Invariants: the
// local database knows an allocation before its first Up and until after its
// last Down, and that it goes down before the first Down; an allocation only
// moves forward; a hook's Down is called whether or not its Up ever was.
// DESIGN.md says more.
package allocrunner
