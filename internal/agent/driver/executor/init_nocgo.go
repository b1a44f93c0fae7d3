//go:build !cgo

package executor

// CanIsolate tells whether this program can run isolated tasks: entering a pid
// namespace takes C code that runs before Go does.
const CanIsolate = false

// Init does nothing in a program that was built without cgo.
func Init() {}
