package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// pluginJob is a job that runs the mock as a plugin. PRIVILEGED, TYPE and the
// like are replaced.
const pluginJob = `
job "JOB" {
  type = "system"
  group "main" {
    restart {
      attempts = 50
      interval = "1h"
      delay    = "100ms"
    }
    task "driver" {
      driver = "DRIVER"
      config {
        command = "/bin/sh"
        args    = ["-c", "COMMAND"]
        PRIVILEGED
      }
      csi_plugin {
        id   = "mock"
        type = "TYPE"
        health_timeout = "10s"
      }
    }
  }
}
`

// asJob is a way to run a driver as a job.
type asJob struct{ driver, job, kind string }

// file is the job's file with a shell command.
func (j asJob) file(command string) string {
	privileged := ""
	if j.driver == "exec" {
		privileged = "privileged = true"
	}
	return strings.NewReplacer("JOB", j.job, "DRIVER", j.driver, "TYPE", j.kind, "COMMAND", command, "PRIVILEGED", privileged).Replace(pluginJob)
}

// mock is the job's file with the mock. An isolated task sees its binary below
// /opt, and keeps the state in the plugin's own directory.
func (j asJob) mock(t *testing.T, m *host.Mock) string {
	t.Helper()
	binary, state := m.Binary(), m.Dir()
	if j.driver == "exec" {
		binary, state = host.Install(t, m.Binary()), "$BERTH_CSI_DIR/state"
	}
	return j.file(fmt.Sprintf("mkdir -p %[2]s; exec %[1]s -endpoint $CSI_ENDPOINT -calls %[2]s/calls -real-mounts -state-dir %[2]s", binary, state))
}

// other is the job's file with a second door to a driver that runs already:
// the mock keeps what it knows in memory.
func (j asJob) other(t *testing.T, b *host.Berth) string {
	t.Helper()
	sockets, err := filepath.Glob(filepath.Join(b.DataDir, "sock", "*", "*", "csi.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets %v, %v", sockets, err)
	}
	return j.file("ln -s " + sockets[0] + " $${CSI_ENDPOINT#unix://}; exec sleep 1000")
}

// driverPID is the process of a plugin job's task.
func driverPID(t *testing.T, b *host.Berth, job string) int {
	t.Helper()
	return runningTask(t, b, job, "driver").PID
}

func runningTask(t *testing.T, b *host.Berth, job, task string) (is api.TaskStatus) {
	t.Helper()
	b.Eventually("task "+task+" of job "+job+" runs", limit, func() error {
		var info api.JobInfo
		b.JSON(&info, "job", "status", job)
		for _, a := range info.Allocations {
			if s := a.Status.Tasks[task]; !a.Terminal() && s.State == api.TaskRunning {
				is = s
				return nil
			}
		}
		return fmt.Errorf("allocations: %+v", info.Allocations)
	})
	return is
}

// TestPluginJob carries a volume through its life on a driver that runs as a
// job: each driver of tasks, as one instance and as two.
func TestPluginJob(t *testing.T) {
	t.Parallel()
	for name, jobs := range map[string][]asJob{
		"RawExec":         {{"raw_exec", "mock", "monolith"}},
		"Exec":            {{"exec", "mock", "monolith"}},
		"RawExecTwoParts": {{"raw_exec", "mock-node", "node"}, {"raw_exec", "mock-controller", "controller"}},
		"ExecTwoParts":    {{"exec", "mock-node", "node"}, {"exec", "mock-controller", "controller"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := host.NewMock(t)
			b := host.Start(t, host.Options{})
			b.Apply(jobs[0].mock(t, m))
			for _, j := range jobs[1:] {
				b.Apply(j.other(t, b))
			}
			b.Apply(volumeFile)
			b.Apply(jobFile)
			var info api.VolumeInfo
			b.JSON(&info, "volume", "status", "pg")
			target := info.Attachments[0].Status.TargetPath
			wrote(t, b, target)
			var p api.Plugin
			b.JSON(&p, "plugin", "status", "mock")
			if p.NodesHealthy != 1 || p.ControllersHealthy != 1 || len(p.Instances) != len(jobs) || p.Instances[0].AllocID == "" {
				t.Errorf("plugin: %+v", p)
			}
			b.Run("job", "stop", "db")
			b.Run("volume", "delete", "pg")
			for _, j := range jobs {
				b.Run("job", "stop", j.job)
			}
			b.Eventually("the plugin is gone with its last instance", limit, func() error {
				if out := b.Run("plugin", "list"); strings.Contains(out, "mock") {
					return fmt.Errorf("plugins: %s", out)
				}
				return nil
			})
			if left, _ := filepath.Glob(filepath.Join(b.DataDir, "sock", "*")); len(left) > 0 {
				t.Errorf("sockets are left: %v", left)
			}
		})
	}
}
