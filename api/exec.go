package api

import (
	"fmt"
	"math"
	"strings"
)

// ExecRequest asks for a command to be run where a task runs: with its root,
// its user, its environment, its directory and its limits. It ends with the
// connection that it was asked for on.
type ExecRequest struct {
	// Command is a program, as the task would find it, and its arguments.
	Command []string `json:"command"`
	// Input: the command reads what is sent. Without it, it reads nothing.
	Input bool `json:"input,omitempty"`
	// Terminal gives the command one of that size, in which its output and its
	// errors are the same.
	Terminal *TerminalSize `json:"terminal,omitempty"`
	// Term is the kind of the terminal, as in TERM; xterm if it is empty.
	Term string `json:"term,omitempty"`
}

// UpgradeFrames is what a connection is upgraded to on which a command runs. Each
// frame is a byte of kind, four bytes of length, the highest first, and so much
// payload, 64 KiB at most.
const UpgradeFrames = "berth-frames"

// TerminalSize is counted in characters. A terminal that does not know its size
// has 0.
type TerminalSize struct {
	Rows    int `json:"rows"`
	Columns int `json:"columns"`
}

// Valid reports whether a terminal can have that size.
func (s TerminalSize) Valid() bool {
	return s.Rows >= 0 && s.Rows <= math.MaxUint16 && s.Columns >= 0 && s.Columns <= math.MaxUint16
}

// MaxCommand bounds the command of an ExecRequest with its arguments, in bytes.
const MaxCommand = 32 << 10

// Validate reports every problem.
func (r *ExecRequest) Validate() error {
	var p Problems
	if len(r.Command) == 0 || r.Command[0] == "" {
		p.Add("command", "is missing", "give a program and its arguments")
	}
	size := 0
	for i, arg := range r.Command {
		size += len(arg) + 1
		if strings.ContainsRune(arg, 0) {
			p.Add(fmt.Sprintf("command[%d]", i), "holds a zero byte", "remove it")
		}
	}
	if size > MaxCommand {
		p.Addf("command", "put what is long into the input", "is %d bytes long, and may have %d", size, MaxCommand)
	}
	if strings.ContainsAny(r.Term, "\x00=\n") || len(r.Term) > 64 {
		p.Addf("term", "give the name of a terminal, such as xterm", "is %q", r.Term)
	}
	if r.Terminal != nil && !r.Terminal.Valid() {
		p.Addf("terminal", "give numbers of characters", "is %d by %d", r.Terminal.Rows, r.Terminal.Columns)
	}
	return p.Err("the request")
}

// ExecOffer is what a server tells an agent of an ExecRequest.
type ExecOffer struct {
	AllocID AllocID `json:"alloc_id"`
	Task    string  `json:"task"`
	// Asker is recorded.
	Asker
	ExecRequest
}

// ExecExit is how a command ended.
type ExecExit struct {
	// Code is what it exited with, if no signal ended it.
	Code int `json:"code"`
	// Signal is the number of the signal that ended it, 0 for none.
	Signal int `json:"signal,omitempty"`
}

// Status is the exit status as shells tell it: 128 and the number of the signal
// for a command that was ended by one.
func (e ExecExit) Status() int {
	if e.Signal != 0 {
		return 128 + e.Signal
	}
	return e.Code
}

// ExecSignals are the signals that can be sent to a command.
func ExecSignals() []string { return []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM"} }
