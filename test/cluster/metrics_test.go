package cluster_test

import (
	"bufio"
	"context"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/telemetry"
	"github.com/berth-dev/berth/test/cluster"
)

var update = flag.Bool("update", false, "write the table of docs/metrics.md")

const metricsPage = "../../docs/metrics.md"

// measured is the metrics of a cluster whose one job uses one volume: every
// value by its name and labels, and the registry.
func measured(t *testing.T) (map[string]string, *telemetry.Registry) {
	t.Helper()
	reg := telemetry.NewRegistry("1.2.3")
	var values map[string]string
	synctest.Test(t, func(t *testing.T) {
		c := cluster.Start(t, cluster.Config{Agents: 1, Provider: csitest.Options{Attach: true, Stage: true}, Metrics: reg})
		defer c.Close()
		ctx, ns, limit := context.Background(), api.DefaultNamespace, 10*time.Second
		cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, ns, "pg", cluster.VolumeSpec(), 0))
		c.AwaitVolume("pg", api.VolumeReady, limit)
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, ns, "db", cluster.JobSpec(1, "pg"), 0))
		c.AwaitJob("db", api.JobRunning, limit)
		time.Sleep(time.Minute + time.Second) // in the middle of a poll
		values = read(t, reg)
	})
	return values, reg
}

// TestMetricsOfWhoWaitsForAVolume: how many places want volumes of a plugin and
// are empty, and for how long.
func TestMetricsOfWhoWaitsForAVolume(t *testing.T) {
	t.Parallel()
	reg := telemetry.NewRegistry("1.2.3")
	synctest.Test(t, func(t *testing.T) {
		c := cluster.Start(t, cluster.Config{Agents: 1, Provider: csitest.Options{Attach: true, Stage: true}, Metrics: reg})
		defer c.Close()
		ctx, ns, limit := context.Background(), api.DefaultNamespace, 10*time.Second
		cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, ns, "pg", cluster.VolumeSpec(), 0))
		c.AwaitVolume("pg", api.VolumeReady, limit)
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, ns, "db", cluster.JobSpec(1, "pg"), 0))
		c.AwaitJob("db", api.JobRunning, limit)
		const waiting, oldest = `berth_places_waiting{plugin="provider"}`, `berth_places_oldest_seconds{plugin="provider"}`
		if got := read(t, reg); got[waiting] != "" || got[oldest] != "" {
			t.Errorf("nobody waits: %q places, for %q seconds", got[waiting], got[oldest])
		}
		for _, late := range []api.JobID{"late", "later"} {
			cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, ns, late, cluster.JobSpec(1, "pg"), 0))
		}
		time.Sleep(10 * time.Minute)
		got := read(t, reg)
		seconds, err := strconv.ParseFloat(got[oldest], 64)
		if got[waiting] != "2" || err != nil || seconds < 600 || seconds > 660 {
			t.Errorf("%q places wait, for %q seconds, want 2 for 600 or a little more", got[waiting], got[oldest])
		}
		cluster.Must[api.JobInfo](c)(c.Client.StopJob(ctx, ns, "late", 0))
		time.Sleep(time.Minute)
		if got := read(t, reg); got[waiting] != "1" {
			t.Errorf("%q places wait after one of two jobs was stopped", got[waiting])
		}
	})
}

// read asks for the metrics as Prometheus does.
func read(t *testing.T, reg *telemetry.Registry) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	reg.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	all := map[string]string{}
	for lines := bufio.NewScanner(w.Body); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), "} "); ok {
			all[name+"}"] = value
		} else if name, value, ok := strings.Cut(lines.Text(), " "); ok && name != "#" {
			all[name] = value
		}
	}
	return all
}

