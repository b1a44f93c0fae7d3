package api

import (
	"slices"
	"strings"
)

// SignalRequest asks for a signal to tasks of an allocation that run.
type SignalRequest struct {
	// Task is "" for all.
	Task string `json:"task,omitempty"`
	// Signal is one of Signals.
	Signal string `json:"signal"`
}

// Validate reports every problem of the request.
func (r *SignalRequest) Validate() error {
	var p Problems
	if r.Task != "" {
		p.Name("task", r.Task)
	}
	if !slices.Contains(Signals(), r.Signal) {
		p.Addf("signal", "write one of "+strings.Join(Signals(), ", "), "is %q", r.Signal)
	}
	return p.Err("the request")
}

// Signalled says which tasks got a signal.
type Signalled struct {
	AllocID AllocID  `json:"alloc_id"`
	Signal  string   `json:"signal"`
	Tasks   []string `json:"tasks"`
}

// SignalOffer is what a server tells an agent of a SignalRequest.
type SignalOffer struct {
	AllocID AllocID `json:"alloc_id"`
	Asker
	SignalRequest
}
