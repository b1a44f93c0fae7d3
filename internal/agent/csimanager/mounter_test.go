package csimanager_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/mount/mounttest"
)

// kinds are drivers by what volumes need with them.
func kinds() map[string]csitest.Options {
	return map[string]csitest.Options{
		"AttachAndStage": {Attach: true, Stage: true, MultiWriter: true},
		"Stage":          {Stage: true},
		"Attach":         {Attach: true},
		"Plain":          {},
	}
}

// eachKind runs a test on a machine in a bubble, once for each kind of driver.
func eachKind(t *testing.T, test func(w *world)) {
	t.Helper()
	for name, o := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, o, func(_ testing.TB, w *world) { test(w) })
		})
	}
}

func inWorld(t *testing.T, o csitest.Options, test func(t testing.TB, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, o)) })
}

// The calls of a life, with a driver that stages and one that does not.
const (
	stagedUp   = "NodeStageVolume OK\nNodePublishVolume OK\n"
	stagedDown = "NodeUnpublishVolume OK\nNodeUnstageVolume OK\n"
	plainUp    = "NodePublishVolume OK\n"
	plainDown  = "NodeUnpublishVolume OK\n"
)

func TestMountedAndUnmounted(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		up, down := plainUp, plainDown
		if w.options.Stage {
			up, down = stagedUp, stagedDown
		}
		a := w.volume(wish{})
		if target := w.mount(a); target != w.target() {
			w.t.Errorf("mounted at %s, want the target path", target)
		}
		w.wantMounts(a)
		if got := w.facts.publications()["default/pg"]; got != w.options.Stage {
			w.t.Errorf("the servers were told that it is staged: %t, want %t", got, w.options.Stage)
		}
		w.unmount(a)
		w.wantNothing()
		w.wantCalls(up + down)
	})
}

func (w *world) wantCalls(want string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.calls()); diff != "" {
		w.t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// What is mounted is left alone, by the agent that mounted it and by the next:
// no call, no write, and no new fact but that it is staged.
func TestMountAgainChangesNothing(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		a := w.volume(wish{})
		target := w.mount(a)
		calls, writes := w.calls(), w.ledger.writes
		for range 3 {
			w.restart()
			for range 3 {
				if again := w.mount(a); again != target {
					w.t.Errorf("mounted again at %s, want %s", again, target)
				}
			}
			wantSaid := map[string]bool(nil)
			if w.options.Stage {
				wantSaid = map[string]bool{"default/pg": true}
			}
			if diff := cmp.Diff(wantSaid, w.facts.publications()); diff != "" {
				w.t.Errorf("said of the staging (-want +got):\n%s", diff)
			}
		}
		w.wantCalls(calls)
		if w.ledger.writes != writes {
			w.t.Errorf("%d writes for what was mounted already", w.ledger.writes-writes)
		}
		w.wantMounts(a)
		w.unmount(a)
		w.wantNothing()
	})
}

// A volume is staged once for all that use it, and unstaged after the last.
func TestUsersShareAStaging(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]struct {
		alloc api.AllocID
		name  string
		mode  api.AccessMode
	}{
		"OtherAllocation":  {"alloc-2", "data", api.MultiNodeMultiWriter},
		"SameAllocation":   {"alloc-1", "again", api.MultiNodeMultiWriter},
		"OtherAccessMode":  {"alloc-2", "data", api.MultiNodeReaderOnly},
		"OtherReadOnlyOne": {"alloc-1", "again", api.MultiNodeReaderOnly},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, csitest.Options{Attach: true, Stage: true}, func(t testing.TB, w *world) {
				a := w.shared()
				b := user(a, other.alloc, other.name)
				b.Attachment.AccessMode = other.mode
				b.Attachment.ReadOnly = other.mode == api.MultiNodeReaderOnly
				for _, restart := range []func(){func() {}, w.restart} {
					w.mount(a)
					restart()
					w.mount(b)
					w.wantMounts(a, b)
					restart()
					w.unmount(a)
					w.wantMounts(b)
					if !w.facts.publications()["default/pg"] && !w.restarted() {
						t.Error("the first to leave said that the volume is not staged any more")
					}
					w.mount(b)
					w.unmount(b)
					w.wantNothing()
				}
				w.wantCalls(strings.Repeat(stagedUp+plainUp+plainDown+stagedDown, 2))
			})
		})
	}
}

