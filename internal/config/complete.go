package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
)

// Complete fills in the defaults and checks everything.
func (c Config) Complete() (Config, error) {
	set := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	set(&c.DataDir, DefaultDataDir)
	set(&c.LogLevel, "info")
	set(&c.LogFormat, "text")
	http, server, client, shown := or(c.HTTP), or(c.Server), or(c.Client), or(c.Telemetry)
	set(&http.Address, DefaultHTTPAddress)
	set(&server.RaftAddress, DefaultRaftAddress)
	if server.Enabled && server.BootstrapExpect == 0 {
		server.BootstrapExpect = 1
	}
	if client.Enabled && len(client.Servers) == 0 && server.Enabled {
		client.Servers = []string{"http://" + http.Address}
	}
	c.HTTP, c.Server, c.Client, c.Telemetry = &http, &server, &client, &shown
	plugins := append([]Plugin{}, c.Plugins...)
	for i := range plugins {
		p := &plugins[i]
		set(&p.Type, string(api.InstanceMonolith))
		if p.Embedded {
			set(&p.Root, filepath.Join(c.DataDir, p.ID))
			set(&p.Socket, filepath.Join(c.DataDir, "run", p.ID+".sock"))
		}
		p.Socket = strings.TrimPrefix(p.Socket, "unix://")
	}
	c.Plugins = plugins
	if err := c.validate(); err != nil {
		return c, err
	}
	return c, nil
}

func (c *Config) validate() error {
	var p api.Problems
	absolute(&p, "data_dir", c.DataDir)
	if c.Name != "" {
		p.Name("name", c.Name)
	}
	p.Merge(CheckLog(c.LogLevel, c.LogFormat))
	if !c.Server.Enabled && !c.Client.Enabled {
		p.Add("server.enabled", "is false, and so is client.enabled: there is nothing to do",
			"set one of them in a file and give it with --config, or run with --dev")
	}
	if c.Server.Enabled {
		c.validateServer(&p)
	}
	if c.Client.Enabled {
		c.validateServers(&p)
		c.Client.validateMachine(&p)
	}
	if c.Telemetry.MetricsAddress != "" {
		listens(&p, "telemetry.metrics_address", c.Telemetry.MetricsAddress, "127.0.0.1:7403")
	}
	if t := c.Telemetry.Traces; t != nil {
		const example = `"http://127.0.0.1:4318/v1/traces"`
		if u, err := url.Parse(t.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			p.Addf("telemetry.traces.endpoint", "write it as "+example, "is %q, which is no URL of a collector", t.Endpoint)
		}
	}
	for _, pl := range c.Plugins {
		pl.validate(&p)
	}
	for i := range c.HostVolumes {
		c.HostVolumes[i].validate(&p)
	}
	for i := range c.Drivers {
		c.Drivers[i].validate(&p)
	}
	return c.places.locate(p.Err("the configuration"))
}

// CheckLog checks what a logger is made with, for every program that has one.
func CheckLog(level, format string) error {
	var p api.Problems
	choice(&p, "log_level", level, "debug", "info", "warn", "error")
	choice(&p, "log_format", format, "text", "json")
	return p.Err("the log's configuration")
}

func choice(p *api.Problems, path, got string, allowed ...string) {
	if !slices.Contains(allowed, got) {
		p.Addf(path, "use one of "+strings.Join(allowed, ", "), "is %q", got)
	}
}

func absolute(p *api.Problems, path, got string) {
	if !filepath.IsAbs(got) {
		p.Addf(path, "give an absolute path", "is %q, which depends on the working directory", got)
	}
}

func (c *Config) validateServer(p *api.Problems) {
	listens(p, "http.address", c.HTTP.Address, DefaultHTTPAddress)
	if listens(p, "server.raft_address", c.Server.RaftAddress, DefaultRaftAddress) {
		host, _, _ := net.SplitHostPort(c.Server.RaftAddress) // it is one
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
			p.Addf("server.raft_address", "give one address of this machine, such as "+DefaultRaftAddress,
				"is %q, which other servers cannot connect to", c.Server.RaftAddress)
		}
	}
	c.Server.validateCalls(p)
	c.Server.validateKeep(p)
	if d, err := time.ParseDuration(c.Server.SweepInterval); c.Server.SweepInterval != "" && (err != nil || d < 10*time.Second) {
		p.Addf("server.sweep_interval", `give a duration of at least 10s, such as "5m"`, "is %q", c.Server.SweepInterval)
	}
	if c.Server.BootstrapExpect != 1 {
		p.Addf("server.bootstrap_expect", "use 1: clusters of several servers come with a later version", "is %d", c.Server.BootstrapExpect)
	}
}

