// Package cluster builds whole clusters in one process, for simulations and
// benchmarks: a server, agents, and a storage provider with a driver on each
// node. It uses the constructors that main uses, and forms clusters as
// production does; only the wires, the disks of raft, the kernel's mount table
// and the tasks are in memory.
//
// It never reaches into what it builds. Invariant: whatever is killed here
// leaves behind what a killed process leaves behind, and nothing else.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/consensus"
	"github.com/berth-dev/berth/internal/controller/collector"
	"github.com/berth-dev/berth/internal/controller/dispatcher"
	"github.com/berth-dev/berth/internal/keyring"
	"github.com/berth-dev/berth/internal/server"
	"github.com/berth-dev/berth/internal/server/sweep"
	"github.com/berth-dev/berth/internal/server/tracing"
	"github.com/berth-dev/berth/internal/telemetry"
)

// PluginID is the plugin that every node has.
const PluginID api.PluginID = "provider"

// Config says what a cluster is made of.
type Config struct {
	// Agents is the number of nodes.
	Agents int
	// Provider is the kind of driver that all nodes have.
	Provider csitest.Options
	// MaxVolumes is how many volumes a node takes, without limit if 0.
	MaxVolumes int64
	// Log is where everything is logged; nil discards.
	Log *slog.Logger
	// Keep is how long history stays; zero keeps a day.
	Keep collector.Keep
	// Calls bounds the calls to the plugin.
	Calls dispatcher.Calls
	// Sweep says how often plugins are compared with the state; zero is the
	// server's own choice.
	Sweep sweep.Config
	// Stores makes the server's stores at every start; nil keeps them in memory
	// across restarts.
	Stores func() (consensus.Stores, error)
	// Disk keeps local databases on the disk, also where memory could serve.
	Disk bool
	// Metrics counts what the server and the first node do; nil counts nothing.
	Metrics *telemetry.Registry
	// Split makes the plugin two programs: its node service is on every node,
	// and its controller service on one, from which it can move.
	Split bool
	// Wire changes how agents reach the server; nil is a plain wire.
	Wire func(next Dialer) Dialer
	// Tracer makes the server's spans; nil makes none.
	Tracer *tracing.Tracer
}

// Dialer connects to the server.
type Dialer func(ctx context.Context) (net.Conn, error)

// Cluster is one cluster.
type Cluster struct {
	TB      testing.TB
	Backend *csitest.Backend
	// Client reads and writes as a user does.
	Client *client.Client
	Nodes  []*Node

	cfg    Config
	stores consensus.Stores
	// keyring is the file of the server's keys, which outlives its log.
	keyring string
	twins   []*Node

	mu     sync.Mutex // guards below
	server *running
	wire   *wire
}

// running is a server that runs.
type running struct {
	stop  context.CancelFunc
	ended chan error
	log   *mortal
}

// Start builds a cluster and starts it. It ends with the test.
func Start(tb testing.TB, cfg Config) *Cluster {
	tb.Helper()
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Keep == (collector.Keep{}) {
		cfg.Keep = collector.DefaultKeep()
	}
	c := &Cluster{TB: tb, cfg: cfg, Backend: csitest.NewBackend(cfg.Provider), stores: consensus.MemoryStores()}
	c.keyring = filepath.Join(tb.TempDir(), "keyring.json")
	c.Client = c.client(2 * time.Second)
	tb.Cleanup(c.Close)
	c.StartServer()
	for i := range cfg.Agents {
		c.Nodes = append(c.Nodes, c.newNode(fmt.Sprintf("n%d", i+1)))
	}
	for _, n := range c.Nodes {
		n.Start()
	}
	return c
}

// client reaches whatever server there is when it connects.
func (c *Cluster) client(patience time.Duration) *client.Client {
	cl, err := client.New(client.Config{
		Address: "http://server", Patience: patience,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
	})
	if err != nil {
		c.TB.Fatal(err)
	}
	return cl
}

// dial connects to the server, or is refused.
func (c *Cluster) dial(ctx context.Context) (net.Conn, error) {
	c.mu.Lock()
	wire := c.wire
	c.mu.Unlock()
	if wire == nil {
		return nil, &net.OpError{Op: "dial", Err: errRefused}
	}
	return wire.dial(ctx)
}

