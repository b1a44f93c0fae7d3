package integration_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/agent/driver/docker/dockertest"
	"github.com/berth-dev/berth/test/host"
)

// phase is a moment of an allocation's life.
type phase struct {
	name string
	// stops: it is on the way down.
	stops bool
	// method is the call that is held up, after the plugin's answer or before
	// the plugin has it.
	method string
	after  bool
	// task: a supervisor is there, or about to be; there returns in that moment.
	task  bool
	there func(m *machine)
}

// phases are all of them, in order.
func phases() []phase {
	return []phase{
		{name: "BeforeStage", method: "NodeStageVolume"},
		{name: "AfterStage", method: "NodeStageVolume", after: true},
		{name: "BeforePublish", method: "NodePublishVolume"},
		{name: "AfterPublish", method: "NodePublishVolume", after: true},
		{name: "TaskStarts", task: true, there: func(m *machine) {
			m.await("a supervisor", func() bool {
				return m.supervisor("writer") > 0 || m.engine != nil && len(m.engine.Containers()) > m.jobs
			})
		}},
		{name: "TaskRuns", task: true, there: func(m *machine) {
			m.untilRunning("db") // also by the word of what runs it
			m.await("the first start", func() bool { return m.lines("starts") > m.starts })
		}},
		{name: "TaskEnds", stops: true, task: true, there: func(m *machine) {
			m.await("the signal", m.stopping)
		}},
		{name: "BeforeUnpublish", stops: true, method: "NodeUnpublishVolume"},
		{name: "AfterUnpublish", stops: true, method: "NodeUnpublishVolume", after: true},
		{name: "BeforeUnstage", stops: true, method: "NodeUnstageVolume"},
		{name: "AfterUnstage", stops: true, method: "NodeUnstageVolume", after: true},
	}
}

// reach brings the job to the phase.
func (m *machine) reach(p phase) {
	m.tb.Helper()
	var held *host.Held
	hold := func() {
		if p.method != "" {
			held = m.gate.Hold(p.method, p.after)
		}
	}
	if !p.stops {
		hold()
	}
	m.writer()
	if p.stops {
		m.untilRunning("db")
		m.await("the first start", func() bool { return m.lines("starts") > m.starts })
		hold()
		m.stop("db")
	}
	if held == nil {
		p.there(m)
		return
	}
	select {
	case <-held.Reached:
	case <-m.tb.Context().Done():
	case <-time.After(limit):
		m.tb.Fatalf("%s is not called", p.method)
	}
}

// victim is who is killed, and how the machine goes on after that.
type victim struct {
	kill, resume func(m *machine)
}

func nothing(*machine) {}

// victims are the processes of a node, and some of them at once.
func victims() map[string]victim {
	return map[string]victim{
		"Agent":      {func(m *machine) { m.berth.Kill() }, func(m *machine) { m.berth.Resume() }},
		"Plugin":     {(*machine).killPlugin, (*machine).startPlugin},
		"Supervisor": {func(m *machine) { m.kill(m.supervisor("writer")) }, nothing},
		"AgentAndSupervisor": {func(m *machine) {
			pid := m.supervisor("writer")
			m.berth.Kill()
			m.kill(pid)
		}, func(m *machine) { m.berth.Resume() }},
		"AgentAndPlugin": {func(m *machine) {
			m.berth.Kill()
			m.killPlugin()
		}, func(m *machine) {
			m.startPlugin()
			m.berth.Resume()
		}},
	}
}

// engineVictims are who can be killed where tasks are containers.
func engineVictims() map[string]victim {
	return map[string]victim{
		"Engine":     {func(m *machine) { m.engine.Kill() }, func(m *machine) { m.engine.Resume() }},
		"Containerd": {func(m *machine) { m.engine.KillContainerd() }, nothing},
		"EngineAndContainerd": {func(m *machine) {
			m.engine.Kill()
			m.engine.KillContainerd()
		}, func(m *machine) { m.engine.Resume() }},
		"AgentAndEngine": {func(m *machine) {
			m.berth.Kill()
			m.engine.Kill()
		}, func(m *machine) {
			m.berth.Resume() // the engine comes back later than the agent
			m.engine.Resume()
		}},
	}
}

// matrix is phases and victims, and the machine to bring them together on.
type matrix struct {
	victims map[string]victim
	// often are the cells that are always made, as PHASE/VICTIM.
	often []string
	// apart: every victim has a machine of its own also then.
	apart   bool
	machine func(t *testing.T) *machine
	// leaves out cells in which nothing could be seen.
	leaves func(p phase, victim string) bool
}