// restarted reports whether this agent has said nothing of the volume yet.
func (w *world) restarted() bool {
	_, said := w.facts.publications()["default/pg"]
	return !said
}

func TestSameIDInTwoNamespaces(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		a := w.volume(wish{namespace: "a"})
		b := w.volume(wish{namespace: "b"})
		b.Attachment.AllocID = "alloc-2"
		w.mount(a)
		w.mount(b)
		w.wantMounts(a, b)
		w.unmount(a)
		w.wantMounts(b)
		w.unmount(b)
		w.wantNothing()
		if n := strings.Count(w.calls(), "NodeStageVolume OK"); w.options.Stage && n != 2 {
			w.t.Errorf("two volumes were staged %d times", n)
		}
	})
}

// Whatever a volume is called, its paths are short, plain and its own. The
// provider's ids in these tests hold slashes, spaces and worse.
func TestPaths(t *testing.T) {
	t.Parallel()
	inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
		head := strings.Repeat("long-name-", 5)
		ids := []api.VolumeID{
			"pg", "a#b", "a&b=c", "a?b", "a b", "a/b", "../../etc", "..", "/", "é", "\u2028", "a\nb",
			api.VolumeID(head + "1"), api.VolumeID(head + "2"), api.VolumeID(strings.Repeat("x", 1024)), api.VolumeID(strings.Repeat("x", 1023)),
		}
		var all []*api.AttachmentAssignment
		for _, id := range ids {
			a := w.volume(wish{volume: id})
			a.Attachment.AllocID = api.AllocID(strings.Repeat("0", 31) + "1")
			a.Attachment.Name = string(id)
			target := w.mount(a)
			if filepath.Dir(target) != filepath.Join(w.dir(), "mount") || strings.ContainsAny(filepath.Base(target), "#&=? \n") {
				t.Errorf("volume %q is mounted at %q, want a plain name below the root", id, target)
			}
			if short := len(target) - len(w.root); short > 58 {
				t.Errorf("the path of volume %q adds %d bytes to the root: with a root of 70 it is longer than 128", id, short)
			}
			all = append(all, a)
		}
		w.wantMounts(all...)
		staged := w.mountsBelow("stage")
		if len(staged) != len(ids) {
			t.Errorf("%d volumes are staged at %d places", len(ids), len(staged))
		}
		for _, a := range all {
			w.unmount(a)
		}
		w.wantNothing()
	})
}

// Mounts do not outlive a boot, and a record of another one is not believed.
func TestReboot(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		a := w.shared()
		b := user(a, "alloc-2", "data")
		w.mount(a)
		w.mount(b)
		w.wantMounted(a, true)
		w.reboot()
		w.wantMounts()
		w.wantMounted(a, false)
		w.mount(a)
		w.wantMounts(a)
		w.wantMounted(a, true)
		w.wantMounted(b, false)
		// One that ended with the reboot goes without having been mounted again.
		w.unmount(b)
		w.wantMounts(a)
		w.reboot()
		w.unmount(a)
		w.wantMounted(a, false)
		w.wantNothing()
	})
}

// wantMounted asks where an attachment is mounted.
func (w *world) wantMounted(a *api.AttachmentAssignment, want bool) {
	w.t.Helper()
	target, err := w.mounter.Mounted(a)
	if err != nil || (target != "") != want {
		w.t.Errorf("it is mounted at %q: %v, want that it is: %t", target, err, want)
	}
}

func TestUnmountWithoutMount(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		a := w.volume(wish{})
		// Not even the plugin is needed.
		w.kill()
		w.registry.Deregister(w.plugin.Key())
		began := time.Now()
		w.unmount(a)
		if took := time.Since(began); took > 0 {
			w.t.Errorf("undoing nothing took %s", took)
		}
		w.wantNothing()
		w.wantCalls("")
		if said, ok := w.facts.publications()["default/pg"]; !ok || said {
			w.t.Errorf("the servers were told %t, %t, want that it is not staged", said, ok)
		}
	})
}

