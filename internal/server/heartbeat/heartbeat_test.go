package heartbeat_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/server/heartbeat"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

const lease = 15 * time.Second

// world is a tracker, and the state that it proposes to.
type world struct {
	*heartbeat.Tracker
	store *state.Store
	began time.Time
	logs  *bytes.Buffer

	mu        sync.Mutex // guards below
	proposals []string
	fails     int // so many proposals fail
}

// newWorld has nodes in a session called session; start leads.
func newWorld(t *testing.T, nodes string) *world {
	t.Helper()
	w := &world{store: statetest.Load(t, nodes), began: time.Now(), logs: &bytes.Buffer{}}
	w.Tracker = heartbeat.New(w, lease, slog.New(slog.NewTextHandler(w.logs, nil)))
	return w
}

// lead runs the tracker; the answer ends the leadership.
func (w *world) lead(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil when its context ends", err)
		}
	}
}

func (w *world) View() state.View { return w.store.View() }

func (w *world) Propose(_ context.Context, commands ...command.Command) (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range commands {
		s := c.(*command.SetNodeState)
		w.proposals = append(w.proposals, fmt.Sprintf("%s %s is %s", time.Since(w.began), s.NodeID, s.State))
	}
	if w.fails > 0 {
		w.fails--
		return 0, api.Errorf(api.CodeUncertain, "leadership was lost")
	}
	index := w.store.View().Index() + 1
	tx := w.store.Begin(index, time.Now())
	for _, c := range commands {
		if err := c.Apply(tx); err != nil {
			tx.Abort()
			return 0, err
		}
	}
	tx.Commit()
	return index, nil
}

// register begins a session, as the API does.
func (w *world) register(node api.NodeID, session string) {
	w.mu.Lock()
	tx := w.store.Begin(w.store.View().Index()+1, time.Now())
	id := *tx.Identity(node)
	id.Session = session
	tx.PutIdentity(&id)
	n := *tx.Node(node)
	n.Status.State = api.NodeReady
	tx.PutNode(&n)
	tx.Commit()
	w.mu.Unlock()
	w.Seen(node, session)
}

func (w *world) want(t *testing.T, proposals ...string) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(proposals, w.proposals); diff != "" {
		t.Errorf("proposals (-want +got):\n%s", diff)
	}
}

const (
	ready = `node {"id":"n1","status":{"state":"ready"}}` + "\n"
	down  = `node {"id":"n1","status":{"state":"down"}}` + "\n"
)

func TestSilentNodeIsDownAfterItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ready)
		defer w.lead(t)()
		time.Sleep(lease - time.Nanosecond)
		w.want(t)
		if !w.Live("n1", "session") {
			t.Error("the node is not live within its lease")
		}
		time.Sleep(time.Nanosecond)
		w.want(t, "15s n1 is down")
		if w.Live("n1", "session") {
			t.Error("the node is live after its lease")
		}
		time.Sleep(time.Hour)
		w.want(t, "15s n1 is down")
	})
}

func TestNodeThatIsHeardOfStaysReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ready)
		defer w.lead(t)()
		for range 1000 {
			time.Sleep(lease / 3)
			w.Seen("n1", "session")
		}
		w.want(t)
		last := time.Since(w.began) + lease
		time.Sleep(time.Hour)
		w.want(t, fmt.Sprintf("%s n1 is down", last))
	})
}

func TestNodeIsReadyAsSoonAsItIsHeardOfAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ready)
		defer w.lead(t)()
		time.Sleep(20 * time.Second)
		w.Seen("n1", "session")
		w.want(t, "15s n1 is down", "20s n1 is ready")
		time.Sleep(time.Minute)
		w.want(t, "15s n1 is down", "20s n1 is ready", "35s n1 is down")
	})
}

// TestNewLeaderCallsNobodyDownTooSoon: it had no time to hear of anybody.
func TestNewLeaderCallsNobodyDownTooSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ready)
		w.lead(t)()
		time.Sleep(time.Hour)
		defer w.lead(t)()
		if !w.Live("n1", "session") {
			t.Error("a new leader believes that a node is gone")
		}
		time.Sleep(lease)
		w.want(t, "1h0m15s n1 is down")
	})
}

// TestDeadNodeIsNotReadyUnderANewLeader: for as long as it would be, work would
// be placed there. It is ready when it is heard of.
func TestDeadNodeIsNotReadyUnderANewLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, down)
		defer w.lead(t)()
		time.Sleep(time.Hour)
		w.want(t)
		if w.Live("n1", "session") {
			t.Error("the dead node is live")
		}
		w.Seen("n1", "session")
		w.want(t, "1h0m0s n1 is ready")
	})
}

func TestNothingIsProposedAfterTheLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ready)
		w.lead(t)()
		w.Seen("n1", "session")
		time.Sleep(time.Hour)
		w.want(t)
	})
}

func TestOldSessionDecidesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ready)
		defer w.lead(t)()
		time.Sleep(10 * time.Second)
		w.register("n1", "second")
		time.Sleep(10 * time.Second)
		w.want(t) // the lease of the first session would have ended
		if w.Live("n1", "session") || !w.Live("n1", "second") {
			t.Error("the session that ended is live, or the one that began is not")
		}
		time.Sleep(5 * time.Second)
		w.want(t, "25s n1 is down")
		w.register("n1", "third")
		time.Sleep(14 * time.Second)
		w.want(t, "25s n1 is down")
	})
}

func TestRefusedProposalIsMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, ready)
		w.fails = 2
		defer w.lead(t)()
		time.Sleep(time.Minute)
		w.want(t, "15s n1 is down", "16s n1 is down", "17s n1 is down")
		if got := strings.Count(w.logs.String(), "node state was not written"); got != 2 {
			t.Errorf("%d warnings, want 2:\n%s", got, w.logs)
		}
	})
}

func TestManyNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const count = 2000
		var nodes strings.Builder
		for i := range count {
			fmt.Fprintf(&nodes, "node {\"id\":\"n%d\",\"status\":{\"state\":\"ready\"}}\n", i)
		}
		w := newWorld(t, nodes.String())
		defer w.lead(t)()
		time.Sleep(10 * time.Second)
		for i := range count / 2 {
			w.Seen(api.NodeID(fmt.Sprintf("n%d", i)), "session")
		}
		time.Sleep(6 * time.Second)
		w.mu.Lock()
		proposed := len(w.proposals)
		w.mu.Unlock()
		downs := 0
		for n := range w.View().Nodes() {
			if n.Status.State == api.NodeDown {
				downs++
			}
		}
		if proposed != count/2 || downs != count/2 {
			t.Errorf("%d proposals, %d nodes down; want %d of each", proposed, downs, count/2)
		}
	})
}
