package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

const canaryJob = `
job "web" {
  update {
    canary           = 1
    max_parallel     = 2
    min_healthy_time = "1s"
  }
  group "main" {
    count = 2
    volume "scratch" {
      type            = "csi"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
      ephemeral {
        plugin_id    = "local"
        capacity_min = "64MiB"
      }
    }
    task "server" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "[ ! -e /data/file ] && echo started > /data/file && exec sleep 1001"]
      }
      volume_mount {
        volume      = "scratch"
        destination = "/data"
      }
    }
  }
}
`

// TestCanary tries a newer revision in one place, beside the older ones, promotes
// it, and lets it take the rest: with processes and volumes of their own, of
// which none is stopped before its successor runs, and none is left.
func TestCanary(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	b.Apply(canaryJob, "--healthy")
	old := places(b)
	b.Apply(strings.ReplaceAll(canaryJob, "1001", "1002"), "--detach")
	b.Eventually("a canary runs beside the others", limit, func() error {
		now := places(b)
		if n := len(now); n != 3 || !slices.ContainsFunc(now, func(a *api.Allocation) bool { return a.Revision == 2 && a.Status.State == api.AllocRunning }) {
			return fmt.Errorf("%d allocations: %+v", n, now)
		}
		return nil
	})
	for _, a := range places(b) {
		if i := slices.IndexFunc(old, func(o *api.Allocation) bool { return o.ID == a.ID }); i >= 0 && old[i].Status.Tasks["server"].PID != a.Status.Tasks["server"].PID {
			t.Errorf("the task of %s became another", a.ID)
		}
	}
	b.Eventually("the canary is healthy, and promoted", limit, func() error {
		if stdout, stderr, status := b.Try("job", "promote", "web"); status != 0 {
			return fmt.Errorf("%s%s", stdout, stderr)
		}
		return nil
	})
	b.Eventually("the newer revision has all places", limit, func() error {
		now := places(b)
		if len(now) != 2 || slices.ContainsFunc(now, func(a *api.Allocation) bool { return a.Revision != 2 || a.Status.State != api.AllocRunning }) {
			return fmt.Errorf("allocations: %+v", now)
		}
		return nil
	})
	var job api.JobInfo
	b.JSON(&job, "job", "status", "web")
	for _, a := range job.Allocations {
		ended := a.Status.Tasks["server"].Ended
		for _, s := range places(b) {
			if started := s.Status.Tasks["server"].Started; a.Revision == 1 && a.Index == s.Index && !ended.IsZero() && ended.Before(started) {
				t.Errorf("the older task of place %d ended at %s, and the newer one began at %s", a.Index, ended, started)
			}
		}
	}
	b.Eventually("the older ones' volumes are gone", limit, func() error {
		if left := owned(t, b, -1); len(left) != 2 {
			return fmt.Errorf("volumes: %v", left)
		}
		return nil
	})
	b.Run("job", "stop", "web")
	b.Eventually("all volumes are gone", limit, func() error {
		if left := owned(t, b, -1); len(left) > 0 {
			return fmt.Errorf("volumes: %v", left)
		}
		return nil
	})
}

// places are the allocations that are to run.
func places(b *host.Berth) (wanted []*api.Allocation) {
	var job api.JobInfo
	b.JSON(&job, "job", "status", "web")
	for _, a := range job.Allocations {
		if a.Desired == api.DesireRun && !a.Terminal() {
			wanted = append(wanted, a)
		}
	}
	return wanted
}

const poststopTask = `
    task "after" {
      driver = "exec"
      user   = "root"
      lifecycle {
        hook = "poststop"
      }
      config {
        command = "/bin/sh"
        args    = ["-c", "touch /data/begun; sleep 2; cp /data/file /data/saved"]
      }
      volume_mount {
        volume      = "data"
        destination = "/data"
      }
    }
  }
}
`

// TestPoststop runs a task on a volume whose users have ended, and kills the
// agent in the middle: it is finished by the next one, once, before the volume is
// unmounted, and what it wrote is there for the next job.
func TestPoststop(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	b.Apply(strings.ReplaceAll(diskVolume, `"disk"`, `"local"`))
	b.Apply(strings.TrimSuffix(strings.TrimSpace(jobFile), "}\n}") + poststopTask)
	var info api.VolumeInfo
	b.JSON(&info, "volume", "status", "pg")
	target := info.Attachments[0].Status.TargetPath
	wrote(t, b, target)
	b.Run("job", "stop", "db", "--detach")
	b.Eventually("the last task runs", limit, func() error {
		_, err := os.Stat(filepath.Join(target, "begun"))
		return err
	})
	b.Kill()
	b.Resume()
	b.Eventually("the volume is free", limit, func() error {
		var now api.VolumeInfo
		if b.JSON(&now, "volume", "status", "pg"); len(now.Attachments) > 0 {
			return fmt.Errorf("attachments: %+v", now.Attachments)
		}
		return nil
	})
	var job api.JobInfo
	b.JSON(&job, "job", "status", "db")
	if after := job.Allocations[0].Status.Tasks["after"]; after.State != api.TaskEnded || after.ExitCode != 0 || after.Restarts != 0 || after.Reason != "" {
		t.Errorf("the task that came after is %+v", after)
	}
	if _, err := os.Stat(filepath.Join(target, "file")); err == nil {
		t.Errorf("the volume is still mounted at %s", target)
	}
	b.Apply(jobFile)
	b.JSON(&info, "volume", "status", "pg")
	target = info.Attachments[0].Status.TargetPath
	if saved, err := os.ReadFile(filepath.Join(target, "saved")); err != nil || string(saved) != "started\n" {
		t.Errorf("what it saved is %q, %v", saved, err)
	}
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
}