// TestTargetIsTaken finds something at the target path.
func TestTargetIsTaken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		make func(w *world, target string)
		want string // the error, "" for none
	}{
		"EmptyDirectory": {func(w *world, target string) { makeDir(w.t, target) }, ""},
		"EmptyFile":      {func(w *world, target string) { writeFile(w.t, target, "") }, ""},
		"FullDirectory":  {func(w *world, target string) { writeFile(w.t, target+"/file", "data") }, "not empty"},
		"FullFile":       {func(w *world, target string) { writeFile(w.t, target, "data") }, "is a file with something in it"},
		"ForeignMount": {func(w *world, target string) {
			if err := w.table.Bind("/somewhere", target, false); err != nil {
				w.t.Fatal(err)
			}
		}, ""},
		"StackedMounts": {func(w *world, target string) {
			for range 2 {
				if err := w.table.Bind("/somewhere", target, false); err != nil {
					w.t.Fatal(err)
				}
			}
		}, "is still mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
				a := w.volume(wish{})
				tc.make(w, w.target())
				_, err := w.mounter.Mount(t.Context(), a)
				if tc.want != "" {
					if err == nil || !strings.Contains(err.Error(), tc.want) {
						t.Fatalf("error = %v, want one with %q", err, tc.want)
					}
					if name != "StackedMounts" {
						return
					}
					// What lies on top goes with every try.
					_, err = w.mounter.Mount(t.Context(), a)
				}
				if err != nil {
					t.Fatal(err)
				}
				w.wantMounts(a)
				w.unmount(a)
				w.wantNothing()
			})
		})
	}
}

// What was there before a failed mount is still there after it.
func TestFullTargetIsLeftAlone(t *testing.T) {
	t.Parallel()
	inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
		a := w.volume(wish{})
		file := filepath.Join(w.target(), "file")
		writeFile(t, file, "data")
		for range 2 {
			_, err := w.mounter.Mount(t.Context(), a)
			wantStep(t, err, "clear the target path", "", "not empty")
		}
		w.unmount(a)
		wantFile(t, file, "data")
		w.wantNoViolations()
		if n := w.ledger.size(); n != 0 {
			t.Errorf("%d stagings are recorded after the unmount", n)
		}
	})
}

// A driver may publish without a mount only where that is allowed.
func TestPublishedWithoutAMount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, csitest.Options{Stage: true}, mounttest.New(), nil)
		a := w.volume(wish{})
		for range 2 {
			_, err := w.mounter.Mount(t.Context(), a)
			wantStep(t, err, "NodePublishVolume", "", "nothing is mounted", "allow_unmounted = true", "plugin provider")
		}
		w.unmount(a)
		w.wantNoViolations()
		if n := w.ledger.size(); n != 0 {
			t.Errorf("%d stagings are left", n)
		}
	})
}

// A volume that is rightly published without a mount was published anew at
// every health check, and not at all once it had files.
func TestAllowedWithoutAMount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startWorld(t, csitest.Options{Stage: true}, mounttest.New(), nil)
		w.plugin.AllowUnmounted = true
		w.restart()
		a := w.volume(wish{})
		target := w.mount(a)
		writeFile(t, filepath.Join(target, "file"), "the driver's")
		for range 2 {
			w.mount(a)
			w.restart()
			w.mount(a)
		}
		w.wantCalls(stagedUp)
		wantFile(t, filepath.Join(target, "file"), "the driver's")
		// After a reboot it is published again: who serves it was ended by that.
		w.stop()
		w.boot++
		w.backend.Reboot("n1")
		w.start()
		w.mount(a)
		w.wantCalls(stagedUp + stagedUp)
		w.unmount(a)
		w.wantNoViolations()
		if n := w.ledger.size(); n != 0 {
			t.Errorf("%d stagings are left", n)
		}
	})
}

// A mount that somebody took away is made again, and so is a staging.
func TestMountTakenAwayIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		staging bool
		want    string
	}{
		"Target":           {false, stagedUp + plainUp},
		"TargetAndStaging": {true, stagedUp + stagedUp},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
				a := w.volume(wish{})
				target := w.mount(a)
				taken := []string{target}
				if tc.staging {
					taken = append(taken, w.mountsBelow("stage")...)
				}
				for _, path := range taken {
					if err := w.table.Unmount(path); err != nil {
						t.Fatal(err)
					}
				}
				// The driver sees that they are gone, as a real one would.
				w.backend.Reboot("n1")
				w.mountUnjudged(a)
				if got := w.mountsBelow("mount"); len(got) != 1 || got[0] != target {
					t.Errorf("mounted: %v, want the target", got)
				}
			})
		})
	}
}

