package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/config"
)

// unplaced ignores where fields were written.
func unplaced() cmp.Option { return cmpopts.IgnoreUnexported(config.Config{}) }

// write writes files and returns their paths.
func write(t *testing.T, contents ...string) []string {
	t.Helper()
	dir, paths := t.TempDir(), []string{}
	for i, text := range contents {
		path := filepath.Join(dir, string(rune('a'+i))+".hcl")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// complete does what `berth agent` does with files.
func complete(paths ...string) (config.Config, error) {
	cfg, err := config.Read(paths...)
	if err != nil {
		return cfg, err
	}
	return cfg.Complete()
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := complete(write(t, "server {\n enabled = true\n}\nclient {\n enabled = true\n}\nplugin \"p\" {\n socket = \"unix:///run/p.sock\"\n}\nplugin \"l\" {\n embedded = true\n}")...)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		DataDir: "/var/lib/berth", LogLevel: "info", LogFormat: "text",
		HTTP:      &config.HTTP{Address: "127.0.0.1:7400"},
		Server:    &config.Server{Enabled: true, BootstrapExpect: 1, RaftAddress: "127.0.0.1:7401"},
		Client:    &config.Client{Enabled: true, Servers: []string{"http://127.0.0.1:7400"}},
		Telemetry: &config.Telemetry{},
		Plugins: []config.Plugin{
			{ID: "p", Socket: "/run/p.sock", Type: "monolith"},
			{ID: "l", Type: "monolith", Embedded: true, Root: "/var/lib/berth/l", Socket: "/var/lib/berth/run/l.sock"},
		},
	}
	if diff := cmp.Diff(want, got, unplaced()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDevNeedsNoFile, and takes from files what they say.
func TestDevNeedsNoFile(t *testing.T) {
	t.Parallel()
	read := func(paths ...string) config.Config {
		cfg, err := config.Read(paths...)
		if err != nil {
			t.Fatal(err)
		}
		if cfg, err = cfg.Dev().Complete(); err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	got := read()
	want := []config.Plugin{{ID: "local", Type: "monolith", Embedded: true, Root: "/var/lib/berth-dev/local", Socket: "/var/lib/berth-dev/run/local.sock"}}
	if diff := cmp.Diff(want, got.Plugins); diff != "" || !got.Server.Enabled || !got.Client.Enabled || got.DataDir != "/var/lib/berth-dev" {
		t.Errorf("%+v (-want +got):\n%s", got, diff)
	}
	got = read(write(t, `data_dir = "/d"
server { raft_address = "127.0.0.1:1" }
plugin "local" { socket = "/run/own.sock" }
`)...)
	want = []config.Plugin{{ID: "local", Type: "monolith", Socket: "/run/own.sock"}}
	if diff := cmp.Diff(want, got.Plugins); diff != "" || got.Server.RaftAddress != "127.0.0.1:1" || got.DataDir != "/d" {
		t.Errorf("with a file: %+v (-want +got):\n%s", got, diff)
	}
}

// TestLaterFilesReplaceWhatTheySet and nothing else, also inside a block: a
// file that adds the servers does not switch the client off.
func TestLaterFilesReplaceWhatTheySet(t *testing.T) {
	t.Parallel()
	got, err := complete(write(t,
		"data_dir = \"/a\"\nname = \"a\"\nclient {\n  enabled = true\n}\nserver {\n  enabled = true\n  raft_address = \"127.0.0.1:1\"\n}\nplugin \"p\" {\n  socket = \"/p\"\n}\n",
		"name = \"b\"\nclient {\n  servers = [\"http://10.0.0.1:7400\"]\n}\nserver {\n  enabled = false\n}\nplugin \"q\" {\n  socket = \"/q\"\n}\n",
	)...)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		DataDir: "/a", Name: "b", LogLevel: "info", LogFormat: "text",
		HTTP:      &config.HTTP{Address: "127.0.0.1:7400"},
		Server:    &config.Server{RaftAddress: "127.0.0.1:1"},
		Client:    &config.Client{Enabled: true, Servers: []string{"http://10.0.0.1:7400"}},
		Telemetry: &config.Telemetry{},
		Plugins:   []config.Plugin{{ID: "p", Socket: "/p", Type: "monolith"}, {ID: "q", Socket: "/q", Type: "monolith"}},
	}
	if diff := cmp.Diff(want, got, unplaced()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFlagsReplaceFiles, and a relative data directory is one of the working
// directory.
func TestFlagsReplaceFiles(t *testing.T) {
	t.Parallel()
	cfg, err := config.Read(write(t, "log_level = \"loud\"\nname = \"file\"\nserver {\n  enabled = true\n}\n")...)
	if err != nil {
		t.Fatal(err)
	}
	given, err := cfg.With(config.Flags{DataDir: "d", LogLevel: "warn", HTTPAddress: "127.0.0.1:1", RaftAddress: "127.0.0.1:2"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := given.Complete()
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		DataDir: filepath.Join(here, "d"), Name: "file", LogLevel: "warn", LogFormat: "text",
		HTTP:   &config.HTTP{Address: "127.0.0.1:1"},
		Server: &config.Server{Enabled: true, BootstrapExpect: 1, RaftAddress: "127.0.0.1:2"}, Client: &config.Client{}, Telemetry: &config.Telemetry{}, Plugins: []config.Plugin{},
	}
	if diff := cmp.Diff(want, got, unplaced()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// What a flag got wrong is in no file.
	given, err = cfg.With(config.Flags{LogLevel: "louder"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = given.Complete()
	if want := "the configuration has a problem\n  log_level is \"louder\"; use one of debug, info, warn, error"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestMistakes: each with its place, what is wrong, and the mend, and all at
// once.
func TestMistakes(t *testing.T) {
	t.Parallel()
	long := "/" + strings.Repeat("x", 107)
	const on = "\nclient {\n  enabled = true\n  servers = [\"10.0.0.1:7400\"]\n}\n"
	for name, tc := range map[string]struct {
		text string
		want []string // without the directory and the heading
	}{
		"Syntax":            {"server {\n  enabled = true\n", []string{`a.hcl:1:8: has a "{" that is never closed; add the missing "}"`}},
		"UnknownName":       {"data_dri = \"/d\"\n", []string{`a.hcl:1:1: data_dri is not a known name; did you mean data_dir?`}},
		"UnknownNames":      {"nam = 1\nserver {\n  enable = true\n}\n", []string{`a.hcl:1:1: nam is not a known name; did you mean name?`, `a.hcl:3:3: server.enable is not a known name; did you mean enabled?`}},
		"UnknownBlock":      {"servers {\n}\n", []string{`a.hcl:1:1: servers is not a known name; did you mean server?`}},
		"WrongType":         {"server {\n  enabled = \"perhaps\"\n}\n", []string{`a.hcl:2:13: server.enabled is a string; write enabled = true`}},
		"NoNumber":          {"server {\n  bootstrap_expect = \"three\"\n}\n", []string{`a.hcl:2:22: server.bootstrap_expect is a string; write bootstrap_expect = 1`}},
		"Variable":          {"name = host\n", []string{`a.hcl:1:8: name is the word host; write "host", in quotes`}},
		"MisplacedName":     {"bootstrap_expect = 1\nclient {\n  data_dir = \"/d\"\n  socket = \"/s\"\n  host_volume \"x\" {\n    path = \"/srv\"\n  }\n}\nkeep {\n}\n", []string{"a.hcl:1:1: bootstrap_expect does not belong here; put it in server", "a.hcl:3:3: client.data_dir does not belong here; put it into the file itself, outside of all blocks", "a.hcl:4:3: client.socket does not belong here; put it in plugin", "a.hcl:5:3: client.host_volume does not belong here; put it into the file itself, outside of all blocks", "a.hcl:9:1: keep does not belong here; put it in server"}},
		"NamesOfNomad":      {"datacenter = \"dc1\"\nbind_addr = \"0.0.0.0\"\nagent {\n}\nclient {\n  node_class = \"db\"\n  server_join {\n    retry_join = [\"a\"]\n  }\n}\nplugin \"docker\" {\n  config {\n    allow_privileged = true\n  }\n}\n", []string{"a.hcl:1:1: datacenter is known from Nomad, and not from here: there is one cluster; remove it, or describe the machine: client { class = \"...\" meta = { ... } }", "a.hcl:2:1: bind_addr is known from Nomad, and not from here: each address has a field of its own; write http { address = \"127.0.0.1:7400\" }", "a.hcl:3:1: agent is known from Nomad, and not from here: a file is an agent's; write what is in it into the file itself", "a.hcl:6:3: client.node_class is known from Nomad, and not from here: it is called class; write class = \"...\"", "a.hcl:7:3: client.server_join is known from Nomad, and not from here: it is called servers; write servers = [\"http://10.0.0.1:7400\"]", "a.hcl:12:3: plugin[\"docker\"].config is known from Nomad, and not from here: a plugin is a CSI driver, and what task drivers may do is said apart; write driver \"docker\" { allow_privileged = true }"}},
		"UnlikeAnyName":     {"zzz = 1\ntelemetry {\n  qqq {\n  }\n}\n", []string{"a.hcl:1:1: zzz is not a known name; use one of client, data_dir, driver, host_volume, http, log_format, log_level, name, plugin, server, telemetry", "a.hcl:3:3: telemetry.qqq is not a known name; use one of metrics_address, traces"}},
		"BlockAsAttribute":  {"server = {\n  enabled = true\n}\nplugin = \"p\"\n", []string{"a.hcl:1:1: server is a block; write server { ... }, without the equals sign", "a.hcl:4:1: plugin is a block; write plugin \"name\" { ... }, without the equals sign"}},
		"AttributeAsBlock":  {"name {\n}\nclient {\n  servers {\n  }\n  meta {\n    rack = \"r1\"\n  }\n}\n", []string{"a.hcl:1:1: name is written as a block; write name = \"...\"", "a.hcl:4:3: client.servers is written as a block; write servers = [\"...\"]", "a.hcl:6:3: client.meta is written as a block; write meta = { key = \"...\" }"}},
		"LabelTooMuch":      {"server \"a\" {\n  enabled = true\n}\nplugin \"a\" \"b\" {\n}\n", []string{"a.hcl:1:8: server takes no name; write server { ... }", "a.hcl:4:8: plugin has 2 names; write plugin \"name\" { ... }"}},
		"ValuesOfOtherKind": {"client {\n  servers = \"http://a:1\"\n  cpu = [4]\n  meta = \"x\"\n  class = [\"a\"]\n}\nname = null\nlog_level = { }\n", []string{"a.hcl:2:13: client.servers is a string; write servers = [\"...\"]", "a.hcl:3:9: client.cpu is a list; write cpu = 1", "a.hcl:4:10: client.meta is a string; write meta = { key = \"...\" }", "a.hcl:5:11: client.class is a list; write class = \"...\"", "a.hcl:7:8: name is null; write name = \"...\"", "a.hcl:8:13: log_level is a map; write log_level = \"...\""}},
		"Calculation":       {"name = \"${host}-1\"\nlog_level = upper(\"info\")\ndata_dir = node.name\n", []string{"a.hcl:1:8: name rests on host, and nothing is filled in here; write the value itself", "a.hcl:2:13: log_level calculates; write the value itself", "a.hcl:3:12: data_dir rests on node, and nothing is filled in here; write the value itself"}},
		"OneLine":           {"client { enabled = true  servers = [\"a\"] }\n", []string{"a.hcl:1:26: has more than one thing on the line of a block; begin a new line after the {, after each value and before the }"}},
		"TwoOnALine":        {"name = \"a\" data_dir = \"/d\"\n", []string{"a.hcl:1:12: has more than one thing on a line; begin a new line"}},
		"StringNotClosed":   {"name = \"a\ndata_dir = \"/d\"\n", []string{`a.hcl:1:10: begins a string that does not end on its line; add the missing quote`, `a.hcl:2:16: begins a string that does not end on its line; add the missing quote`}},
		"NoValue":           {"name = \n", []string{"a.hcl:1:8: has no value that can be read; write a string, a number, true, false, a list or a map"}},
		"SingleQuotes":      {"name = 'a'\n", []string{`a.hcl:1:8: has a character that means nothing here; remove it, or write text in quotes: "..."`}},
		"NameTwice":         {"name = \"a\"\nname = \"b\"\n", []string{`a.hcl:2:1: is there twice; remove one`}},
		"NoName":            {"= 3\n", []string{`a.hcl:1:1: has something where a name is expected; write name = value, or name { ... } with the { on the line of the name`}},
		"Colon":             {"name: \"a\"\n", []string{`a.hcl:1:1: has something where a name is expected; write name = value, or name { ... } with the { on the line of the name`}},
		"ListWithoutComma":  {"client {\n  servers = [\"a\" \"b\"]\n}\n", []string{`a.hcl:2:18: has no comma before this element; add the comma`}},
		"BlockTwice":        {"http {\n}\nhttp {\n}\n", []string{`a.hcl:3:1: http is there twice, first at line 1; make them one`}},
		"PluginOfThreePrograms": {on + "plugin \"p\" {\n  socket = \"/p\"\n  type = \"node\"\n}\nplugin \"p\" {\n  socket = \"/q\"\n  type = \"controller\"\n}\nplugin \"p\" {\n  socket = \"/r\"\n  type = \"node\"\n}\n",
			[]string{`a.hcl:14:1: plugin["p"] is there twice, first at DIR/a.hcl:10; rename one, or remove it; a driver of two programs has one of the type node and one of the type controller`}},
		"CallsOfAPlugin": {"server {\n  enabled = true\n  plugin \"p\" {\n    max_calls = -1\n    max_calls_per_node = -2\n    max_slow_calls = -3\n    call_timeout = \"soon\"\n    slow_after = \"1ms\"\n    max_calls_per_target = -4\n  }\n  plugin \"q\" {\n    call_timeout = \"5s\"\n    slow_after = \"10s\"\n  }\n  plugin \"q\" {\n  }\n}\n", []string{
			`a.hcl:4:5: server.plugin["p"].max_calls is -1; give how many calls there may be at once, from 1`,
			`a.hcl:5:5: server.plugin["p"].max_calls_per_node is -2; give how many calls there may be at once, from 1`,
			`a.hcl:9:5: server.plugin["p"].max_calls_per_target is -4; give how many calls there may be at once, from 1`,
			`a.hcl:6:5: server.plugin["p"].max_slow_calls is -3; give how many slow calls there may be besides, or 0`,
			`a.hcl:7:5: server.plugin["p"].call_timeout is "soon"; give a time of at least "1s", such as "30s" or "2m"`,
			`a.hcl:8:5: server.plugin["p"].slow_after is "1ms"; give a time of at least "1s", such as "30s" or "2m"`,
			`a.hcl:13:5: server.plugin["q"].slow_after is longer than call_timeout (5s); make it shorter`,
			`a.hcl:15:3: server.plugin["q"] is there twice; remove one`,
		}},
		"PluginTwice":       {on + "plugin \"p\" {\n  socket = \"/p\"\n}\nplugin \"p\" {\n  socket = \"/p\"\n}\n", []string{`a.hcl:9:1: plugin["p"] is there twice, first at DIR/a.hcl:6; rename one, or remove it; a driver of two programs has one of the type node and one of the type controller`}},
		"PluginUnnamed":     {on + "plugin {\n}\n", []string{`a.hcl:6:1: plugin has no name; write plugin "name" { ... }`}},
		"NothingToDo":       {"", []string{"server.enabled is false, and so is client.enabled: there is nothing to do; set one of them in a file and give it with --config, or run with --dev"}},
		"SwitchedOff":       {"server {\n  enabled = false\n}\n", []string{"a.hcl:2:3: server.enabled is false, and so is client.enabled: there is nothing to do; set one of them in a file and give it with --config, or run with --dev"}},
		"LogLevelAndFormat": {"log_level = \"loud\"\nlog_format = \"xml\"" + on, []string{`a.hcl:1:1: log_level is "loud"; use one of debug, info, warn, error`, `a.hcl:2:1: log_format is "xml"; use one of text, json`}},
		"Name":              {"name = \"my host\"" + on, []string{`a.hcl:1:1: name has the character " "; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit`}},
		"RelativeDirectory": {"data_dir = \"data\"" + on, []string{`a.hcl:1:1: data_dir is "data", which depends on the working directory; give an absolute path`}},
		"NoServers":         {"client {\n  enabled = true\n}\n", []string{`a.hcl:1:1: client.servers is empty; name the server: ["http://10.0.0.1:7400"]`}},
		"Machine":           {"client {\n  enabled = true\n  servers = [\"10.0.0.1:7400\"]\n  address = \"db-1\"\n  cpu = -1\n  memory = -1\n}\n", []string{`a.hcl:4:3: client.address is "db-1"; give an IP address of this machine`, `a.hcl:5:3: client.cpu is negative; give MHz such as 4000, or leave it out`, `a.hcl:6:3: client.memory is negative; give MiB such as 8192, or leave it out`}},
		"Traces":            {"server {\n  enabled = true\n}\ntelemetry {\n  traces {\n    endpoint = \"collector:4318\"\n  }\n}\n", []string{`a.hcl:6:5: telemetry.traces.endpoint is "collector:4318", which is no URL of a collector; write it as "http://127.0.0.1:4318/v1/traces"`}},
		"SeveralServers":    {"client {\n  enabled = true\n  servers = [\"http://a:1\", \"https://b:1\"]\n}\n", []string{`a.hcl:3:3: client.servers has 2 addresses; name one: clusters of several servers come with a later version`, `a.hcl:3:3: client.servers[1] is "https://b:1", which is no address of plain HTTP; write it as "http://10.0.0.1:7400"`}},
		"ServerIsNoAddress": {"client {\n  enabled = true\n  servers = [\"http://\"]\n}\n", []string{`a.hcl:3:3: client.servers[0] is "http://", which is no address of plain HTTP; write it as "http://10.0.0.1:7400"`}},
		"Keep":              {"server {\n  enabled = true\n  keep {\n    jobs = \"1w\"\n    operations = \"-1s\"\n    allocations = \"1h\"\n  }\n}\n", []string{`a.hcl:4:5: server.keep.jobs is "1w"; give a duration such as "24h"`, `a.hcl:5:5: server.keep.operations is "-1s"; give a duration such as "24h"`}},
		"SweepTooOften":     {"server {\n  enabled = true\n  sweep_interval = \"1s\"\n}\n", []string{`a.hcl:3:3: server.sweep_interval is "1s"; give a duration of at least 10s, such as "5m"`}},
		"ThreeServers":      {"server {\n  enabled = true\n  bootstrap_expect = 3\n}\n", []string{`a.hcl:3:3: server.bootstrap_expect is 3; use 1: clusters of several servers come with a later version`}},
		"Addresses":         {"http {\n  address = \"localhost\"\n}\nserver {\n  enabled = true\n  raft_address = \"127.0.0.1:0\"\n}\ntelemetry {\n  metrics_address = \"here\"\n}\n", []string{`a.hcl:2:3: http.address is "localhost"; give a host and a port, such as 127.0.0.1:7400`, `a.hcl:6:3: server.raft_address is "127.0.0.1:0"; give a host and a port, such as 127.0.0.1:7401`, `a.hcl:9:3: telemetry.metrics_address is "here"; give a host and a port, such as 127.0.0.1:7403`}},
		"RaftEverywhere":    {"server {\n  enabled = true\n  raft_address = \"0.0.0.0:7401\"\n}\n", []string{`a.hcl:3:3: server.raft_address is "0.0.0.0:7401", which other servers cannot connect to; give one address of this machine, such as 127.0.0.1:7401`}},
		"PluginName":        {on + "plugin \"my plugin\" {\n  socket = \"/p\"\n}\n", []string{`a.hcl:6:1: plugin["my plugin"] has the character " "; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit`}},
		"PluginFields":      {on + "plugin \"p.q\" {\n  type = \"nodes\"\n  root = \"/r\"\n}\n", []string{`a.hcl:7:3: plugin["p.q"].type is "nodes"; use one of node, controller, monolith`, `a.hcl:6:1: plugin["p.q"].socket is missing; give the path of the driver's socket, or set embedded = true for the local driver`, `a.hcl:8:3: plugin["p.q"].root only makes sense with embedded = true; remove it`}},
		"MaxVolumesBelow":   {on + "plugin \"p\" {\n  embedded = true\n  max_volumes = -1\n}\n", []string{`a.hcl:8:3: plugin["p"].max_volumes is -1; give how many volumes the machine takes, or 0 for no limit`}},
		"HostVolume": {on + "host_volume \"d x\" {\n  path = \"srv\"\n}\nhost_volume \"e\" {\n  path = \"/\"\n}\n", []string{
			`a.hcl:6:1: host_volume["d x"] has the character " "; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit`,
			`a.hcl:7:3: host_volume["d x"].path is "srv", which depends on the working directory; give an absolute path`,
			`a.hcl:10:3: host_volume["e"].path is the whole machine; give a directory such as "/srv/data"`,
		}},
		"HostVolumePath":    {on + "host_volume \"f\" {\n}\n", []string{`a.hcl:6:17: host_volume["f"].path is missing; add path = "..."`}},
		"HostVolumeTwice":   {on + "host_volume \"d\" {\n  path = \"/srv\"\n}\nhost_volume \"d\" {\n  path = \"/srv\"\n}\n", []string{`a.hcl:9:1: host_volume["d"] is there twice, first at DIR/a.hcl:6; rename one, or remove it`}},
		"MaxVolumesOfOther": {on + "plugin \"p\" {\n  socket = \"/p.sock\"\n  max_volumes = 3\n}\n", []string{`a.hcl:8:3: plugin["p"].max_volumes only makes sense with embedded = true; remove it: the driver says itself how many it takes`}},
		"SocketTooLong":     {on + "plugin \"p\" {\n  socket = \"" + long + "\"\n}\n", []string{`a.hcl:7:3: plugin["p"].socket is longer than the 107 bytes that a socket's path may have; choose a shorter path`}},
		"RelativeSocket":    {on + "plugin \"p\" {\n  socket = \"unix://p.sock\"\n}\n", []string{`a.hcl:7:3: plugin["p"].socket is "p.sock", which depends on the working directory; give an absolute path`}},
		"EmbeddedTooDeep":   {"data_dir = \"" + long[:100] + "\"" + on + "plugin \"p\" {\n  embedded = true\n  root = \"r\"\n}\n", []string{`a.hcl:6:1: plugin["p"].socket is longer than the 107 bytes that a socket's path may have; choose a shorter path`, `a.hcl:8:3: plugin["p"].root is "r", which depends on the working directory; give an absolute path`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, tc.text)[0]
			_, err := complete(path)
			if api.CodeOf(err) != api.CodeInvalid {
				t.Fatalf("got %v, want code invalid", err)
			}
			text := strings.ReplaceAll(err.Error(), filepath.Dir(path), "DIR")
			got := strings.Split(strings.ReplaceAll(text, "\n  DIR/", "\n  "), "\n  ")[1:]
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestMistakesOfAllFilesAtOnce, also where one cannot be read.
func TestMistakesOfAllFilesAtOnce(t *testing.T) {
	t.Parallel()
	paths := write(t, "nam = 1\n", "plugin \"p\" {\n}\n", "plugin \"p\" {\n}\n")
	dir := filepath.Dir(paths[0])
	_, err := config.Read(append(paths, dir, filepath.Join(dir, "none.hcl"))...)
	want := strings.ReplaceAll(`the configuration has 4 problems
  DIR/a.hcl:1:1: nam is not a known name; did you mean name?
  DIR: cannot be read: is a directory; give a file that is there, and that this user may read
  DIR/none.hcl: cannot be read: no such file or directory; give a file that is there, and that this user may read
  DIR/c.hcl:1:1: plugin["p"] is there twice, first at DIR/b.hcl:1; rename one, or remove it; a driver of two programs has one of the type node and one of the type controller`, "DIR", dir)
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCompleteChangesNoOther: a configuration is a value, whatever its pointers.
func TestCompleteChangesNoOther(t *testing.T) {
	t.Parallel()
	cfg, err := config.Read(write(t, "plugin \"l\" {\n  embedded = true\n}\nclient {\n}\n")...)
	if err != nil {
		t.Fatal(err)
	}
	before, client := cfg, *cfg.Client
	if _, err := cfg.Dev().Complete(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, cfg, unplaced()); diff != "" || cmp.Diff(client, *cfg.Client) != "" || cfg.Plugins[0].Socket != "" {
		t.Errorf("it changed (-before +after):\n%s", diff)
	}
}

// TestThePageIsTrue: the example of docs/configuration.md can be used, and says
// what the defaults are.
func TestThePageIsTrue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var example strings.Builder
	for line := range strings.Lines(string(page)) {
		if code, indented := strings.CutPrefix(line, "    "); indented {
			example.WriteString(code)
		} else if strings.TrimSpace(line) == "" {
			example.WriteString("\n")
		}
	}
	got, err := complete(write(t, example.String())...)
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		DataDir: config.DefaultDataDir, Name: "db-1", LogLevel: "info", LogFormat: "text",
		HTTP: &config.HTTP{Address: config.DefaultHTTPAddress},
		Server: &config.Server{Enabled: true, BootstrapExpect: 1, RaftAddress: config.DefaultRaftAddress, SweepInterval: "5m", Plugins: []config.PluginCalls{{
			ID: "ebs", MaxCalls: 4096, MaxCallsPerNode: 256, MaxCallsPerTarget: 32, CallTimeout: "2m", SlowAfter: "15s", MaxSlowCalls: new(2048),
		}}, Keep: &config.Keep{Operations: "24h", Attachments: "24h", Allocations: "24h", Jobs: "24h", Snapshots: "24h", Nodes: "168h"}},
		Client:    &config.Client{Enabled: true, Servers: []string{"http://10.0.0.1:7400"}, Class: "nvme", Meta: map[string]string{"rack": "r1"}, Address: "10.0.0.5", CPU: 8000, Memory: 16384},
		Telemetry: &config.Telemetry{MetricsAddress: "127.0.0.1:7403", Traces: &config.Traces{Endpoint: "http://127.0.0.1:4318/v1/traces"}},
		Plugins: []config.Plugin{
			{ID: "hostpath", Socket: "/run/csi/hostpath.sock", Type: "monolith"},
			{ID: "local", Type: "monolith", Embedded: true, Root: "/srv/volumes", Socket: "/var/lib/berth/run/local.sock"},
		},
		Drivers: []config.Driver{
			{Name: "exec", Enabled: new(true), AllowPrivileged: new(true)},
			{Name: "raw_exec", Enabled: new(true)},
			{Name: "docker", Enabled: new(true), AllowPrivileged: new(false), Endpoint: "unix:///var/run/docker.sock", AllowCaps: []string{"net_admin"}, AuthFile: "/root/.docker/config.json", ImageDelay: "6h"},
		},
		HostVolumes: []config.HostVolume{{Name: "certs", Path: "/etc/ssl/cluster", ReadOnly: true}},
	}
	if diff := cmp.Diff(want, got, unplaced()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDriverBlocks are checked, and there is one for each driver.
func TestDriverBlocks(t *testing.T) {
	t.Parallel()
	_, err := complete(write(t, "client {\n enabled = true\n servers = [\"http://10.0.0.1:7400\"]\n}\ndriver \"dokcer\" {\n endpoint = \"tcp://10.0.0.1:2375\"\n}")...)
	for _, want := range []string{`driver["dokcer"] is "dokcer"`, "use one of exec, raw_exec, docker", `.endpoint is "tcp://10.0.0.1:2375"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %s: %v", want, err)
		}
	}
	_, err = complete(write(t, "client {\n enabled = true\n servers = [\"http://10.0.0.1:7400\"]\n}\ndriver \"docker\" {\n allow_caps = [\"net-admin\", \"CAP_SYS_ADMIN\", \"all\"]\n auth_file = \"x.json\"\n image_delay = \"-1h\"\n}\ndriver \"raw_exec\" {\n endpoint = \"/x\"\n allow_privileged = false\n allow_caps = [\"chown\"]\n allow_host_paths = true\n keep_images = true\n}")...)
	for _, want := range []string{
		`driver["docker"].allow_caps[0] is "net-admin"`, `driver["raw_exec"].endpoint means nothing here`, `driver["raw_exec"].allow_privileged means nothing here`,
		`driver["docker"].auth_file is "x.json"`, `driver["docker"].image_delay is "-1h"`, `driver["raw_exec"] says something of images`, `driver["raw_exec"].allow_caps means`, `driver["raw_exec"].allow_host_paths means`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %s: %v", want, err)
		}
	}
	if err != nil && (strings.Contains(err.Error(), "allow_caps[1]") || strings.Contains(err.Error(), "allow_caps[2]")) {
		t.Errorf("it refuses capabilities that there are: %v", err)
	}
	_, err = complete(write(t, "driver \"docker\" {\n}\ndriver \"docker\" {\n}")...)
	if err == nil || !strings.Contains(err.Error(), "is there twice") {
		t.Errorf("a driver that is there twice: %v", err)
	}
}

func TestKeepIsADayUnlessItIsSaid(t *testing.T) {
	t.Parallel()
	cfg, err := config.Read(write(t, "server {\n  enabled = true\n  keep {\n    operations = \"90m\"\n    jobs = \"0s\"\n  }\n}\n")...)
	if err != nil {
		t.Fatal(err)
	}
	if cfg, err = cfg.Complete(); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]time.Duration{
		"operations": 90 * time.Minute, "jobs": 0, "allocations": config.DefaultKeep, "attachments": config.DefaultKeep,
	} {
		if got := cfg.Server.Keep.For(kind); got != want {
			t.Errorf("%s are kept for %s, and not for %s", kind, got, want)
		}
	}
	var none *config.Keep
	if got := none.For("jobs"); got != config.DefaultKeep {
		t.Errorf("without a keep block jobs are kept for %s", got)
	}
}