// TestMetrics: a volume's way from a file to a task is in the numbers, what is
// zero in health is zero, and every number is documented.
func TestMetrics(t *testing.T) {
	t.Parallel()
	got, reg := measured(t)
	for name, want := range map[string]string{
		`berth_build_info{version="1.2.3"}`:                                                              "1",
		`berth_consensus_leader`:                                                                         "1",
		`berth_nodes{state="ready"}`:                                                                     "1",
		`berth_plugin_instances{healthy="true",plugin="provider"}`:                                       "1",
		`berth_volumes{plugin="provider",state="ready"}`:                                                 "1",
		`berth_attachments{plugin="provider",state="node-published"}`:                                    "1",
		`berth_publications{outcome="published",staged="true"}`:                                          "1",
		`berth_operations{kind="create",plugin="provider",state="succeeded"}`:                            "1",
		`berth_operations{kind="publish",plugin="provider",state="succeeded"}`:                           "1",
		`berth_operations_oldest_seconds{kind="create",plugin="provider"}`:                               "",
		`berth_operations_queued{kind="create",plugin="provider"}`:                                       "",
		`berth_jobs{type="service"}`:                                                                     "1",
		`berth_allocations{state="running"}`:                                                             "1",
		`berth_csi_call_seconds_count{code="OK",method="CreateVolume",plugin="provider"}`:                "1",
		`berth_csi_call_seconds_count{code="OK",method="ControllerPublishVolume",plugin="provider"}`:     "1",
		`berth_csi_call_seconds_count{code="OK",method="NodeStageVolume",plugin="provider"}`:             "1",
		`berth_csi_call_seconds_count{code="OK",method="NodePublishVolume",plugin="provider"}`:           "1",
		`berth_operation_seconds_count{code="OK",kind="publish",plugin="provider"}`:                      "1",
		`berth_agent_registered`:                                                                         "1",
		`berth_agent_sessions_total`:                                                                     "1",
		`berth_agent_allocations{phase="up"}`:                                                            "1",
		`berth_agent_mounts{step="stage"}`:                                                               "1",
		`berth_agent_mounts{step="publish"}`:                                                             "1",
		`berth_server_polling_agents`:                                                                    "1",
		`berth_http_request_seconds_count{route="PUT /v1/job/{namespace}/{id}",status="200"}`:            "1",
		`berth_consensus_plan_panics_total`:                                                              "0",
		`berth_consensus_diverged_total`:                                                                 "0",
		`berth_consensus_unchanged_total`:                                                                "0",
		`berth_controller_conflicts_total{controller="scheduler"}`:                                       "0",
		`berth_controller_useless_total{controller="volumewatcher"}`:                                     "0",
		`berth_controller_errors_total{controller="provisioner"}`:                                        "0",
		`berth_hook_seconds_count{direction="up",hook="directories",outcome="failed"}`:                   "",
		`berth_volumes{plugin="provider",state="creating"}`:                                              "",
		`berth_controller_reconcile_seconds_count{controller="a controller that is not in the product"}`: "",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for _, positive := range []string{
		`berth_attachments_oldest_seconds{plugin="provider",state="node-published"}`,
		`berth_consensus_plans_total`, `berth_consensus_entries_total`, `berth_consensus_entry_bytes_total`, `berth_consensus_commit_seconds_count`,
		`berth_consensus_entry_plans_sum`, `berth_state_index`, `berth_controller_reconcile_seconds_count{controller="scheduler"}`,
		`berth_hook_seconds_count{direction="up",hook="tasks",outcome="ok"}`, `berth_agent_polls_total`, `berth_agent_reports_total`,
		`berth_agent_reported_facts_total`, `go_goroutines`,
	} {
		if v := got[positive]; v == "" || v == "0" {
			t.Errorf("%s is %q", positive, v)
		}
	}
	name := regexp.MustCompile(`^berth_[a-z_]+[a-z]$`)
	for _, m := range reg.All() {
		if !name.MatchString(m.Name) || (m.Kind == telemetry.Counter) != strings.HasSuffix(m.Name, "_total") || m.Help == "" || strings.HasSuffix(m.Help, ".") {
			t.Errorf("%+v is not named or described as the others", m)
		}
		for _, label := range m.Labels {
			if slices.Contains([]string{"volume", "claim", "node", "alloc", "allocation", "job", "namespace"}, label) {
				t.Errorf("%s has the label %s, which has no bound", m.Name, label)
			}
		}
	}
	compare(t, reg)
}

// compare compares the table of the documentation with the registry.
func compare(t *testing.T, reg *telemetry.Registry) {
	t.Helper()
	b, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	text, table, _ := strings.Cut(string(b), "\n| name ")
	if *update {
		if err := os.WriteFile(metricsPage, []byte(strings.TrimRight(text, "\n")+"\n\n"+reg.Page()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(reg.Page(), "\n"), strings.Split("| name "+table, "\n")); diff != "" {
		t.Errorf("%s (-program +page; -update writes it):\n%s", metricsPage, diff)
	}
}
