// Package config turns the agent's configuration files and flags into plain
// structs, with their defaults. It owns the names in the files.
//
// It never opens a connection and never makes a directory. Invariant: what it
// returns is complete and checked; every problem of the files is reported at
// once, with file, line and column.
package config

import (
	"path/filepath"
	"time"
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

	HTTP      *HTTP      `hcl:"http,block"`
	Server    *Server    `hcl:"server,block"`
	Client    *Client    `hcl:"client,block"`
	Telemetry *Telemetry `hcl:"telemetry,block"`
	Plugins   []Plugin   `hcl:"plugin,block"`
	Drivers   []Driver   `hcl:"driver,block"`
	// HostVolumes are directories of this machine that jobs may ask for.
	HostVolumes []HostVolume `hcl:"host_volume,block"`

	places places
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
	// SweepInterval is how often what plugins have is compared with what the
	// cluster knows, as a duration; 5 minutes if empty.
	SweepInterval string `hcl:"sweep_interval,optional"`
	// Plugins bounds the calls to plugins.
	Plugins []PluginCalls `hcl:"plugin,block"`
	// Keep says for how long history stays.
	Keep *Keep `hcl:"keep,block"`
}

// Keep is for how long history stays after its last change, such as "24h";
// DefaultKeep if empty.
type Keep struct {
	Operations  string `hcl:"operations,optional"`
	Attachments string `hcl:"attachments,optional"`
	Allocations string `hcl:"allocations,optional"`
	Jobs        string `hcl:"jobs,optional"`
	Snapshots   string `hcl:"snapshots,optional"`
	Nodes       string `hcl:"nodes,optional"`
}

// DefaultKeep is for how long history stays that nothing else is said of, and
// DefaultKeepNodes for how long nodes do that are gone.
const (
	DefaultKeep      = 24 * time.Hour
	DefaultKeepNodes = 7 * 24 * time.Hour
)

// For is the time of one kind of history. The configuration was checked.
func (k *Keep) For(kind string) time.Duration {
	t, err := time.ParseDuration(k.said()[kind])
	switch {
	case err != nil && kind == "nodes":
		return DefaultKeepNodes
	case err != nil:
		return DefaultKeep
	}
	return t
}

// said are the times by the kinds of history.
func (k *Keep) said() map[string]string {
	if k == nil {
		return nil
	}
	return map[string]string{
		"operations": k.Operations, "attachments": k.Attachments, "allocations": k.Allocations, "jobs": k.Jobs,
		"snapshots": k.Snapshots, "nodes": k.Nodes,
	}
}

// Client says whether, and how, this machine is a node that runs jobs.
type Client struct {
	Enabled bool `hcl:"enabled,optional"`
	// Servers are the addresses of the API; this machine's own server if empty.
	Servers []string `hcl:"servers,optional"`
	// Class and Meta describe this machine to the constraints of jobs:
	// ${node.class}, ${meta.rack}.
	Class string            `hcl:"class,optional"`
	Meta  map[string]string `hcl:"meta,optional"`
	// Address is where others reach this machine's services; empty finds the
	// address from which this machine reaches the servers.
	Address string `hcl:"address,optional"`
	// CPU in MHz and Memory in MiB are what tasks may have of this machine; 0 is
	// all that there is.
	CPU    int `hcl:"cpu,optional"`
	Memory int `hcl:"memory,optional"`
}

// Telemetry says where the process shows its numbers, and where its traces go.
type Telemetry struct {
	// MetricsAddress is where /v1/metrics is served besides the API, which nodes
	// without a server do not have; nowhere if empty.
	MetricsAddress string `hcl:"metrics_address,optional"`
	// Traces says where the spans of a server go; nowhere if nil.
	Traces *Traces `hcl:"traces,block"`
}

// Traces is an OpenTelemetry collector.
type Traces struct {
	// Endpoint is its URL for OTLP over HTTP.
	Endpoint string `hcl:"endpoint"`
}

// HostVolume is a directory of this machine that jobs may ask for by its name.
type HostVolume struct {
	Name string `hcl:"name,label"`
	Path string `hcl:"path"`
	// ReadOnly: no task may write to it.
	ReadOnly bool `hcl:"read_only,optional"`
}

// Plugin is a CSI driver that the host runs, or that the agent serves itself.
type Plugin struct {
	ID string `hcl:"id,label"`
	// Socket is where the driver listens: a path, with unix:// or without.
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
	// MaxVolumes is how many volumes of the embedded driver this machine takes
	// at once; 0 is no limit.
	MaxVolumes int64 `hcl:"max_volumes,optional"`
}

// Flags are what the command line says; what is empty was not given.
type Flags struct {
	DataDir, Name, LogLevel, LogFormat, HTTPAddress, RaftAddress string
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

// or is *p, or nothing if there is none.
func or[T any](p *T) T {
	if p == nil {
		var none T
		return none
	}
	return *p
}

// With lays flags over the configuration. A data directory that depends on the
// working directory is one of the command line, and means the one of now.
func (c Config) With(f Flags) (Config, error) {
	if f.DataDir != "" {
		abs, err := filepath.Abs(f.DataDir)
		if err != nil {
			return c, err
		}
		f.DataDir = abs
	}
	http, server := or(c.HTTP), or(c.Server)
	c.places = c.places.clone()
	for path, flag := range map[string]struct {
		value string
		into  *string
	}{
		"data_dir":            {f.DataDir, &c.DataDir},
		"name":                {f.Name, &c.Name},
		"log_level":           {f.LogLevel, &c.LogLevel},
		"log_format":          {f.LogFormat, &c.LogFormat},
		"http.address":        {f.HTTPAddress, &http.Address},
		"server.raft_address": {f.RaftAddress, &server.RaftAddress},
	} {
		if flag.value != "" {
			*flag.into = flag.value
			c.places.forget(path)
		}
	}
	c.HTTP, c.Server = &http, &server
	return c, nil
}

// Dev makes the configuration one of a development agent: one server and one
// agent in one process, with the embedded local driver.
func (c Config) Dev() Config {
	if c.DataDir == "" {
		c.DataDir = DefaultDevDataDir
	}
	server, client := or(c.Server), or(c.Client)
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
