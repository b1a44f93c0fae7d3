package mount_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/mount"
)

func TestKernel_FollowsLinksInParentsOnly(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	bind(t, dir+"/source", dir+"/real/target")
	symlink(t, dir+"/real", dir+"/link")
	symlink(t, dir+"/real/target", dir+"/direct")

	k := mount.Kernel{}
	m, found, err := k.At(dir + "/link/target")
	if err != nil || !found || m.Path != dir+"/real/target" {
		t.Errorf("through a linked parent: %+v, %v, %v", m, found, err)
	}
	if m, found, err := k.At(dir + "/direct"); err != nil || found {
		t.Errorf("at a link to a mount: %+v, %v, %v; want none", m, found, err)
	}
	for _, under := range []string{"/link", "/direct", "/link/target"} {
		if got, err := k.Under(dir + under); err != nil || len(got) != 1 {
			t.Errorf("under %s: %v, %v; want one mount", under, got, err)
		}
	}
	if err := k.Unmount(dir + "/direct"); err != nil {
		t.Error(err)
	}
	if _, found, _ := k.At(dir + "/real/target"); !found {
		t.Error("unmounting a link took away what it points to")
	}
	if err := k.Unmount(dir + "/link/target"); err != nil {
		t.Error(err)
	}
	if _, found, _ := k.At(dir + "/real/target"); found {
		t.Error("still mounted after unmounting through a linked parent")
	}
}

func TestKernel_DeadFUSEIsSeenAndUnmounted(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	server := fuse(t, dir+"/dead")
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/dead"); !errors.Is(err, syscall.ENOTCONN) {
		t.Fatalf("stat of a dead FUSE mount: %v, want ENOTCONN", err)
	}

	k := mount.Kernel{}
	m, found, err := k.At(dir + "/dead")
	if err != nil || !found || m.FSType != "fuse" || m.Source != "berth-test" {
		t.Errorf("at = %+v, %v, %v", m, found, err)
	}
	if _, found, err := k.At(dir + "/dead/below"); err != nil || found {
		t.Errorf("below a dead mount: found = %v, %v; want none", found, err)
	}
	if err := mount.RemoveAll(t.Context(), k, dir); err == nil {
		t.Error("RemoveAll removed a tree with a dead mount")
	}
	if err := k.Unmount(dir + "/dead"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "/dead"); err != nil {
		t.Errorf("after unmount: %v", err)
	}
}

// A FUSE server that lives but never answers blocks whoever looks at a file.
func TestKernel_HungFUSEBlocksNothing(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	server := fuse(t, dir+"/hung")
	defer func() { _ = server.Close() }()

	k := mount.Kernel{}
	if _, found, err := k.At(dir + "/hung"); err != nil || !found {
		t.Errorf("at: %v, %v", found, err)
	}
	if got, err := k.Under(dir + "/hung"); err != nil || len(got) != 1 {
		t.Errorf("under: %v, %v", got, err)
	}
	if err := mount.RemoveAll(t.Context(), k, dir); err == nil {
		t.Error("RemoveAll removed a tree with a hung mount")
	}
	if err := k.Unmount(dir + "/hung"); err != nil {
		t.Error(err)
	}
}

func TestKernel_DeletedSourceIsMarked(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	bind(t, dir+"/source", dir+"/target")
	if err := os.Remove(dir + "/source"); err != nil {
		t.Fatal(err)
	}
	m, found, err := mount.Kernel{}.At(dir + "/target")
	if err != nil || !found {
		t.Fatalf("at: %v, %v", found, err)
	}
	if !m.Deleted || filepath.Base(m.Root) != "source" {
		t.Errorf("root = %q, deleted = %v; want …/source, true", m.Root, m.Deleted)
	}
}