// mountUnjudged mounts, with as many tries as a driver needs that has lost what
// it had.
func (w *world) mountUnjudged(a *api.AttachmentAssignment) {
	w.t.Helper()
	for range 2 {
		_, err := w.mounter.Mount(w.t.Context(), a)
		if err == nil {
			return
		}
		wantStep(w.t, err, "NodePublishVolume", "FAILED_PRECONDITION")
	}
	w.mount(a)
}

// A data directory that was moved leaves mounts at its old place. They are
// undone where they were made.
func TestMovedDataDirectory(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		a := w.volume(wish{})
		before := w.mount(a)
		old := w.root
		w.root = scratch(w.t)
		w.restart()
		if after := w.mount(a); after != before {
			w.t.Errorf("mounted at %s, want it left at %s", after, before)
		}
		w.unmount(a)
		w.wantNothing()
		w.root = old
		w.wantNothing()
	})
}

// With the local database lost, what the kernel shows is undone, for those who
// ask and for nobody else.
func TestLostLedger(t *testing.T) {
	t.Parallel()
	t.Run("Unmount", func(t *testing.T) {
		t.Parallel()
		eachKind(t, func(w *world) {
			a := w.volume(wish{})
			w.mount(a)
			w.ledger.lose()
			w.restart()
			w.unmount(a)
			w.wantNothing()
		})
	})
	t.Run("Mount", func(t *testing.T) {
		t.Parallel()
		eachKind(t, func(w *world) {
			a := w.volume(wish{})
			w.mount(a)
			w.ledger.lose()
			w.restart()
			w.mount(a)
			w.wantMounts(a)
			w.unmount(a)
			w.wantNothing()
		})
	})
	// A volume was unstaged while another allocation still had it mounted.
	t.Run("UnmountOfTwo", func(t *testing.T) {
		t.Parallel()
		inWorld(t, csitest.Options{Attach: true, Stage: true}, func(t testing.TB, w *world) {
			a := w.shared()
			b := user(a, "alloc-2", "data")
			target := w.mount(b)
			w.mount(a)
			w.ledger.lose()
			w.restart()
			wantStep(t, w.mounter.Unmount(t.Context(), a), "NodeUnstageVolume", "", target, "local database")
			w.wantMounts(b)
			w.unmount(b)
			w.unmount(a)
			w.wantNothing()
		})
	})
	// What one allocation had mounted was forgotten when another one had been
	// mounted since.
	t.Run("UnmountAfterAnotherMount", func(t *testing.T) {
		t.Parallel()
		eachKind(t, func(w *world) {
			a := w.shared()
			b := user(a, "alloc-2", "data")
			w.mount(a)
			w.ledger.lose()
			w.restart()
			w.mount(b)
			w.unmount(a)
			w.wantMounts(b)
			w.unmount(b)
			w.wantNothing()
		})
	})
}

func TestBlockAndReadOnly(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		block := w.volume(wish{block: true})
		w.mount(block)
		reader := w.volume(wish{volume: "shared", mode: api.MultiNodeMultiWriter})
		reader.Attachment.AllocID, reader.Attachment.ReadOnly = "alloc-2", true
		target := w.mount(reader)
		w.wantMounts(block, reader)
		if m, _, err := w.table.At(target); err != nil || !m.ReadOnly {
			w.t.Errorf("the reader's mount: %+v, %v, want it read-only", m, err)
		}
		w.restart()
		w.unmount(block)
		w.unmount(reader)
		w.wantNothing()
	})
}

// killAndNotice kills the driver, and waits until the agent knows.
func (w *world) killAndNotice() {
	w.kill()
	time.Sleep(35 * time.Second)
}

// startAndNotice starts the driver again. It is looked at within 5 seconds.
func (w *world) startAndNotice() {
	w.kill = w.driver.Start(w.t)
	time.Sleep(6 * time.Second)
}

