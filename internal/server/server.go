// Package server is one server: consensus, controllers, heartbeats and the
// HTTP API, wired together. It owns their lifetimes and nothing else.
//
// It never imports the agent. Invariant: what only a leader runs is one slice
// of tasks under one context, the leadership.
package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/consensus"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/controller/collector"
	"github.com/berth-dev/berth/internal/controller/dispatcher"
	"github.com/berth-dev/berth/internal/controller/drainer"
	"github.com/berth-dev/berth/internal/controller/provisioner"
	"github.com/berth-dev/berth/internal/controller/scheduler"
	"github.com/berth-dev/berth/internal/controller/snapshotter"
	"github.com/berth-dev/berth/internal/controller/volumewatcher"
	"github.com/berth-dev/berth/internal/feed"
	"github.com/berth-dev/berth/internal/keyring"
	"github.com/berth-dev/berth/internal/server/carrier"
	"github.com/berth-dev/berth/internal/server/heartbeat"
	"github.com/berth-dev/berth/internal/server/httpapi"
	"github.com/berth-dev/berth/internal/server/inquiry"
	"github.com/berth-dev/berth/internal/server/room"
	"github.com/berth-dev/berth/internal/server/sweep"
	"github.com/berth-dev/berth/internal/server/tracing"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/supervise"
	"github.com/berth-dev/berth/internal/telemetry"
)

// Config says what one server is made of.
type Config struct {
	ServerID string
	Version  string
	// Expect is the number of servers that form the cluster.
	Expect    int
	Discover  consensus.Discovery
	Transport raft.Transport
	Stores    consensus.Stores
	Tuning    consensus.Tuning
	// Keyring seals secrets; a server without one refuses them.
	Keyring *keyring.Keyring
	// HTTP is where the API listens. The server closes it.
	HTTP net.Listener
	Keep collector.Keep
	// Calls bounds the calls to plugins.
	Calls dispatcher.Limits
	// Lease is how long an agent may be silent; zero means api.Lease.
	Lease time.Duration
	// Sweep says how often plugins are compared with the state.
	Sweep sweep.Config
	// Metrics is what the server's numbers are added to, and what it serves; nil
	// counts nothing.
	Metrics *telemetry.Registry
	// Tracer makes spans of what happened, while this server leads; nil makes none.
	Tracer *tracing.Tracer
}

// Server is one server.
type Server struct {
	cfg       Config
	log       *slog.Logger
	store     *state.Store
	consensus *consensus.Consensus
	heartbeat *heartbeat.Tracker
	runners   []*controller.Runner
	// dispatcher is the one that decides now, for those who explain.
	dispatcher atomic.Pointer[dispatcher.Controller]
	events     *feed.Feed
	sweeper    *sweep.Sweeper
	surveyor   *room.Surveyor
	handler    *httpapi.Handler
}

