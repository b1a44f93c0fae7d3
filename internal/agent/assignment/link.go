package assignment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/supervise"
)

// Servers is the API as an agent uses it.
type Servers interface {
	Register(ctx context.Context, reg api.Registration) (api.Registered, error)
	Assignments(ctx context.Context, session string, epoch, index uint64, wait time.Duration) (*api.Assignments, error)
	Report(ctx context.Context, rep api.Report) (api.Reported, error)
}

// Memory is what the link keeps across restarts.
type Memory interface {
	PutNode(n localdb.Node) error
	Report() (*api.Report, error)
	PutReport(r *api.Report) error
}

// Consumer takes what the node is to do. It is called from one goroutine, and
// never with something older than before.
type Consumer interface {
	Assign(a *api.Assignments)
}

// Config says who registers.
type Config struct {
	Node    localdb.Node
	BootID  string
	Version string
	// Drivers answers the task drivers at the time of a registration.
	Drivers func() map[string]api.Driver
	// Lease is how long the servers wait for word of the agent.
	Lease time.Duration
}

// Link is the connection to the servers: one session after another.
type Link struct {
	cfg      Config
	servers  Servers
	memory   Memory
	facts    *Facts
	consumer Consumer
	log      *slog.Logger
	token    string
	node     localdb.Node // owned by Run's goroutine
	sequence uint64       // of the last report
	state    atomic.Pointer[State]
}

// State is how the link stands, for people.
type State struct {
	Registered bool
	// Problem is why it is not registered.
	Problem error
}

// New returns a link. It starts nothing.
func New(cfg Config, servers Servers, memory Memory, facts *Facts, consumer Consumer, log *slog.Logger) *Link {
	l := &Link{
		cfg: cfg, servers: servers, memory: memory, facts: facts, consumer: consumer, log: log,
		token: localdb.NewSession(), node: cfg.Node,
	}
	l.state.Store(&State{})
	return l
}

// State is how the link stands now.
func (l *Link) State() State { return *l.state.Load() }

// Between tries to register. A refusal that only a person can mend is tried
// again slowly: the tasks run on meanwhile.
const (
	firstRetry   = 100 * time.Millisecond
	lastRetry    = 5 * time.Second
	refusedRetry = 15 * time.Second
)

// Run keeps a session open until ctx ends. No failure ends it: an agent without
// servers keeps its tasks running.
func (l *Link) Run(ctx context.Context) error {
	pause := firstRetry
	for ctx.Err() == nil {
		err := l.session(ctx, &pause)
		if ctx.Err() != nil {
			return nil
		}
		l.state.Store(&State{Problem: err})
		switch api.CodeOf(err) {
		case api.CodeStaleSession:
			l.log.Info("session ended, registering again", "reason", err)
		case api.CodeIdentityInUse, api.CodeWrongCluster, api.CodeForbidden, api.CodeInvalid:
			l.log.Error("the servers refuse this agent; its tasks run on", "error", err)
			pause = refusedRetry
		default:
			l.log.Warn("no contact with the servers", "error", err, "retry", pause)
		}
		supervise.Sleep(ctx, pause)
		pause = min(2*pause, lastRetry)
	}
	return nil
}

// session registers, then polls and reports until either fails.
func (l *Link) session(ctx context.Context, pause *time.Duration) (err error) {
	registered, err := l.register(ctx)
	if err != nil {
		return err
	}
	*pause = firstRetry
	l.state.Store(&State{Registered: true})
	l.log.Info("registered", "node", l.node.ID, "cluster", registered.ClusterID, "epoch", registered.Epoch)
	s := &session{Link: l, epoch: registered.Epoch, generation: registered.Generation.Number}
	defer func() { err = errors.Join(err, s.memory.PutNode(s.node)) }()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.poll(ctx) })
	g.Go(func() error { return s.report(ctx, registered.Sequence) })
	return g.Wait()
}

// register opens a session. Its token is in the local database before it is
// sent: if the answer is lost, the next agent still shows that it is the one
// that the servers spoke to. An agent has one token, however often it tries.
func (l *Link) register(ctx context.Context) (*api.Registered, error) {
	if len(l.node.Pending) == 0 || l.node.Pending[0] != l.token {
		next := l.node
		next.Pending = append([]string{l.token}, next.Pending[:min(len(next.Pending), maxPending)]...)
		if err := l.memory.PutNode(next); err != nil {
			return nil, err
		}
		l.node = next
	}
	known := slices.Clone(l.node.Pending[1:])
	if l.node.Session != "" {
		known = append(known, l.node.Session)
	}
	answer, err := l.servers.Register(ctx, api.Registration{
		NodeID: l.node.ID, Name: l.node.Name, ClusterID: l.node.ClusterID,
		Session: l.token, Known: known, BootID: l.cfg.BootID, Version: l.cfg.Version,
		FeatureLevel: api.FeatureLevel, Generation: l.node.Generation, Index: l.node.Index,
		Drivers: l.cfg.Drivers(),
	})
	if err != nil {
		return nil, err
	}
	return &answer, l.remember(&answer)
}

