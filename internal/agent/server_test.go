package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// server answers one agent, over connections in memory.
type server struct {
	conns chan net.Conn
	done  chan struct{}

	mu       sync.Mutex // guards below
	assigned api.Assignments
	changed  map[api.AllocID]uint64 // the index of each allocation's last change
	news     chan struct{}          // closed and replaced when assigned changes
	heard    map[api.AllocID]api.AllocState
	said     api.OperationFact
	opened   api.Registration
	drivers  map[string]api.Driver // by the last word on them
	undone   uint64
	remains  string
}

func newServer() *server {
	return &server{
		conns: make(chan net.Conn), done: make(chan struct{}), news: make(chan struct{}),
		assigned: api.Assignments{ClusterID: "c1", Generation: api.Generation{Number: 1}, Epoch: 1, Index: 10},
		changed:  map[api.AllocID]uint64{}, heard: map[api.AllocID]api.AllocState{},
	}
}

func (s *server) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *server) Close() error   { return nil }
func (s *server) Addr() net.Addr { return &net.UnixAddr{Name: "server"} }

func (s *server) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case s.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// start serves until the function that it returns is called.
func (s *server) start(t *testing.T) (cl *client.Client, stop func()) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/agent/register", func(w http.ResponseWriter, r *http.Request) {
		var reg api.Registration
		if err := json.NewDecoder(r.Body).Decode(&reg); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opened, s.drivers = reg, reg.Drivers
		write(t, w, api.Registered{ClusterID: s.assigned.ClusterID, Generation: s.assigned.Generation, Epoch: s.assigned.Epoch})
	})
	mux.HandleFunc("GET /v1/agent/assignments", func(w http.ResponseWriter, r *http.Request) { write(t, w, s.poll(t, r)) })
	mux.HandleFunc("POST /v1/agent/report", func(w http.ResponseWriter, r *http.Request) {
		var rep api.Report
		if err := json.NewDecoder(r.Body).Decode(&rep); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		for _, a := range rep.Facts.Allocations {
			s.heard[a.ID] = a.Status.State
		}
		for _, o := range rep.Facts.Operations {
			s.said = o
		}
		if rep.Facts.Drivers != nil {
			s.drivers = rep.Facts.Drivers
		}
		s.undone = max(s.undone, rep.Facts.Undone)
		if rep.Facts.Remains != "" {
			s.remains = rep.Facts.Remains
		}
		s.mu.Unlock()
		write(t, w, api.Reported{})
	})
	web := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(s) }()
	cl, err := client.New(client.Config{
		Address: "http://server",
		Dial:    func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return cl, func() {
		cl.Close()
		close(s.done)
		if err := web.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
}

func write(t *testing.T, w http.ResponseWriter, answer any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the agent may have hung up
}

// poll answers as servers do: what has not changed is only named.
func (s *server) poll(t *testing.T, r *http.Request) api.Assignments {
	t.Helper()
	since, err := strconv.ParseUint(r.URL.Query().Get("index"), 10, 64)
	if err != nil {
		t.Error(err)
	}
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	for waiting := true; ; {
		s.mu.Lock()
		answer, news := s.assigned, s.news
		answer.Allocations = nil
		for _, a := range s.assigned.Allocations {
			if s.changed[a.ID] <= since {
				a = api.AllocAssignment{ID: a.ID}
			}
			answer.Allocations = append(answer.Allocations, a)
		}
		s.mu.Unlock()
		if answer.Index != since || !waiting {
			return answer
		}
		select {
		case <-news:
		case <-timer.C:
			waiting = false
		case <-r.Context().Done():
			return answer
		}
	}
}

// change changes what is assigned, at a new index.
func (s *server) change(f func(a *api.Assignments)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned.Index++
	before := len(s.assigned.Allocations)
	f(&s.assigned)
	for _, a := range s.assigned.Allocations[min(before, len(s.assigned.Allocations)):] {
		s.changed[a.ID] = s.assigned.Index
	}
	close(s.news)
	s.news = make(chan struct{})
}

// place assigns an allocation with one task.
func (s *server) place(id api.AllocID) {
	s.change(func(a *api.Assignments) {
		a.Allocations = append(a.Allocations, api.AllocAssignment{
			ID: id, Allocation: &api.Allocation{ID: id, Desired: api.DesireRun},
			Group: &api.TaskGroup{Tasks: []api.Task{{Name: "t", Driver: "fake"}}},
		})
	})
}

func (s *server) state(id api.AllocID) api.AllocState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard[id]
}

// cleared is the epoch before which nothing is left, and what was said last to
// be in the way.
func (s *server) cleared() (undone uint64, remains string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.undone, s.remains
}

// fence ends the epoch of the node.
func (s *server) fence() {
	s.change(func(a *api.Assignments) {
		a.Epoch, a.Owes, a.Fence = 2, true, &api.Evidence{Kind: api.EvidenceOperator, By: "ada", Epoch: 1}
		for i := range a.Allocations {
			lost := *a.Allocations[i].Allocation
			lost.Status.State = api.AllocLost
			a.Allocations[i].Allocation = &lost
			s.changed[lost.ID] = a.Index
		}
	})
}

// outcome is what was said last of an operation.
func (s *server) outcome() api.OperationFact {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said
}

// registered is what the agent said last when it registered.
func (s *server) registered() api.Registration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// tasks is a task driver in memory. The tasks in stuck cannot be stopped.
type tasks struct {
	mu      sync.Mutex // guards below
	running map[string]chan struct{}
	started int
	stuck   map[string]bool
	signals []string
}

func newTasks() *tasks { return &tasks{running: map[string]chan struct{}{}, stuck: map[string]bool{}} }

func (*tasks) Name() string { return "fake" }

func (*tasks) Fingerprint(context.Context) api.Driver { return api.Driver{Healthy: true} }

func (*tasks) Check(api.Task) error { return nil }

func (d *tasks) Start(_ context.Context, spec driver.Spec) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running[spec.ID] == nil {
		d.running[spec.ID] = make(chan struct{})
		d.started++
	}
	return nil
}

func (d *tasks) Status(_ context.Context, id string) (driver.Status, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running[id] == nil {
		return driver.Status{State: driver.StateUnknown}, nil
	}
	return driver.Status{State: driver.StateRunning, PID: 7}, nil
}

func (d *tasks) Wait(ctx context.Context, id string) (driver.Status, error) {
	d.mu.Lock()
	ended := d.running[id]
	d.mu.Unlock()
	if ended == nil {
		return driver.Status{}, api.Errorf(api.CodeNotFound, "no task %s", id)
	}
	select {
	case <-ended:
		return driver.Status{State: driver.StateEnded}, nil
	case <-ctx.Done():
		return driver.Status{}, ctx.Err()
	}
}

func (d *tasks) Signal(_ context.Context, id, signal string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running[id] == nil {
		return api.Errorf(api.CodeConflict, "task %s does not run", id)
	}
	d.signals = append(d.signals, signal+" "+id)
	return nil
}

func (d *tasks) Stop(_ context.Context, id, _ string, _ time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stuck[id] {
		return errors.New("it is in state D")
	}
	if ended := d.running[id]; ended != nil {
		close(ended)
		delete(d.running, id)
	}
	return nil
}

func (*tasks) Destroy(context.Context, string) error { return nil }

// stuckFor says whether a task can be stopped.
func (d *tasks) stuckFor(id string, stuck bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stuck[id] = stuck
}

// counts are how many run, and how many were ever started.
func (d *tasks) counts() (running, started int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.running), d.started
}