// New wires a server. It starts nothing.
func New(cfg Config, log *slog.Logger) (*Server, error) {
	store, err := state.New()
	if err != nil {
		return nil, err
	}
	if cfg.Lease == 0 {
		cfg.Lease = api.Lease
	}
	events := feed.New()
	store.Observe(events)
	s := &Server{cfg: cfg, log: log, store: store, events: events}
	s.consensus, err = consensus.New(consensus.Config{
		ServerID: cfg.ServerID, Expect: cfg.Expect, Discover: cfg.Discover,
		Transport: cfg.Transport, Stores: cfg.Stores, Tuning: cfg.Tuning,
		Lead: s.lead, Metrics: cfg.Metrics,
	}, store, log)
	if err != nil {
		return nil, err
	}
	s.heartbeat = heartbeat.New(s.consensus, cfg.Lease, log)
	decides := dispatcher.New(cfg.Calls)
	s.dispatcher.Store(&decides)
	for _, c := range controllers(cfg) {
		s.runners = append(s.runners, controller.NewRunner(c, s.consensus, log))
	}
	var keys httpapi.Keyring
	if cfg.Keyring != nil {
		keys = cfg.Keyring
	}
	streams := carrier.New()
	asker := inquiry.New(streams)
	s.sweeper = sweep.New(cfg.Sweep, s.consensus, asker, cfg.Metrics, log)
	s.surveyor = room.New(s.consensus, asker, log)
	s.measure(streams)
	s.handler, err = httpapi.New(httpapi.Config{
		Keyring:  keys,
		ServerID: cfg.ServerID, Version: cfg.Version,
		Log: s.consensus, Contacts: s.heartbeat, Explain: explainer{&s.dispatcher}, Plan: newPlanner(store, s.consensus.Now), Counters: s.counters, Feed: events,
		Rubbish: rubbish{store.View, s.consensus.Now, s.consensus.Propose},
		Streams: streams, Ask: asker, Sweep: s.sweeper, Metrics: cfg.Metrics, Local: loopback(cfg.HTTP),
	}, log)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// loopback reports whether only this machine reaches a listener.
func loopback(l net.Listener) bool {
	addr, ok := l.Addr().(*net.TCPAddr)
	return ok && addr.IP.IsLoopback()
}

// controllers is the table of all controllers.
func controllers(cfg Config) []controller.Controller {
	return []controller.Controller{
		scheduler.Controller{},
		dispatcher.New(cfg.Calls),
		provisioner.Controller{},
		volumewatcher.Controller{},
		drainer.Controller{},
		snapshotter.Controller{},
		collector.New(cfg.Keep),
	}
}

// Settings are what a running server can take over.
type Settings struct {
	Keep  collector.Keep
	Calls dispatcher.Limits
	// SweepEvery is the time between two sweeps of a plugin; zero is the default.
	SweepEvery time.Duration
}

// Reload goes on with other settings. What waits is looked at again with them.
func (s *Server) Reload(to Settings) {
	decides := dispatcher.New(to.Calls)
	s.dispatcher.Store(&decides)
	for _, c := range []controller.Controller{decides, collector.New(to.Keep)} {
		for _, r := range s.runners {
			if r.Name() == c.Name() {
				r.Replace(c)
			}
		}
	}
	s.sweeper.Every(to.SweepEvery)
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	return supervise.Run(ctx, s.log, supervise.Policy{Failures: 1},
		supervise.Task{Name: "consensus", Run: s.consensus.Run},
		supervise.Task{Name: "http", Run: s.serve},
	)
}

// shutdownTime bounds how long open requests may take to end.
const shutdownTime = 5 * time.Second

// serve answers HTTP until ctx ends. Blocking queries end with it.
func (s *Server) serve(ctx context.Context) error {
	srv := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		IdleTimeout:       2 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(s.cfg.HTTP) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve http: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		err = errors.Join(err, srv.Close())
		s.log.Warn("http requests were cut", "error", err)
	}
	s.handler.Wait()
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http: %w", err)
	}
	return nil
}

// lead runs what only a leader runs.
func (s *Server) lead(ctx context.Context) error {
	if err := s.initialize(ctx); err != nil {
		return err
	}
	tasks := []supervise.Task{{Name: "heartbeat", Run: s.heartbeat.Run}, {Name: "sweep", Run: s.sweeper.Run}, {Name: "room", Run: s.surveyor.Run}}
	if s.cfg.Tracer != nil {
		tasks = append(tasks, supervise.Task{Name: "traces", Run: func(ctx context.Context) error {
			return s.cfg.Tracer.Follow(ctx, s.events, s.store.View)
		}})
	}
	for _, r := range s.runners {
		tasks = append(tasks, supervise.Task{Name: r.Name(), Run: r.Run})
	}
	return supervise.Run(ctx, s.log, supervise.Policy{}, tasks...)
}

// initialize gives a new cluster its id.
func (s *Server) initialize(ctx context.Context) error {
	if s.store.View().Cluster() != nil {
		return nil
	}
	_, err := s.consensus.Propose(ctx, &command.InitCluster{ClusterID: rand.Text(), FeatureLevel: api.FeatureLevel})
	if err != nil && api.CodeOf(err) != api.CodeConflict {
		return fmt.Errorf("initialize the cluster: %w", err)
	}
	return nil
}

// counters are for the status page.
func (s *Server) counters() map[string]int64 {
	c := s.consensus.Counters()
	all := map[string]int64{
		"plans": c.Plans.Load(), "entries": c.Entries.Load(), "entry_bytes": c.Bytes.Load(),
		"conflicts": c.Conflicts.Load(), "unchanged": c.Unchanged.Load(),
		"plan_panics": c.Panics.Load(), "overlay_drops": c.Drops.Load(),
		"diverged": s.consensus.Diverged(),
	}
	for _, r := range s.runners {
		all[r.Name()+"_reconciles"] = r.Reconciles.Load()
		all[r.Name()+"_plans"] = r.Stats.Plans.Load()
		all[r.Name()+"_errors"] = r.Errors.Load()
		all[r.Name()+"_conflicts"] = r.Conflicts.Load()
		all[r.Name()+"_useless"] = r.Useless.Load()
		all[r.Name()+"_waiting"] = r.Waiting.Load()
	}
	return all
}
