package assignment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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

// Streams takes up the streams that servers want. It must not wait.
type Streams interface {
	// Offer takes what is wanted in a session, which ends when over is closed.
	Offer(over <-chan struct{}, session string, epoch uint64, offers []api.StreamOffer)
}

// Config says who registers.
type Config struct {
	Node    localdb.Node
	BootID  string
	Version string
	// Drivers answers the task drivers at the time of a registration.
	Drivers func(ctx context.Context) map[string]api.Driver
	// Profile answers what the machine is like at the time of a registration.
	Profile func() api.Profile
	// Consumer takes what the node is to do.
	Consumer Consumer
	// Streams takes up what servers want to read; nil takes up nothing.
	Streams Streams
	// Lease is how long the servers wait for word of the agent.
	Lease time.Duration
}

// Link is the connection to the servers: one session after another.
type Link struct {
	cfg      Config
	servers  Servers
	memory   Memory
	facts    *Facts
	log      *slog.Logger
	token    string
	node     localdb.Node // owned by Run's goroutine
	sequence uint64       // of the last report
	reported versions     // what it said, until the servers have it
	state    atomic.Pointer[State]
	changed  chan struct{} // capacity 1: what is registered has changed
	// streaming is closed when the streams end that were taken up in an epoch;
	// nil if there is none.
	streaming      chan struct{}
	streamingEpoch uint64
	Stats
}

// Stats counts what a link did since it was made.
type Stats struct {
	// Polls counts answers with assignments, Reports what the servers took, and
	// Facts what was in that. Sessions counts registrations.
	Polls, Reports, Facts, Sessions atomic.Int64
}

// State is how the link stands, for people.
type State struct {
	Registered bool
	// Problem is why it is not registered; or what of it the local database does
	// not take, which is tried again.
	Problem error
}

// New returns a link. It starts nothing.
func New(cfg Config, servers Servers, memory Memory, facts *Facts, log *slog.Logger) *Link {
	l := &Link{
		cfg: cfg, servers: servers, memory: memory, facts: facts, log: log,
		token: localdb.NewSession(), node: cfg.Node, changed: make(chan struct{}, 1),
	}
	l.state.Store(&State{})
	return l
}

// Register has the node register again, with the same session: what the machine
// is like has changed.
func (l *Link) Register() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// profile is what the machine is like now.
func (l *Link) profile() api.Profile {
	if l.cfg.Profile == nil {
		return api.Profile{}
	}
	return l.cfg.Profile()
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
	defer l.hangUp()
	for ctx.Err() == nil {
		err := l.session(ctx, &pause)
		if errors.Is(err, errChanged) {
			continue // with the same token
		}
		l.hangUp()
		if ctx.Err() == nil {
			pause = l.complain(err, pause)
			supervise.Sleep(ctx, pause)
			pause = min(2*pause, lastRetry)
		}
	}
	return nil
}

// streams is closed when those end that are taken up now: with the epoch, or when
// contact is lost. That the node registers again cuts nobody's reading short.
func (l *Link) streams(epoch uint64) <-chan struct{} {
	if l.streaming == nil || l.streamingEpoch != epoch {
		l.hangUp()
		l.streaming, l.streamingEpoch = make(chan struct{}), epoch
	}
	return l.streaming
}

// hangUp ends the streams that were taken up.
func (l *Link) hangUp() {
	if l.streaming != nil {
		close(l.streaming)
		l.streaming = nil
	}
}

// complain says why a session ended, and answers when to try the next.
func (l *Link) complain(err error, pause time.Duration) time.Duration {
	l.state.Store(&State{Problem: err})
	switch api.CodeOf(err) {
	case api.CodeStaleSession:
		l.log.Info("session ended, registering again", "reason", err)
	case api.CodeIdentityInUse, api.CodeWrongCluster, api.CodeForbidden, api.CodeInvalid:
		l.log.Error("the servers refuse this agent; its tasks run on", "error", err)
		return refusedRetry
	default:
		l.log.Warn("no contact with the servers", "error", err, "retry", pause)
	}
	return pause
}

// errChanged ends a session, so that the next one tells what has changed.
var errChanged = errors.New("the machine is described otherwise")

// session registers, then polls and reports until either fails. It puts pause
// back when the servers have answered a poll: where they take every
// registration, a write to their log, and refuse what comes after it, agents
// must not hurry.
func (l *Link) session(ctx context.Context, pause *time.Duration) (err error) {
	registered, err := l.register(ctx)
	if err != nil {
		return err
	}
	l.state.Store(&State{Registered: true})
	l.Sessions.Add(1)
	l.log.Info("registered", "node", l.node.ID, "cluster", registered.ClusterID, "epoch", registered.Epoch)
	s := &session{
		Link: l, epoch: registered.Epoch,
		generation: registered.Generation.Number, recovering: registered.Generation.Recovering,
		over: l.streams(registered.Epoch), troubles: troubles{link: l},
	}
	defer func() { err = errors.Join(err, s.memory.PutNode(s.node)) }()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.poll(ctx, pause) })
	g.Go(func() error { return s.report(ctx, registered.Sequence) })
	g.Go(func() error {
		select {
		case <-l.changed:
			return errChanged
		case <-ctx.Done():
			return nil
		}
	})
	return g.Wait()
}

