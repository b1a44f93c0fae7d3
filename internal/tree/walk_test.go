package tree_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/tree"
)

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

// A directory that is moved away while it is emptied leads the walk to a place
// that it must not touch.
func TestRemove_StopsWhereADirectoryWasMoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mkdir(t, dir+"/outside")
	for i := range 50 {
		write(t, fmt.Sprintf("%s/outside/%d", dir, i))
	}
	var err error
	for try := 0; err == nil && try < 100; try++ {
		name, away := fmt.Sprintf("tree-%d", try), fmt.Sprintf("%s/outside/moved-%d", dir, try)
		top := filepath.Join(dir, name)
		mkdir(t, top+"/sub")
		for i := range 50 {
			write(t, fmt.Sprintf("%s/%d", top, i))
		}
		for i := range 500 {
			write(t, fmt.Sprintf("%s/sub/%d", top, i))
		}
		moved := make(chan struct{})
		go func() {
			defer close(moved)
			for {
				names, err := os.ReadDir(top + "/sub")
				if err != nil || len(names) < 500 {
					_ = os.Rename(top+"/sub", away)
					return
				}
			}
		}()
		err = tree.Remove(t.Context(), dir, name)
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

func TestRemove_DeepTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
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

func TestRemove_WideTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
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

func TestRemove_SingleFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/file")
	wantRemoved(t, dir+"/file")
	wantRemoved(t, dir+"/not/there")
}

func TestRemove_FileThatCannotGoIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mkdir(t, dir+"/tree/a")
	write(t, dir+"/tree/a/immutable")
	setImmutable(t, dir+"/tree/a/immutable", true)
	err := tree.Remove(t.Context(), dir, "tree")
	setImmutable(t, dir+"/tree/a/immutable", false)
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), dir+"/tree/a/immutable") {
		t.Errorf("error = %v, want EPERM that names the file", err)
	}
	wantRemoved(t, dir+"/tree")
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
	if err := tree.Remove(t.Context(), filepath.Dir(path), filepath.Base(path)); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after Remove: %v", path, err)
	}
}
