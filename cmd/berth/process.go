package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/docker"
	"github.com/berth-dev/berth/internal/agent/dynamicplugins"
	"github.com/berth-dev/berth/internal/agent/mount"
	"github.com/berth-dev/berth/internal/config"
	"github.com/berth-dev/berth/internal/consensus"
	"github.com/berth-dev/berth/internal/controller/collector"
	"github.com/berth-dev/berth/internal/controller/dispatcher"
	"github.com/berth-dev/berth/internal/keyring"
	"github.com/berth-dev/berth/internal/localdriver"
	"github.com/berth-dev/berth/internal/server"
	"github.com/berth-dev/berth/internal/server/sweep"
	"github.com/berth-dev/berth/internal/server/tracing"
	"github.com/berth-dev/berth/internal/supervise"
	"github.com/berth-dev/berth/internal/telemetry"
)

// devDestroyTime bounds how long the end of a development agent may take.
const devDestroyTime = 20 * time.Second

// process is one running `berth agent`.
type process struct {
	cfg     config.Config
	dev     bool
	version string
	out     io.Writer
	log     *slog.Logger
	metrics *telemetry.Registry
	tasks   []supervise.Task
	level   *telemetry.Level
	serves  *server.Server
	agent   *agent.Agent
	// again tells to read the configuration again, with read.
	again <-chan os.Signal
	read  func() (config.Config, error)
	exec  *driver.Exec
	// allow tells the task drivers what the configuration allows to jobs.
	allow func()
	// identity is a socket whose name no other process of this machine has.
	identity net.Listener
	// lastAddress is the machine's last one that was found out.
	lastAddress string
}

// run starts the server, then the embedded drivers, then the agent, and stops
// them in reverse.
func (p *process) run(ctx context.Context) error {
	data, err := openDataDir(p.cfg.DataDir, p.dev)
	if err != nil {
		return err
	}
	defer data.close()
	if p.cfg.Client.Enabled && os.Geteuid() != 0 {
		p.log.Warn("not root: volumes are not mounted, and tasks run as this user", "uid", os.Geteuid())
	}
	if err := p.wire(ctx); err != nil {
		return errors.Join(err, data.abandon())
	}
	switch {
	case p.dev && p.cfg.LogFormat == "json": // who reads JSON reads nothing else
		p.log.Info("development agent", "version", p.version, "address", p.cfg.HTTP.Address, "data_dir", p.cfg.DataDir)
	case p.dev:
		fmt.Fprintf(p.out, "berth %s: development agent on %s, data in %s; end it with Ctrl-C\n", p.version, p.cfg.HTTP.Address, p.cfg.DataDir)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- supervise.Run(running, p.log, supervise.Policy{Failures: 1}, p.tasks...) }()
	for ctx.Err() == nil {
		select {
		case err := <-ended:
			return err
		case <-p.again:
			p.reload()
		case <-ctx.Done():
		}
	}
	if !p.dev {
		stop()
		return <-ended
	}
	return p.destroy(stop, ended)
}

// destroy ends a development agent: its allocations first, then itself, then
// its data. What could not be ended stays, with the data that describes it.
func (p *process) destroy(stop context.CancelFunc, ended <-chan error) error {
	bounded, cancel := context.WithTimeout(context.Background(), devDestroyTime)
	defer cancel()
	err := p.agent.Destroy(bounded)
	stop()
	err = errors.Join(err, <-ended)
	if err != nil {
		return fmt.Errorf("%w; the data stays in %s", err, p.cfg.DataDir)
	}
	if err := mount.RemoveAll(context.Background(), mount.Kernel{}, p.cfg.DataDir); err != nil {
		return fmt.Errorf("remove %s: %w", p.cfg.DataDir, err)
	}
	return p.exec.Sweep()
}

// wire makes the parts and lists their tasks in the order of their start.
func (p *process) wire(ctx context.Context) error {
	p.metrics = telemetry.NewRegistry(p.version)
	if err := p.showMetrics(ctx); err != nil {
		return err
	}
	if p.cfg.Server.Enabled {
		s, err := p.server(ctx)
		if err != nil {
			return err
		}
		p.serves = s
		p.tasks = append(p.tasks, supervise.Task{Name: "server", Run: s.Run})
	}
	if !p.cfg.Client.Enabled {
		return nil
	}
	a, err := p.client()
	if err != nil {
		return err
	}
	if err := p.claim(ctx, a.NodeID()); err != nil {
		return errors.Join(err, a.Close())
	}
	p.agent = a
	for _, pl := range p.cfg.Plugins {
		if !pl.Embedded {
			continue
		}
		d, err := localdriver.New(localdriver.Config{
			Root: pl.Root, Endpoint: pl.Socket, NodeID: string(a.NodeID()), Version: p.version, MaxVolumes: pl.MaxVolumes,
		}, p.log.With("plugin", pl.ID))
		if err != nil {
			return errors.Join(err, a.Close())
		}
		p.tasks = append(p.tasks, supervise.Task{Name: "plugin " + pl.ID, Run: d.Run})
	}
	p.tasks = append(p.tasks, supervise.Task{Name: "agent", Run: a.Run})
	return nil
}

