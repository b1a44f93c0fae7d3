package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// groupJob writes to its volume as a user who may do that only as one of the
// volume's group, and makes a key that is its own.
const groupJob = `
job "db" {
  group "main" {
    volume "data" {
      type            = "csi"
      source          = "pg"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
      fs_group        = 4711
    }
    task "writer" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo started >> /data/old && echo started >> /data/file && echo x > /data/key && chmod 600 /data/key; exec sleep 1000"]
      }
      user = "12345:12345"
      volume_mount {
        volume      = "data"
        destination = "/data"
      }
    }
  }
}
`

// TestGroup gives a volume, with a file of root's on it, to the group of a job:
// by the plugin where that does it, and by the agent where it does not. It is
// done once: what the job makes has the rights that the job gave it.
func TestGroup(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) *host.Berth{
		"local": func(t *testing.T) *host.Berth { return host.Start(t, host.Options{}) },
		"mock": func(t *testing.T) *host.Berth {
			b, _ := withMock(t, "", "-real-mounts")
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			volume := strings.ReplaceAll(volumeFile, `"mock"`, fmt.Sprintf("%q", name))
			b.Apply(strings.ReplaceAll(volume, `capacity_min = "1GiB"`, `capacity_min = "64MiB"`))
			// Something is on it that is root's.
			b.Apply(strings.ReplaceAll(jobFile, "/data/file", "/data/old"))
			target := mountedAt(t, b)
			b.Eventually("root's job writes", limit, func() error { return holds(filepath.Join(target, "old"), 1) })
			b.Run("job", "stop", "db")
			for run := 1; run <= 2; run++ {
				b.Apply(groupJob)
				target = mountedAt(t, b)
				b.Eventually("the job has written", limit, func() error {
					if info, err := os.Stat(filepath.Join(target, "key")); err != nil || info.Mode().Perm() != 0o600 {
						return fmt.Errorf("no key of its own yet: %v, %w", info, errors.Join(errNotYet, err))
					}
					return holds(filepath.Join(target, "file"), run)
				})
				if err := holds(filepath.Join(target, "old"), 1+run); err != nil {
					t.Error(err)
				}
				for file, want := range map[string]string{"": "2770 4711", "old": "660 4711", "key": "600 4711"} {
					info, err := os.Stat(filepath.Join(target, file))
					if err != nil {
						t.Fatal(err)
					}
					st := info.Sys().(*syscall.Stat_t) //nolint:forcetypeassert // on Linux it is one
					if got := fmt.Sprintf("%o %d", st.Mode&0o7770, st.Gid); got != want {
						t.Errorf("run %d: %q is %s, want %s", run, file, got, want)
					}
				}
				b.Run("job", "stop", "db")
			}
			b.Run("volume", "delete", "pg")
		})
	}
}

var errNotYet = errors.New("not yet")

func mountedAt(t *testing.T, b *host.Berth) string {
	t.Helper()
	var info api.VolumeInfo
	b.JSON(&info, "volume", "status", "pg")
	for i := range info.Attachments {
		if s := info.Attachments[i].Status; s.State == api.NodePublished {
			return s.TargetPath
		}
	}
	t.Fatalf("no running job has the volume: %+v", info.Attachments)
	return ""
}

// holds is an error unless a job that was started so often has written to file.
func holds(file string, starts int) error {
	got, err := os.ReadFile(file)
	if err == nil && strings.Count(string(got), "started") != starts {
		err = fmt.Errorf("%s has %q, want %d starts", file, got, starts)
	}
	return err
}
