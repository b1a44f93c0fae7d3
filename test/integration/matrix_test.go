package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	dockerclient "github.com/moby/moby/client"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/driver/docker/dockertest"
	"github.com/berth-dev/berth/test/host"
)

// machine is an agent beside the local driver as a process of its own, with a
// gate in between.
type machine struct {
	*fleet
	plugin *host.Plugin
	gate   *host.Gate
	engine *dockertest.Engine // nil if the writer is no container
	starts int                // of the writer so far
}

func newMachine(t *testing.T, opts host.Options) *machine {
	t.Helper()
	p := host.StartPlugin(t, opts.Boot)
	g := host.StartGate(t, p.Socket)
	opts.Config += fmt.Sprintf("plugin \"disk\" {\n socket = %q\n}\n", g.Socket)
	b := host.Start(t, opts)
	t.Cleanup(g.Open)
	return &machine{fleet: &fleet{tb: t, berth: b, client: b.Client()}, plugin: p, gate: g}
}

// writer is a job that counts its starts on its volume, and takes a moment to
// end.
func (m *machine) writer() {
	m.tb.Helper()
	m.berth.Apply(m.contained(strings.NewReplacer(
		`echo start >> /data/starts; while true; do date +%s%N >> /data/ticks; sleep 0.05; done`,
		`trap 'touch /data/stopping; sleep 0.3; rm /data/stopping; exit 0' INT; echo start >> /data/starts; while true; do date +%s%N >> /data/ticks; sleep 0.05; done`,
		`group "main" {`, "group \"main\" {\n restart {\n attempts = 5\n delay = \"10ms\"\n interval = \"1m\"\n mode = \"delay\"\n}\n",
		`kill_timeout = "1s"`, `kill_timeout = "5s"`,
	).Replace(jobFile)), "--detach")
}

// contained is a job of exec's as a container's, if there is an engine.
func (m *machine) contained(job string) string {
	if m.engine == nil {
		return job
	}
	return strings.NewReplacer(`"exec"`, `"docker"`, "config {", fmt.Sprintf("config {\n image = %q\n network_mode = \"none\"", dockertest.Busybox),
		"exit 0' INT;", "exit 0' TERM;").Replace(job)
}

// containers are those that the engine runs. What it knows, and does not run, is
// a problem of a node at rest.
func (m *machine) containers() (running []string, err error) {
	if m.engine == nil {
		return nil, nil
	}
	list, err := m.engine.Client.ContainerList(m.tb.Context(), dockerclient.ContainerListOptions{All: true})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if c := &list.Items[i]; c.State != container.StateRunning {
			return nil, fmt.Errorf("container %s is %s", c.Names[0], c.State)
		}
		running = append(running, list.Items[i].Names[0])
	}
	if shims := m.engine.Shims(); len(shims) != len(running) {
		return nil, fmt.Errorf("%d containers run, and processes %d hold some", len(running), shims)
	}
	return running, nil
}

// settled waits until everybody says the same of the machine.
func (m *machine) settled(when string, running int) {
	m.tb.Helper()
	m.berth.Eventually(when+": all agree", limit, func() error {
		a, err := m.berth.Account(m.client, m.plugin.Root)
		if err == nil {
			a.Containers, err = m.containers()
		}
		if err != nil {
			return err
		}
		if d := a.Disagreements(); len(d) > 0 {
			return errors.New(strings.Join(d, "; "))
		}
		if len(a.Running) != running || len(a.Stagings) != running {
			return fmt.Errorf("%d allocations run and %d volumes are staged, want %d", len(a.Running), len(a.Stagings), running)
		}
		return nil
	})
}

// file is a file on the volume while it is mounted, or "".
func (m *machine) file(name string) string {
	ats, _, err := m.client.Attachments(m.tb.Context(), client.Query{})
	if err != nil {
		return ""
	}
	for _, at := range ats {
		if at.Status.State != api.Freed && at.Status.TargetPath != "" {
			return m.berth.Path(filepath.Join(at.Status.TargetPath, name))
		}
	}
	return ""
}

func (m *machine) lines(name string) int {
	b, err := os.ReadFile(m.file(name))
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "\n")
}

// supervisor is the process of the only task's supervisor.
func (m *machine) supervisor() int {
	for _, p := range m.processes() {
		if strings.Contains(p.line, " executor ") {
			return p.pid
		}
	}
	return 0
}

type proc struct {
	pid  int
	line string
}

// processes are those whose command line names the data directory.
func (m *machine) processes() (found []proc) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		line := strings.ReplaceAll(string(b), "\x00", " ")
		if err == nil && strings.Contains(line, m.berth.DataDir+"/") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			found = append(found, proc{pid, line})
		}
	}
	return found
}

