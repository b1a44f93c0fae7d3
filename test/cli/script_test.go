// Package cli_test runs the command line against whole clusters, one script of
// testdata/script for each behaviour, and checks that what the documentation
// shows is what the command line takes. How each command prints what it reads
// is tested in internal/cli, with a server that answers from a table.
package cli_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/cli"
	"github.com/berth-dev/berth/internal/server/sweep"
	"github.com/berth-dev/berth/internal/server/tracing"
	"github.com/berth-dev/berth/test/cluster"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	all := &gates{}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("NO_COLOR", "1")
			tb := env.T().(testing.TB)
			c, server := serve(tb, machines(filepath.Base(tb.Name())), provider(filepath.Base(tb.Name())))
			g, address := newGate(tb, strings.TrimPrefix(server, "http://"))
			g.provider, g.machine = c.Backend, c.Nodes[0]
			all.Store(address, g)
			env.Setenv("BERTH_ADDRESS", address)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// berth runs a command that succeeds, or fails after a !.
			"berth": func(ts *testscript.TestScript, neg bool, args []string) {
				want := cli.ExitDone
				if neg {
					want = cli.ExitFailed
				}
				expect(ts, want, args)
			},
			// misuse runs a command that is called wrongly, or with wrong files.
			"misuse": func(ts *testscript.TestScript, _ bool, args []string) { expect(ts, cli.ExitUsage, args) },
			// changes runs a plan that exits with the status for changes.
			"changes": func(ts *testscript.TestScript, _ bool, args []string) { expect(ts, cli.ExitChanges, args) },
			// ends runs a command that ends with a status of its own.
			"ends": func(ts *testscript.TestScript, _ bool, args []string) {
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				expect(ts, want, args[1:])
			},
			// piped runs a command that reads a file as its standard input.
			"piped": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv("PIPED", ts.ReadFile(args[0]))
				defer ts.Setenv("PIPED", "")
				expect(ts, cli.ExitDone, args[1:])
			},
			"until":   until,
			"alloc":   alloc,
			"json":    isJSON,
			"gate":    all.change,
			"during":  all.during,
			"fails":   all.fails,
			"meddle":  all.meddle,
			"machine": all.power,
			// setenv keeps what the last command printed in a variable.
			"setenv": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
			},
		},
	})
}

// provider is the driver of a script: one whose name begins with expand has
// volumes that can be changed, and with offline in it only while nobody uses them.
func provider(script string) csitest.Options {
	o := csitest.Options{
		Attach: true, Stage: true, Clone: true, Snapshots: []string{"snap-1"},
		Snapshot: true, SnapshotWork: 1, SnapshotsDepend: true, ListSnapshots: true, GetVolume: true, Conditions: true,
	}
	if strings.HasPrefix(script, "expand") {
		o.Expand, o.NodeExpand, o.Modify, o.Largest = true, true, true, 100<<30
		o.Offline = strings.Contains(script, "offline")
	}
	return o
}

// machines is how many nodes a script has: one, or two to move between.
func machines(script string) int {
	if strings.HasPrefix(script, "drain") {
		return 2
	}
	return 1
}

// serve starts a cluster, and returns the address of its API.
func serve(tb testing.TB, nodes int, driver csitest.Options) (c *cluster.Cluster, address string) {
	tb.Helper()
	return serveTraced(tb, nodes, driver, nil)
}

// serveTraced is serve with a server that makes spans.
func serveTraced(tb testing.TB, nodes int, driver csitest.Options, tracer *tracing.Tracer) (c *cluster.Cluster, address string) {
	tb.Helper()
	var dial cluster.Dialer
	c = cluster.Start(tb, cluster.Config{
		Agents:   nodes,
		Provider: driver,
		Tracer:   tracer,
		// Nobody waits for minutes for what differs to be a finding.
		Sweep: sweep.Config{Interval: time.Hour, Grace: 10 * time.Millisecond},
		Wire: func(next cluster.Dialer) cluster.Dialer {
			dial = next
			return next
		},
	})
	c.Backend.Add("disk-1", map[string]string{"server": "nfs"})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	tb.Cleanup(transport.CloseIdleConnections)
	gate := httptest.NewServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "server"}) },
	})
	tb.Cleanup(gate.Close)
	return c, gate.URL
}

// limit bounds how long a command may take, and what a script waits for.
const limit = 30 * time.Second

func run(ts *testscript.TestScript, stdout interface{ Write([]byte) (int, error) }, args []string) int {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	paths := make([]string, len(args))
	for i, arg := range args {
		paths[i] = arg
		if slices.Contains([]string{".hcl", ".json", ".state", ".pem"}, filepath.Ext(arg)) {
			name := arg[strings.LastIndex(arg, "@")+1:] // a variable's file, or a value's
			paths[i] = strings.TrimSuffix(arg, name) + ts.MkAbs(name)
		}
	}
	return cli.Main(ctx, cli.Env{
		Args: paths, Stdin: strings.NewReader(ts.Getenv("PIPED")), Stdout: stdout, Stderr: ts.Stderr(), Getenv: ts.Getenv, Version: "test",
		Columns: func() int { return columns(ts) },
	})
}

// columns is the width of the script's terminal: wide, and without colours,
// unless COLUMNS says otherwise; 0 is a pipe.
func columns(ts *testscript.TestScript) int {
	n, err := strconv.Atoi(ts.Getenv("COLUMNS"))
	if err != nil {
		return 200
	}
	return n
}

func expect(ts *testscript.TestScript, want int, args []string) {
	if status := run(ts, ts.Stdout(), args); status != want {
		ts.Fatalf("exit status %d, want %d", status, want)
	}
}

// until repeats a command until its output has a pattern.
func until(ts *testscript.TestScript, not bool, args []string) {
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var out strings.Builder
		run(ts, &out, args[1:])
		if pattern.MatchString(out.String()) != not {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			ts.Fatalf("not within %s; last:\n%s", limit, out.String())
		}
	}
}

// alloc puts a prefix of the id of a job's newest allocation into a variable.
func alloc(ts *testscript.TestScript, _ bool, args []string) {
	var out strings.Builder
	var job struct {
		Allocations []struct {
			ID string `json:"id"`
		} `json:"allocations"`
	}
	run(ts, &out, []string{"job", "status", args[1], "--json"})
	ts.Check(json.Unmarshal([]byte(out.String()), &job))
	if len(job.Allocations) == 0 {
		ts.Fatalf("job %s has no allocation", args[1])
	}
	ts.Setenv(args[0], job.Allocations[len(job.Allocations)-1].ID[:6])
}

// isJSON checks that the last command printed one JSON value and nothing else.
func isJSON(ts *testscript.TestScript, _ bool, _ []string) {
	if out := ts.ReadFile("stdout"); !json.Valid([]byte(out)) {
		ts.Fatalf("not one JSON value:\n%s", out)
	}
	if text := ts.ReadFile("stderr"); text != "" {
		ts.Fatalf("on the side:\n%s", text)
	}
}
