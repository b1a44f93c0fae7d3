package consensus_test

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// failingSnapshots is a snapshot store that fails as long as it is broken.
type failingSnapshots struct {
	raft.SnapshotStore
	broken atomic.Bool
	tries  atomic.Int64
}

// Create implements raft.SnapshotStore.
//
//nolint:revive // raft's parameters
func (f *failingSnapshots) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, at uint64, t raft.Transport) (raft.SnapshotSink, error) {
	f.tries.Add(1)
	if f.broken.Load() {
		return nil, errors.New("no space left on device")
	}
	return f.SnapshotStore.Create(v, index, term, c, at, t)
}

func TestCompaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		s := c.servers[0]
		snapshots := &failingSnapshots{SnapshotStore: s.stores.Snapshots}
		s.stores.Snapshots = snapshots
		c.start()
		c.leader()

		s.Grow(12 << 20)
		time.Sleep(5 * time.Minute)
		if n := snapshots.tries.Load(); n != 0 {
			t.Fatalf("%d snapshots of a small log", n)
		}
		snapshots.broken.Store(true)
		large := job("large", 1)
		large.Spec.Groups[0].Tasks[0].Env["large"] = strings.Repeat("x", 5<<20)
		propose(t, s, large)
		time.Sleep(10 * time.Minute)
		if n := snapshots.tries.Load(); n < 4 {
			t.Errorf("%d tries in ten minutes, and it failed", n)
		}
		snapshots.broken.Store(false)
		time.Sleep(3 * time.Minute)
		if list, err := snapshots.List(); err != nil || len(list) == 0 {
			t.Errorf("snapshots: %v, %v", list, err)
		}
		tries := snapshots.tries.Load()
		time.Sleep(5 * time.Minute)
		if n := snapshots.tries.Load() - tries; n != 0 {
			t.Errorf("%d more snapshots, and nothing was written", n)
		}

		propose(t, s, volume(1))
		want := saved(t, s.View())
		c.stopServer(s)
		c.startServer(s)
		c.leader()
		if !bytes.Equal(want, saved(t, s.View())) {
			t.Error("the state after the restart is another one")
		}
	})
}

// A server that stops leaves a snapshot of what the next one would have to make
// again, and none of what is made again in no time.
func TestServerThatStopsLeavesASnapshot(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ grows, want int }{
		"OfALargeLog": {3 << 20, 1},
		"NotOfASmall": {1 << 20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1)
				s := c.servers[0]
				c.start()
				c.leader()
				propose(t, s, volume(1))
				s.Grow(int64(tc.grows))
				want := saved(t, s.View())
				c.stopServer(s)
				if list, err := s.stores.Snapshots.List(); err != nil || len(list) != tc.want {
					t.Errorf("snapshots: %v, %v, want %d", list, err, tc.want)
				}
				c.startServer(s)
				c.leader()
				if !bytes.Equal(want, saved(t, s.View())) {
					t.Error("the state after the restart is another one")
				}
			})
		})
	}
}
