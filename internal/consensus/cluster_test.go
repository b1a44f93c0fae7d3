package consensus_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/consensus"
	"github.com/berth-dev/berth/internal/state"
)

// cluster is a few servers in a synctest bubble. They form as production's do:
// each is told how many to expect, and they find each other.
type cluster struct {
	tb      testing.TB
	meeting *meeting
	// discover is how the servers find each other, the meeting if nothing else.
	discover consensus.Discovery
	network  *network
	servers  []*server
	// interpose, if set, stands between every proposer and its raft.
	interpose func(consensus.Append) consensus.Append
	// lead, if set, runs on the leader once the cluster has its id.
	lead func(ctx context.Context, s *server) error
	log  *slog.Logger
}

// server is one server. Its disk survives a restart.
type server struct {
	*consensus.Consensus
	id     string
	disk   *disk
	stores consensus.Stores
	cancel context.CancelFunc
	ended  chan error
}

// newCluster makes a cluster of n servers that are not started yet.
func newCluster(tb testing.TB, n int) *cluster {
	c := &cluster{
		tb:      tb,
		meeting: newMeeting(n),
		network: &network{wires: map[raft.ServerAddress]*wire{}, cut: map[link]bool{}},
		log:     slog.New(slog.DiscardHandler),
	}
	c.discover = c.meeting
	for i := range n {
		stores := consensus.MemoryStores()
		d := &disk{LogStore: stores.Log}
		stores.Log = d
		c.servers = append(c.servers, &server{id: fmt.Sprintf("server-%d", i), disk: d, stores: stores})
	}
	tb.Cleanup(c.stop)
	return c
}

// formed makes a cluster of n servers and waits until it has a leader.
func formed(tb testing.TB, n int) *cluster {
	c := newCluster(tb, n)
	c.start()
	c.leader()
	return c
}

func (c *cluster) start() {
	for _, s := range c.servers {
		c.startServer(s)
	}
}

func (c *cluster) startServer(s *server) {
	store, err := state.New()
	if err != nil {
		c.tb.Fatal(err)
	}
	s.Consensus, err = consensus.New(consensus.Config{
		ServerID: s.id, Expect: len(c.servers), Discover: c.discover, Transport: c.network.plug(s.id), Stores: s.stores,
		Lead: func(ctx context.Context) error { return c.leads(ctx, s) },
	}, store, c.log.With("server", s.id))
	if err != nil {
		c.tb.Fatal(err)
	}
	if c.interpose != nil {
		s.Interpose(c.interpose)
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.ended = make(chan error, 1)
	go func() { s.ended <- s.Run(ctx) }()
}

// leads is what a leader runs: it gives a new cluster its id.
func (c *cluster) leads(ctx context.Context, s *server) error {
	if s.View().Cluster() == nil {
		_, err := s.Propose(ctx, &command.InitCluster{ClusterID: "test", FeatureLevel: api.FeatureLevel})
		if err != nil && api.CodeOf(err) != api.CodeConflict {
			return err
		}
	}
	if c.lead != nil {
		return c.lead(ctx, s)
	}
	<-ctx.Done()
	return nil
}

func (c *cluster) stop() {
	for _, s := range c.servers {
		c.stopServer(s)
	}
}

func (c *cluster) stopServer(s *server) {
	if s.cancel == nil {
		return
	}
	s.cancel()
	if err := <-s.ended; err != nil {
		c.tb.Errorf("%s: Run: %v", s.id, err)
	}
	s.cancel = nil
}

// leader waits for a server that leads and has the cluster's id.
func (c *cluster) leader() *server {
	c.tb.Helper()
	var leader *server
	eventually(c.tb, "a leader", func() bool {
		leader = nil
		for _, s := range c.servers {
			if s.cancel != nil && s.Ready() && s.View().Cluster() != nil {
				leader = s
			}
		}
		return leader != nil
	})
	return leader
}

// settled waits until all servers that run have applied the same entries, and
// says if their states differ.
func (c *cluster) settled() *server {
	c.tb.Helper()
	leader := c.leader()
	eventually(c.tb, "the servers to be as far as the leader", func() bool {
		leader = c.leader()
		if leader.Barrier(context.Background()) != nil {
			return false
		}
		for _, s := range c.servers {
			if s.cancel != nil && s.View().Log() != leader.View().Log() {
				return false
			}
		}
		return true
	})
	want := saved(c.tb, leader.View())
	for _, s := range c.servers {
		if s.cancel != nil && !bytes.Equal(want, saved(c.tb, s.View())) {
			c.tb.Errorf("%s and %s differ:\n%s", leader.id, s.id, cmp.Diff(rows(c.tb, leader.View()), rows(c.tb, s.View())))
		}
		if s.cancel != nil && s.Diverged() != 0 {
			c.tb.Errorf("%s: %d entries failed that had been planned", s.id, s.Diverged())
		}
	}
	return leader
}

func saved(tb testing.TB, v state.View) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := v.Save(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// eventually waits, in the bubble's time, until done.
func eventually(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for range 12000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	tb.Fatalf("waited two minutes in vain for %s", what)
}

// meeting is where the servers of a cluster find each other.
type meeting struct {
	expect int
	mu     sync.Mutex // guards found
	found  map[string]consensus.Member
	full   chan struct{}
}

func newMeeting(expect int) *meeting {
	return &meeting{expect: expect, found: map[string]consensus.Member{}, full: make(chan struct{})}
}

// Found implements consensus.Discovery.
func (m *meeting) Found(ctx context.Context, self consensus.Member) ([]consensus.Member, error) {
	m.mu.Lock()
	if m.found[self.ID] = self; len(m.found) == m.expect {
		close(m.full)
	}
	m.mu.Unlock()
	select {
	case <-m.full:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.found)), nil
}

// network is what the servers speak through. Messages take time, and links can
// be cut; what is on its way arrives all the same, and its answer is lost.
type network struct {
	mu    sync.Mutex // guards all below
	wires map[raft.ServerAddress]*wire
	cut   map[link]bool
	slow  time.Duration // up to so much a message
	rnd   *rand.Rand    // how slow
}

// link is one direction between two servers.
type link struct{ from, to raft.ServerAddress }

// plug gives a server its end of the network.
func (n *network) plug(id string) raft.Transport {
	n.mu.Lock()
	defer n.mu.Unlock()
	addr, inner := raft.NewInmemTransport(raft.ServerAddress(id))
	w := &wire{InmemTransport: inner, network: n}
	n.wires[addr] = w
	for other, o := range n.wires {
		w.Connect(other, o.InmemTransport)
		o.Connect(addr, inner)
	}
	return w
}

// delay makes every message take up to d, at random.
func (n *network) delay(d time.Duration, rnd *rand.Rand) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow, n.rnd = d, rnd
}

