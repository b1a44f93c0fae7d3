package tree_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/tree"
)

// plant makes a tree with everything in it that a workload can make.
func plant(t *testing.T, dir string) {
	t.Helper()
	for _, sub := range []string{"empty", "a/b/c", "unreadable", "many"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2500 { // more than one batch
		write(t, filepath.Join(dir, "many", fmt.Sprint(i)))
	}
	write(t, filepath.Join(dir, "a/b/c/file"))
	if err := os.Chmod(filepath.Join(dir, "unreadable"), 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mounted(err error) bool {
	_, ok := errors.AsType[*tree.MountedError](err)
	return ok
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestRemove_LeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, filepath.Join(dir, "volume"))
	write(t, filepath.Join(dir, "neighbour"))
	for range 2 { // what is gone can be removed again
		if err := tree.Remove(t.Context(), dir, "volume"); err != nil {
			t.Fatal(err)
		}
	}
	if exists(filepath.Join(dir, "volume")) || !exists(filepath.Join(dir, "neighbour")) {
		t.Error("the tree is still there, or its neighbour is gone")
	}
}

func TestRemove_DoesNotFollowLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	if err := os.MkdirAll(filepath.Join(dir, "volume/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(outside, "precious"))
	for link, to := range map[string]string{"volume/up": outside, "volume/sub/file": filepath.Join(outside, "precious"), "link": outside} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"volume", "link"} {
		if err := tree.Remove(t.Context(), dir, name); err != nil {
			t.Fatal(err)
		}
	}
	if !exists(filepath.Join(outside, "precious")) {
		t.Error("a link was followed")
	}
}

func TestRemove_DoesNotEnterMounts(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{"Bind": "", "OtherFileSystem": "tmpfs"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			outside, inside := filepath.Join(dir, "outside"), filepath.Join(dir, "volume/deep/mount")
			for _, d := range []string{outside, inside} {
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if source == "" {
				err = unix.Mount(outside, inside, "", unix.MS_BIND, "")
			} else {
				err = unix.Mount(source, inside, source, 0, "")
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(inside, unix.MNT_DETACH) })
			write(t, filepath.Join(inside, "precious"))

			if err := tree.Remove(t.Context(), dir, "volume"); !mounted(err) {
				t.Errorf("Remove: %v, want a MountedError", err)
			}
			if !exists(filepath.Join(inside, "precious")) {
				t.Error("the mount was entered")
			}
			if err := unix.Unmount(inside, 0); err != nil {
				t.Fatal(err)
			}
			if err := tree.Remove(t.Context(), dir, "volume"); err != nil {
				t.Errorf("Remove after the unmount: %v", err)
			}
		})
	}
}

func TestRemove_SparesAFileThatIsAMountPoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inside := filepath.Join(dir, "volume/file")
	if err := os.Mkdir(filepath.Dir(inside), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, inside)
	write(t, filepath.Join(dir, "precious"))
	if err := unix.Mount(filepath.Join(dir, "precious"), inside, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(inside, unix.MNT_DETACH) })
	if err := tree.Remove(t.Context(), dir, "volume"); !mounted(err) {
		t.Errorf("Remove: %v, want a MountedError", err)
	}
	if !exists(filepath.Join(dir, "precious")) {
		t.Error("the mounted file is gone")
	}
}

func TestRemove_CancelledThenRepeatedFinishes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, filepath.Join(dir, "volume"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tree.Remove(ctx, dir, "volume"); !errors.Is(err, context.Canceled) {
		t.Fatalf("Remove: %v, want %v", err, context.Canceled)
	}
	if !exists(filepath.Join(dir, "volume")) {
		t.Fatal("a cancelled removal removed")
	}
	if err := tree.Remove(t.Context(), dir, "volume"); err != nil {
		t.Fatal(err)
	}
}

func TestRemove_RefusesWhatIsNoPlainName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "precious"))
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := tree.Remove(t.Context(), "relative", "precious"); err == nil {
		t.Error("Remove took a relative directory")
	}
	for _, name := range []string{"", ".", "..", "../precious", "/", "a/b", sub} {
		if err := tree.Remove(t.Context(), sub, name); err == nil {
			t.Errorf("Remove took the name %q", name)
		}
	}
	if !exists(filepath.Join(dir, "precious")) {
		t.Error("something outside was removed")
	}
}
