// Package controllertest compares what a controller plans for the worlds of
// its testdata with the plans that were read there and found right.
//
// It knows no controller and no rule. Invariant: a plan that it passes applies
// to its world without a conflict, changes something, and is for a key that is
// pending; and the same reading gives the same plan twice.
package controllertest