// isolate cuts a server off from all others.
func (n *network) isolate(s *server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.wires {
		n.cut[link{raft.ServerAddress(s.id), other}] = true
		n.cut[link{other, raft.ServerAddress(s.id)}] = true
	}
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
}

// pass reports whether a message can go, and how long it takes.
func (n *network) pass(l link) (time.Duration, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := time.Duration(0)
	if n.slow > 0 {
		d = time.Duration(n.rnd.Int64N(int64(n.slow)))
	}
	return d, !n.cut[l]
}

// wire is one server's end of the network.
type wire struct {
	*raft.InmemTransport
	network *network
}

// carry takes a message to target, and its answer back.
func (w *wire) carry(target raft.ServerAddress, send func() error) error {
	there, ok := w.network.pass(link{w.LocalAddr(), target})
	if !ok {
		return fmt.Errorf("no way to %s", target)
	}
	time.Sleep(there)
	if err := send(); err != nil {
		return err
	}
	back, ok := w.network.pass(link{target, w.LocalAddr()})
	if !ok {
		return fmt.Errorf("no way back from %s", target)
	}
	time.Sleep(back)
	return nil
}

// AppendEntriesPipeline makes raft send entries one message after the other.
func (*wire) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries implements raft.Transport.
func (w *wire) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	return w.carry(target, func() error { return w.InmemTransport.AppendEntries(id, target, args, resp) })
}

// RequestVote implements raft.Transport.
func (w *wire) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return w.carry(target, func() error { return w.InmemTransport.RequestVote(id, target, args, resp) })
}

// RequestPreVote implements raft.WithPreVote.
func (w *wire) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return w.carry(target, func() error { return w.InmemTransport.RequestPreVote(id, target, args, resp) })
}

// InstallSnapshot implements raft.Transport.
func (w *wire) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return w.carry(target, func() error { return w.InmemTransport.InstallSnapshot(id, target, args, resp, data) })
}

// TimeoutNow implements raft.Transport.
func (w *wire) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return w.carry(target, func() error { return w.InmemTransport.TimeoutNow(id, target, args, resp) })
}

// disk is a log store on which something can happen to what is written.
type disk struct {
	raft.LogStore
	mu     sync.Mutex // guards before and after
	before func([]*raft.Log) error
	after  func([]*raft.Log) error
}

// happens makes before run, and fail, ahead of every write, and after behind it.
func (d *disk) happens(before, after func([]*raft.Log) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before, d.after = before, after
}

// StoreLog implements raft.LogStore.
func (d *disk) StoreLog(l *raft.Log) error { return d.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (d *disk) StoreLogs(logs []*raft.Log) error {
	d.mu.Lock()
	before, after := d.before, d.after
	d.mu.Unlock()
	if before != nil {
		if err := before(logs); err != nil {
			return err
		}
	}
	if err := d.LogStore.StoreLogs(logs); err != nil || after == nil {
		return err
	}
	return after(logs)
}

// seeds is how many random runs a test makes: usual ones, or as many as the
// environment asks for.
func seeds(usual uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv("BERTH_SEEDS"), 10, 64); err == nil {
		return n
	}
	return usual
}