// validateKeep checks for how long history stays.
func (s *Server) validateKeep(p *api.Problems) {
	said := s.Keep.said()
	for _, kind := range slices.Sorted(maps.Keys(said)) {
		if t, err := time.ParseDuration(said[kind]); said[kind] != "" && (err != nil || t < 0) {
			p.Addf("server.keep."+kind, `give a duration such as "24h"`, "is %q", said[kind])
		}
	}
}

// listens checks an address to listen on.
func listens(p *api.Problems, path, address, example string) bool {
	_, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 {
		p.Addf(path, "give a host and a port, such as "+example, "is %q", address)
		return false
	}
	return true
}

// validateServers checks where the agent finds the servers.
func (c *Config) validateServers(p *api.Problems) {
	const example = `"http://10.0.0.1:7400"`
	switch n := len(c.Client.Servers); {
	case n == 0:
		p.Add("client.servers", "is empty", "name the server: ["+example+"]")
	case n > 1:
		p.Addf("client.servers", "name one: clusters of several servers come with a later version", "has %d addresses", n)
	}
	for i, s := range c.Client.Servers {
		if !strings.Contains(s, "://") {
			s = "http://" + s
		}
		if u, err := url.Parse(s); err != nil || u.Host == "" || u.Scheme != "http" {
			p.Addf(fmt.Sprintf("client.servers[%d]", i), "write it as "+example, "is %q, which is no address of plain HTTP", c.Client.Servers[i])
		}
	}
}

// validateMachine checks what is said of this machine.
func (c *Client) validateMachine(p *api.Problems) {
	if _, err := netip.ParseAddr(c.Address); c.Address != "" && err != nil {
		p.Addf("client.address", "give an IP address of this machine", "is %q", c.Address)
	}
	if c.CPU < 0 {
		p.Add("client.cpu", "is negative", "give MHz such as 4000, or leave it out")
	}
	if c.Memory < 0 {
		p.Add("client.memory", "is negative", "give MiB such as 8192, or leave it out")
	}
}

func (h *HostVolume) validate(p *api.Problems) {
	path := fmt.Sprintf("host_volume[%q]", h.Name)
	p.Name(path, h.Name)
	if absolute(p, path+".path", h.Path); filepath.Clean(h.Path) == "/" {
		p.Add(path+".path", "is the whole machine", "give a directory such as \"/srv/data\"")
	}
}

// maxSocket is the longest path of a unix socket.
const maxSocket = 107

func (pl Plugin) validate(p *api.Problems) {
	path := fmt.Sprintf("plugin[%q]", pl.ID)
	p.Name(path, pl.ID)
	choice(p, path+".type", pl.Type, string(api.InstanceNode), string(api.InstanceController), string(api.InstanceMonolith))
	switch {
	case pl.Socket == "":
		p.Add(path+".socket", "is missing", "give the path of the driver's socket, or set embedded = true for the local driver")
	case !filepath.IsAbs(pl.Socket):
		absolute(p, path+".socket", pl.Socket)
	case len(pl.Socket) > maxSocket:
		p.Addf(path+".socket", "choose a shorter path", "is longer than the %d bytes that a socket's path may have", maxSocket)
	}
	switch {
	case pl.Root == "":
	case !pl.Embedded:
		p.Add(path+".root", "only makes sense with embedded = true", "remove it")
	default:
		absolute(p, path+".root", pl.Root)
	}
	switch {
	case pl.MaxVolumes < 0:
		p.Addf(path+".max_volumes", "give how many volumes the machine takes, or 0 for no limit", "is %d", pl.MaxVolumes)
	case pl.MaxVolumes > 0 && !pl.Embedded:
		p.Add(path+".max_volumes", "only makes sense with embedded = true", "remove it: the driver says itself how many it takes")
	}
}
