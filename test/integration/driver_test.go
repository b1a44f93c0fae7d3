package integration_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/agent/driver/docker/dockertest"
	"github.com/berth-dev/berth/test/host"
)

// driverFile is a job in the shape in which vendors publish theirs, with the local
// driver. Names in capitals are replaced.
const driverFile = `
job "driver" {
  type = "system"
  group "main" {
    restart {
      attempts = 1000
      interval = "1h"
      delay    = "100ms"
    }
    task "driver" {
      driver = "DRIVER"
      config {
        ENTRY
        args       = ["-c", "COMMAND"]
        privileged = true
        OPTIONS
      }
      csi_plugin {
        id                     = "disk"
        type                   = "monolith"
        mount_dir              = "/csi"
        stage_publish_base_dir = "BASE"
        health_timeout         = "60s"
      }
    }
  }
}
`

// newDriverMachine starts an agent that runs the driver as a job: of exec's, or of
// an engine's.
func newDriverMachine(t *testing.T, driver string) *machine {
	t.Helper()
	var opts host.Options
	var engine *dockertest.Engine
	if driver == "docker" {
		engine = dockertest.Start(t, "--live-restore")
		engine.Import("berth:1", dockertest.Tar(t, dockertest.FileSystemPrograms(t, map[string]string{"/berth": host.Binary(t)})))
		opts.Config = fmt.Sprintf("driver \"docker\" {\n endpoint = %q\n allow_privileged = true\n allow_host_paths = true\n}\n", engine.Socket)
	}
	b := host.Start(t, opts)
	m := &machine{fleet: &fleet{tb: t, berth: b, client: b.Client()}, engine: engine, jobs: 1}
	t.Cleanup(m.lastSeen)
	// The driver listens beside where the agent looks for it: there it finds the gate.
	m.gate = host.StartGateTo(t, filepath.Join(host.ShortDir(t), "gate"), func() string {
		sockets, err := filepath.Glob(filepath.Join(b.DataDir, "sock", "*", "*", "driver.sock"))
		if err != nil || len(sockets) != 1 {
			return filepath.Join(b.DataDir, "sock", "none")
		}
		return sockets[0]
	})
	t.Cleanup(m.gate.Open)
	m.base = "/local/" + filepath.Base(filepath.Dir(b.DataDir)) // by which its process is known
	root := m.base + "/volumes"
	var entry, options, binary string
	if driver == "docker" {
		entry, binary = `entrypoint = ["/bin/sh"]`, "/berth"
		options = "image = \"berth:1\"\n network_mode = \"none\"\n volumes = [\"/dev:/dev\"]"
	} else {
		entry, binary = `command = "/bin/sh"`, host.Install(t, b.Binary())
	}
	command := fmt.Sprintf("mkdir -p %s; ln -sf %s /csi/csi.sock; exec %s plugin local --node-id $BERTH_NODE_ID --root %s --endpoint unix:///csi/driver.sock --log-level warn",
		root, m.gate.Socket, binary, root)
	b.Apply(strings.NewReplacer("DRIVER", driver, "ENTRY", entry, "OPTIONS", options, "COMMAND", command, "BASE", m.base).Replace(driverFile))
	b.Eventually("the driver has its directory", limit, func() error {
		roots, _ := filepath.Glob(filepath.Join(b.DataDir, "csi", "*", "volumes")) // the pattern is one
		if len(roots) != 1 {
			return fmt.Errorf("directories %q", roots)
		}
		m.root = roots[0]
		return nil
	})
	m.settled("the driver runs", 0)
	return m
}

// drivers are the processes of the driver, if it is a job.
func (m *machine) drivers() (pids []int) {
	for _, p := range m.processes(" plugin local ") {
		if strings.Contains(p.line, "--root "+m.base+"/volumes ") && !strings.Contains(p.line, "mkdir") {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

func (m *machine) killPlugin() {
	m.tb.Helper()
	if m.plugin != nil {
		m.plugin.Kill()
		return
	}
	m.kill(m.drivers()...)
}

// startPlugin starts the driver again. The policy of its job does that for one.
func (m *machine) startPlugin() {
	m.tb.Helper()
	if m.plugin != nil {
		m.plugin.Start()
	}
}

// endPlugin stops the driver's job, and looks that nothing of it is left.
func (m *machine) endPlugin() {
	m.tb.Helper()
	if m.jobs == 0 {
		return
	}
	m.berth.Run("job", "stop", "driver")
	m.jobs = 0
	m.settled("the driver is stopped", 0)
	for _, pattern := range []string{"sock/*", "csi/*/mount/*", "csi/*/stage/*"} {
		if left, err := filepath.Glob(filepath.Join(m.berth.DataDir, pattern)); err != nil || len(left) > 0 {
			m.tb.Errorf("the driver's job left %q (%v)", left, err)
		}
	}
}

// TestKillMatrixOfDriverJobs kills the driver where it is a job itself, with what
// it runs in and with the agent, in each phase of what uses its volume.
func TestKillMatrixOfDriverJobs(t *testing.T) {
	t.Parallel()
	of := victims()
	exec := map[string]victim{
		"Agent": of["Agent"], "Plugin": of["Plugin"], "AgentAndPlugin": of["AgentAndPlugin"],
		"PluginSupervisor": {func(m *machine) { m.kill(m.supervisor("driver")) }, nothing},
	}
	docker := map[string]victim{
		"Agent": of["Agent"], "Plugin": of["Plugin"], "AgentAndPlugin": of["AgentAndPlugin"], "Engine": engineVictims()["Engine"],
		"EngineAndPlugin": {func(m *machine) {
			m.engine.Kill()
			m.killPlugin()
		}, func(m *machine) { m.engine.Resume() }},
	}
	for name, x := range map[string]matrix{
		"Exec":   {victims: exec, often: []string{"BeforePublish/Plugin", "TaskRuns/PluginSupervisor", "AfterUnpublish/AgentAndPlugin"}},
		"Docker": {victims: docker, often: []string{"AfterStage/Plugin", "BeforeUnstage/AgentAndPlugin", "BeforeUnpublish/EngineAndPlugin"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x.machine = func(t *testing.T) *machine { t.Helper(); return newDriverMachine(t, strings.ToLower(name)) }
			x.run(t)
		})
	}
}
