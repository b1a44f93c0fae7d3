package loop_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/localdriver/loop"
)

// image makes a sparse image in a directory whose name no other test has.
func image(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(1<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func attach(t *testing.T, path string) *loop.Device {
	t.Helper()
	d, err := loop.Attach(path, loop.User)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func find(t *testing.T, path string) (device string, found bool) {
	t.Helper()
	d, found, err := loop.Find(path)
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		return "", false
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return d.Path, true
}

func TestAttach_WritesReachTheImage(t *testing.T) {
	t.Parallel()
	path := image(t)
	d := attach(t, path)
	f, err := os.OpenFile(d.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("berth"), 4096); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	raw, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.ReadAt(got, 4096); err != nil || string(got) != "berth" {
		t.Errorf("image holds %q (%v), want what was written to the device", got, err)
	}
}

func TestFind_KnowsTheDeviceByItsInode(t *testing.T) {
	t.Parallel()
	path := image(t)
	if device, found := find(t, path); found {
		t.Fatalf("a new image is on %s", device)
	}
	d := attach(t, path)
	if device, found := find(t, path); !found || device != d.Path {
		t.Errorf("Find: %q, %v, want %q", device, found, d.Path)
	}
	// The same path with another inode is another image.
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if device, found := find(t, path); found {
		t.Errorf("a file that was never attached is on %s", device)
	}
	if _, found := find(t, filepath.Join(t.TempDir(), "missing")); found {
		t.Error("a missing image is attached")
	}
}

// This is what keeps a driver that is killed from leaking devices.
func TestClose_LastHolderDetaches(t *testing.T) {
	t.Parallel()
	path := image(t)
	d := attach(t, path)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if device, found := find(t, path); found {
		t.Errorf("still on %s", device)
	}
}

func TestRelease_DetachesADeviceWithoutAutoclear(t *testing.T) {
	t.Parallel()
	path := image(t)
	d := attach(t, path)
	f, err := os.OpenFile(d.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if info.Flags&unix.LO_FLAGS_AUTOCLEAR == 0 {
		t.Error("attached without LO_FLAGS_AUTOCLEAR")
	}
	info.Flags &^= unix.LO_FLAGS_AUTOCLEAR
	if err := errors.Join(unix.IoctlLoopSetStatus64(int(f.Fd()), info), f.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	if _, found := find(t, path); !found {
		t.Fatal("the device did not stay without the flag")
	}
	for range 2 { // what is released can be released again
		if err := loop.Release(t.Context(), path); err != nil {
			t.Fatal(err)
		}
	}
	if device, found := find(t, path); found {
		t.Errorf("still on %s", device)
	}
}

func TestRelease_SaysThatSomethingHoldsTheDevice(t *testing.T) {
	t.Parallel()
	path := image(t)
	d := attach(t, path)
	holder, err := os.Open(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := loop.Release(ctx, path); !errors.Is(err, loop.ErrBusy) {
		t.Errorf("Release: %v, want %v", err, loop.ErrBusy)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	if err := loop.Release(t.Context(), path); err != nil {
		t.Errorf("Release after the holder let go: %v", err)
	}
}

func TestAttach_ManyAtOnceGetDevicesOfTheirOwn(t *testing.T) {
	t.Parallel()
	var (
		mu   sync.Mutex
		seen = map[string]bool{}
		wg   sync.WaitGroup
	)
	for range 12 { // more than the devices that are there from boot
		path := image(t)
		wg.Go(func() {
			d, err := loop.Attach(path, loop.User)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { d.Close() })
			mu.Lock()
			defer mu.Unlock()
			if seen[d.Path] {
				t.Errorf("%s was given twice", d.Path)
			}
			seen[d.Path] = true
		})
	}
	wg.Wait()
}

func TestAttach_MissingImageIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := loop.Attach(filepath.Join(t.TempDir(), "missing"), loop.User); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Attach: %v, want %v", err, os.ErrNotExist)
	}
}
