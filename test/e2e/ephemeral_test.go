package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

const ephemeralJob = `
job "db" {
  group "main" {
    count = 2
    volume "scratch" {
      type            = "csi"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
      mount_options {
        fs_type = "ext4"
      }
      ephemeral {
        plugin_id    = "local"
        capacity_min = "64MiB"
      }
    }
    task "writer" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "[ ! -e /data/file ] && echo started > /data/file && sleep 1000"]
      }
      volume_mount {
        volume      = "scratch"
        destination = "/data"
      }
    }
  }
}
`

// TestEphemeral gives each allocation a volume of its own, a new one to each
// successor, and leaves none behind.
func TestEphemeral(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	b.Apply(ephemeralJob)
	first := owned(t, b, 2)
	for id, owner := range first {
		if want := string(api.EphemeralID(owner, "scratch")); want != string(id) {
			t.Errorf("volume %s is allocation %s's, want %s", id, owner, want)
		}
		if out := b.Run("volume", "status", string(id)); !strings.Contains(out, "allocation "+owner.Short()+", with which it goes") {
			t.Errorf("its owner is not told:\n%s", out)
		}
		if out := b.Run("volume", "explain", string(id)); !strings.Contains(out, "made for allocation "+owner.Short()) {
			t.Errorf("its owner is not explained:\n%s", out)
		}
	}
	// A changed job gets new ones, and the old ones go.
	b.Apply(strings.ReplaceAll(ephemeralJob, "sleep 1000", "sleep 2000"))
	b.Eventually("the first volumes are gone", limit, func() error {
		for id := range owned(t, b, -1) {
			if _, old := first[id]; old {
				return fmt.Errorf("volume %s is there", id)
			}
		}
		return nil
	})
	b.Run("job", "stop", "db")
	b.Eventually("all volumes are gone", limit, func() error {
		if left := owned(t, b, -1); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		left, err := filepath.Glob(filepath.Join(b.DataDir, "local", "volumes", "*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("the driver still has %v", left)
		}
		return err
	})
}

// owned are all volumes with their owners; n of them, unless it is negative.
func owned(t *testing.T, b *host.Berth, n int) map[api.VolumeID]api.AllocID {
	t.Helper()
	var volumes []api.Volume
	b.JSON(&volumes, "volume", "list")
	all := map[api.VolumeID]api.AllocID{}
	for i := range volumes {
		all[volumes[i].ID] = volumes[i].Owner
	}
	if n >= 0 && len(all) != n {
		t.Errorf("volumes %v, want %d", all, n)
	}
	return all
}