// server makes this machine's server. Ports are taken first, so that a second
// server on the machine fails before it touches anything.
func (p *process) server(ctx context.Context) (*server.Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", p.cfg.HTTP.Address)
	if err != nil {
		return nil, fmt.Errorf("listen for the API on %s: %w (is another server running? see --http-address)", p.cfg.HTTP.Address, err)
	}
	transport, err := raft.NewTCPTransport(p.cfg.Server.RaftAddress, nil, 3, 10*time.Second, io.Discard)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for raft on %s: %w (is another server running? see --raft-address)", p.cfg.Server.RaftAddress, err), listener.Close())
	}
	stores, err := consensus.OpenStores(filepath.Join(p.cfg.DataDir, "server"), p.log)
	if err != nil {
		return nil, errors.Join(err, transport.Close(), listener.Close())
	}
	stores.Free = freeBelow(p.cfg.DataDir)
	id, err := stores.ServerID(p.name())
	if err != nil {
		return nil, errors.Join(err, stores.Close(), transport.Close(), listener.Close())
	}
	keys, err := keyring.Load(filepath.Join(p.cfg.DataDir, "server", "keyring.json"))
	if err != nil {
		return nil, errors.Join(err, stores.Close(), transport.Close(), listener.Close())
	}
	tracer, err := p.tracer(id)
	if err != nil {
		return nil, errors.Join(err, stores.Close(), transport.Close(), listener.Close())
	}
	return server.New(server.Config{
		ServerID: id, Version: p.version, Tracer: tracer,
		Sweep:  sweep.Config{Interval: p.settings().SweepEvery},
		Expect: p.cfg.Server.BootstrapExpect, Discover: consensus.Alone{},
		Transport: transport, Stores: stores, Tuning: consensus.AloneTuning(),
		HTTP: listener, Keyring: keys, Keep: p.settings().Keep, Calls: p.settings().Calls, Metrics: p.metrics,
	}, p.log)
}

// calls are the bounds of the calls to plugins that the configuration names.
func (p *process) calls() dispatcher.Limits {
	limits := dispatcher.Limits{}
	for i := range p.cfg.Server.Plugins {
		c := &p.cfg.Server.Plugins[i]
		limits[api.PluginID(c.ID)] = dispatcher.Calls{
			Max: c.MaxCalls, MaxPerNode: c.MaxCallsPerNode, MaxPerTarget: c.MaxCallsPerTarget, Timeout: c.Timeout(), Slow: c.Slow(), MaxSlow: c.MaxSlowCalls,
		}
	}
	return limits
}

// keep is for how long history stays.
func keep(k *config.Keep) collector.Keep {
	return collector.Keep{
		Operations: k.For("operations"), Attachments: k.For("attachments"), Allocations: k.For("allocations"), Jobs: k.For("jobs"),
		Snapshots: k.For("snapshots"), Nodes: k.For("nodes"),
	}
}

// tracer sends spans to the collector that the configuration names; nil if it
// names none. What is left to send goes out when the process ends.
func (p *process) tracer(server string) (*tracing.Tracer, error) {
	if p.cfg.Telemetry.Traces == nil {
		return nil, nil
	}
	exporter, err := tracing.Collector(context.Background(), p.cfg.Telemetry.Traces.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("send traces: %w", err)
	}
	t := tracing.New(exporter, server, p.version, p.log)
	p.tasks = append(p.tasks, supervise.Task{Name: "traces", Run: func(ctx context.Context) error {
		<-ctx.Done()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		return t.Close(bounded)
	}})
	return t, nil
}

// name is the machine's for people: as configured, or the host's.
func (p *process) name() string {
	if p.cfg.Name != "" {
		return p.cfg.Name
	}
	host, err := os.Hostname()
	if err != nil {
		return "server"
	}
	name, _, _ := strings.Cut(host, ".")
	return name
}

