package api

import (
	"strings"
	"time"
	"unicode"
)

// NodeSpec is what operators want of a node.
type NodeSpec struct {
	// Ineligible: the node gets no new allocations. What runs there goes on.
	Ineligible bool `json:"ineligible,omitempty"` // DrainNode, StopDrain, SetEligibility
	// Drain: what runs there is to move away, nil if it may stay.
	Drain *Drain `json:"drain,omitempty"` // DrainNode; cleared by StopDrain, FinishDrain
	// EligibilityBy is who said last whether the node gets new allocations, by the
	// caller's word; empty if that came with a drain.
	EligibilityBy string `json:"eligibility_by,omitempty"` // SetEligibility; cleared by DrainNode, StopDrain, FinishDrain
}

// Drain is the wish that a node be empty.
type Drain struct {
	Started time.Time `json:"started"`
	// Deadline is when what is still there is stopped, whether or not it finds
	// another node; zero for never.
	Deadline time.Time `json:"deadline,omitzero"`
	// IgnoreSystem: system and sysbatch jobs stay.
	IgnoreSystem bool `json:"ignore_system,omitempty"`
	// By and Reason are for the record.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Over reports whether the deadline has passed.
func (d *Drain) Over(now time.Time) bool { return !d.Deadline.IsZero() && !now.Before(d.Deadline) }

// Drained is how the last drain of a node ended.
type Drained struct {
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	// Complete: nothing was left there. Else it was called off.
	Complete bool `json:"complete,omitempty"`
	// CalledOffBy is who called it off, by the caller's word.
	CalledOffBy string `json:"called_off_by,omitempty"`
	By          string `json:"by,omitempty"`
	Reason      string `json:"reason,omitempty"`
}

// DrainRequest asks that a node be emptied. Of a node that is being drained it
// changes what it says, and leaves the rest as it is.
type DrainRequest struct {
	// Deadline is how long what runs there may take to move; DefaultDrain if
	// nothing is said.
	Deadline Duration `json:"deadline,omitempty"`
	// Force stops all at once; NoDeadline waits as long as it takes.
	Force      bool `json:"force,omitempty"`
	NoDeadline bool `json:"no_deadline,omitempty"`
	// IgnoreSystem leaves system and sysbatch jobs there; false if nothing is said.
	IgnoreSystem *bool  `json:"ignore_system,omitempty"`
	By           string `json:"by,omitempty"`
	Reason       string `json:"reason,omitempty"`
}

// DefaultDrain is how long a drain may take that says nothing else.
const DefaultDrain = Duration(time.Hour)

// Validate reports every problem of the request.
func (r *DrainRequest) Validate() error {
	var p Problems
	if r.Deadline < 0 {
		p.Add("deadline", "is negative", `give a duration such as "1h", or use force`)
	}
	if r.Force && r.NoDeadline {
		p.Add("no_deadline", "is set, and so is force", "remove one of them")
	}
	if r.Deadline > 0 && (r.Force || r.NoDeadline) {
		p.Add("deadline", "is set, and so is force or no_deadline", "remove one of them")
	}
	p.said(r.By, r.Reason)
	return p.Err("the drain")
}

// said checks words that are kept for the record.
func (p *Problems) said(by, reason string) {
	if len(reason) > maxReason {
		p.Addf("reason", "shorten it", "is %d bytes long, and may be %d", len(reason), maxReason)
	}
	if strings.ContainsFunc(by, func(r rune) bool { return !unicode.IsPrint(r) }) {
		p.Add("by", "has characters that cannot be printed", "leave them out")
	}
	if len(by) > maxBy {
		p.Addf("by", "shorten it", "is %d bytes long, and may be %d", len(by), maxBy)
	}
}

// EligibilityRequest says whether a node gets new allocations.
type EligibilityRequest struct {
	Eligible *bool `json:"eligible"`
}

// Validate reports every problem of the request.
func (r *EligibilityRequest) Validate() error {
	var p Problems
	if r.Eligible == nil {
		p.Add("eligible", "is missing", "say true or false")
	}
	return p.Err("the eligibility")
}
