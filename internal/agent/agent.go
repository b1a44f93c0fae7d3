// Package agent is one node: wiring and lifetimes. It owns the node's identity
// and the order in which its parts start and stop.
//
// It never decides what runs here: the servers do. It never imports them:
// everything comes over their API. Invariant: an agent can be killed at any
// moment; tasks and mounts stay, and the next agent goes on from the local
// database.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/assignment"
	"github.com/berth-dev/berth/internal/agent/csimanager"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/dynamicplugins"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/agent/lookup"
	"github.com/berth-dev/berth/internal/agent/mount"
	"github.com/berth-dev/berth/internal/agent/operation"
	"github.com/berth-dev/berth/internal/agent/probe"
	"github.com/berth-dev/berth/internal/agent/question"
	"github.com/berth-dev/berth/internal/agent/runner"
	"github.com/berth-dev/berth/internal/agent/stream"
	"github.com/berth-dev/berth/internal/supervise"
	"github.com/berth-dev/berth/internal/telemetry"
)

// Config says what one agent is made of.
type Config struct {
	// DataDir holds the local database, the allocations and the mounts. Keep
	// its path short: plugins must take paths of 128 bytes, and some no more.
	DataDir string
	// Name of the node, for people; the host's name if empty.
	Name    string
	Version string
	// Servers reaches the API.
	Servers *client.Client
	// Profile is what is told of the machine, to which the agent adds the
	// attributes that it finds.
	Profile api.Profile
	// HostVolumes are directories of the machine that jobs may ask for, by name.
	HostVolumes map[string]hook.HostVolume
	Plugins     []dynamicplugins.Plugin
	Drivers     []driver.Driver
	Table       mount.Table
	// BootID tells this boot of the kernel from others; empty reads the kernel's.
	BootID string
	// Lease is how long the servers wait for word of the agent; zero means
	// api.Lease.
	Lease time.Duration
	// Runners makes the runners of allocations: others than those that run tasks
	// and mount volumes, for simulators; nil makes those.
	Runners runner.Factory
	// Metrics is what the agent's numbers are added to; nil counts nothing.
	Metrics *telemetry.Registry
	// FingerprintWait bounds how long registration waits for the plugins to be
	// healthy; zero means 10 seconds.
	FingerprintWait time.Duration
}

// maxDataDir is the longest data directory whose staging and target paths stay
// within 128 bytes.
const maxDataDir = 70

// maxName is the longest name of a node. Its id, the name with a hyphen and
// eight hex digits behind it, may have 63 characters: drivers refuse more.
const (
	maxName  = 63 - idSuffix
	idSuffix = len("-9f31c2aa")
)

// Agent is one node's agent.
type Agent struct {
	cfg         Config
	log         *slog.Logger
	db          *localdb.DB
	node        localdb.Node
	profile     atomic.Pointer[api.Profile]
	registry    *dynamicplugins.Registry
	facts       *assignment.Facts
	drivers     *drivers
	hostVolumes func(map[string]hook.HostVolume)
	manager     *csimanager.Manager
	prober      *probe.Prober
	lookups     *lookup.Lookups
	executor    *operation.Executor
	allocations *allocations
	plugins     *hook.Plugins
	restored    []localdb.Allocation // may run plugins
	streams     *stream.Carrier
	visits      chan struct{} // has one for each command that people run in tasks
	link        *assignment.Link
}

// New opens the local database and wires an agent. It starts nothing. The
// agent must be run, or closed.
func New(cfg Config, log *slog.Logger) (*Agent, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	db, err := localdb.Open(filepath.Join(cfg.DataDir, "agent.db"))
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, log: log, db: db, registry: dynamicplugins.New(), facts: assignment.NewFacts()}
	if err := a.wire(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return a, nil
}

