package mount_test

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/mount"
)

// A file system whose process has ended is gone, and any other is not.
func TestGone(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	dir := t.TempDir()
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("test", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Close(fuse); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{dir: true, "/proc": false, t.TempDir(): false} {
		if got, err := (mount.Kernel{}).Gone(path); err != nil || got != want {
			t.Errorf("%s is gone: %t, %v, want %t", path, got, err, want)
		}
	}
}
