package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/supervise"
	"github.com/berth-dev/berth/internal/telemetry"
)

// Config says what one server's share in the consensus is made of.
type Config struct {
	// ServerID is this server's name among the servers. It never changes.
	ServerID string
	// Expect is how many servers form the cluster (bootstrap_expect).
	Expect int
	// Discover finds the servers that will form the cluster.
	Discover Discovery
	// Transport carries raft's messages.
	Transport raft.Transport
	// Stores is where the log, the votes and the snapshots are.
	Stores Stores
	// Tuning shortens raft's timers; the zero value is for a real network.
	Tuning Tuning
	// Lead runs while this server leads; leadership is its context.
	Lead func(ctx context.Context) error
	// Metrics measures commits; nil measures nothing.
	Metrics *telemetry.Registry
}

// Tuning is raft's timers.
type Tuning struct {
	Heartbeat, Election, LeaderLease, Commit time.Duration
}

// Consensus is one server's share in the replicated log.
type Consensus struct {
	cfg      Config
	log      *slog.Logger
	store    *state.Store
	fsm      *fsm
	proposer *proposer
	raft     *raft.Raft // set by Run before anything can propose
	started  chan struct{}
}

// New checks the configuration. It starts nothing.
func New(cfg Config, store *state.Store, log *slog.Logger) (*Consensus, error) {
	var p api.Problems
	if cfg.ServerID == "" {
		p.Add("server_id", "is empty", "name this server")
	}
	if cfg.Expect < 1 {
		p.Addf("bootstrap_expect", "use the number of servers, such as 1 or 3", "is %d", cfg.Expect)
	}
	if err := p.Err("the consensus"); err != nil {
		return nil, err
	}
	codec, sent := command.NewCodec(), &sentEntries{}
	c := &Consensus{
		cfg:     cfg,
		log:     log,
		store:   store,
		fsm:     &fsm{store: store, codec: codec, sent: sent, log: log},
		started: make(chan struct{}),
	}
	c.proposer = newProposer(proposerConfig{log: log, codec: codec, store: store, raft: c, clock: machine(), sent: sent, measures: newMeasures(cfg.Metrics)})
	c.proposer.room.free = cfg.Stores.Free
	return c, nil
}

