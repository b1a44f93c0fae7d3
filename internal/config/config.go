// Package config turns the agent's configuration files and flags into plain
// structs, with their defaults. It owns the names in the files.
//
// It never opens a connection and never makes a directory. Invariant: what it
// returns is complete and checked; every problem of the files is reported at
// once, with file, line and column.
package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"

	"github.com/berth-dev/berth/api"
)

// Config is the configuration of `berth agent`.
type Config struct {
	// DataDir holds all that must survive.
	DataDir string `hcl:"data_dir,optional"`
	// Name of this machine; the host's name if empty.
	Name string `hcl:"name,optional"`
	// LogLevel is debug, info, warn or error; LogFormat is text or json.
	LogLevel  string `hcl:"log_level,optional"`
	LogFormat string `hcl:"log_format,optional"`

	HTTP    *HTTP    `hcl:"http,block"`
	Server  *Server  `hcl:"server,block"`
	Client  *Client  `hcl:"client,block"`
	Plugins []Plugin `hcl:"plugin,block"`
}

// HTTP is where the API listens.
type HTTP struct {
	Address string `hcl:"address,optional"`
}

// Server says whether, and how, this machine is one of the servers.
type Server struct {
	Enabled bool `hcl:"enabled,optional"`
	// BootstrapExpect is the number of servers that form the cluster.
	BootstrapExpect int `hcl:"bootstrap_expect,optional"`
	// RaftAddress is where the servers talk to each other.
	RaftAddress string `hcl:"raft_address,optional"`
}

// Client says whether, and how, this machine is a node that runs jobs.
type Client struct {
	Enabled bool `hcl:"enabled,optional"`
	// Servers are the addresses of the API; this machine's own server if empty.
	Servers []string `hcl:"servers,optional"`
}

// Plugin is a CSI driver that the host runs, or that the agent serves itself.
type Plugin struct {
	ID string `hcl:"id,label"`
	// Socket is where the driver listens.
	Socket string `hcl:"socket,optional"`
	// Type is node, controller or monolith.
	Type string `hcl:"type,optional"`
	// AllowUnmounted accepts a volume that the driver published without a
	// mount at the target path. Without it such a volume is refused: a task
	// would write to the node's own disk.
	AllowUnmounted bool `hcl:"allow_unmounted,optional"`
	// Embedded: the agent serves the local driver itself, with its volumes in
	// Root, below the data directory if empty.
	Embedded bool   `hcl:"embedded,optional"`
	Root     string `hcl:"root,optional"`
}

// Defaults.
const (
	DefaultDataDir     = "/var/lib/berth"
	DefaultDevDataDir  = "/var/lib/berth-dev"
	DefaultHTTPAddress = "127.0.0.1:7400"
	DefaultRaftAddress = "127.0.0.1:7401"
	// DevPlugin is the id of the embedded driver of a development agent.
	DevPlugin = "local"
)

// Read reads the files in order. What a later one sets replaces what an
// earlier one did; plugins add up.
func Read(paths ...string) (Config, error) {
	var all Config
	var p api.Problems
	for _, path := range paths {
		cfg, err := readFile(path)
		p.Merge(err)
		if err == nil {
			all = all.Merge(cfg)
		}
	}
	return all, p.Err("the configuration")
}

func readFile(path string) (Config, error) {
	var cfg Config
	src, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return cfg, fmt.Errorf("read configuration: %w", err)
	}
	parser := hclparse.NewParser()
	file, diags := parser.ParseHCL(src, filepath.Base(path))
	if !diags.HasErrors() {
		diags = append(diags, gohcl.DecodeBody(file.Body, nil, &cfg)...)
	}
	return cfg, problems(path, diags)
}

// problems turns HCL's diagnostics into ours.
func problems(path string, diags hcl.Diagnostics) error {
	var fields []api.Field
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		f := api.Field{File: path, Message: d.Summary, Mend: strings.TrimSuffix(d.Detail, ".")}
		if d.Subject != nil {
			f.Line, f.Column = d.Subject.Start.Line, d.Subject.Start.Column
		}
		fields = append(fields, f)
	}
	if len(fields) == 0 {
		return nil
	}
	return &api.Error{Code: api.CodeInvalid, Message: path + " cannot be used", Fields: fields}
}