// TestPluginAway mounts and unmounts while the plugin is not there, or comes
// back in time.
func TestPluginAway(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		a := w.volume(wish{})
		away := func(what func() error) {
			w.t.Helper()
			w.killAndNotice()
			began := time.Now()
			wantStep(w.t, what(), "wait for plugin", "", "plugin provider", "connection refused")
			if took := time.Since(began); took != 2*time.Second {
				w.t.Errorf("waiting for the plugin took %s", took)
			}
			w.startAndNotice()
			if err := what(); err != nil {
				w.t.Errorf("with a plugin that comes back: %v", err)
			}
		}
		away(func() error { _, err := w.mounter.Mount(w.t.Context(), a); return err })
		w.wantMounts(a)
		away(func() error { return w.mounter.Unmount(w.t.Context(), a) })
		w.wantNothing()
	})
}

// TestCancelled gives up in every kind of wait; nothing is left behind, and
// the lock is free again.
func TestCancelled(t *testing.T) {
	t.Parallel()
	gaveUp := errors.New("the allocation ends")
	t.Run("WhileAnotherHasTheVolume", func(t *testing.T) {
		t.Parallel()
		inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
			a := w.shared()
			hang := w.backend.Script(csitest.Rule{Method: "NodeStageVolume", Do: csitest.Hang()})
			var first sync.WaitGroup
			first.Go(func() { w.mount(a) })
			synctest.Wait()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(gaveUp) })
			b := user(a, "alloc-2", "data")
			if _, err := w.mounter.Mount(ctx, b); !errors.Is(err, gaveUp) {
				t.Errorf("mount: %v, want the cause", err)
			}
			if err := w.mounter.Unmount(ctx, b); !errors.Is(err, gaveUp) {
				t.Errorf("unmount: %v, want the cause", err)
			}
			hang.Release()
			first.Wait()
			w.mount(b)
			w.wantMounts(a, b)
			w.unmount(a)
			w.unmount(b)
			w.wantNothing()
		})
	})
	t.Run("WhileThePluginIsAway", func(t *testing.T) {
		t.Parallel()
		inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
			a := w.volume(wish{})
			w.registry.Deregister(w.plugin.Key())
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := w.mounter.Mount(ctx, a)
			wantStep(t, err, "wait for plugin", "", "does not run it")
			w.registry.Register(w.plugin)
			w.mount(a)
			w.unmount(a)
			w.wantNothing()
		})
	})
	for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"} {
		for name, action := range map[string]csitest.Action{"Before": csitest.Hang(), "After": csitest.HangAfter()} {
			t.Run(method+name, func(t *testing.T) {
				t.Parallel()
				inWorld(t, csitest.Options{Stage: true}, func(t testing.TB, w *world) {
					a := w.volume(wish{})
					hang := w.backend.Script(csitest.Rule{Method: method, Times: 1, Do: action})
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(time.Second, cancel)
					_, err := w.mounter.Mount(ctx, a)
					if err == nil {
						err = w.mounter.Unmount(ctx, a)
					}
					wantStep(t, err, method, "CANCELLED")
					hang.Release()
					w.mount(a)
					w.wantMounts(a)
					w.unmount(a)
					w.wantNothing()
				})
			})
		}
	}
}

// One volume whose driver hangs keeps no other from being mounted.
func TestStuckVolumeHarmsNoOther(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		stuck, other := w.volume(wish{volume: "stuck"}), w.volume(wish{volume: "other"})
		other.Attachment.AllocID = "alloc-2"
		method := "NodePublishVolume"
		if w.options.Stage {
			method = "NodeStageVolume"
		}
		hang := w.backend.Script(csitest.Rule{Method: method, Volume: stuck.ExternalID, Do: csitest.Hang()})
		var waits sync.WaitGroup
		waits.Go(func() { w.mount(stuck) })
		synctest.Wait()
		began := time.Now()
		w.mount(other)
		w.unmount(other)
		if took := time.Since(began); took > 0 {
			w.t.Errorf("the other volume took %s", took)
		}
		hang.Release()
		waits.Wait()
		w.unmount(stuck)
		w.wantNothing()
	})
}

