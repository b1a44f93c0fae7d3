package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

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
// /opt, and keeps the state in the plugin's own directory. A part of it is a
// process that knows nothing of the other; the node's knows the volumes that the
// controller's is going to make.
func (j asJob) mock(t *testing.T, m *host.Mock) string {
	t.Helper()
	binary, state := m.Binary(), m.Dir()
	if j.driver == "exec" {
		binary, state = host.Install(t, m.Binary()), "$BERTH_CSI_DIR/state"
	}
	calls, mounts := state+"/calls", "-real-mounts -state-dir "+state
	switch j.kind {
	case "node":
		state = "$BERTH_CSI_DIR/state"
		calls, mounts = "$${CSI_ENDPOINT#unix://}.calls", "-more-volumes 20 -real-mounts -state-dir "+state
	case "controller":
		state, calls, mounts = "/tmp", "$${CSI_ENDPOINT#unix://}.calls", ""
	}
	return j.file(fmt.Sprintf("mkdir -p %s; exec %s -endpoint $CSI_ENDPOINT -calls %s %s", state, binary, calls, mounts))
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

// endUnharmed checks that the consumer of the volume pg has not noticed what
// happened to its plugin, and ends it, the volume and the plugin's job.
func endUnharmed(t *testing.T, b *host.Berth, writer api.TaskStatus, plugin string) {
	t.Helper()
	if is := runningTask(t, b, "db", "writer"); is.PID != writer.PID || is.Restarts != 0 {
		t.Errorf("the consumer's task was %+v, and is %+v", writer, is)
	}
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
	b.Run("job", "stop", plugin)
}

// runningTask is how a task is that runs.
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
	for name, test := range map[string]struct {
		plugin api.PluginID
		jobs   []asJob
	}{
		"RawExec":              {"mock", []asJob{{"raw_exec", "mock", "monolith"}}},
		"Exec":                 {"mock", []asJob{{"exec", "mock", "monolith"}}},
		"RawExecTwoParts":      {"mock", []asJob{{"raw_exec", "mock-node", "node"}, {"raw_exec", "mock-controller", "controller"}}},
		"ExecTwoParts":         {"mock", []asJob{{"exec", "mock-node", "node"}, {"exec", "mock-controller", "controller"}}},
		"LocalRawExec":         {"disk", []asJob{{"raw_exec", "disk", "monolith"}}},
		"LocalExec":            {"disk", []asJob{{"exec", "disk", "monolith"}}},
		"LocalRawExecTwoParts": {"disk", []asJob{{"raw_exec", "disk-node", "node"}, {"raw_exec", "disk-controller", "controller"}}},
		"LocalExecTwoParts":    {"disk", []asJob{{"exec", "disk-node", "node"}, {"exec", "disk-controller", "controller"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, jobs := host.Start(t, host.Options{}), test.jobs
			volume := volumeFile
			if test.plugin == "disk" {
				volume = diskVolume
				b.Apply(jobs[0].local(t, b))
			} else {
				b.Apply(jobs[0].mock(t, host.NewMock(t)))
			}
			for _, j := range jobs[1:] {
				if test.plugin == "mock" {
					b.Apply(j.mock(t, host.NewMock(t)))
				} else {
					b.Apply(strings.ReplaceAll(j.other(t, b), `"mock"`, fmt.Sprintf("%q", test.plugin)))
				}
			}
			b.Apply(volume)
			b.Apply(jobFile)
			var info api.VolumeInfo
			b.JSON(&info, "volume", "status", "pg")
			target := info.Attachments[0].Status.TargetPath
			wrote(t, b, target)
			var p api.Plugin
			b.JSON(&p, "plugin", "status", string(test.plugin))
			if p.NodesHealthy != 1 || p.ControllersHealthy != 1 || len(p.Instances) != len(jobs) || p.Instances[0].AllocID == "" {
				t.Errorf("plugin: %+v", p)
			}
			b.Run("job", "stop", "db")
			b.Run("volume", "delete", "pg")
			if test.plugin == "mock" && len(jobs) > 1 {
				apart(t, b, jobs)
			}
			for _, j := range jobs {
				b.Run("job", "stop", j.job)
			}
			b.Eventually("the plugin is gone with its last instance", limit, func() error {
				if out := b.Run("plugin", "list"); strings.Contains(out, string(test.plugin)) {
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

// apart checks that the parts of a driver are processes of their own, and that
// each was called for what is its own: node's calls, and controller's.
func apart(t *testing.T, b *host.Berth, jobs []asJob) {
	t.Helper()
	pids := map[int]bool{}
	for _, j := range jobs {
		pids[runningTask(t, b, j.job, "driver").PID] = true
	}
	files, err := filepath.Glob(filepath.Join(b.DataDir, "sock", "*", "*", "csi.sock.calls"))
	if err != nil || len(files) != len(jobs) || len(pids) != len(jobs) {
		t.Fatalf("%d parts have the files %q (%v), and are the processes %v", len(jobs), files, err, pids)
	}
	var sequences []string
	for _, f := range files {
		sequences = append(sequences, host.Sequence(host.ReadCalls(t, f)))
	}
	slices.Sort(sequences)
	if diff := cmp.Diff([]string{
		"CreateVolume OK\nControllerPublishVolume OK\nControllerUnpublishVolume OK\nDeleteVolume OK\n",
		"NodeStageVolume OK\nNodePublishVolume OK\nNodeUnpublishVolume OK\nNodeUnstageVolume OK\n",
	}, sequences); diff != "" {
		t.Errorf("calls of the parts (-want +got):\n%s", diff)
	}
}

// local is the job's file with Berth's own driver, which remembers its volumes. An
// isolated task keeps them in the plugin's own directory.
func (j asJob) local(t *testing.T, b *host.Berth) string {
	t.Helper()
	binary, root := b.Binary(), filepath.Join(filepath.Dir(b.DataDir), "local")
	if j.driver == "exec" {
		binary, root = host.Install(t, b.Binary()), "$BERTH_CSI_DIR/volumes"
	}
	return strings.ReplaceAll(j.file(fmt.Sprintf("exec %s plugin local --node-id $BERTH_NODE_ID --root %s", binary, root)), `"mock"`, `"disk"`)
}

const diskVolume = `
id        = "pg"
type      = "csi"
plugin_id = "disk"
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}
capacity_min = "64MiB"
`

// TestPluginJob_Killed kills the driver with SIGKILL while a volume is in use,
// and the agent with it: the consumer goes on, the driver is started again by
// its policy, the next agent finds all as it was, and in the end the volume is
// unpublished.
func TestPluginJob_Killed(t *testing.T) {
	t.Parallel()
	for name, killAgent := range map[string]bool{"Driver": false, "DriverAndAgent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := host.Start(t, host.Options{})
			j := asJob{"raw_exec", "disk", "monolith"}
			b.Apply(j.local(t, b))
			b.Apply(diskVolume)
			b.Apply(jobFile)
			writer, plugin := runningTask(t, b, "db", "writer"), runningTask(t, b, "disk", "driver")
			if killAgent {
				b.Kill()
			}
			if err := syscall.Kill(plugin.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if killAgent {
				b.Resume()
			}
			b.Eventually("the driver runs again", limit, func() error {
				is := runningTask(t, b, "disk", "driver")
				if is.PID == plugin.PID || is.Restarts != 1 {
					return fmt.Errorf("task: %+v", is)
				}
				return nil
			})
			endUnharmed(t, b, writer, "disk")
		})
	}
}

// TestPluginJob_AgentRestarts kills the agent alone: the next one knows the
// plugin at once, and neither task notices.
func TestPluginJob_AgentRestarts(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	b.Apply(asJob{"raw_exec", "disk", "monolith"}.local(t, b))
	b.Apply(diskVolume)
	b.Apply(jobFile)
	writer, plugin := runningTask(t, b, "db", "writer"), runningTask(t, b, "disk", "driver")
	b.Kill()
	b.Resume()
	for _, task := range []struct {
		job, name string
		was       api.TaskStatus
	}{{"db", "writer", writer}, {"disk", "driver", plugin}} {
		if is := runningTask(t, b, task.job, task.name); is.PID != task.was.PID || is.Restarts != 0 {
			t.Errorf("task %s was %+v, and is %+v", task.name, task.was, is)
		}
	}
	var p api.Plugin
	b.JSON(&p, "plugin", "status", "disk")
	if len(p.Instances) != 1 || p.NodesHealthy != 1 {
		t.Errorf("plugin: %+v", p)
	}
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
	b.Run("job", "stop", "disk")
}

// TestPluginJob_ConsumersAreTold takes a plugin from a volume that is in use: who
// uses it goes on, and is told that it is gone, and that it is back.
func TestPluginJob_ConsumersAreTold(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	plugin := asJob{"raw_exec", "disk", "monolith"}.local(t, b)
	b.Apply(plugin)
	b.Apply(diskVolume)
	b.Apply(jobFile)
	writer := runningTask(t, b, "db", "writer")
	const ill = "plugin disk is not healthy on this node: "
	consumer := func() (a api.AllocStatus) {
		var info api.JobInfo
		b.JSON(&info, "job", "status", "db")
		for i := range info.Allocations {
			a = info.Allocations[i].Status
		}
		return a
	}
	b.Run("job", "stop", "disk")
	b.Eventually("the consumer has been told that its plugin is gone", limit, func() error {
		is := consumer()
		if n := len(is.Events); is.Problem == nil || !strings.HasPrefix(is.Problem.Message, ill) || n == 0 || !strings.HasPrefix(is.Events[n-1].Message, ill) {
			return fmt.Errorf("the consumer: %+v, problem %+v", is, is.Problem)
		}
		if said := b.Run("volume", "explain", "pg"); !strings.Contains(said, ill) {
			return fmt.Errorf("the volume is explained as %s", said)
		}
		return nil
	})
	b.Apply(plugin)
	b.Eventually("the consumer has been told that its plugin is back", limit, func() error {
		is := consumer()
		if n := len(is.Events); is.Problem != nil || n < 2 || is.Events[n-1].Message != "plugin disk is healthy again" {
			return fmt.Errorf("the consumer: %+v, problem %+v", is, is.Problem)
		}
		return nil
	})
	endUnharmed(t, b, writer, "disk")
}

// TestPluginJob_StoppedTooSoon stops the plugin's job while a volume is in use.
// Who unpublishes waits for it, says so, and goes on when the job is back; and
// volumes of another plugin do not wait with it.
func TestPluginJob_StoppedTooSoon(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	plugin := asJob{"raw_exec", "disk", "monolith"}.local(t, b)
	b.Apply(plugin)
	b.Apply(diskVolume)
	b.Apply(jobFile)
	other := strings.NewReplacer(`"pg"`, `"pg2"`, `"db"`, `"db2"`, `"disk"`, `"local"`)
	b.Apply(other.Replace(diskVolume))
	b.Apply(other.Replace(jobFile))
	b.Run("job", "stop", "disk")
	b.Run("job", "stop", "db", "--detach")
	b.Eventually("explain says what the volume waits for", limit, func() error {
		out := b.Run("volume", "explain", "pg")
		if !strings.Contains(out, "plugin disk cannot be used: this node does not run it") {
			return fmt.Errorf("explain: %s", out)
		}
		return nil
	})
	b.Run("job", "stop", "db2")
	b.Run("volume", "delete", "pg2")
	b.Apply(plugin)
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
	b.Run("job", "stop", "disk")
}

// TestPluginJob_NeverHealthy runs a program that serves nothing: it is started
// again by its policy, and the reasons can be read. When it is replaced by one
// that serves, what waited goes on.
func TestPluginJob_NeverHealthy(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	file := asJob{"raw_exec", "mute", "monolith"}.file("exec sleep 1000")
	b.Apply(strings.ReplaceAll(file, `"10s"`, `"1s"`), "--detach")
	b.Eventually("the task is started again", limit, func() error {
		is := runningTask(t, b, "mute", "driver")
		if is.Restarts < 2 || !strings.Contains(is.Last.Reason, "plugin mock did not become healthy within 1s") {
			return fmt.Errorf("task: %+v", is)
		}
		return nil
	})
	out := b.Run("job", "status", "mute")
	if !strings.Contains(out, "plugin mock is not healthy") {
		t.Errorf("job status: %s", out)
	}
	b.Apply(volumeFile, "--detach")
	b.Eventually("the volume says what it waits for", limit, func() error {
		if out := b.Run("volume", "explain", "pg"); !strings.Contains(out, "mock") || !strings.Contains(out, "never been healthy") {
			return fmt.Errorf("explain: %s", out)
		}
		return nil
	})
	b.Apply(asJob{"raw_exec", "mute", "monolith"}.mock(t, host.NewMock(t)))
	b.Apply(jobFile)
	wrote(t, b, mountedAt(t, b))
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
	b.Run("job", "stop", "mute")
}

// TestPluginJob_Update exchanges a plugin while its volumes are in use: the
// newer instance is healthy before the older one is stopped, and undoes what the
// older one has mounted.
func TestPluginJob_Update(t *testing.T) {
	t.Parallel()
	m := host.NewMock(t)
	b := host.Start(t, host.Options{})
	j := asJob{"raw_exec", "mock", "monolith"}
	first := strings.ReplaceAll(j.mock(t, m), `type = "system"`, "type = \"system\"\n update {\n min_healthy_time = \"1s\"\n }")
	b.Apply(first)
	b.Apply(volumeFile)
	b.Apply(jobFile)
	writer, old := runningTask(t, b, "db", "writer"), runningTask(t, b, "mock", "driver")
	// The newer mock knows nothing of the volume, and takes its mounts away all the
	// same.
	second := strings.ReplaceAll(first, "mkdir -p", "true; mkdir -p")
	b.Apply(second, "--detach")
	b.Eventually("both instances are healthy", limit, func() error {
		var p api.Plugin
		b.JSON(&p, "plugin", "status", "mock")
		if p.NodesHealthy != 2 {
			return fmt.Errorf("plugin: %+v", p)
		}
		return nil
	})
	b.Eventually("the older instance is gone", limit, func() error {
		var p api.Plugin
		b.JSON(&p, "plugin", "status", "mock")
		if len(p.Instances) != 1 || !p.Instances[0].Healthy {
			return fmt.Errorf("plugin: %+v", p)
		}
		return nil
	})
	// It is withdrawn before its task is stopped.
	b.Eventually("the older task has ended", limit, func() error {
		if is := runningTask(t, b, "mock", "driver"); is.PID == old.PID {
			return fmt.Errorf("it runs on: %+v", is)
		}
		return nil
	})
	endUnharmed(t, b, writer, "mock")
}

// fuseFlags have the mock serve file systems itself, each by a process of its own.
const fuseFlags = " -real-mounts -fuse-mounts -fuse-apart -disable-attach -disable-stage"

// TestPluginJob_ServesFileSystems ends what a driver serves itself, wherever the
// driver runs. The process of one mount is killed: the driver is well, and knows
// nothing of it; that volume is mounted again, the task that used it is started
// again on the new mount, and nobody else notices. Then the driver is killed, with
// all of its mounts: the same happens to all.
func TestPluginJob_ServesFileSystems(t *testing.T) {
	t.Parallel()
	job := func(driver string) func(t *testing.T) (*host.Berth, string, string) {
		return func(t *testing.T) (*host.Berth, string, string) {
			t.Helper()
			b := host.Start(t, host.Options{})
			plugin := asJob{driver, "driver", "monolith"}.mock(t, host.NewMock(t))
			return b, strings.ReplaceAll(plugin, " -real-mounts", fuseFlags), jobFile
		}
	}
	for name, start := range map[string]func(t *testing.T) (b *host.Berth, plugin, consumer string){
		"RawExec": job("raw_exec"),
		"Exec":    job("exec"),
		"Docker": func(t *testing.T) (*host.Berth, string, string) {
			t.Helper()
			b, _ := withDocker(t, "mock:1", map[string]string{"/mock": host.NewMock(t).Binary()})
			plugin := strings.NewReplacer("IMAGE", "mock:1", "PLUGIN", "mock", "COMMAND",
				"mkdir -p $BERTH_CSI_DIR/state && exec /mock -endpoint $CSI_ENDPOINT -state-dir $BERTH_CSI_DIR/state"+fuseFlags,
				`group "main" {`, "group \"main\" {\n restart {\n attempts = 50\n interval = \"1h\"\n delay = \"100ms\"\n}\n").Replace(dockerPlugin)
			return b, plugin, dockerConsumer()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, plugin, consumer := start(t)
			b.Apply(plugin)
			consumer = strings.NewReplacer("echo started >> /data/file;", "ls /data &&", `user = "root"`, "user = \"root\"\n kill_timeout = \"100ms\"\n restart {\n delay = \"100ms\"\n }").Replace(consumer)
			for i, id := range []string{"pg", "other"} {
				// The mock knows these volumes anew in each of its lives.
				b.Apply(strings.NewReplacer(`capacity_min = "1GiB"`, fmt.Sprintf("external_id = \"%d\"", i+1), `"pg"`, fmt.Sprintf("%q", id)).Replace(volumeFile))
				b.Apply(strings.NewReplacer(`"db"`, `"db-`+id+`"`, `"pg"`, fmt.Sprintf("%q", id)).Replace(consumer))
			}
			writer, other, driver := runningTask(t, b, "db-pg", "writer"), runningTask(t, b, "db-other", "writer"), runningTask(t, b, "driver", "driver")
			killServer(t, b, "pg")
			startedAgain(t, b, "pg", writer)
			if is := runningTask(t, b, "db-other", "writer"); is.PID != other.PID || is.Restarts != 0 {
				t.Errorf("the task with another volume was %+v, and is %+v", other, is)
			}
			if is := runningTask(t, b, "driver", "driver"); is.PID != driver.PID || is.Restarts != 0 {
				t.Errorf("the driver's task was %+v, and is %+v", driver, is)
			}
			writer = runningTask(t, b, "db-pg", "writer")
			if err := syscall.Kill(driver.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			startedAgain(t, b, "pg", writer)
			startedAgain(t, b, "other", other)
			for _, id := range []string{"pg", "other"} {
				b.Run("job", "stop", "db-"+id)
				b.Run("volume", "delete", id)
			}
			b.Run("job", "stop", "driver")
		})
	}
}

// killServer kills the process that serves the mount of a volume.
func killServer(t *testing.T, b *host.Berth, volume string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Base(targetOf(t, b, volume)) // where it is mounted is the driver's to name
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(line), "\x00-serve-fuse\x00") || !strings.HasSuffix(string(line), "/"+target+"\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no process serves %s", target)
}

// targetOf is where a volume is mounted.
func targetOf(t *testing.T, b *host.Berth, volume string) string {
	t.Helper()
	var info api.VolumeInfo
	b.JSON(&info, "volume", "status", volume)
	if len(info.Attachments) != 1 || info.Attachments[0].Status.TargetPath == "" {
		t.Fatalf("attachments of volume %s: %+v", volume, info.Attachments)
	}
	return info.Attachments[0].Status.TargetPath
}

// startedAgain waits until the task that uses a volume runs on a new mount of it.
func startedAgain(t *testing.T, b *host.Berth, volume string, was api.TaskStatus) {
	t.Helper()
	b.Eventually("the task of volume "+volume+" runs on a new mount", 2*limit, func() error {
		is := runningTask(t, b, "db-"+volume, "writer")
		if is.PID == was.PID || is.Restarts != was.Restarts+1 || !strings.Contains(is.Last.Reason, "its volume "+volume+" ended with the process of plugin mock") {
			return fmt.Errorf("task: %+v", is)
		}
		if _, err := os.ReadDir(targetOf(t, b, volume)); err != nil {
			return err
		}
		return nil
	})
}

// TestPluginJob_Hangs stops the driver's process, which is there and answers
// nothing: who mounts and unmounts is told which call hangs, while it hangs. When
// the process goes on, so do they.
func TestPluginJob_Hangs(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	b.Apply(asJob{"raw_exec", "disk", "monolith"}.local(t, b))
	b.Apply(diskVolume)
	driver := runningTask(t, b, "disk", "driver").PID
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(driver, s); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = syscall.Kill(driver, syscall.SIGCONT) }) // else it would not end
	signal(syscall.SIGSTOP)
	b.Apply(jobFile, "--detach")
	saysWhatHangs(t, b, "NodeStageVolume")
	signal(syscall.SIGCONT)
	runningTask(t, b, "db", "writer")
	b.Eventually("the problem has gone", limit, func() error {
		var info api.JobInfo
		b.JSON(&info, "job", "status", "db")
		if p := info.Allocations[0].Status.Problem; p != nil {
			return fmt.Errorf("problem: %+v", p)
		}
		return nil
	})
	signal(syscall.SIGSTOP)
	b.Run("job", "stop", "db", "--detach")
	saysWhatHangs(t, b, "NodeUnpublishVolume")
	signal(syscall.SIGCONT)
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
	b.Run("job", "stop", "disk")
}

// saysWhatHangs waits until an allocation of job db says that a call hangs.
func saysWhatHangs(t *testing.T, b *host.Berth, method string) {
	t.Helper()
	b.Eventually("it is told that "+method+" hangs", limit, func() error {
		var info api.JobInfo
		b.JSON(&info, "job", "status", "db")
		want := "plugin disk has not answered since "
		for i := range info.Allocations {
			is := info.Allocations[i].Status
			n := len(is.Events)
			if p := is.Problem; p != nil && p.Step == method && strings.HasPrefix(p.Message, want) && !p.Since.IsZero() &&
				n > 0 && strings.HasPrefix(is.Events[n-1].Message, method+": "+want) {
				return nil
			}
		}
		return fmt.Errorf("allocations: %s", b.Run("job", "status", "db", "--json"))
	})
}

// TestPluginJob_HangsAtTheEnd ends a development agent whose driver hangs: it ends
// in bounded time, with status 1 and the reason for what it leaves. The next one
// takes that over, and ends it when the driver goes on.
func TestPluginJob_HangsAtTheEnd(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	b.Apply(asJob{"raw_exec", "disk", "monolith"}.local(t, b))
	b.Apply(diskVolume)
	b.Apply(jobFile)
	runningTask(t, b, "db", "writer")
	driver := runningTask(t, b, "disk", "driver").PID
	t.Cleanup(func() { _ = syscall.Kill(driver, syscall.SIGCONT) }) // else it would not end
	if err := syscall.Kill(driver, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b.Run("job", "stop", "db", "--detach")
	saysWhatHangs(t, b, "NodeUnpublishVolume")
	if status := b.Interrupt(); status != 1 {
		t.Errorf("the agent ended with status %d, want 1", status)
	}
	for _, words := range []string{
		"end all allocations in time: 2 are left: allocation ", "(NodeUnpublishVolume: plugin disk has not answered since ",
		"(it is plugin disk, and goes after those that may have its volumes)", "the data stays in " + b.DataDir,
	} {
		if out := b.Output(); !strings.Contains(out, words) {
			t.Errorf("the agent said %s, want %q in it", out, words)
		}
	}
	if err := syscall.Kill(driver, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	b.Resume()
}
