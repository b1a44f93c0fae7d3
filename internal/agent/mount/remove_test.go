package mount_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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
		if err := mount.RemoveAll(mount.Kernel{}, path); err != nil {
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

			err := mount.RemoveAll(mounttest.New(), dir+"/tree")
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

// A directory that is moved away while it is emptied leads the walk to a place
// that it must not touch.
func TestRemoveAll_StopsWhereADirectoryWasMoved(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	mkdir(t, dir+"/outside")
	for i := range 50 {
		write(t, fmt.Sprintf("%s/outside/%d", dir, i))
	}
	var err error
	for try := 0; err == nil && try < 100; try++ {
		tree, away := fmt.Sprintf("%s/tree-%d", dir, try), fmt.Sprintf("%s/outside/moved-%d", dir, try)
		mkdir(t, tree+"/sub")
		for i := range 50 {
			write(t, fmt.Sprintf("%s/%d", tree, i))
		}
		for i := range 500 {
			write(t, fmt.Sprintf("%s/sub/%d", tree, i))
		}
		moved := make(chan struct{})
		go func() {
			defer close(moved)
			for {
				names, err := os.ReadDir(tree + "/sub")
				if err != nil || len(names) < 500 {
					_ = os.Rename(tree+"/sub", away)
					return
				}
			}
		}()
		err = mount.RemoveAll(mount.Kernel{}, tree)
		<-moved
	}
	if err == nil || !strings.Contains(err.Error(), "it was moved while it was removed") {
		t.Errorf("error = %v, want one that says that a directory was moved", err)
	}
	for i := range 50 {
		if _, err := os.Stat(fmt.Sprintf("%s/outside/%d", dir, i)); err != nil {
			t.Error(err)
		}
	}
}

func TestRemoveAll_DeepTree(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	mkdir(t, dir+"/tree")
	fd, err := unix.Open(dir+"/tree", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 5000 { // far beyond PATH_MAX
		err := unix.Mkdirat(fd, "deeper", 0o755)
		next, openErr := unix.Openat(fd, "deeper", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err := errors.Join(err, openErr, unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	wantRemoved(t, dir+"/tree")
}

func TestRemoveAll_WideTree(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	for i := range 1500 {
		mkdir(t, fmt.Sprintf("%s/tree/%d", dir, i))
		write(t, fmt.Sprintf("%s/tree/%d/file", dir, i))
	}
	mkdir(t, dir+"/tree/read-only")
	write(t, dir+"/tree/read-only/file")
	if err := os.Chmod(dir+"/tree/read-only", 0o500); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(dir+"/tree/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	wantRemoved(t, dir+"/tree")
}

func TestRemoveAll_SingleFile(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	write(t, dir+"/file")
	wantRemoved(t, dir+"/file")
	wantRemoved(t, dir+"/not/there")
}

func TestRemoveAll_FileThatCannotGoIsNamed(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	mkdir(t, dir+"/tree/a")
	write(t, dir+"/tree/a/immutable")
	setImmutable(t, dir+"/tree/a/immutable", true)
	err := mount.RemoveAll(mount.Kernel{}, dir+"/tree")
	setImmutable(t, dir+"/tree/a/immutable", false)
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), dir+"/tree/a/immutable") {
		t.Errorf("error = %v, want EPERM that names the file", err)
	}
	wantRemoved(t, dir+"/tree")
}

func TestRemoveAll_RefusesWhatCannotBeMeant(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"", "/", "relative", "/tmp/..", "."} {
		if err := mount.RemoveAll(mounttest.New(), dir); err == nil {
			t.Errorf("RemoveAll(%q) answered nil", dir)
		}
	}
}

func setImmutable(t *testing.T, path string, on bool) {
	t.Helper()
	const immutable = 0x10 // FS_IMMUTABLE_FL of linux/fs.h
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	flags, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		t.Fatal(err)
	}
	flags &^= immutable
	if on {
		flags |= immutable
	}
	if err := unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		t.Fatal(err)
	}
}

func wantRemoved(t *testing.T, path string) {
	t.Helper()
	if err := mount.RemoveAll(mount.Kernel{}, path); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after RemoveAll: %v", path, err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
}
