package csimanager_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
)

// ofGroup is the attachment with an fs_group.
func ofGroup(a *api.AttachmentAssignment, group int) *api.AttachmentAssignment {
	given := *a
	given.Attachment.FSGroup = group
	return &given
}

func (w *kernelWorld) give(a *api.AttachmentAssignment) {
	w.t.Helper()
	if err := w.mounter.Give(w.t.Context(), a, func(string) {}); err != nil {
		w.t.Fatalf("give: %v", err)
	}
}

func (w *kernelWorld) wantGroup(path string, want int) {
	w.t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		w.t.Fatal(err)
	}
	if got := int(info.Sys().(*syscall.Stat_t).Gid); got != want { //nolint:forcetypeassert // on Linux it is one
		w.t.Errorf("%s is group %d's, want %d", path, got, want)
	}
}

// A volume is given to its group once for each time that it is mounted, across
// restarts of the agent; what is in it and later in it is the group's.
func TestKernel_GivenToItsGroup(t *testing.T) {
	t.Parallel()
	for name, always := range map[string]bool{"OnRootMismatch": false, "Always": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newKernelWorld(t, csitest.Options{Attach: true, Stage: true})
			plain := w.volume(wish{})
			file := filepath.Join(w.mount(plain), "file")
			writeFile(t, file, "root's")
			w.unmount(plain)
			a := ofGroup(plain, 4711)
			if always {
				a.Attachment.FSGroupPolicy = api.GroupAlways
			}
			w.mount(a)
			w.wantGroup(file, 0)
			w.give(a)
			w.wantGroup(file, 4711)
			if err := os.Chown(file, 0, 0); err != nil {
				t.Fatal(err)
			}
			w.reopen()
			w.mount(a)
			w.give(a)
			w.wantGroup(file, 0) // it is looked at no more
			w.unmount(a)
			w.mount(a)
			w.give(a)
			if always {
				w.wantGroup(file, 4711)
			} else {
				w.wantGroup(file, 0)
			}
			w.unmount(a)
			w.wantNothing()
		})
	}
}

// What only reads changes nothing, and neither does one without a group.
func TestKernel_ReadersGiveNothing(t *testing.T) {
	t.Parallel()
	w := newKernelWorld(t, csitest.Options{})
	writer := w.shared()
	file := filepath.Join(w.mount(writer), "file")
	writeFile(t, file, "root's")
	reader := ofGroup(user(writer, "alloc-2", "data"), 4711)
	reader.Attachment.ReadOnly = true
	w.mount(reader)
	w.give(reader)
	w.give(writer)
	w.wantGroup(file, 0)
	w.unmount(reader)
	w.unmount(writer)
	w.wantNothing()
}

// A walk that its allocation's end cuts short is not taken for one that has come
// to its end.
func TestKernel_GivingIsCutShort(t *testing.T) {
	t.Parallel()
	w := newKernelWorld(t, csitest.Options{})
	a := ofGroup(w.volume(wish{}), 4711)
	top := w.mount(a)
	for i := range 5 {
		if err := os.MkdirAll(filepath.Join(top, fmt.Sprint(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := w.mounter.Give(ended, a, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want %v", err, context.Canceled)
	}
	w.wantGroup(top, 0)
	w.give(a)
	w.wantGroup(top, 4711)
	w.unmount(a)
	w.wantNothing()
}

// A plugin with VOLUME_MOUNT_GROUP is told, in both calls, and the agent does
// nothing; the judge of calls sees that one without it is not.
func TestKernel_PluginGivesToTheGroup(t *testing.T) {
	t.Parallel()
	w := newKernelWorld(t, csitest.Options{Attach: true, Stage: true, MountGroup: true})
	a := ofGroup(w.shared(), 4711)
	file := filepath.Join(w.mount(a), "file")
	writeFile(t, file, "root's")
	w.give(a)
	w.wantGroup(file, 0)
	for _, c := range w.backend.Calls() {
		if c.Method != "NodeStageVolume" && c.Method != "NodePublishVolume" {
			continue
		}
		if !strings.Contains(string(c.Request), `4711`) {
			t.Errorf("%s was told no group: %s", c.Method, c.Request)
		}
	}
	_, err := w.mounter.Mount(t.Context(), ofGroup(user(a, "alloc-2", "data"), 4712))
	wantStep(t, err, "give to fs_group", "", "alloc-1", "fs_group 4711", "wants 4712")
	same := ofGroup(user(a, "alloc-3", "data"), 4711)
	w.mount(same)
	w.unmount(a)
	w.unmount(same)
	plain := ofGroup(a, 0)
	w.mount(plain)
	_, err = w.mounter.Mount(t.Context(), ofGroup(user(a, "alloc-2", "data"), 4712))
	wantStep(t, err, "give to fs_group", "", "staged on this node with fs_group 0", "wants 4712")
	w.unmount(plain)
	other := ofGroup(user(a, "alloc-2", "data"), 4712)
	w.mount(other)
	w.unmount(other)
	w.wantNothing()
}
