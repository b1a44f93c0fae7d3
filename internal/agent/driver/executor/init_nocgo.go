//go:build !cgo

package executor

// CanIsolate tells whether this program can run isolated tasks: entering a pid
// namespace takes C code that runs before Go does.
const CanIsolate = false
