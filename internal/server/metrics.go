package server

import (
	"iter"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/server/carrier"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/telemetry"
)

// measure adds the server's numbers. Most are counted anyway, or stand in the
// state, and are read when somebody asks.
func (s *Server) measure(streams *carrier.Broker) {
	r := s.cfg.Metrics
	if r == nil {
		return
	}
	s.measureConsensus(r)
	s.measureControllers(r)
	s.measureState(r)
	s.measureWaiting(r)
	r.Read(telemetry.Metric{Name: "berth_server_streams", Kind: telemetry.Gauge, Help: "Streams from agents that readers want or get"},
		func(emit telemetry.Emit) { emit(float64(streams.Streams())) })
	r.Read(telemetry.Metric{Name: "berth_server_polling_agents", Kind: telemetry.Gauge, Help: "Agents whose long poll is open"},
		func(emit telemetry.Emit) { emit(float64(streams.Agents())) })
}

func (s *Server) measureConsensus(r *telemetry.Registry) {
	c := s.consensus.Counters()
	for _, m := range []struct {
		name, help string
		from       *atomic.Int64
	}{
		{"plans_total", "Plans that went to the log", &c.Plans},
		{"entries_total", "Entries of the log that this server wrote as leader", &c.Entries},
		{"entry_bytes_total", "Bytes of those entries", &c.Bytes},
		{"conflicts_total", "Plans that were refused because something had changed. Those of controllers are zero in health", &c.Conflicts},
		{"unchanged_total", "Plans that would have changed nothing, and were not logged", &c.Unchanged},
		{"plan_panics_total", "Plans that panicked: faults of Berth, zero in health", &c.Panics},
		{"overlay_drops_total", "How often planning started over: at each end of a leadership, and each error of raft", &c.Drops},
	} {
		r.Read(telemetry.Metric{Name: "berth_consensus_" + m.name, Kind: telemetry.Counter, Help: m.help},
			func(emit telemetry.Emit) { emit(float64(m.from.Load())) })
	}
	r.Read(telemetry.Metric{Name: "berth_consensus_diverged_total", Kind: telemetry.Counter, Help: "Entries whose effect was not what had been planned: faults of Berth, zero in health"},
		func(emit telemetry.Emit) { emit(float64(s.consensus.Diverged())) })
	r.Read(telemetry.Metric{Name: "berth_consensus_leader", Kind: telemetry.Gauge, Help: "1 while this server leads and is ready"},
		func(emit telemetry.Emit) {
			if s.consensus.Ready() {
				emit(1)
				return
			}
			emit(0)
		})
	r.Read(telemetry.Metric{Name: "berth_state_index", Kind: telemetry.Gauge, Help: "The log's index that this server's state has reached"},
		func(emit telemetry.Emit) { emit(float64(s.store.View().Index())) })
}

func (s *Server) measureControllers(r *telemetry.Registry) {
	took := r.Durations("berth_controller_reconcile_seconds", "How long looks at one key took", "controller")
	for _, runner := range s.runners {
		runner.Measure = func() func() {
			began := time.Now()
			return func() { took.Observe(time.Since(began), runner.Name()) }
		}
	}
	for _, m := range []struct {
		name string
		kind telemetry.Kind
		help string
		from func(*controller.Runner) *atomic.Int64
	}{
		{"plans_total", telemetry.Counter, "Plans that wrote something", func(r *controller.Runner) *atomic.Int64 { return &r.Plans }},
		{"errors_total", telemetry.Counter, "Faults of the controller, panics among them: zero in health", func(r *controller.Runner) *atomic.Int64 { return &r.Errors }},
		{"conflicts_total", telemetry.Counter, "Plans that were refused because something had changed: zero in health", func(r *controller.Runner) *atomic.Int64 { return &r.Conflicts }},
		{"useless_total", telemetry.Counter, "Plans that would have changed nothing: zero in health", func(r *controller.Runner) *atomic.Int64 { return &r.Useless }},
		{"backoffs_total", telemetry.Counter, "How often a key had to wait after an error, or because its plans led nowhere", func(r *controller.Runner) *atomic.Int64 { return &r.Backoffs }},
		{"keys", telemetry.Gauge, "Keys that are not settled", func(r *controller.Runner) *atomic.Int64 { return &r.Waiting }},
	} {
		r.Read(telemetry.Metric{Name: "berth_controller_" + m.name, Kind: m.kind, Labels: []string{"controller"}, Help: m.help},
			func(emit telemetry.Emit) {
				for _, runner := range s.runners {
					emit(float64(m.from(runner).Load()), runner.Name())
				}
			})
	}
}

