package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// TestShared_KilledAgentKeepsTheOthersVolume kills the agent while two
// allocations use one staged volume, and stops one of them under the next agent:
// the other one keeps its mount and goes on writing. After it nothing is left.
func TestShared_KilledAgentKeepsTheOthersVolume(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	const one, several = `"single-node-writer"`, `"single-node-multi-writer"`
	b.Apply(strings.NewReplacer(`"disk"`, `"local"`, one, several).Replace(diskVolume))
	shared := strings.NewReplacer(one, several, "echo started >> /data/file; exec sleep 1000", "while true; do echo tick >> /data/JOB; sleep 0.05; done")
	for _, job := range []string{"first", "second"} {
		b.Apply(strings.NewReplacer(`job "db"`, fmt.Sprintf("job %q", job), "JOB", job).Replace(shared.Replace(jobFile)))
	}
	targets := map[string]string{}
	for _, job := range []string{"first", "second"} {
		var info api.JobInfo
		b.JSON(&info, "job", "status", job)
		targets[job] = target(t, b, info.Allocations[0].ID)
	}
	// goesOn waits until a job has written more than it had, by its own mount.
	goesOn := func(job string) {
		t.Helper()
		file := filepath.Join(targets[job], job)
		size := func() int64 {
			if info, err := os.Stat(file); err == nil {
				return info.Size()
			}
			return 0
		}
		had := size()
		b.Eventually("job "+job+" goes on writing", limit, func() error {
			if has := size(); has <= had {
				return fmt.Errorf("%s has %d bytes, and had %d", file, has, had)
			}
			return nil
		})
	}
	goesOn("first")
	goesOn("second")
	was := runningTask(t, b, "second", "writer")

	b.Kill()
	b.Resume()
	b.Run("job", "stop", "first")
	if fsOf(t, targets["first"]) != "" {
		t.Errorf("the mount of the allocation that ended is left: %s", targets["first"])
	}
	if kind := fsOf(t, targets["second"]); kind != "ext4" {
		t.Errorf("the mount of the other one is of type %q", kind)
	}
	goesOn("second")
	if is := runningTask(t, b, "second", "writer"); is.PID != was.PID || is.Restarts != 0 {
		t.Errorf("the other task was %+v, and is %+v", was, is)
	}
	// A third one joins it on what is staged.
	b.Apply(strings.ReplaceAll(shared.Replace(jobFile), "JOB", "third"))
	b.Run("job", "stop", "db")
	goesOn("second")

	b.Kill()
	b.Resume()
	b.Run("job", "stop", "second")
	var info api.VolumeInfo
	b.JSON(&info, "volume", "status", "pg")
	if len(info.Attachments) > 0 || len(info.Publications) > 0 {
		t.Errorf("after both: %+v %+v", info.Attachments, info.Publications)
	}
	for job, at := range targets {
		if kind := fsOf(t, at); kind != "" {
			t.Errorf("job %s has left its mount %s", job, at)
		}
	}
	b.Run("volume", "delete", "pg")
}