func TestKernel_ReadOnlyBindKeepsRestrictionsAndRefusesWrites(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	mkdir(t, dir+"/fs")
	mkdir(t, dir+"/target")
	err := unix.Mount("tmpfs", dir+"/fs", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k")
	if err != nil {
		t.Fatal(err)
	}
	k := mount.Kernel{}
	if err := k.Bind(dir+"/fs", dir+"/target", true); err != nil {
		t.Fatal(err)
	}
	m, _, err := k.At(dir + "/target")
	if err != nil {
		t.Fatal(err)
	}
	for _, option := range []string{"ro", "nosuid", "nodev", "noexec"} {
		if !strings.Contains(","+strings.Join(m.Options, ",")+",", ","+option+",") {
			t.Errorf("options %v lack %s", m.Options, option)
		}
	}
	if err := os.WriteFile(dir+"/target/file", nil, 0o600); !errors.Is(err, syscall.EROFS) {
		t.Errorf("write to a read-only bind: %v, want EROFS", err)
	}
	if err := os.WriteFile(dir+"/fs/file", nil, 0o600); err != nil {
		t.Errorf("write to its source: %v", err)
	}
}

func TestKernel_BindOnNothingFails(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	if err := (mount.Kernel{}).Bind(dir, dir+"/not-there", true); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("bind on a missing target: %v, want ENOENT", err)
	}
}

func TestKernel_BusyMountNamesWhoUsesIt(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	bind(t, dir+"/source", dir+"/target")
	k := mount.Kernel{}

	file, err := os.Create(dir + "/target/open")
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	wantBusy(t, dir+"/target", fmt.Sprintf("pid %d, open file %s/target/open", os.Getpid(), dir))

	mapped, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	wantBusy(t, dir+"/target", fmt.Sprintf("pid %d, mapped file %s/target/open", os.Getpid(), dir))
	if err := unix.Munmap(mapped); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	sleeper := exec.CommandContext(ctx, "sleep", "600")
	sleeper.Dir = dir + "/target"
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	wantBusy(t, dir+"/target", fmt.Sprintf("(pid %d, working directory %s/target", sleeper.Process.Pid, dir))
	cancel()
	_ = sleeper.Wait()
	if err := k.Unmount(dir + "/target"); err != nil {
		t.Error(err)
	}
}

func wantBusy(t *testing.T, path, by string) {
	t.Helper()
	err := mount.Kernel{}.Unmount(path)
	if _, ok := errors.AsType[*mount.BusyError](err); !ok {
		t.Fatalf("unmount: %v, want a BusyError", err)
	}
	if !strings.Contains(err.Error(), by) {
		t.Errorf("error %q lacks %q", err, by)
	}
}

// While others mount and unmount, a mount that stays is always found.
func TestKernel_TableThatChangesIsReadWhole(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	bind(t, dir+"/source", dir+"/stays")
	for i := range 40 { // more than one page of rows
		bind(t, dir+"/source", fmt.Sprintf("%s/many/%d", dir, i))
	}
	k := mount.Kernel{}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	mkdir(t, dir+"/comes-and-goes")
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			err = k.Bind(dir+"/source", dir+"/comes-and-goes", false)
			err = errors.Join(err, k.Unmount(dir+"/comes-and-goes"))
		}
		done <- err
	}()
	for range 300 {
		if _, found, err := k.At(dir + "/stays"); err != nil || !found {
			t.Fatalf("a mount that stays: found = %v, %v", found, err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// scratch is a directory whose mounts are gone when the test has ended.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k := mount.Kernel{}
		mounts, err := k.Under(dir)
		for _, m := range mounts {
			err = errors.Join(err, k.Unmount(m.Path))
		}
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

func bind(t *testing.T, source, target string) {
	t.Helper()
	mkdir(t, source)
	mkdir(t, target)
	if err := (mount.Kernel{}).Bind(source, target, false); err != nil {
		t.Fatal(err)
	}
}

// fuse mounts a FUSE file system whose server is the file that it returns, and
// never says a word.
func fuse(t *testing.T, dir string) *os.File {
	t.Helper()
	mkdir(t, dir)
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server.Fd())
	if err := unix.Mount("berth-test", dir, "fuse", 0, options); err != nil {
		t.Fatal(err)
	}
	return server
}

// A table that was read before is believed only while the kernel tells of no
// change. Go's poller heard of some instead.
func TestKernel_SeesEveryMountComeAndGo(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	k := mount.Kernel{}
	for i := range 100 {
		bind(t, dir+"/source", dir+"/target")
		if _, found, err := k.At(dir + "/target"); err != nil || !found {
			t.Fatalf("round %d: what was mounted is not seen (%v)", i, err)
		}
		if err := unix.Unmount(dir+"/target", unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		if m, found, err := k.At(dir + "/target"); err != nil || found {
			t.Fatalf("round %d: what was unmounted is seen: %+v (%v)", i, m, err)
		}
	}
}
