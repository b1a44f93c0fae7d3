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

// TestLocal carries volumes of the embedded driver through their lives: a file
// system of each kind, and a plain directory. What a first job writes, a
// second one finds.
func TestLocal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ sizing, fsType string }{
		"ext4":      {`capacity_min = "64MiB"`, "ext4"},
		"xfs":       {`capacity_min = "300MiB"`, "xfs"},
		"btrfs":     {`capacity_min = "256MiB"`, "btrfs"},
		"directory": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := host.Start(t, host.Options{})
			volume := strings.ReplaceAll(volumeFile, `capacity_min = "1GiB"`, tc.sizing)
			volume = strings.ReplaceAll(volume, `"mock"`, `"local"`)
			if tc.fsType != "" {
				volume += fmt.Sprintf("mount_options {\n fs_type = %q\n}\n", tc.fsType)
			}
			b.Apply(volume)
			for run := 1; run <= 2; run++ {
				b.Apply(jobFile)
				var info api.VolumeInfo
				b.JSON(&info, "volume", "status", "pg")
				target := info.Attachments[0].Status.TargetPath
				b.Eventually("the job has written", limit, func() error {
					got, err := os.ReadFile(filepath.Join(target, "file"))
					if err != nil || strings.Count(string(got), "started") != run {
						return fmt.Errorf("file has %q, %w", got, err)
					}
					return nil
				})
				if kind := fsOf(t, target); tc.fsType != "" && kind != tc.fsType {
					t.Errorf("the volume is a %s, want %s", kind, tc.fsType)
				}
				b.Run("job", "stop", "db")
			}
			b.Run("volume", "delete", "pg")
			left, err := filepath.Glob(filepath.Join(b.DataDir, "local", "volumes", "*"))
			if err != nil || len(left) > 0 {
				t.Errorf("the driver still has %v (%v)", left, err)
			}
		})
	}
}

// fsOf is the type of the file system at a mount point.
func fsOf(t *testing.T, target string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		for i := range f {
			if f[4] == target && f[i] == "-" {
				return f[i+1]
			}
		}
	}
	return ""
}

// TestRawExec shows that a task that could not have its volume is refused when
// it is submitted, in words that its user understands.
func TestRawExec(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	path := filepath.Join(t.TempDir(), "job.hcl")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(jobFile, `"exec"`, `"raw_exec"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errOut, status := b.Try("apply", path)
	want := `group["main"].task["writer"].driver is "raw_exec", which cannot mount volumes`
	if status != 2 || !strings.Contains(errOut, want) {
		t.Errorf("exit status %d, %s; want 2 and %q", status, errOut, want)
	}
	if out := b.Run("job", "list"); strings.Contains(out, "db") {
		t.Errorf("the refused job is there: %s", out)
	}
}
