// Package csitest is a complete CSI driver in memory, for tests, simulations
// and benchmarks of everything that calls drivers.
//
// A Backend is the storage provider: it holds volumes and knows what is
// attached, staged and published where. Backend.Node gives the driver of one
// node, as many as wanted against one backend. The backend answers as the
// specification asks drivers to, judges whether its callers keep the rules
// that the specification sets for them, and records every call. Script makes
// calls fail, hang, lie or lose their connection.
//
// It keeps honest by passing csi-sanity. It never decides by a clock or an
// unseeded random number, and so repeats exactly in a synctest bubble.
//
// Invariant: Backend.Violations is empty as long as the callers keep to the
// specification, whatever faults are scripted.
package csitest
