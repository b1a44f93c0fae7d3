package assignment_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/assignment"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lease = 30 * time.Second

// world is the servers of a cluster, and what a node has on its disk.
type world struct {
	t *testing.T

	mu         sync.Mutex // guards below
	answer     api.Registered
	assigned   api.Assignments
	news       chan struct{} // closed and replaced when assigned changes
	attempts   []api.Registration
	polls      []uint64
	reports    []api.Report // all that came
	applied    []api.Report // those that counted
	began      []time.Time
	refuse     func(call string) error // before the effect
	lose       func(call string) error // after it
	node       localdb.Node
	profile    api.Profile
	nodeWrites int
	report     *api.Report
	disk       func(write string) error
	consumed   []uint64
	listed     [][]api.AllocAssignment // with them
	streams    []<-chan struct{}       // the ends of those that were offered
}

func newWorld(t *testing.T) *world {
	ok := func(string) error { return nil }
	return &world{
		t: t, refuse: ok, lose: ok, disk: ok, news: make(chan struct{}),
		node:     localdb.Node{ID: "n1-00000001", Name: "n1", Secret: "s"},
		answer:   api.Registered{ClusterID: "c1", Generation: api.Generation{Number: 1}, Epoch: 1},
		assigned: api.Assignments{ClusterID: "c1", Generation: api.Generation{Number: 1}, Epoch: 1, Index: 10},
	}
}

// change changes the world under its lock.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.news)
	w.news = make(chan struct{})
}

func (w *world) Register(_ context.Context, reg api.Registration) (api.Registered, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts = append(w.attempts, reg)
	w.began = append(w.began, time.Now())
	if w.node.Pending[0] != reg.Session {
		w.t.Error("the token was sent before it was recorded")
	}
	if err := w.refuse("register"); err != nil {
		return api.Registered{}, err
	}
	return w.answer, w.lose("register")
}

func (w *world) Assignments(ctx context.Context, session string, epoch, index uint64, wait time.Duration) (*api.Assignments, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for first := true; ; first = false {
		w.mu.Lock()
		if first {
			w.polls = append(w.polls, index)
		}
		if wait != lease/3 || session != w.node.Session || epoch != w.node.Epoch {
			w.t.Errorf("poll of session %q, epoch %d, for %s", session, epoch, wait)
		}
		a, err, news := w.assigned, w.refuse("poll"), w.news
		w.mu.Unlock()
		if err != nil || a.Index != index {
			return &a, err
		}
		select {
		case <-news:
		case <-timer.C:
			return &a, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *world) Report(_ context.Context, rep api.Report) (api.Reported, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, rep)
	if w.report == nil || w.report.Sequence != rep.Sequence {
		w.t.Errorf("report %d was sent, and %+v is recorded", rep.Sequence, w.report)
	}
	if err := w.refuse("report"); err != nil {
		return api.Reported{}, err
	}
	if rep.Sequence > w.answer.Sequence {
		w.answer.Sequence = rep.Sequence
		w.applied = append(w.applied, rep)
	}
	return api.Reported{}, w.lose("report")
}

func (w *world) PutNode(n localdb.Node) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodeWrites++
	if err := w.disk("node"); err != nil {
		return err
	}
	w.node = n
	return nil
}

// stored implements assignment.Memory: records are kept as text.
type stored struct{ *world }

func (s stored) Report() (*api.Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.report == nil {
		return nil, nil
	}
	copied := *s.report
	return &copied, nil
}

func (s stored) PutReport(r *api.Report) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.disk("report"); err != nil {
		return err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	s.report = &api.Report{}
	return json.Unmarshal(b, s.report)
}

func (w *world) Assign(a *api.Assignments) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.consumed = append(w.consumed, a.Index)
	w.listed = append(w.listed, a.Allocations)
}

func (w *world) Offer(over <-chan struct{}, _ string, _ uint64, _ []api.StreamOffer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams = append(w.streams, over)
}

// start starts an agent's link on what the last one has recorded.
func (w *world) start(facts *assignment.Facts) (*assignment.Link, func()) {
	w.mu.Lock()
	node := w.node
	w.mu.Unlock()
	l := assignment.New(assignment.Config{
		Node: node, BootID: "boot", Version: "test", Lease: lease, Consumer: w, Streams: w,
		Drivers: func(context.Context) map[string]api.Driver { return map[string]api.Driver{"exec": {Healthy: true}} },
		Profile: func() api.Profile {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.profile
		},
	}, w, stored{w}, facts, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	synctest.Wait()
	return l, func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}
}

// see looks at the world under its lock.
func see[T any](w *world, f func() T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return f()
}

// failing answers err to a call until it is turned off.
func failing(call string, err error) func(string) error {
	return func(c string) error {
		if c == call {
			return err
		}
		return nil
	}
}

func works(string) error { return nil }

// bubble is synctest.Test with a world in it.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func alloc(id string, state api.AllocState) api.AllocFact {
	return api.AllocFact{ID: api.AllocID(id), Status: api.AllocStatus{State: state}}
}
