package mount_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/mount"
)

// hanging mounts a file system that nobody serves, until its process dies.
func hanging(t *testing.T) (dir string, die func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	dir = t.TempDir()
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
	return dir, func() {
		if err := unix.Close(fuse); err != nil {
			t.Error(err)
		}
	}
}

// A file system whose process has ended is gone, and any other is not.
func TestGone(t *testing.T) {
	t.Parallel()
	dir, die := hanging(t)
	die()
	for path, want := range map[string]bool{dir: true, "/proc": false, t.TempDir(): false} {
		if got, err := (mount.Kernel{}).Gone(path); err != nil || got != want {
			t.Errorf("%s is gone: %t, %v, want %t", path, got, err, want)
		}
	}
}

// A file system that hangs kept a thread for every look at it, two a minute.
func TestOneThatHangsIsLookedAtOnce(t *testing.T) {
	t.Parallel()
	dir, die := hanging(t)
	t.Cleanup(die) // before it is unmounted
	for range 3 {
		if gone, err := (mount.Kernel{}).Gone(dir); gone || err != nil {
			t.Errorf("one that hangs is gone: %t, %v", gone, err)
		}
		var silent *mount.SilentError
		if _, err := mount.Stat(dir); !errors.As(err, &silent) {
			t.Errorf("Stat: %v", err)
		}
	}
	out := 0
	for range 3000 { // others look meanwhile, and come back
		if out = looking(); out <= 2 {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Errorf("%d looks are out, of two sorts", out)
}

// looking is how many goroutines of this package wait for a file system.
func looking() (n int) {
	text := make([]byte, 1<<20)
	for one := range strings.SplitSeq(string(text[:runtime.Stack(text, true)]), "\n\n") {
		if strings.Contains(one, "tat(") && strings.Contains(one, "created by github.com/berth-dev/berth/internal/agent/mount.") {
			n++
		}
	}
	return n
}
