package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/mount"
)

// tmpfs mounts something in a directory of the agent's that nobody recorded.
func (w *world) tmpfs(dir ...string) (path string) {
	w.t.Helper()
	path = filepath.Join(append([]string{w.dir}, dir...)...)
	if err := os.MkdirAll(path, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", path, "tmpfs", 0, "size=64k"); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) }) // if the test has failed
	return path
}

// mounted is what the kernel shows in the data directory.
func (w *world) mounted() (paths []string) {
	w.t.Helper()
	rows, err := mount.Kernel{}.Under(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range rows {
		paths = append(paths, strings.TrimPrefix(m.Path, w.dir))
	}
	return paths
}

// A node that was fenced says that nothing is left of what it ran when that is
// so by the kernel, and not by what it remembers: its records may be older than
// what was done. Until then it says what is in the way.
func TestFencedNodeLooksAtTheKernelBeforeItSaysUndone(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.config.Table = mount.Kernel{}
		w.server.place("a")
		_, stop := w.start()
		defer stop()
		w.wantTasks("before the fence", 1, 1)
		stray := w.tmpfs("csi", "ebs-1a2b3c4d", "mount", "data-000000000000")
		w.tmpfs("csi", "ebs-1a2b3c4d", "stage", "pg-000000000000")
		w.tmpfs("alloc", "a", "t", "forgotten")
		other := w.tmpfs("server") // not the agent's to take away
		file, err := os.Create(filepath.Join(stray, "file"))
		if err != nil {
			t.Fatal(err)
		}
		w.server.fence()
		after(time.Minute)
		w.wantTasks("fenced", 0, 1)
		if undone, remains := w.server.cleared(); undone != 0 || !strings.Contains(remains, "data-000000000000: it is in use") {
			t.Errorf("with a mount that is in use, epoch %d is said to be undone; what is in the way: %q", undone, remains)
		}
		if left := w.mounted(); len(left) != 2 {
			t.Errorf("mounted: %v, want what is in use and what is another's", left)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if undone, _ := w.server.cleared(); undone != 2 {
			t.Errorf("epoch %d is said to be undone, want 2", undone)
		}
		if left := w.mounted(); len(left) != 1 || left[0] != "/server" {
			t.Errorf("mounted: %v", left)
		}
		if err := unix.Unmount(other, 0); err != nil {
			t.Error(err)
		}
	})
}

// What the servers place on a node that has something to undo is a plugin which
// it needs for that: it runs, and nothing waits for its end.
func TestAllocationOfTheNewEpochIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"SameAgent": false, "NextAgent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(w *world) {
				w.config.Table = mount.Kernel{}
				w.server.place("a")
				_, stop := w.start()
				w.tasks.stuckFor("a/t", true)
				w.server.fence()
				w.server.place("plugin")
				after(time.Second)
				if restart {
					stop()
					_, stop = w.start()
				}
				defer stop()
				used := w.tmpfs("alloc", "plugin", "t", "own")
				w.wantTasks("a cannot be stopped", 2, 2)
				if undone, _ := w.server.cleared(); undone != 0 {
					t.Error("it is said to be undone while a task of the ended epoch runs")
				}
				w.tasks.stuckFor("a/t", false)
				after(5 * time.Minute)
				w.wantTasks("a has ended", 1, 2)
				if undone, _ := w.server.cleared(); undone != 2 {
					t.Errorf("epoch %d is said to be undone, want 2", undone)
				}
				if err := unix.Unmount(used, 0); err != nil {
					t.Errorf("a mount of what runs was taken away: %v", err)
				}
			})
		})
	}
}

// A local database that was lost makes another node of the machine. What the
// first had mounted goes before the second is made known: the servers may have
// given those volumes away.
func TestNewNodeTakesAwayWhatItFindsBeforeItRegisters(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.config.Table = mount.Kernel{}
		stray := w.tmpfs("csi", "ebs-1a2b3c4d", "mount", "data-000000000000")
		file, err := os.Create(filepath.Join(stray, "file"))
		if err != nil {
			t.Fatal(err)
		}
		_, stop := w.start()
		defer stop()
		after(time.Minute)
		if got := w.server.registered(); got.NodeID != "" {
			t.Errorf("node %s is registered while something is in use", got.NodeID)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if got := w.server.registered(); got.NodeID == "" || len(w.mounted()) > 0 {
			t.Errorf("registered: %q, mounted: %v", got.NodeID, w.mounted())
		}
	})
}
