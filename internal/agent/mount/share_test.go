package mount_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/mount"
)

// A directory that was bound to itself is unbound. An operator's disk that is
// mounted just there, for the volumes of a plugin, was unmounted too.
func TestUnshareTakesOnlyWhatShareHasMounted(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	for name, tc := range map[string]struct {
		mount func(dir, other string) error
		stays bool
	}{
		"BoundToItself": {func(dir, _ string) error { return unix.Mount(dir, dir, "", unix.MS_BIND, "") }, false},
		"Disk":          {func(dir, _ string) error { return unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k") }, true},
		"BoundToOther":  {func(dir, other string) error { return unix.Mount(other, dir, "", unix.MS_BIND, "") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, table := t.TempDir(), mount.Kernel{}
			if err := tc.mount(dir, t.TempDir()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := table.Unmount(dir); err != nil {
					t.Error(err)
				}
			})
			if err := table.Unshare(dir); err != nil {
				t.Fatal(err)
			}
			if _, mounted, err := table.At(dir); err != nil || mounted != tc.stays {
				t.Errorf("mounted after Unshare: %t, %v, want %t", mounted, err, tc.stays)
			}
		})
	}
}
