package csimanager_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/agent/mount"
)

// kernelWorld is a machine with real mounts and a real local database.
type kernelWorld struct {
	*world
	db *localdb.DB
}

func newKernelWorld(t *testing.T, o csitest.Options) *kernelWorld {
	t.Helper()
	dir := scratch(t)
	t.Cleanup(func() { // what a failed test leaves mounted would keep the directory
		if rows, err := (mount.Kernel{}).Under(dir); err != nil || len(rows) > 0 {
			t.Errorf("still mounted: %v, %v", rows, err)
			for _, m := range rows {
				_ = mount.Kernel{}.Unmount(m.Path)
			}
		}
	})
	w := &kernelWorld{world: startWorld(t, o, mount.Kernel{}, csitest.KernelMounts(filepath.Join(dir, "data")))}
	w.root = filepath.Join(dir, "csi")
	w.reopen()
	t.Cleanup(func() {
		if err := w.db.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// reopen starts another agent on the database.
func (w *kernelWorld) reopen() {
	w.t.Helper()
	if w.db != nil {
		if err := w.db.Close(); err != nil {
			w.t.Fatal(err)
		}
	}
	db, err := localdb.Open(filepath.Join(filepath.Dir(w.root), "agent.db"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.db, w.wrappedLedger = db, db
	w.restart()
}

// wantNothing also looks into the database.
func (w *kernelWorld) wantNothing() {
	w.t.Helper()
	w.world.wantNothing()
	if left, err := w.db.Stagings(); err != nil || len(left) > 0 {
		w.t.Errorf("still recorded: %+v, %v", left, err)
	}
}

func TestKernel_DataIsShared(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]csitest.Options{"Stage": {Attach: true, Stage: true}, "Plain": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newKernelWorld(t, o)
			a := w.shared()
			reader := user(a, "alloc-2", "data")
			reader.Attachment.ReadOnly = true
			at, readAt := w.mount(a), w.mount(reader)
			w.wantMounts(a, reader)
			writeFile(t, filepath.Join(at, "file"), "data")
			wantFile(t, filepath.Join(readAt, "file"), "data")
			if err := os.WriteFile(filepath.Join(readAt, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("write as the reader: %v, want %v", err, unix.EROFS)
			}
			w.reopen()
			before := w.calls()
			w.mount(a)
			w.wantCalls(before)
			w.unmount(a)
			wantFile(t, filepath.Join(readAt, "file"), "data")
			w.reopen()
			w.unmount(reader)
			w.wantNothing()
			// The data outlives the mounts.
			wantFile(t, filepath.Join(w.mount(a), "file"), "data")
			w.unmount(a)
			w.wantNothing()
		})
	}
}

func TestKernel_BlockDeviceIsAFile(t *testing.T) {
	t.Parallel()
	w := newKernelWorld(t, csitest.Options{Stage: true})
	a := w.volume(wish{block: true})
	target := w.mount(a)
	w.wantMounts(a)
	if info, err := os.Stat(target); err != nil || info.IsDir() {
		t.Errorf("the target is %v, %v, want no directory", info, err)
	}
	w.reopen()
	w.unmount(a)
	w.wantNothing()
}

// A volume in use stays mounted, its user is named, and it goes when the user
// is gone.
func TestKernel_BusyVolumeStays(t *testing.T) {
	t.Parallel()
	w := newKernelWorld(t, csitest.Options{Stage: true})
	a := w.volume(wish{})
	target := w.mount(a)
	file, err := os.Create(filepath.Join(target, "file"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		err := w.mounter.Unmount(t.Context(), a)
		wantStep(t, err, "NodeUnpublishVolume", "INTERNAL", "in use")
		w.wantMounts(a)
		w.reopen()
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	w.unmount(a)
	w.wantNothing()
}

func TestKernel_ForeignMountIsReplaced(t *testing.T) {
	t.Parallel()
	w := newKernelWorld(t, csitest.Options{Stage: true})
	a := w.volume(wish{})
	target := w.target()
	makeDir(t, target)
	if err := unix.Mount("tmpfs", target, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	w.mount(a)
	w.wantMounts(a)
	m, _, err := w.table.At(target)
	if err != nil || !strings.Contains(m.Root, "data") {
		t.Errorf("at the target is %+v, %v, want the volume", m, err)
	}
	w.unmount(a)
	w.wantNothing()
}

// With the database lost, mounts of the kernel are found and undone; who else
// has the volume mounted is seen by what the mounts show.
func TestKernel_LostDatabase(t *testing.T) {
	t.Parallel()
	w := newKernelWorld(t, csitest.Options{Stage: true})
	a := w.shared()
	b := user(a, "alloc-2", "data")
	other := w.volume(wish{volume: "other"})
	other.Attachment.Name = "other"
	w.mount(a)
	target := w.mount(b)
	w.mount(other)
	for _, at := range []*api.AttachmentAssignment{a, other} {
		if err := w.db.DeleteStaging(at.Attachment.Namespace, at.Attachment.VolumeID); err != nil {
			t.Fatal(err)
		}
	}
	w.reopen()
	wantStep(t, w.mounter.Unmount(t.Context(), a), "NodeUnstageVolume", "", target)
	w.unmount(other)
	w.unmount(b)
	w.unmount(a)
	w.wantNothing()
}

// TestKernel_CrashAnywhere dies in every moment of a life with real mounts.
func TestKernel_CrashAnywhere(t *testing.T) {
	t.Parallel()
	w := newKernelWorld(t, csitest.Options{Attach: true, Stage: true})
	w.wrappedLedger = w.ledger
	w.restart()
	for number := range 4 {
		for at := 1; !t.Failed(); at++ {
			l := lived(w.world)
			died := false
			for i, s := range l.steps {
				if i == number {
					died = w.die(s, at)
				}
				w.newMounter()
				if err := s.what(w.mounter); err != nil {
					t.Errorf("died in moment %d of step %d: %s again: %v", at, number, s.name, err)
				}
				l.after[i]()
			}
			w.wantNothing()
			if !died {
				break
			}
		}
	}
}

// A node whose epoch has ended lets go of all that it finds: what is recorded,
// also for nobody, and mounts that no record is left of.
func TestKernel_ClearLetsGoOfAllThatIsFound(t *testing.T) {
	t.Parallel()
	w := newKernelWorld(t, csitest.Options{Stage: true})
	a := w.shared()
	w.mount(a)
	w.mount(user(a, "alloc-2", "data"))
	alone := w.volume(wish{volume: "alone"})
	alone.Attachment.Name = "alone"
	w.mount(alone)
	forgotten := filepath.Join(w.dir(), "mount", "forgotten")
	makeDir(t, forgotten)
	if err := unix.Mount("tmpfs", forgotten, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	over := filepath.Join(forgotten, "over")
	makeDir(t, over)
	if err := unix.Mount("tmpfs", over, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	busy, err := os.Create(filepath.Join(w.mounter.TargetPath(&alone.Attachment), "file"))
	if err != nil {
		t.Fatal(err)
	}
	w.reopen()
	if err := w.mounter.Clear(t.Context()); err == nil || !strings.Contains(err.Error(), "volume alone: NodeUnpublishVolume") {
		t.Errorf("Clear of a node where a volume is in use: %v", err)
	}
	w.wantMounts(alone) // and nothing else
	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what is clear stays so
		if err := w.mounter.Clear(t.Context()); err != nil {
			t.Error(err)
		}
		w.wantNothing()
	}
}
