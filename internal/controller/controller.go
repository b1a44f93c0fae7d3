// Package controller is the shape of everything that decides: a query for what
// is not settled, and a pure function from the state to a plan. It owns the
// runner, which alone knows of waiting, order, retries, panics and leadership.
//
// Controllers never do I/O, never read a clock, and never call each other: what
// one writes, another finds unsettled. Invariant: whatever waits is reconciled
// again whenever anything that its last reconciliation read has changed; no
// wake-up is lost. What failed is tried again with backoff.
package controller

import (
	"iter"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// Key names one thing that a controller settles, in the controller's own words.
type Key string

// Controller settles one kind of thing.
type Controller interface {
	// Name is one lower-case word.
	Name() string
	// Pending yields the keys that are not settled. It is a query over a
	// narrow index, so that its cost is that of the work, not of the fleet. A
	// key may come twice.
	Pending(v state.View) iter.Seq[Key]
	// Reconcile says what to do about one key now. It may be called at any
	// time, also for keys that are settled or gone, and must come to the same
	// answer from the same arguments. It is called in turn with everybody who
	// writes, so that nothing changes between what it reads and what it plans;
	// it should be quick. An error is a fault: it is logged, and the key is
	// tried again with backoff.
	Reconcile(v state.View, now time.Time, k Key) (Plan, error)
}

// Plan is what to do about a key: commands that take effect together, or none
// and then what it waits for.
type Plan struct {
	Commands command.Plan
	// Wake is when to look again if nothing changes before; zero for never.
	Wake time.Time
	// Waits is what keeps the key from being settled, for people.
	Waits []api.Wait
}

// Add appends commands to the plan.
func (p *Plan) Add(c ...command.Command) { p.Commands = append(p.Commands, c...) }

// Wait notes that subject waits for a reason since then. next, if not zero, is
// when it is tried again; the plan wakes then.
func (p *Plan) Wait(subject, reason string, since, next time.Time) {
	p.Waits = append(p.Waits, api.Wait{Subject: subject, Reason: reason, Since: since, Next: next})
	p.WakeAt(next)
}

// WakeAt makes the plan wake at t if that is sooner; a zero t is no time.
func (p *Plan) WakeAt(t time.Time) {
	if !t.IsZero() && (p.Wake.IsZero() || t.Before(p.Wake)) {
		p.Wake = t
	}
}
