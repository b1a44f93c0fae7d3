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

// TestLocal_Snapshot makes a snapshot of a volume that a task writes to, and a
// new volume from it: that has what was there at the cut, and not what came
// after. The snapshot outlives its volume.
func TestLocal_Snapshot(t *testing.T) {
	t.Parallel()
	for fsType, size := range map[string]string{"xfs": "300MiB", "ext4": "64MiB", "": ""} {
		t.Run("fs="+fsType, func(t *testing.T) {
			t.Parallel()
			b := host.Start(t, host.Options{})
			volume := strings.ReplaceAll(volumeFile, `"mock"`, `"local"`)
			volume = strings.ReplaceAll(volume, `capacity_min = "1GiB"`, "")
			if fsType != "" {
				volume += fmt.Sprintf("capacity_min = %q\nmount_options {\n fs_type = %q\n}\n", size, fsType)
			}
			b.Apply(volume)
			b.Apply(jobFile)
			file := filepath.Join(mounted(t, b), "file")
			b.Eventually("the job has written", limit, func() error {
				if got, err := os.ReadFile(file); err != nil || !strings.Contains(string(got), "started") {
					return fmt.Errorf("file has %q, %w", got, err)
				}
				return nil
			})
			if fsType == "" {
				// A plain directory has no moment while somebody may write to it: what
				// was asked for is made when that ends.
				b.Run("snapshot", "create", "pg", "before", "--detach")
				b.Run("job", "stop", "db")
				b.Run("snapshot", "create", "pg", "before")
			} else {
				b.Run("snapshot", "create", "pg", "before")
				if err := os.WriteFile(file, []byte("overwritten\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				b.Run("job", "stop", "db")
			}
			b.Run("volume", "delete", "pg")
			b.Apply(volume + "snapshot_id = \"before\"\n")
			b.Apply(jobFile)
			file = filepath.Join(mounted(t, b), "file")
			b.Eventually("the job has written to what was restored", limit, func() error {
				if got, err := os.ReadFile(file); err != nil || strings.Count(string(got), "started") != 2 {
					return fmt.Errorf("file has %q, %w", got, err)
				}
				return nil
			})
			b.Run("job", "stop", "db")
			b.Run("volume", "delete", "pg")
			b.Run("snapshot", "delete", "before")
			var left []*api.Snapshot
			b.JSON(&left, "snapshot", "list")
			files, err := filepath.Glob(filepath.Join(b.DataDir, "local", "*", "*"))
			if err != nil || len(left) > 0 {
				t.Errorf("snapshots are left: %v (%v)", left, err)
			}
			for _, f := range files {
				if strings.Contains(f, "snapshots") {
					t.Errorf("the driver still has %s", f)
				}
			}
		})
	}
}