// complete checks the configuration and fills in what is left to the host.
func (cfg Config) complete() (Config, error) {
	if cfg.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return cfg, fmt.Errorf("read the host's name: %w", err)
		}
		cfg.Name, _, _ = strings.Cut(host, ".")
		cfg.Name = cfg.Name[:min(len(cfg.Name), maxName)]
	}
	if cfg.BootID == "" {
		b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return cfg, fmt.Errorf("read the kernel's boot id: %w", err)
		}
		cfg.BootID = strings.TrimSpace(string(b))
	}
	if cfg.Lease == 0 {
		cfg.Lease = api.Lease
	}
	if cfg.FingerprintWait == 0 {
		cfg.FingerprintWait = 10 * time.Second
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return cfg, fmt.Errorf("find the data directory: %w", err)
	}
	cfg.DataDir = dir
	var p api.Problems
	p.Name("name", cfg.Name)
	if len(cfg.Name) > maxName {
		p.Addf("name", fmt.Sprintf("choose one of at most %d characters", maxName),
			"is %d characters long: the node's id is the name and %d more, and CSI allows %d", len(cfg.Name), idSuffix, maxName+idSuffix)
	}
	if len(dir) > maxDataDir {
		p.Addf("data_dir", "choose a shorter path", "is %d bytes long, and CSI drivers need paths below it of no more than 128: it may have %d", len(dir), maxDataDir)
	}
	return cfg, p.Err("the agent's configuration")
}

// wire makes the parts.
func (a *Agent) wire() (err error) {
	cfg := a.cfg
	if a.node, err = a.db.Node(cfg.Name); err != nil {
		return err
	}
	for _, p := range cfg.Plugins {
		a.registry.Register(p)
	}
	found := profile(&cfg)
	a.profile.Store(&found)
	a.drivers = newDrivers(cfg.Drivers, a.facts.SetDrivers)
	drivers := map[string]driver.Driver{}
	for _, d := range cfg.Drivers {
		drivers[d.Name()] = d
	}
	a.manager = csimanager.NewManager(a.registry, a.db, a.facts, a.log)
	servers := cfg.Servers.Agent(a.node.ID, a.node.Secret)
	volumes := filepath.Join(cfg.DataDir, "csi")
	mounter := csimanager.NewMounter(
		csimanager.MounterConfig{Root: volumes, BootID: cfg.BootID, Facts: a.facts, Secrets: servers},
		a.manager, cfg.Table, a.db, a.log)
	a.executor = operation.New(a.manager, a.facts, servers, a.log)
	a.executor.Mounts(mounter)
	sockets := hook.NewSockets(hook.PluginConfig{
		Sockets: filepath.Join(cfg.DataDir, "sock"), Sharer: cfg.Table, Drivers: drivers,
		BaseDir: func(id api.PluginID) string { return csimanager.PluginDir(volumes, id) },
	})
	tasks := hook.NewTasks(drivers, a.described)
	a.hostVolumes = tasks.Host
	a.hostVolumes(cfg.HostVolumes)
	a.lookups = lookup.New(cfg.Servers)
	tasks.Reads(func(ns api.NamespaceID) hook.Reader { return a.lookups.Reader(ns) })
	a.prober = probe.New()
	a.plugins = hook.NewPlugins(sockets, a.registry, a.manager)
	a.plugins.Serve(tasks)
	volumesHook := hook.NewVolumes(mounter, a.facts, tasks)
	a.allocations = newAllocations(allocrunner.Config{
		Called: a.hookCalled(),
		Dir:    filepath.Join(cfg.DataDir, "alloc"),
		Hooks: []allocrunner.Hook{
			hook.Directories{},
			volumesHook,
			sockets,
			hook.NewPoststop(tasks, volumesHook),
			tasks,
			a.plugins,
			hook.NewChecks(tasks, a.prober),
		},
		Memory: a.db, Facts: a.facts,
		Remove: func(ctx context.Context, dir string) error { return mount.RemoveAll(ctx, cfg.Table, dir) },
	}, a.executor, a.facts, a.log)
	a.allocations.remains = a.remains(mounter)
	if cfg.Runners != nil {
		node := runner.Node{Memory: a.db, Facts: a.facts, Down: a.allocations.isDown}
		a.allocations.make = func(record localdb.Allocation) runner.Runner { return cfg.Runners(node, record) }
	}
	a.manager.Turned(a.allocations.served)
	a.facts.Gone(a.manager.Heard)
	a.streams = stream.New(servers, map[api.StreamKind]stream.Handler{
		api.StreamLogs: a.allocations.sendLog, api.StreamFigures: a.sendFigures, api.StreamSignal: a.signal, api.StreamQuestion: question.New(a.manager, mounter).Answer,
	}, a.log)
	a.visits = make(chan struct{}, maxVisits)
	a.streams.Both(api.StreamExec, a.exec)
	a.link = assignment.New(assignment.Config{
		Node: a.node, BootID: cfg.BootID, Version: cfg.Version, Drivers: a.drivers.now, Profile: func() api.Profile { return *a.profile.Load() },
		Consumer: a.allocations, Streams: a.streams, Lease: cfg.Lease,
	}, servers, a.db, a.facts, a.log)
	a.measure()
	records, err := a.db.Allocations()
	if err != nil {
		return err
	}
	rebooted := a.node.BootID != cfg.BootID
	if !rebooted {
		a.restored = records
	}
	a.allocations.restore(records, rebooted)
	return nil
}

