package consensus

import (
	"fmt"
	"runtime/debug"
)

// panicError is a panic of a plan, with the place where it happened.
type panicError struct {
	value any
	stack string
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

func stack() string { return string(debug.Stack()) }