// Run takes part in the consensus until ctx ends. It returns when everything
// that it started has ended, and the files are closed.
func (c *Consensus) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, c.cfg.Stores.Close()) }()
	r, err := raft.NewRaft(c.raftConfig(), c.fsm, c.cfg.Stores.Log, c.cfg.Stores.Stable, c.cfg.Stores.Snapshots, c.cfg.Transport)
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	c.raft = r
	close(c.started)
	c.lookForRoom() // before anything is planned
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.watchRoom(ctx) })
	g.Go(func() error { return c.watchLog(ctx) })
	g.Go(func() error { return c.form(ctx) })
	g.Go(func() error { return c.follow(ctx) })
	g.Go(func() error { return c.compact(ctx) })
	err = g.Wait()
	c.leaveSnapshot()
	if stop := r.Shutdown().Error(); stop != nil {
		err = errors.Join(err, fmt.Errorf("stop raft: %w", stop))
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// watchLog ends this server's share when a write to its log has failed. What
// the log holds then, only one that is opened anew knows.
func (c *Consensus) watchLog(ctx context.Context) error {
	select {
	case err := <-c.cfg.Stores.Failed:
		return fmt.Errorf("write the log: %w; what it holds is known when this server has been started again", err)
	case <-ctx.Done():
		return nil
	}
}

func (c *Consensus) raftConfig() *raft.Config {
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(c.cfg.ServerID)
	cfg.Logger = newRaftLogger(c.log)
	cfg.NoLegacyTelemetry = true
	// Snapshots are taken by compact, by bytes: raft would count entries.
	cfg.SnapshotThreshold = 1 << 62
	cfg.SnapshotInterval = 24 * time.Hour
	cfg.TrailingLogs = trailingEntries
	t := c.cfg.Tuning
	if t.Heartbeat > 0 {
		cfg.HeartbeatTimeout, cfg.ElectionTimeout = t.Heartbeat, t.Election
		cfg.LeaderLeaseTimeout, cfg.CommitTimeout = t.LeaderLease, t.Commit
	}
	return cfg
}

// follow leads whenever raft says that this server leads, and only then.
func (c *Consensus) follow(ctx context.Context) error {
	t := &term{end: func() {}}
	defer t.stop()
	for {
		select {
		case leads := <-c.raft.LeaderCh():
			t.stop()
			if leads {
				t = begin(ctx, c.lead)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// term is one leadership, which runs until it is stopped.
type term struct {
	end     context.CancelFunc
	running sync.WaitGroup
}

func begin(ctx context.Context, lead func(context.Context)) *term {
	ctx, end := context.WithCancel(ctx)
	t := &term{end: end}
	t.running.Go(func() { lead(ctx) })
	return t
}

func (t *term) stop() {
	t.end()
	t.running.Wait()
}

// retryLead is how long a leader waits before it leads again after a failure.
const retryLead = time.Second

// lead leads until the leadership ends. If leading fails, another server gets
// the leadership, if there is one; else this one tries again.
func (c *Consensus) lead(ctx context.Context) {
	c.log.Info("leadership won", "server", c.cfg.ServerID)
	defer c.log.Info("leadership ended", "server", c.cfg.ServerID)
	for ctx.Err() == nil {
		if err := c.leadOnce(ctx); err != nil {
			c.log.Error("leading failed", "error", err)
			if err := c.raft.LeadershipTransfer().Error(); err != nil {
				c.log.Warn("leadership could not be handed over", "error", err)
			}
		}
		supervise.Sleep(ctx, retryLead)
	}
}

// leadOnce proposes, and runs what only a leader runs.
func (c *Consensus) leadOnce(ctx context.Context) error {
	ready := make(chan struct{})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.proposer.run(ctx, ready) })
	g.Go(func() error {
		select {
		case <-ready:
			return c.cfg.Lead(ctx)
		case <-ctx.Done():
			return nil
		}
	})
	return g.Wait()
}

// Propose writes the commands as one plan and returns the index of its commit.
// Without an error, what the commands ask for is in the committed state, also
// if it was there already. What a refusal rests on is committed, too.
func (c *Consensus) Propose(ctx context.Context, commands ...command.Command) (uint64, error) {
	type answer struct {
		index uint64
		err   error
	}
	answered := make(chan answer, 1)
	done := func(index uint64, err error) { answered <- answer{index, err} }
	if err := c.proposer.propose(ctx, commands, done); err != nil {
		return 0, settled(ctx, err)
	}
	select {
	case a := <-answered:
		return a.index, a.err
	case <-ctx.Done():
		return 0, api.Errorf(api.CodeUncertain, "it is not known whether this was written: %v", context.Cause(ctx))
	}
}

// Decide plans with the overlay, in turn with everybody else. It returns as
// soon as the plan is in the overlay, saying whether it writes anything, or
// with the error that kept it out. Without an error done follows: when the
// plan, and all that it was made on, is committed, or is not.
func (c *Consensus) Decide(ctx context.Context, f func(state.View, time.Time) (command.Plan, error), done func(uint64, error)) (writes bool, err error) {
	return c.proposer.decide(ctx, f, done)
}

// Now is command time: what a plan that is made now would be made with.
func (c *Consensus) Now() time.Time { return c.proposer.now() }

// View reads the committed state.
func (c *Consensus) View() state.View { return c.store.View() }

// Ready reports whether this server leads and takes plans: its state is then
// up to date.
func (c *Consensus) Ready() bool { return c.proposer.leading() }

// Counters are the proposer's.
func (c *Consensus) Counters() *Counters { return &c.proposer.Counters }

// Diverged counts entries that failed although they had been planned. It is
// zero unless there is a fault in Berth.
func (c *Consensus) Diverged() int64 { return c.fsm.diverged.Load() }

// Leader is the id and address of the leader as this server knows it, or "".
func (c *Consensus) Leader() (id, address string) {
	select {
	case <-c.started:
	default:
		return "", ""
	}
	addr, sid := c.raft.LeaderWithID()
	return string(sid), string(addr)
}

// Barrier returns when everything that was committed before it is in the state
// of this server, which must lead.
func (c *Consensus) Barrier(ctx context.Context) error {
	select {
	case <-c.started:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := c.barrier(); err != nil {
		return api.Errorf(api.CodeUnavailable, "barrier: %v", err)
	}
	return nil
}

// barrierTimeout bounds how long a barrier may wait to be queued.
const barrierTimeout = 30 * time.Second

// The proposer's view of raft.

func (c *Consensus) append(entry []byte) raft.ApplyFuture { return c.raft.Apply(entry, 0) }
func (c *Consensus) verify() raft.Future                  { return c.raft.VerifyLeader() }
func (c *Consensus) barrier() error                       { return c.raft.Barrier(barrierTimeout).Error() }
func (c *Consensus) term() uint64                         { return c.raft.CurrentTerm() }
