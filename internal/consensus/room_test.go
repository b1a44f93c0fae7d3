package consensus_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/consensus"
)

// TestDiskThatIsNearlyFullRefusesWritesAndTheServerGoesOn: while the log still
// has room, so that nothing of it breaks, and until there is room again.
func TestDiskThatIsNearlyFullRefusesWritesAndTheServerGoesOn(t *testing.T) {
	t.Parallel()
	stores, err := consensus.OpenStores(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var free atomic.Uint64
	free.Store(1 << 40)
	stores.Free = func() (uint64, error) { return free.Load(), nil }
	a, err := startOn(stores)
	if err != nil {
		t.Fatal(err)
	}
	write := func(n int64) error {
		_, err := a.Propose(t.Context(), volume(n))
		return err
	}
	if err := write(1); err != nil {
		t.Fatal(err)
	}
	before := a.Counters().Entries.Load()
	free.Store(100 << 20)
	eventually(t, "a write to be refused", func() bool { return write(2) != nil })
	err = write(3)
	if want := "nothing was written: 100 MiB are free on the server's disk, and its log needs 128 MiB"; api.CodeOf(err) != api.CodeUnavailable || !strings.Contains(err.Error(), want) {
		t.Errorf("write on a full disk: %v, want %q", err, want)
	}
	if a.View().Volume(api.DefaultNamespace, volume(3).ID) != nil {
		t.Error("what was refused was written")
	}
	free.Store(128 << 20)
	eventually(t, "writes to be taken again", func() bool { return write(4) == nil })
	if after := a.Counters().Drops.Load(); after != 0 || a.Counters().Entries.Load() <= before {
		t.Errorf("the overlay was dropped %d times", after)
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
}

// TestServerWhoseLogCannotBeWrittenEnds, and is as it said when it is started
// again: also on the disk that is still full. Nothing tells it before how much
// is free, as if something else had taken all since the last look.
func TestServerWhoseLogCannotBeWrittenEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=67m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	open := func() *alone {
		stores, err := consensus.OpenStores(filepath.Join(dir, "server"), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		a, err := startOn(stores)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := open()
	large := job("large", 0)
	large.Spec.Groups[0].Tasks[0].Templates = []api.Template{{Destination: "local/x", Data: strings.Repeat("x", 250<<10)}}
	written, full := 0, error(nil)
	for full == nil && written < 1000 {
		var plan command.Plan
		for i := range 4 {
			one := *large
			one.ID = api.JobID(fmt.Sprintf("job-%d-%d", written, i))
			one.UID = string(one.ID)
			plan = append(plan, &one)
		}
		if _, full = a.Propose(t.Context(), plan...); full == nil {
			written++
		}
	}
	if written == 0 || api.CodeOf(full) != api.CodeUncertain {
		t.Fatalf("after %d writes: %v, want one of which nothing is known", written, full)
	}
	if err := <-a.ended; err == nil || !strings.HasPrefix(err.Error(), "write the log: ") {
		t.Errorf("it ended with: %v, want why its log was not written", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "server", "snapshots", "*.tmp")); err != nil || len(left) > 0 {
		t.Errorf("unfinished snapshots stay: %v, %v", left, err)
	}
	a = open()
	jobs := 0
	for range a.View().Jobs("") {
		jobs++
	}
	if jobs != 4*written && jobs != 4*written+4 {
		t.Errorf("%d jobs are there, and %d were written", jobs, 4*written)
	}
	if err := a.stop(); err != nil {
		t.Error(err)
	}
}

// TestUnfinishedSnapshotsAreRemoved, of a server that was killed at one.
func TestUnfinishedSnapshotsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unfinished := filepath.Join(dir, "snapshots", "2-213-1795405579197.tmp")
	if err := os.MkdirAll(unfinished, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(unfinished, "state.bin"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	single(t, dir)
	if _, err := os.Stat(unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat: %v, want that it is gone", err)
	}
}

// TestLeaderWithoutRoomMakesWay for a server that has some.
func TestLeaderWithoutRoomMakesWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		free := map[*server]*atomic.Uint64{}
		for _, s := range c.servers {
			room := &atomic.Uint64{}
			room.Store(1 << 40)
			free[s], s.stores.Free = room, func() (uint64, error) { return room.Load(), nil }
		}
		c.start()
		first := c.leader()
		free[first].Store(1 << 20)
		eventually(t, "another leader", func() bool { return c.leader() != first })
		if _, err := c.leader().Propose(t.Context(), volume(1)); err != nil {
			t.Error(err)
		}
	})
}