// register opens a session. Its token is in the local database before it is
// sent: if the answer is lost, the next agent still shows that it is the one
// that the servers spoke to. An agent has one token, however often it tries.
func (l *Link) register(ctx context.Context) (*api.Registered, error) {
	select {
	case <-l.changed: // it is told now
	default:
	}
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
		FeatureLevel: api.FeatureLevel, Generation: l.node.Generation, Index: l.node.Index, Epoch: l.node.Epoch,
		Drivers: l.cfg.Drivers(ctx), Profile: l.profile(),
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
	next.BootID = l.cfg.BootID
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
	recovering bool
	index      uint64                // of the newest assignments
	named      []api.AllocAssignment // their allocations, by name only
	stored     time.Time
	over       <-chan struct{} // the end of the streams that are taken up
	troubles   troubles
}

// named notes which allocations assignments are about, and names them in those
// that only say that they are the same. Consumers always hear of all.
func named(a *api.Assignments, before []api.AllocAssignment) []api.AllocAssignment {
	if a.Same {
		a.Allocations = before
		return before
	}
	all := make([]api.AllocAssignment, len(a.Allocations))
	for i := range a.Allocations {
		all[i].ID = a.Allocations[i].ID
	}
	return all
}

// storeInterval is how often the newest index goes to the local database. It
// is to show, after a restart, that the servers went back by hours; a second
// more or less does not matter, and a write for every change would be on the
// way of every volume.
const storeInterval = time.Second

// poll pulls assignments until it fails.
func (s *session) poll(ctx context.Context, pause *time.Duration) error {
	for {
		a, err := s.servers.Assignments(ctx, s.token, s.epoch, s.index, s.cfg.Lease/3)
		if err != nil {
			return err
		}
		s.Polls.Add(1)
		if err := s.seen(a); err != nil {
			return err
		}
		*pause = firstRetry
		if len(a.Streams) > 0 && s.cfg.Streams != nil {
			s.cfg.Streams.Offer(s.over, s.token, s.epoch, a.Streams)
		}
		if s.recovering && !a.Generation.Recovering {
			// Consumers have passed over what they were told meanwhile, and the
			// servers name it without saying it again: all from the start.
			s.recovering, s.index = false, 0
			continue
		}
		if a.Index > s.index {
			s.named = named(a, s.named)
			s.cfg.Consumer.Assign(a)
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
	if time.Since(s.stored) >= storeInterval {
		s.stored = time.Now()
		s.troubles.note(&s.troubles.index, s.memory.PutNode(s.node))
	}
	return nil
}

// report sends facts until it fails. The last report of an earlier session goes
// first, if the servers do not have it.
func (s *session) report(ctx context.Context, sequence uint64) error {
	if err := s.repeat(ctx, sequence); err != nil {
		return err
	}
	limit, pause := maxFacts, firstRetry
	for {
		select {
		case <-s.facts.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		facts, taken := s.facts.take(limit)
		if len(taken) == 0 {
			continue
		}
		rep := &api.Report{NodeID: s.cfg.Node.ID, Session: s.token, Epoch: s.epoch, Sequence: s.sequence + 1, Facts: facts}
		err := s.memory.PutReport(rep)
		s.troubles.note(&s.troubles.report, err)
		if err != nil {
			// It is not sent: a next agent would not know that it was.
			s.facts.again(taken)
			supervise.Sleep(ctx, pause)
			pause = min(2*pause, lastRetry)
			continue
		}
		s.reported, pause = taken, firstRetry
		applied, err := s.send(ctx, rep)
		switch {
		case err != nil:
			return err
		case applied:
			limit = maxFacts
			s.Reports.Add(1)
			s.Stats.Facts.Add(int64(len(taken)))
		case len(taken) > 1:
			// One fact of many may be at fault. It is kept apart from the others.
			limit = (len(taken) + 1) / 2
			s.facts.again(taken)
			continue
		default:
			// The servers will never take it. To repeat it would keep back all
			// that comes after.
			s.log.Error("the servers refuse a fact", "sequence", rep.Sequence, "fact", slices.Collect(maps.Keys(taken))[0])
		}
		s.facts.acknowledge(taken)
	}
}

// repeat sends the last report that was recorded, unless the servers have it or
// have begun a new epoch. What is in it is then said anew.
func (s *session) repeat(ctx context.Context, sequence uint64) error {
	last, err := s.memory.Report()
	if err != nil {
		return err
	}
	s.sequence = sequence
	if last == nil || last.Epoch != s.epoch {
		return nil
	}
	applied := last.Sequence <= sequence
	if !applied {
		last.Session = s.token
		if applied, err = s.send(ctx, last); err != nil {
			return err
		}
	}
	if applied {
		s.facts.acknowledge(s.reported)
	} else {
		s.facts.again(s.reported)
	}
	return nil
}

// send repeats a report until it is applied, or refused for good.
func (s *session) send(ctx context.Context, rep *api.Report) (applied bool, err error) {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		_, err := s.servers.Report(ctx, *rep)
		switch code := api.CodeOf(err); {
		case err == nil:
			s.sequence = rep.Sequence
			return true, nil
		case code == api.CodeInvalid || code == api.CodeTooLarge:
			s.log.Warn("the servers refuse a report", "sequence", rep.Sequence, "error", err)
			s.sequence = rep.Sequence
			return false, nil
		}
		if e, ok := errors.AsType[*api.Error](err); !ok || !e.Retry {
			return false, fmt.Errorf("report facts: %w", err)
		}
		s.log.Debug("report is repeated", "sequence", rep.Sequence, "error", err)
		if !supervise.Sleep(ctx, pause) {
			return false, ctx.Err()
		}
	}
}
