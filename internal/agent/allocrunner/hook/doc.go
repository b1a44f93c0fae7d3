// Package hook holds the hooks of an allocation, one a file: its directories,
// its volumes, its tasks.
//
// Hooks never retry, report or record by themselves: the runner does. Each
// looks before it acts, and undoes also what it does not remember.
package hook