// measureState counts rows. Only the server that leads does, so that a sum over
// all servers is right.
func (s *Server) measureState(r *telemetry.Registry) {
	count := func(name, help string, labels []string, rows func(state.View) iter.Seq2[string, string]) {
		r.Read(telemetry.Metric{Name: name, Kind: telemetry.Gauge, Labels: labels, Help: help + "; only of the server that leads"},
			func(emit telemetry.Emit) {
				if !s.consensus.Ready() {
					return
				}
				counted := map[[2]string]int{}
				for a, b := range rows(s.store.View()) {
					counted[[2]string{a, b}]++
				}
				for values, n := range counted {
					emit(float64(n), values[:len(labels)]...)
				}
			})
	}
	count("berth_nodes", "Nodes by state", []string{"state"}, rows(state.Nodes(),
		func(n *api.Node) (string, string) { return string(n.Status.State), "" }))
	count("berth_plugin_instances", "Instances of plugins by plugin, and whether they are healthy", []string{"plugin", "healthy"}, rows(state.Instances(),
		func(i *api.Instance) (string, string) { return string(i.PluginID), yes(i.Healthy) }))
	count("berth_volumes", "Volumes by plugin and state", []string{"plugin", "state"}, rows(state.Volumes(),
		func(v *api.Volume) (string, string) { return string(v.Spec.PluginID), string(v.Status.State) }))
	count("berth_attachments", "Attachments by plugin and state", []string{"plugin", "state"}, rows(state.Attachments(),
		func(a *api.Attachment) (string, string) { return string(a.PluginID), string(a.Status.State) }))
	count("berth_publications", "Publications by outcome, and whether they are staged", []string{"outcome", "staged"}, rows(state.Publications(),
		func(p *api.Publication) (string, string) { return string(p.Status.Outcome), yes(p.Status.Staged) }))
	count("berth_snapshots", "Snapshots by plugin and state", []string{"plugin", "state"}, rows(state.Snapshots(),
		func(s *api.Snapshot) (string, string) { return string(s.PluginID), string(s.Status.State) }))
	r.Read(telemetry.Metric{
		Name: "berth_snapshot_schedule_age_seconds", Kind: telemetry.Gauge, Labels: []string{"plugin"},
		Help: "For how long a snapshot schedule has made no snapshot that is ready: of the schedule for which that is longest; only of the server that leads",
	}, func(emit telemetry.Emit) {
		if !s.consensus.Ready() {
			return
		}
		for plugin, age := range oldestSchedules(s.store.View(), s.consensus.Now()) {
			emit(age.Seconds(), string(plugin))
		}
	})
	count("berth_findings", "Differences between plugins and the state, by plugin and kind", []string{"plugin", "kind"}, rows(state.Findings(),
		func(f *api.Finding) (string, string) { return string(f.PluginID), string(f.Kind) }))
	count("berth_jobs", "Jobs by type", []string{"type"}, rows(state.Jobs(),
		func(j *api.Job) (string, string) { return string(j.Spec.Type), "" }))
	count("berth_allocations", "Allocations by state; ended ones until they are collected", []string{"state"}, rows(state.Allocations(),
		func(a *api.Allocation) (string, string) { return string(a.Status.State), "" }))
}

// rows are the labels of every row of a table.
func rows[T any](table state.Table[T], of func(*T) (string, string)) func(state.View) iter.Seq2[string, string] {
	return func(v state.View) iter.Seq2[string, string] {
		return func(yield func(string, string) bool) {
			for _, row := range table.From(v, nil) {
				if !yield(of(row)) {
					return
				}
			}
		}
	}
}

// oldestSchedules is, for each plugin, the greatest age of the newest snapshot
// that a schedule has made and that is ready. A schedule that has made none
// counts from its first.
func oldestSchedules(v state.View, now time.Time) map[api.PluginID]time.Duration {
	oldest := map[api.PluginID]time.Duration{}
	for vol := range v.ScheduledVolumes() {
		if vol.Status.Schedule == nil || vol.Status.Schedule.Last.IsZero() {
			continue
		}
		newest := time.Time{}
		for s := range v.VolumeSnapshots(vol.Namespace, vol.ID) {
			if s.Owner == api.OwnerSchedule && s.VolumeUID == vol.UID && s.Status.State == api.SnapshotReady && s.Scheduled.After(newest) {
				newest = s.Scheduled
			}
		}
		if newest.IsZero() {
			newest = vol.Status.Schedule.Last
		}
		oldest[vol.Spec.PluginID] = max(oldest[vol.Spec.PluginID], now.Sub(newest))
	}
	return oldest
}

func yes(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