// maxPending bounds the tokens of agents that came and went without a word
// from the servers. The last that the servers are known to have is kept beside
// them, so that no number of restarts makes the node a stranger.
const maxPending = 16

// remember pins the cluster and the session.
func (l *Link) remember(r *api.Registered) error {
	if l.node.ClusterID != "" && l.node.ClusterID != r.ClusterID {
		return api.Errorf(api.CodeWrongCluster, "these are the servers of cluster %s, and this agent belongs to cluster %s", r.ClusterID, l.node.ClusterID)
	}
	if r.Generation.Number < l.node.Generation {
		return api.Errorf(api.CodeRolledBack, "the servers are in generation %d, and this agent has seen generation %d", r.Generation.Number, l.node.Generation)
	}
	fresh := r.Epoch != l.node.Epoch || r.Generation.Number != l.node.Generation
	next := l.node
	next.ClusterID, next.Epoch, next.Session, next.Pending = r.ClusterID, r.Epoch, l.token, []string{l.token}
	if r.Generation.Number > next.Generation {
		next.Generation, next.Index = r.Generation.Number, 0
	}
	if err := l.memory.PutNode(next); err != nil {
		return err
	}
	l.node = next
	if fresh {
		l.facts.all()
	}
	return nil
}

// session is one session with the servers.
type session struct {
	*Link
	epoch      uint64
	generation uint64
	index      uint64 // of the newest assignments
	stored     time.Time
}

// storeInterval is how often the newest index goes to the local database. It
// is to show, after a restart, that the servers went back by hours; a second
// more or less does not matter, and a write for every change would be on the
// way of every volume.
const storeInterval = time.Second

// poll pulls assignments until it fails.
func (s *session) poll(ctx context.Context) error {
	for {
		a, err := s.servers.Assignments(ctx, s.token, s.epoch, s.index, s.cfg.Lease/3)
		if err != nil {
			return err
		}
		if err := s.seen(a); err != nil {
			return err
		}
		if a.Index > s.index {
			s.consumer.Assign(a)
			s.index = a.Index
		}
	}
}

// seen checks that the servers have not gone back, and remembers how far they
// are.
func (s *session) seen(a *api.Assignments) error {
	if a.ClusterID != s.node.ClusterID {
		return api.Errorf(api.CodeWrongCluster, "these are the servers of cluster %s, and this agent belongs to cluster %s", a.ClusterID, s.node.ClusterID)
	}
	if a.Generation.Number != s.generation || a.Epoch != s.epoch {
		return api.Errorf(api.CodeStaleSession, "the servers are in generation %d and epoch %d of this node", a.Generation.Number, a.Epoch)
	}
	if a.Index < s.node.Index {
		return api.Errorf(api.CodeStaleSession, "the servers reach index %d, and this agent has seen index %d", a.Index, s.node.Index)
	}
	s.node.Index = a.Index
	if time.Since(s.stored) < storeInterval {
		return nil
	}
	s.stored = time.Now()
	return s.memory.PutNode(s.node)
}

// report sends facts until it fails. The last report of an earlier session goes
// first, if the servers do not have it.
func (s *session) report(ctx context.Context, applied uint64) error {
	last, err := s.memory.Report()
	if err != nil {
		return err
	}
	s.sequence = applied
	if last != nil && last.Epoch == s.epoch && last.Sequence > applied {
		last.Session = s.token
		if err := s.send(ctx, last); err != nil {
			return err
		}
	}
	for {
		select {
		case <-s.facts.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		facts := s.facts.take()
		if facts.Empty() {
			continue
		}
		rep := &api.Report{NodeID: s.cfg.Node.ID, Session: s.token, Epoch: s.epoch, Sequence: s.sequence + 1, Facts: facts}
		if err := s.memory.PutReport(rep); err != nil {
			return err
		}
		if err := s.send(ctx, rep); err != nil {
			return err
		}
	}
}

// send repeats a report until it is applied, or refused for good.
func (s *session) send(ctx context.Context, rep *api.Report) error {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		_, err := s.servers.Report(ctx, *rep)
		if err == nil {
			s.sequence = rep.Sequence
			return nil
		}
		var e *api.Error
		if code := api.CodeOf(err); code == api.CodeInvalid || code == api.CodeTooLarge {
			// The servers will never take it. To repeat it would keep back all
			// that comes after.
			s.log.Error("the servers refuse a report", "sequence", rep.Sequence, "error", err)
			s.sequence = rep.Sequence
			return nil
		}
		if !errors.As(err, &e) || !e.Retry {
			return fmt.Errorf("report facts: %w", err)
		}
		s.log.Debug("report is repeated", "sequence", rep.Sequence, "error", err)
		if !supervise.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}