// Merge lays a later file over an earlier one.
func (c Config) Merge(over Config) Config {
	pick := func(a, b string) string {
		if b != "" {
			return b
		}
		return a
	}
	c.DataDir, c.Name = pick(c.DataDir, over.DataDir), pick(c.Name, over.Name)
	c.LogLevel, c.LogFormat = pick(c.LogLevel, over.LogLevel), pick(c.LogFormat, over.LogFormat)
	if over.HTTP != nil {
		c.HTTP = over.HTTP
	}
	if over.Server != nil {
		c.Server = over.Server
	}
	if over.Client != nil {
		c.Client = over.Client
	}
	c.Plugins = append(append([]Plugin{}, c.Plugins...), over.Plugins...)
	return c
}

// Dev makes the configuration one of a development agent: one server and one
// agent in one process, with the embedded local driver.
func (c Config) Dev() Config {
	if c.DataDir == "" {
		c.DataDir = DefaultDevDataDir
	}
	server, client := Server{BootstrapExpect: 1}, Client{}
	if c.Server != nil {
		server = *c.Server
	}
	if c.Client != nil {
		client = *c.Client
	}
	server.Enabled, client.Enabled = true, true
	c.Server, c.Client = &server, &client
	for _, p := range c.Plugins {
		if p.ID == DevPlugin {
			return c
		}
	}
	c.Plugins = append(append([]Plugin{}, c.Plugins...), Plugin{ID: DevPlugin, Embedded: true})
	return c
}

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
	http, server, client := HTTP{}, Server{}, Client{}
	if c.HTTP != nil {
		http = *c.HTTP
	}
	if c.Server != nil {
		server = *c.Server
	}
	if c.Client != nil {
		client = *c.Client
	}
	set(&http.Address, DefaultHTTPAddress)
	set(&server.RaftAddress, DefaultRaftAddress)
	if server.Enabled && server.BootstrapExpect == 0 {
		server.BootstrapExpect = 1
	}
	if client.Enabled && len(client.Servers) == 0 && server.Enabled {
		client.Servers = []string{"http://" + http.Address}
	}
	c.HTTP, c.Server, c.Client = &http, &server, &client
	plugins := append([]Plugin{}, c.Plugins...)
	for i := range plugins {
		set(&plugins[i].Type, string(api.InstanceMonolith))
		if plugins[i].Embedded {
			set(&plugins[i].Root, filepath.Join(c.DataDir, plugins[i].ID))
			set(&plugins[i].Socket, filepath.Join(c.DataDir, "run", plugins[i].ID+".sock"))
		}
	}
	c.Plugins = plugins
	return c, c.validate()
}

// maxSocket is the longest path of a unix socket.
const maxSocket = 107

func (c *Config) validate() error {
	var p api.Problems
	choice := func(path, got string, allowed ...string) {
		for _, a := range allowed {
			if got == a {
				return
			}
		}
		p.Addf(path, "use one of "+strings.Join(allowed, ", "), "is %q", got)
	}
	choice("log_level", c.LogLevel, "debug", "info", "warn", "error")
	choice("log_format", c.LogFormat, "text", "json")
	if !c.Server.Enabled && !c.Client.Enabled {
		p.Add("server.enabled", "is false, and so is client.enabled: there is nothing to do", "set one of them, or run with --dev")
	}
	if c.Client.Enabled && len(c.Client.Servers) == 0 {
		p.Add("client.servers", "is empty", `name the servers: ["http://10.0.0.1:7400"]`)
	}
	if c.Server.Enabled && c.Server.BootstrapExpect != 1 {
		p.Addf("server.bootstrap_expect", "use 1: clusters of several servers come with a later version", "is %d", c.Server.BootstrapExpect)
	}
	seen := map[string]bool{}
	for _, pl := range c.Plugins {
		path := fmt.Sprintf("plugin[%q]", pl.ID)
		p.Name(path, pl.ID)
		if seen[pl.ID] {
			p.Add(path, "is there twice", "rename one")
		}
		seen[pl.ID] = true
		choice(path+".type", pl.Type, string(api.InstanceNode), string(api.InstanceController), string(api.InstanceMonolith))
		switch {
		case pl.Socket == "":
			p.Add(path+".socket", "is missing", "give the path of the driver's socket, or set embedded = true for the local driver")
		case len(pl.Socket) > maxSocket:
			p.Addf(path+".socket", "choose a shorter path", "is longer than the %d bytes that a socket's path may have", maxSocket)
		}
		if pl.Root != "" && !pl.Embedded {
			p.Add(path+".root", "only makes sense with embedded = true", "remove it")
		}
	}
	return p.Err("the configuration")
}