// await polls for what no call and no event tells of: a moment of a process.
func (m *machine) await(what string, seen func() bool) {
	m.tb.Helper()
	ctx, cancel := context.WithTimeout(m.tb.Context(), limit)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !seen() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			m.tb.Fatalf("%s does not come", what)
		}
	}
}

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
				return m.supervisor() > 0 || m.engine != nil && len(m.engine.Containers()) > 0
			})
		}},
		{name: "TaskRuns", task: true, there: func(m *machine) {
			m.await("the first tick", func() bool { return m.lines("ticks") > 0 })
		}},
		{name: "TaskEnds", stops: true, task: true, there: func(m *machine) {
			m.await("the signal", func() bool {
				_, err := os.Stat(m.file("stopping"))
				return err == nil
			})
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

// victims are who can be killed, and how the machine goes on after that.
func victims() map[string]func(m *machine) {
	return map[string]func(m *machine){
		"Agent": func(m *machine) {
			m.berth.Kill()
			m.gate.Open()
			m.berth.Resume()
		},
		"Plugin": func(m *machine) {
			m.plugin.Kill()
			m.gate.Open()
			m.plugin.Start()
		},
		"Supervisor": func(m *machine) {
			if pid := m.supervisor(); pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
			}
			m.gate.Open()
		},
		"AgentAndSupervisor": func(m *machine) {
			pid := m.supervisor()
			m.berth.Kill()
			if pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			m.gate.Open()
			m.berth.Resume()
		},
		"AgentAndPlugin": func(m *machine) {
			m.berth.Kill()
			m.plugin.Kill()
			m.gate.Open()
			m.plugin.Start()
			m.berth.Resume()
		},
	}
}

// engineVictims are who can be killed where tasks are containers.
func engineVictims() map[string]func(m *machine) {
	return map[string]func(m *machine){
		"Engine": func(m *machine) {
			m.engine.Kill()
			m.gate.Open()
			m.engine.Resume()
		},
		"Containerd": func(m *machine) {
			m.engine.KillContainerd()
			m.gate.Open()
		},
		"EngineAndContainerd": func(m *machine) {
			m.engine.Kill()
			m.engine.KillContainerd()
			m.gate.Open()
			m.engine.Resume()
		},
		"AgentAndEngine": func(m *machine) {
			m.berth.Kill()
			m.engine.Kill()
			m.gate.Open()
			m.berth.Resume() // the engine comes back later than the agent
			m.engine.Resume()
		},
	}
}

// TestKillMatrixOfContainers kills the engine, what it runs containers with, and
// the agent with it, in the phases in which either has a part.
func TestKillMatrixOfContainers(t *testing.T) {
	t.Parallel()
	often := map[string]bool{
		"AfterPublish/Engine": true, "TaskStarts/Engine": true, "TaskRuns/Engine": true, "TaskEnds/Engine": true, "BeforeUnpublish/Engine": true,
		"TaskRuns/Containerd": true, "TaskEnds/EngineAndContainerd": true, "TaskStarts/AgentAndEngine": true, "TaskEnds/AgentAndEngine": true,
	}
	whole := os.Getenv("BERTH_KILL_MATRIX") == "all"
	for victim, kill := range engineVictims() {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			engine := dockertest.Start(t, "--live-restore")
			m := newMachine(t, host.Options{Config: fmt.Sprintf("driver \"docker\" {\n endpoint = %q\n}\n", engine.Socket)})
			m.engine = engine
			m.berth.Apply(strings.ReplaceAll(volumeFile, `"local"`, `"disk"`))
			for _, p := range phases() {
				name := p.name + "/" + victim
				if !whole && !often[name] || !p.task && p.name != "AfterPublish" && p.name != "BeforeUnpublish" {
					continue
				}
				began := time.Now()
				m.cell(name, p, kill)
				t.Logf("%s took %s", name, time.Since(began).Round(time.Millisecond))
			}
			m.berth.Run("volume", "delete", "pg")
		})
	}
}

// TestKillMatrix kills each process of a node in each phase of an allocation's
// start and stop. Each time the node comes to what is wanted, everybody agrees
// on what is there, the volume keeps what was written to it, and no task was
// started twice at once. BERTH_KILL_MATRIX=all makes every combination, else
// those in which most is under way.
func TestKillMatrix(t *testing.T) {
	t.Parallel()
	often := map[string]bool{
		"AfterStage/Agent": true, "AfterPublish/Agent": true, "TaskStarts/Agent": true, "TaskStarts/Supervisor": true, "BeforePublish/Plugin": true,
		"TaskRuns/AgentAndSupervisor": true, "TaskEnds/Agent": true, "TaskEnds/Supervisor": true, "AfterUnpublish/Agent": true,
		"AfterUnstage/Plugin": true, "BeforeUnstage/AgentAndPlugin": true,
	}
	whole := os.Getenv("BERTH_KILL_MATRIX") == "all"
	for victim, kill := range victims() {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			var m *machine
			for _, p := range phases() {
				name := p.name + "/" + victim
				if !whole && !often[name] || strings.Contains(victim, "Supervisor") && !p.task {
					continue
				}
				if m == nil {
					m = newMachine(t, host.Options{})
					m.berth.Apply(strings.ReplaceAll(volumeFile, `"local"`, `"disk"`))
				}
				began := time.Now()
				m.cell(name, p, kill)
				t.Logf("%s took %s", name, time.Since(began).Round(time.Millisecond))
			}
			if m != nil {
				m.berth.Run("volume", "delete", "pg")
			}
		})
	}
}

// cell is one combination.
func (m *machine) cell(name string, p phase, kill func(*machine)) {
	m.tb.Helper()
	m.reach(p)
	kill(m)
	if !p.stops {
		m.untilRunning("db")
		m.settled(name, 1)
		ticks := m.lines("ticks")
		m.await("the next tick", func() bool { return m.lines("ticks") > ticks })
	}
	starts := m.lines("starts")
	if !p.stops {
		// Once, or once more where its supervisor died after it had begun, or an engine
		// that did not know yet that it had.
		again := strings.Contains(name, "Supervisor") || m.engine != nil && p.name == "TaskStarts"
		if n := starts - m.starts; n < 1 || n > 1 && !again || n > 2 {
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
