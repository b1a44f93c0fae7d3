// Package integration_test runs Berth as real processes on a real disk, and
// kills them.
package integration_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

const limit = 60 * time.Second

const volumeFile = `
id           = "pg"
type         = "csi"
plugin_id    = "local"
capacity_min = "64MiB"
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}
`

const jobFile = `
job "db" {
  group "main" {
    volume "data" {
      type            = "csi"
      source          = "pg"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }
    task "writer" {
      driver = "exec"
      user   = "root"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo start >> /data/starts; while true; do date +%s%N >> /data/ticks; sleep 0.05; done"]
      }
      volume_mount {
        volume      = "data"
        destination = "/data"
      }
      kill_timeout = "1s"
    }
  }
}
`

// TestDemo runs the demo twice in a row: it checks itself that nothing is left.
//
//nolint:paralleltest // other tests' mounts and tasks would be left then
func TestDemo(t *testing.T) {
	binary := host.Binary(t)
	for range 2 {
		cmd := exec.Command(filepath.Join("..", "demo", "demo.sh"))
		cmd.Env = append(os.Environ(), "BERTH_BINARY="+binary,
			"BERTH_DEMO_PORT="+freePort(t), "BERTH_DEMO_RAFT_PORT="+freePort(t))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Nothing is left") {
			t.Fatalf("demo: %v\n%s", err, out)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(host.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestKillWhileRunning kills server, agent and driver while a task runs: it runs
// on, and the next agent goes on with it.
func TestKillWhileRunning(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	b.Apply(volumeFile)
	b.Apply(jobFile)
	var before api.JobInfo
	b.JSON(&before, "job", "status", "db")
	target := mountOf(t, b)
	for range 3 {
		b.Kill()
		ticks := count(t, target, "ticks")
		b.Resume()
		b.Eventually("the task has gone on", limit, func() error {
			if now := count(t, target, "ticks"); now <= ticks {
				return fmt.Errorf("%d ticks, %d before", now, ticks)
			}
			return nil
		})
	}
	var after api.JobInfo
	b.JSON(&after, "job", "status", "db")
	if len(after.Allocations) != 1 || after.Allocations[0].ID != before.Allocations[0].ID {
		t.Errorf("allocations %+v, want the one from before", after.Allocations)
	}
	if n := count(t, target, "starts"); n != 1 {
		t.Errorf("the task was started %d times", n)
	}
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
}

// TestKillAtAnyMoment kills everything at random moments of a job's start and
// end. Each time the next agent finishes what was begun; no data is lost, and
// nothing is left behind.
func TestKillAtAnyMoment(t *testing.T) {
	t.Parallel()
	cycles := 6
	if testing.Short() {
		cycles = 2
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pause := func() {
		timer := time.NewTimer(time.Duration(r.IntN(600)) * time.Millisecond)
		<-timer.C
	}
	b := host.Start(t, host.Options{})
	b.Apply(volumeFile)
	for cycle := 1; cycle <= cycles; cycle++ {
		b.Apply(jobFile, "--detach")
		pause()
		b.Kill()
		b.Resume()
		b.Apply(jobFile)
		target := mountOf(t, b)
		b.Eventually("the task has started", limit, func() error {
			if n := count(t, target, "starts"); n < cycle {
				return fmt.Errorf("%d starts in cycle %d", n, cycle)
			}
			return nil
		})
		b.Run("job", "stop", "db", "--detach")
		pause()
		b.Kill()
		b.Resume()
		b.Run("job", "stop", "db")
		var info api.VolumeInfo
		b.JSON(&info, "volume", "status", "pg")
		if len(info.Attachments) > 0 || len(info.Publications) > 0 {
			t.Fatalf("after the stop: %+v %+v", info.Attachments, info.Publications)
		}
		if m := mountsBelow(t, b.DataDir); len(m) > 0 {
			t.Fatalf("after the stop these are mounted: %v", m)
		}
	}
	b.Run("volume", "delete", "pg")
}

// TestKillServer kills the server while volumes are created: what was
// acknowledged is there afterwards.
func TestKillServer(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	acknowledged := map[string]bool{}
	for round := range 3 {
		killed := make(chan struct{})
		timer := time.AfterFunc(700*time.Millisecond, func() {
			b.Kill()
			close(killed)
		})
		for i := 0; ; i++ {
			id := fmt.Sprintf("v-%d-%d", round, i)
			path := filepath.Join(t.TempDir(), "v.hcl")
			spec := strings.ReplaceAll(strings.ReplaceAll(volumeFile, `"pg"`, `"`+id+`"`), `capacity_min = "64MiB"`, "")
			if err := os.WriteFile(path, []byte(spec), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, status := b.Try("apply", path, "--detach"); status != 0 {
				break
			}
			acknowledged[id] = true
		}
		<-killed
		timer.Stop()
		b.Resume()
	}
	var volumes []api.Volume
	b.JSON(&volumes, "volume", "list")
	for _, v := range volumes {
		delete(acknowledged, string(v.ID))
	}
	if len(acknowledged) > 0 {
		t.Errorf("acknowledged and lost: %v", acknowledged)
	}
}

// TestEndIsBounded ends a development agent whose task does not want to end.
func TestEndIsBounded(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	b.Apply(volumeFile)
	b.Apply(strings.ReplaceAll(jobFile, "echo start >>", "trap '' INT TERM; echo start >>"))
	began := time.Now()
	b.Stop()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the agent took %s to end", took)
	}
}

// TestTerminalIsClosed closes the terminal of a development agent whose task uses
// a volume: it ends like one that is interrupted, and leaves nothing behind.
func TestTerminalIsClosed(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	b.Apply(volumeFile)
	b.Apply(jobFile)
	b.HangUp()
	if m := mountsBelow(t, b.DataDir); len(m) > 0 {
		t.Errorf("these are mounted: %v", m)
	}
}

// mountOf is where the volume of the job is mounted.
func mountOf(t *testing.T, b *host.Berth) string {
	t.Helper()
	var info api.VolumeInfo
	b.JSON(&info, "volume", "status", "pg")
	if len(info.Attachments) != 1 || info.Attachments[0].Status.TargetPath == "" {
		t.Fatalf("attachments of a running job: %+v", info.Attachments)
	}
	return info.Attachments[0].Status.TargetPath
}

// count counts the lines of a file on the volume.
func count(t *testing.T, target, name string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(target, name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

func mountsBelow(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], dir+"/") {
			found = append(found, f[4])
		}
	}
	return found
}
