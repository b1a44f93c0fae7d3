package mount_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/agent/mount"
	"github.com/berth-dev/berth/internal/agent/mount/mounttest"
)

func TestRemoveAll_LeavesWhatLinksPointTo(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	mkdir(t, dir+"/tree/sub")
	mkdir(t, dir+"/outside")
	write(t, dir+"/outside/precious")
	symlink(t, dir+"/outside", dir+"/tree/sub/link")
	symlink(t, "../outside", dir+"/tree/relative")
	symlink(t, "/nowhere", dir+"/tree/broken")
	symlink(t, dir+"/outside", dir+"/top")

	for _, path := range []string{dir + "/tree", dir + "/top"} {
		if err := mount.RemoveAll(t.Context(), mount.Kernel{}, path); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s after RemoveAll: %v", path, err)
		}
	}
	if _, err := os.Stat(dir + "/outside/precious"); err != nil {
		t.Error(err)
	}
}

// The table is looked at first; a mount that it did not have stops the walk
// all the same.
func TestRemoveAll_StopsAtMountsThatTheTableLacks(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"Directory": func(t *testing.T, dir string) { bind(t, dir+"/volume", dir+"/tree/a/mnt") },
		"File": func(t *testing.T, dir string) {
			mkdir(t, dir+"/tree/a")
			write(t, dir+"/tree/a/mnt")
			if err := (mount.Kernel{}).Bind(dir+"/volume/precious", dir+"/tree/a/mnt", false); err != nil {
				t.Fatal(err)
			}
		},
		"Top": func(t *testing.T, dir string) { bind(t, dir+"/volume", dir+"/tree") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := scratch(t)
			mkdir(t, dir+"/volume")
			write(t, dir+"/volume/precious")
			prepare(t, dir)

			err := mount.RemoveAll(t.Context(), mounttest.New(), dir+"/tree")
			var mounted *mount.MountedError
			if !errors.As(err, &mounted) || mounted.Dir != dir+"/tree" || !strings.HasPrefix(mounted.Mount, dir+"/tree") {
				t.Errorf("error = %v, want a MountedError about the mount", err)
			}
			if _, err := os.Stat(dir + "/volume/precious"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRemoveAll_RefusesWhatCannotBeMeant(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"", "/", "relative", "/tmp/..", "."} {
		if err := mount.RemoveAll(t.Context(), mounttest.New(), dir); err == nil {
			t.Errorf("RemoveAll(%q) answered nil", dir)
		}
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
}