// StartServer starts the server with the log that it had, if it had one.
func (c *Cluster) StartServer() {
	c.TB.Helper()
	stores, log := c.stores, &mortal{LogStore: c.stores.Log}
	stores.Log = log
	if c.cfg.Stores != nil {
		opened, err := c.cfg.Stores()
		if err != nil {
			c.TB.Fatal(err)
		}
		stores = opened
	}
	keys, err := keyring.Load(c.keyring)
	if err != nil {
		c.TB.Fatal(err)
	}
	_, transport := raft.NewInmemTransport("server")
	wire := newWire()
	s, err := server.New(server.Config{
		ServerID: "server", Version: "test", Expect: 1, Discover: consensus.Alone{},
		Transport: transport, Stores: stores, Tuning: consensus.AloneTuning(), HTTP: wire, Keep: c.cfg.Keep, Calls: dispatcher.Limits{PluginID: c.cfg.Calls},
		Keyring: keys,
		Metrics: c.cfg.Metrics, Sweep: c.cfg.Sweep, Tracer: c.cfg.Tracer,
	}, c.cfg.Log.With("server", "server"))
	if err != nil {
		c.TB.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{stop: stop, ended: make(chan error, 1), log: log}
	go func() { r.ended <- s.Run(ctx) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.wire = r, wire
}

// StopServer ends the server. Its log stays.
func (c *Cluster) StopServer() {
	c.mu.Lock()
	r := c.server
	c.server, c.wire = nil, nil
	c.mu.Unlock()
	if r == nil {
		return
	}
	r.stop()
	if err := <-r.ended; err != nil {
		c.TB.Errorf("server ended with %v", err)
	}
}

// EmptyServer makes the next server one that has lost its log.
func (c *Cluster) EmptyServer() { c.stores = consensus.MemoryStores() }

// scratch is a directory for a node. It is in memory where the machine has such
// a file system: a simulation writes local databases thousands of times, and
// waits for no real disk.
func (c *Cluster) scratch() string {
	c.TB.Helper()
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err != nil || c.cfg.Disk {
		return c.TB.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "berth-cluster-")
	if err != nil {
		return c.TB.TempDir()
	}
	c.TB.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			c.TB.Error(err)
		}
	})
	return dir
}

// CopyLog copies the log of a server that is stopped, or writes nothing more.
func (c *Cluster) CopyLog() consensus.Stores {
	c.TB.Helper()
	copied := raft.NewInmemStore()
	first, err1 := c.stores.Log.FirstIndex()
	last, err2 := c.stores.Log.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		c.TB.Fatal(err)
	}
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := c.stores.Log.GetLog(i, &l); err != nil {
			c.TB.Fatal(err)
		}
		if err := copied.StoreLog(&l); err != nil {
			c.TB.Fatal(err)
		}
	}
	// Votes and terms only have to exist: raft writes them anew.
	if term, err := c.stores.Stable.GetUint64([]byte("CurrentTerm")); err == nil {
		if err := copied.SetUint64([]byte("CurrentTerm"), term); err != nil {
			c.TB.Fatal(err)
		}
	}
	return consensus.Stores{Log: copied, Stable: copied, Snapshots: raft.NewInmemSnapshotStore()}
}

// PutLogBack makes the next server start with that log.
func (c *Cluster) PutLogBack(stores consensus.Stores) { c.stores = stores }

// Twin is a machine with a copy of a node's local database, on the same wire.
func (c *Cluster) Twin(of *Node, db []byte) *Node {
	c.TB.Helper()
	n := c.newNode(of.Name + "-twin")
	n.Name = of.Name
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		c.TB.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "agent.db"), db, 0o600); err != nil {
		c.TB.Fatal(err)
	}
	c.twins = append(c.twins, n)
	return n
}

// Close ends everything.
func (c *Cluster) Close() {
	for _, n := range append(slices.Clone(c.Nodes), c.twins...) {
		n.Kill()
		n.StopDriver()
		n.StopController()
	}
	c.StopServer()
	c.Client.Close()
}

func (c *Cluster) newNode(name string) *Node {
	n := &Node{cluster: c, Name: name, machine: newMachine(name)}
	n.dir = filepath.Join(c.scratch(), name)
	of := csitest.Node{
		ID: name, MaxVolumes: c.cfg.MaxVolumes,
		Topology: map[string]string{"test.berth.dev/node": name},
		Mounter:  csitest.TableMounts(n.machine.Table),
	}
	if c.cfg.Split {
		of.Role = csitest.ControllerOnly
		n.controller = &program{driver: c.Backend.Node(of)}
		of.Role = csitest.NodeOnly
	}
	n.driver = &program{driver: c.Backend.Node(of)}
	n.driver.start()
	return n
}