// described is the node as tasks find it.
func (a *Agent) described() *api.Node {
	return &api.Node{ID: a.node.ID, Name: a.node.Name, Status: api.NodeStatus{Profile: *a.profile.Load()}}
}

// Describe changes what is told of the machine, and which of its directories jobs
// may ask for. The servers hear of it at once, with how its drivers are, and tasks
// that are started from now on; what runs here goes on.
func (a *Agent) Describe(p api.Profile, host map[string]hook.HostVolume) {
	cfg := a.cfg
	cfg.Profile, cfg.HostVolumes = p, host
	a.hostVolumes(host)
	a.drivers.lookAgain()
	a.allocations.retryAll()
	found := profile(&cfg)
	a.profile.Store(&found)
	a.link.Register()
}

// NodeID is this node's.
func (a *Agent) NodeID() api.NodeID { return a.node.ID }

// Link is how the connection to the servers stands.
func (a *Agent) Link() assignment.State { return a.link.State() }

// Close closes the local database of an agent that was not run.
func (a *Agent) Close() error { return a.db.Close() }

// Run runs the agent until ctx ends. What was restored goes on at once; the
// node registers when its plugins have answered, or the wait for them is over.
func (a *Agent) Run(ctx context.Context) error {
	a.restorePlugins(ctx)
	tasks := make([]supervise.Task, 0, 8)
	for _, d := range a.cfg.Drivers {
		if k, ok := d.(driver.Keeper); ok {
			tasks = append(tasks, supervise.Task{Name: "driver " + k.Name(), Run: func(ctx context.Context) error {
				return k.Run(ctx, a.allocations.known, func(is api.Driver) {
					if a.drivers.saw(ctx, k.Name(), is) {
						a.allocations.retryAll() // its tasks could not be looked at
					}
				})
			}})
		}
	}
	tasks = append(tasks,
		supervise.Task{Name: "plugins", Run: a.manager.Run},
		supervise.Task{Name: "operations", Run: a.executor.Run},
		supervise.Task{Name: "checks", Run: a.prober.Run},
		supervise.Task{Name: "lookups", Run: a.lookups.Run},
		supervise.Task{Name: "allocations", Run: a.allocations.Run},
		supervise.Task{Name: "streams", Run: a.streams.Run},
		supervise.Task{Name: "servers", Run: a.serve},
	)
	err := supervise.Run(ctx, a.log, supervise.Policy{}, tasks...)
	return errors.Join(err, a.db.Close())
}

// restoreLimit bounds how long drivers are asked what of an earlier agent's
// plugins runs, before anything else is started.
const restoreLimit = 5 * time.Second

// restorePlugins makes the plugins known that an earlier agent ran.
func (a *Agent) restorePlugins(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, restoreLimit)
	defer cancel()
	var asking sync.WaitGroup
	for i := range a.restored {
		asking.Go(func() { a.plugins.Restore(bounded, &a.restored[i]) })
	}
	asking.Wait()
	a.restored = nil
}

// serve registers once the node knows what it can.
func (a *Agent) serve(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, a.cfg.FingerprintWait)
	a.manager.Settled(bounded)
	cancel()
	if a.node.ClusterID == "" {
		a.clear(ctx)
	}
	return a.link.Run(ctx)
}