// TestMany mounts and unmounts from many goroutines, as allocations do, with
// an agent that is restarted meanwhile.
func TestMany(t *testing.T) {
	t.Parallel()
	eachKind(t, func(w *world) {
		const volumes, users, rounds = 3, 4, 3
		attachments := map[string]*api.AttachmentAssignment{}
		for v := range volumes {
			a := w.volume(wish{volume: api.VolumeID(fmt.Sprint("v", v)), mode: api.MultiNodeMultiWriter})
			for u := range users {
				alloc := fmt.Sprintf("alloc-%d-%d", v, u)
				attachments[alloc] = user(a, api.AllocID(alloc), "data")
			}
		}
		for range rounds {
			var all sync.WaitGroup
			for _, a := range attachments {
				all.Go(func() {
					for range 2 {
						w.mount(a)
						w.unmount(a)
					}
					w.mount(a)
				})
			}
			all.Wait()
			var everybody []*api.AttachmentAssignment
			for a := range maps.Values(attachments) {
				everybody = append(everybody, a)
			}
			w.wantMounts(everybody...)
			w.restart()
			for _, a := range attachments {
				all.Go(func() { w.unmount(a) })
			}
			all.Wait()
			w.wantNothing()
		}
	})
}

// TestRequests looks at all that the driver is told. The volume's own options
// go with the staging, those of the attachment with its publication.
func TestRequests(t *testing.T) {
	t.Parallel()
	inWorld(t, csitest.Options{Attach: true, Stage: true}, func(t testing.TB, w *world) {
		a := w.volume(wish{mode: api.MultiNodeMultiWriter})
		a.StageOptions = &api.MountOptions{FSType: "xfs", MountFlags: []string{"noatime"}}
		a.Attachment.MountOptions = &api.MountOptions{FSType: "xfs", MountFlags: []string{"nodev"}}
		a.Attachment.ReadOnly = true
		target := w.mount(a)
		staging := w.mountsBelow("stage")[0]
		w.unmount(a)
		id := strconv.Quote(a.ExternalID)
		capability := `"volume_capability":{"mount":{"fs_type":"xfs","mount_flags":["%s"]},"access_mode":{"mode":"MULTI_NODE_MULTI_WRITER"}}`
		contexts := `"volume_context":{"csitest/volume":` + id + `}`
		published := `"publish_context":{"csitest/attachment":"n1 1"}`
		want := map[string]string{
			"NodeStageVolume": fmt.Sprintf(`{"volume_id":%s,%s,"staging_target_path":%q,`+capability+`,%s}`,
				id, published, staging, "noatime", contexts),
			"NodePublishVolume": fmt.Sprintf(`{"volume_id":%s,%s,"staging_target_path":%q,"target_path":%q,`+capability+`,"readonly":true,%s}`,
				id, published, staging, target, "nodev", contexts),
			"NodeUnpublishVolume": fmt.Sprintf(`{"volume_id":%s,"target_path":%q}`, id, target),
			"NodeUnstageVolume":   fmt.Sprintf(`{"volume_id":%s,"staging_target_path":%q}`, id, staging),
		}
		got := map[string]string{}
		for _, c := range w.backend.Calls() {
			if want[c.Method] != "" {
				got[c.Method] = string(c.Request)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
}

// A mount below a volume's path says nothing of the volume: one that was lost is
// found out, and made again.
func TestMountBelowIsNotTheVolumes(t *testing.T) {
	t.Parallel()
	inWorld(t, csitest.Options{}, func(t testing.TB, w *world) {
		a := w.volume(wish{})
		target := w.mount(a)
		if err := w.table.Unmount(target); err != nil {
			t.Fatal(err)
		}
		below := filepath.Join(target, "below")
		if err := w.table.(*mounttest.Table).Bind("/elsewhere", below, false); err != nil {
			t.Fatal(err)
		}
		if at, err := w.mounter.Mounted(a); err != nil || at != "" {
			t.Errorf("mounted at %q, %v, with a mount at %s only", at, err, below)
		}
		if err := w.table.Unmount(below); err != nil {
			t.Fatal(err)
		}
		w.backend.Reboot("n1") // the driver sees that it is gone
		w.mount(a)
		w.wantMounts(a)
		w.unmount(a)
		w.wantNothing()
	})
}
