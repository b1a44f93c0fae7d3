package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-dev/berth/internal/config"
)

// finished reads a file as an agent does.
func finished(t *testing.T, text string) config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.hcl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if cfg, err = cfg.Complete(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestReload(t *testing.T) {
	t.Parallel()
	const before = `
log_level = "info"
server {
  enabled = true
  plugin "ebs" {
    max_calls = 4
  }
}
client {
  enabled = true
  meta = { rack = "r1" }
}
plugin "ebs" {
  socket = "/run/ebs.sock"
}
`
	for name, test := range map[string]struct {
		after         string
		live, restart []string
		level, rack   string
	}{
		"Nothing": {after: before, level: "info", rack: "r1"},
		"Live": {
			after: `
log_level = "debug"
server {
  enabled = true
  sweep_interval = "1m"
  plugin "ebs" {
    max_calls = 8
  }
  keep {
    jobs = "1h"
  }
}
client {
  enabled = true
  class   = "big"
  meta = { rack = "r2" }
}
plugin "ebs" {
  socket = "/run/ebs.sock"
}
`,
			live:  []string{"client.class", "client.meta", "log_level", "server.keep", "server.plugin", "server.sweep_interval"},
			level: "debug", rack: "r2",
		},
		"Restart": {
			after: `
log_level  = "warn"
log_format = "json"
data_dir   = "/srv/berth"
http {
  address = "127.0.0.1:7500"
}
server {
  enabled      = true
  raft_address = "127.0.0.1:7501"
  plugin "ebs" {
    max_calls = 4
  }
}
client {
  enabled = true
  servers = ["http://10.0.0.1:7400"]
}
telemetry {
  metrics_address = "127.0.0.1:7403"
}
plugin "ebs" {
  socket = "/run/other.sock"
}
plugin "nfs" {
  socket = "/run/nfs.sock"
}
`,
			live: []string{"client.meta", "log_level"},
			restart: []string{
				"client.servers", "data_dir", "http.address", "log_format", `plugin["ebs"]`, `plugin["nfs"]`, "server.raft_address", "telemetry.metrics_address",
			},
			level: "warn",
		},
		"DriversAndHostVolumes": {
			after: before + `
driver "raw_exec" {
  enabled = false
}
driver "docker" {
  endpoint         = "unix:///run/other.sock"
  allow_privileged = true
  allow_caps       = ["net_admin"]
}
host_volume "certs" {
  path = "/etc/ssl"
}
`,
			live:    []string{`driver["docker"].allow_caps`, `driver["docker"].allow_privileged`, `driver["raw_exec"].enabled`, "host_volume"},
			restart: []string{`driver["docker"].endpoint`}, level: "info", rack: "r1",
		},
		"PluginRemoved": {
			after: `
server {
  enabled = true
  plugin "ebs" {
    max_calls = 4
  }
}
client {
  enabled = true
  meta = { rack = "r1" }
}
`,
			restart: []string{`plugin["ebs"]`}, level: "info", rack: "r1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			was, next := finished(t, before), finished(t, test.after)
			merged, change := was.Reload(next)
			if diff := cmp.Diff(config.Change{Live: test.live, Restart: test.restart}, change); diff != "" {
				t.Errorf("change differs (-want +got):\n%s", diff)
			}
			if merged.LogLevel != test.level || merged.Client.Meta["rack"] != test.rack || merged.Plugins[0].Socket != "/run/ebs.sock" || merged.DataDir != config.DefaultDataDir {
				t.Errorf("merged %+v with %+v", merged, merged.Client)
			}
			// What could not be taken over is said again the next time.
			if _, again := merged.Reload(next); again.Live != nil || !cmp.Equal(again.Restart, test.restart) {
				t.Errorf("the next time %+v", again)
			}
		})
	}
}

func TestReloadSharesNothing(t *testing.T) {
	t.Parallel()
	const text = `
server {
  enabled = true
}
client {
  enabled = true
  meta    = { rack = "r1" }
}
`
	was, next := finished(t, text), finished(t, text)
	next.Client.Meta["rack"] = "r2"
	merged, _ := was.Reload(next)
	merged.Client.Meta["rack"], merged.Client.Servers[0], merged.HTTP.Address = "r3", "elsewhere", "elsewhere"
	if diff := cmp.Diff(finished(t, text), was, cmpopts.IgnoreUnexported(config.Config{})); diff != "" {
		t.Errorf("the configuration that runs was changed (-want +got):\n%s", diff)
	}
	if next.Client.Meta["rack"] != "r2" {
		t.Error("the configuration that was read was changed")
	}
	if merged.Plugins == nil || was.Client.Meta == nil || merged.Telemetry.Traces != nil {
		t.Error("what is empty and what is nil changed places")
	}
}
