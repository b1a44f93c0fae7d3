package agent

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/telemetry"
)

// measure adds the agent's numbers.
func (a *Agent) measure() {
	r := a.cfg.Metrics
	if r == nil {
		return
	}
	a.manager.Measure(r)
	a.executor.Measure(r)
	for _, m := range []struct {
		name, help string
		from       *atomic.Int64
	}{
		{"sessions_total", "Sessions that the servers opened", &a.link.Sessions},
		{"polls_total", "Answers of the servers to polls for assignments", &a.link.Polls},
		{"reports_total", "Reports that the servers took", &a.link.Reports},
		{"reported_facts_total", "Facts in those reports", &a.link.Stats.Facts},
	} {
		r.Read(telemetry.Metric{Name: "berth_agent_" + m.name, Kind: telemetry.Counter, Help: m.help},
			func(emit telemetry.Emit) { emit(float64(m.from.Load())) })
	}
	gauge := func(name, help string, read func() int) {
		r.Read(telemetry.Metric{Name: "berth_agent_" + name, Kind: telemetry.Gauge, Help: help}, func(emit telemetry.Emit) { emit(float64(read())) })
	}
	gauge("registered", "1 while the agent has a session with the servers", func() int {
		if a.link.State().Registered {
			return 1
		}
		return 0
	})
	gauge("streams", "Streams that the agent serves", a.streams.Serving)
	r.Read(telemetry.Metric{Name: "berth_agent_allocations", Kind: telemetry.Gauge, Labels: []string{"phase"}, Help: "Allocations on the node: on their way up or running, on their way down, or done and kept for their logs"},
		func(emit telemetry.Emit) {
			for phase, n := range a.allocations.phases() {
				emit(float64(n), string(phase))
			}
		})
	r.Read(telemetry.Metric{Name: "berth_agent_mounts", Kind: telemetry.Gauge, Labels: []string{"step"}, Help: "Mounts that the node has to undo, by what made them: stage or publish"},
		func(emit telemetry.Emit) {
			staged, published, err := a.mounts()
			if err != nil {
				return
			}
			emit(float64(staged), "stage")
			emit(float64(published), "publish")
		})
}

// mounts counts what the local database has to undo.
func (a *Agent) mounts() (staged, published int, err error) {
	stagings, err := a.db.Stagings()
	for i := range stagings {
		if stagings[i].Mounted {
			staged++
		}
		for _, u := range stagings[i].Users {
			if u.Mounted {
				published++
			}
		}
	}
	return staged, published, err
}

// phases counts the allocations of the node.
func (s *allocations) phases() map[localdb.Phase]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counted := map[localdb.Phase]int{localdb.PhaseUp: 0, localdb.PhaseDown: 0, localdb.PhaseDone: 0}
	for _, r := range s.runners {
		counted[r.Phase()]++
	}
	return counted
}

// hookCalled measures hooks.
func (a *Agent) hookCalled() func(hook, direction string, err error, took time.Duration) {
	hooks := a.cfg.Metrics.Durations("berth_hook_seconds", "How long the hooks of allocations took, up or down; outcome is ok, waits (for the servers), or failed", "hook", "direction", "outcome")
	return func(hook, direction string, err error, took time.Duration) {
		outcome := "ok"
		if err != nil {
			outcome = "failed"
		}
		if _, waits := errors.AsType[*allocrunner.Waiting](err); waits {
			outcome = "waits"
		}
		hooks.Observe(took, hook, direction, outcome)
	}
}