// run makes the cells: BERTH_KILL_MATRIX=all makes all, else those in which most
// is under way.
func (x *matrix) run(t *testing.T) {
	t.Helper()
	whole := os.Getenv("BERTH_KILL_MATRIX") == "all"
	of := func(names ...string) func(*testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			var m *machine
			for _, p := range phases() {
				for _, name := range names {
					cell := p.name + "/" + name
					if !whole && !slices.Contains(x.often, cell) || x.leaves != nil && x.leaves(p, name) {
						continue
					}
					if m == nil {
						m = x.machine(t)
						m.prepare()
					}
					began := time.Now()
					m.cell(cell, p, x.victims[name])
					t.Logf("%s took %s", cell, time.Since(began).Round(time.Millisecond))
				}
			}
			if m != nil {
				m.berth.Run("volume", "delete", "pg")
				m.endPlugin()
			}
		}
	}
	names := slices.Sorted(maps.Keys(x.victims))
	if !whole && !x.apart {
		t.Run("Some", of(names...))
		return
	}
	for _, name := range names {
		t.Run(name, of(name))
	}
}

// TestKillMatrix kills each process of a node in each phase of an allocation's
// start and stop. Each time the node comes to what is wanted, everybody agrees
// on what is there, the volume keeps what was written to it, and no task was
// started twice at once.
func TestKillMatrix(t *testing.T) {
	t.Parallel()
	x := matrix{
		victims: victims(), apart: true,
		machine: func(t *testing.T) *machine { t.Helper(); return newMachine(t, host.Options{}) },
		leaves:  func(p phase, victim string) bool { return strings.Contains(victim, "Supervisor") && !p.task },
		often: []string{
			"AfterStage/Agent", "AfterPublish/Agent", "TaskStarts/Agent", "TaskStarts/Supervisor", "BeforePublish/Plugin",
			"TaskRuns/AgentAndSupervisor", "TaskEnds/Agent", "TaskEnds/Supervisor", "AfterUnpublish/Agent",
			"AfterUnstage/Plugin", "BeforeUnstage/AgentAndPlugin",
		},
	}
	x.run(t)
}

// TestKillMatrixOfBlockDevices does so where the volume is a block device.
func TestKillMatrixOfBlockDevices(t *testing.T) {
	t.Parallel()
	x := matrix{
		victims: victims(),
		machine: func(t *testing.T) *machine {
			t.Helper()
			m := newMachine(t, host.Options{})
			m.block = true
			return m
		},
		leaves: func(p phase, victim string) bool { return strings.Contains(victim, "Supervisor") && !p.task },
		often:  []string{"AfterStage/Agent", "AfterPublish/AgentAndPlugin", "TaskRuns/AgentAndSupervisor", "BeforeUnstage/Agent"},
	}
	x.run(t)
}

// TestKillMatrixOfContainers kills the engine, what it runs containers with, and
// the agent with it, in the phases in which either has a part.
func TestKillMatrixOfContainers(t *testing.T) {
	t.Parallel()
	x := matrix{
		victims: engineVictims(), apart: true,
		machine: func(t *testing.T) *machine {
			t.Helper()
			engine := dockertest.Start(t, "--live-restore")
			m := newMachine(t, host.Options{Config: fmt.Sprintf("driver \"docker\" {\n endpoint = %q\n}\n", engine.Socket)})
			m.engine = engine
			return m
		},
		leaves: func(p phase, _ string) bool {
			return !p.task && p.name != "AfterPublish" && p.name != "BeforeUnpublish"
		},
		often: []string{
			"AfterPublish/Engine", "TaskStarts/Engine", "TaskRuns/Engine", "TaskEnds/Engine", "BeforeUnpublish/Engine",
			"TaskRuns/Containerd", "TaskEnds/EngineAndContainerd", "TaskStarts/AgentAndEngine", "TaskEnds/AgentAndEngine",
		},
	}
	x.run(t)
}

// cell is one combination.
func (m *machine) cell(name string, p phase, v victim) {
	m.tb.Helper()
	m.reach(p)
	v.kill(m)
	m.gate.Open()
	v.resume(m)
	m.recovered(name, p)
}

// recovered waits until the node has come to what is wanted, ends what runs, and
// looks that everybody agrees.
func (m *machine) recovered(name string, p phase) {
	m.tb.Helper()
	if !p.stops {
		m.untilRunning("db")
		m.settled(name, 1)
		ticks := m.lines("ticks")
		m.await("the next tick", func() bool { return m.lines("ticks") > ticks })
	}
	if !p.stops {
		m.await("the start to be known", func() bool { return m.lines("starts") > m.starts })
	}
	starts := m.lines("starts")
	if !p.stops {
		// Once, or once more for each time that its supervisor died after it had begun,
		// or an engine that did not know yet that it had.
		most := 1 + strings.Count(strings.ReplaceAll(name, "PluginSupervisor", ""), "Supervisor")
		if m.engine != nil && p.name == "TaskStarts" {
			most++
		}
		if n := starts - m.starts; n < 1 || n > most {
			m.tb.Errorf("%s: the task was started %d times", name, n)
		}
		m.starts = starts
		m.stop("db")
	} else {
		m.starts++
	}
	m.untilFree("pg")
	m.settled(name+", stopped", 0)
}