// client makes this machine's agent.
func (p *process) client() (*agent.Agent, error) {
	c, err := client.New(client.Config{Address: p.cfg.Client.Servers[0]})
	if err != nil {
		return nil, err
	}
	drivers, err := p.drivers()
	if err != nil {
		return nil, err
	}
	var plugins []dynamicplugins.Plugin
	for _, pl := range p.cfg.Plugins {
		plugins = append(plugins, dynamicplugins.Plugin{
			ID: api.PluginID(pl.ID), Type: api.InstanceType(pl.Type),
			Dial: csi.SocketDialer(pl.Socket), AllowUnmounted: pl.AllowUnmounted,
		})
	}
	return agent.New(agent.Config{
		HostVolumes: p.hostVolumes(),
		DataDir:     p.cfg.DataDir, Name: p.cfg.Name, Version: p.version,
		Servers: c, Plugins: plugins, Drivers: drivers, Table: mount.Kernel{}, Metrics: p.metrics,
		Profile: p.profile(),
	}, p.log)
}

// hostVolumes are the directories that jobs may ask for.
func (p *process) hostVolumes() map[string]hook.HostVolume {
	host := map[string]hook.HostVolume{}
	for _, v := range p.cfg.HostVolumes {
		host[v.Name] = hook.HostVolume{Path: v.Path, ReadOnly: v.ReadOnly}
	}
	return host
}

// profile is what the configuration says of this machine.
func (p *process) profile() api.Profile {
	return api.Profile{
		Class: p.cfg.Client.Class, Meta: p.cfg.Client.Meta, Address: p.address(),
		CPU: p.cfg.Client.CPU, MemoryMB: p.cfg.Client.Memory,
	}
}

// address is where others reach this machine's services: the one that was
// configured, or the one from which this machine reaches the server. To ask
// the kernel for it, no packet is sent. While there is no way to the server, it is
// the last one that was known.
func (p *process) address() string {
	if p.cfg.Client.Address != "" {
		return p.cfg.Client.Address
	}
	server := p.cfg.Client.Servers[0]
	if u, err := url.Parse(server); err == nil && u.Host != "" {
		server = u.Host
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveLimit)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "udp", server) // asks only for the server's name
	if err != nil {
		p.log.Warn("this machine's address is not known: set client.address", "error", err, "last_known", p.lastAddress)
		return p.lastAddress
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	p.lastAddress, _, _ = net.SplitHostPort(conn.LocalAddr().String())
	return p.lastAddress
}

// resolveLimit bounds how long a server's name may take to become an address.
const resolveLimit = 5 * time.Second

// claim makes this process the one agent of the node on this machine: a data
// directory that was copied beside the original is the same node. The servers
// find out about copies on other machines.
func (p *process) claim(ctx context.Context, id api.NodeID) (err error) {
	p.identity, err = new(net.ListenConfig).Listen(ctx, "unix", "@berth-node-"+string(id))
	if errors.Is(err, syscall.EADDRINUSE) {
		return api.Errorf(api.CodeInUse, "another agent on this machine is node %s: was its data directory copied? Stop that one, or begin with an empty directory", id)
	}
	if err != nil {
		return fmt.Errorf("claim the identity of node %s: %w", id, err)
	}
	return nil
}

// drivers are the task drivers of this machine.
func (p *process) drivers() ([]driver.Driver, error) {
	exec, err := driver.NewExec(p.driverConfig(driver.NameExec), p.log)
	if err != nil {
		return nil, err
	}
	raw, err := driver.NewRawExec(p.driverConfig(driver.NameRawExec), p.log)
	if err != nil {
		return nil, err
	}
	containers, err := docker.New(p.dockerConfig(), p.log)
	if err != nil {
		return nil, err
	}
	p.exec = exec
	p.allow = func() {
		exec.Allow(p.driverConfig(driver.NameExec))
		raw.Allow(p.driverConfig(driver.NameRawExec))
		containers.Allow(p.dockerConfig())
	}
	return []driver.Driver{exec, raw, containers}, nil
}

// driverConfig is that of exec or raw_exec, with what the configuration allows.
func (p *process) driverConfig(name string) driver.Config {
	says := p.cfg.Driver(name)
	return driver.Config{
		RunDir: filepath.Join(p.cfg.DataDir, "run", "tasks"), Disabled: says.Disabled(), DenyPrivileged: name == driver.NameExec && !says.Privileged(),
	}
}

// dockerConfig is that of the driver of containers, with what the configuration
// allows.
func (p *process) dockerConfig() docker.Config {
	says := p.cfg.Driver(docker.Name)
	return docker.Config{
		Endpoint: says.Endpoint, Agent: p.cfg.DataDir, StateDir: filepath.Join(p.cfg.DataDir, "run", "docker"),
		Disabled: says.Disabled(), AllowPrivileged: says.Privileged(), AllowHostPaths: says.AllowHostPaths, AllowCaps: says.AllowCaps,
		AuthFile: says.AuthFile, ImageDelay: says.Images(),
	}
}
