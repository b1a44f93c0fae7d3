// Package heartbeat knows which agents are in contact. It lives in the
// leader's memory: heartbeats stay out of the log, and only a change of mind
// about a node goes there.
//
// It never decides what a silent node means for its volumes. Invariant: the
// lease of a node that is ready starts anew with every leadership, so that a new
// leader calls no node down that it had no time to hear of.
package heartbeat

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// Log is what the tracker needs of the consensus.
type Log interface {
	View() state.View
	Propose(ctx context.Context, commands ...command.Command) (uint64, error)
}

// Tracker keeps the leases of all agents.
type Tracker struct {
	log   Log
	out   *slog.Logger
	lease time.Duration

	mu      sync.Mutex // guards below
	leases  map[api.NodeID]lease
	changed chan struct{} // capacity 1: a node was heard of that was down, or is new
}

// lease is how long an agent may be silent.
type lease struct {
	session string
	until   time.Time
}

// New returns a tracker of leases of that length. It starts nothing.
func New(log Log, length time.Duration, out *slog.Logger) *Tracker {
	return &Tracker{log: log, out: out, lease: length, leases: map[api.NodeID]lease{}, changed: make(chan struct{}, 1)}
}

// Seen notes that an agent was heard of in its session.
func (t *Tracker) Seen(node api.NodeID, session string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.leases[node]
	now := time.Now()
	t.leases[node] = lease{session: session, until: now.Add(t.lease)}
	if !known || old.session != session || now.After(old.until) {
		t.nudge()
	}
}

// Live reports whether the agent was heard of in that session within its lease.
func (t *Tracker) Live(node api.NodeID, session string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.leases[node]
	return ok && l.session == session && time.Now().Before(l.until)
}

func (t *Tracker) nudge() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Run proposes what changes, while this server leads.
func (t *Tracker) Run(ctx context.Context) error {
	t.begin()
	for {
		next := t.check(ctx)
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-t.changed:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

// begin gives every node a fresh lease that is not known to be down. One that
// is has to be heard of first: work that is placed on it would wait there.
func (t *Tracker) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.log.View()
	until := time.Now().Add(t.lease)
	t.leases = map[api.NodeID]lease{}
	for n := range v.Nodes() {
		if n.Status.State == api.NodeDown {
			continue
		}
		if id := v.Identity(n.ID); id != nil {
			t.leases[n.ID] = lease{session: id.Session, until: until}
		}
	}
}

// check compares leases and states, proposes what differs, and answers when to
// look again.
func (t *Tracker) check(ctx context.Context) time.Time {
	now := time.Now()
	next := now.Add(t.lease)
	for _, change := range t.differences(now, &next) {
		if _, err := t.log.Propose(ctx, change); err != nil {
			if ctx.Err() == nil {
				t.out.Warn("node state was not written", "node", change.NodeID, "error", err)
			}
			return now.Add(time.Second)
		}
		t.out.Info("node state changed", "node", change.NodeID, "state", change.State)
	}
	return next
}

// differences finds the nodes whose state is no longer true, and moves next to
// the first lease that will run out.
func (t *Tracker) differences(now time.Time, next *time.Time) []*command.SetNodeState {
	v := t.log.View()
	t.mu.Lock()
	defer t.mu.Unlock()
	var changes []*command.SetNodeState
	for id, l := range t.leases {
		state := api.NodeDown
		if now.Before(l.until) {
			state = api.NodeReady
			if l.until.Before(*next) {
				*next = l.until
			}
		}
		if known := v.Identity(id); known == nil || known.Session != l.session {
			continue
		}
		if n := v.Node(id); n != nil && n.Status.State != state {
			changes = append(changes, &command.SetNodeState{NodeID: id, State: state, Session: l.session})
		}
	}
	return changes
}
