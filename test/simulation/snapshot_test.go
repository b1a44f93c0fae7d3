package simulation_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/test/cluster"
)

func snapshotProvider() csitest.Options {
	return csitest.Options{Attach: true, Stage: true, Snapshot: true, SnapshotWork: 1, SnapshotsDepend: true}
}

// scheduledSnapshots are a schedule's snapshots that are ready, by name.
func scheduledSnapshots(all []*api.Snapshot) (ready []string) {
	for _, s := range all {
		if s.Owner == api.OwnerSchedule && s.Status.State == api.SnapshotReady {
			ready = append(ready, string(s.ID))
		}
	}
	return ready
}

// TestScheduleKeepsItsNumberAndCatchesUp lets days pass: a schedule keeps the
// newest, leaves a user's alone, and makes up for a night without servers with
// one snapshot.
func TestScheduleKeepsItsNumberAndCatchesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, ns := context.Background(), api.DefaultNamespace
		c := cluster.Start(t, cluster.Config{Agents: 1, Provider: snapshotProvider()})
		defer c.Close()
		c.AwaitRest(time.Minute)
		spec := cluster.VolumeSpec()
		spec.SnapshotSchedule = &api.SnapshotSchedule{Cron: "0 * * * *", Keep: 3}
		cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, ns, "pg", spec, 0))
		c.AwaitVolume("pg", api.VolumeReady, time.Minute)
		cluster.Must[api.SnapshotInfo](c)(c.Client.CreateSnapshot(ctx, ns, "mine", api.SnapshotCreation{VolumeID: "pg"}))
		time.Sleep(6*time.Hour + 30*time.Minute)
		c.AwaitRest(10 * time.Minute)
		all, _, err := c.Client.Snapshots(ctx, client.Query{Namespace: ns})
		if err != nil {
			t.Fatal(err)
		}
		if ready := scheduledSnapshots(all); len(ready) != 3 || len(all) != 4 || len(c.Backend.SnapshotsMade()) != 4 {
			t.Fatalf("after six hours there are %v of the schedule, %d in all, and %d at the provider; want 3 and the user's",
				ready, len(all), len(c.Backend.SnapshotsMade()))
		}
		before := c.AwaitVolume("pg", api.VolumeReady, time.Minute).Status.Schedule.Last

		c.StopServer()
		time.Sleep(10 * time.Hour)
		c.StartServer()
		info := cluster.Await(c, "the schedule has caught up", 10*time.Minute,
			func(ctx context.Context, q client.Query) (api.VolumeInfo, uint64, error) {
				return c.Client.Volume(ctx, ns, "pg", q)
			},
			func(v api.VolumeInfo, err error) bool { return err == nil && v.Status.Schedule.Last.After(before) })
		s := info.Status.Schedule
		if missed := int(s.Last.Sub(before)/time.Hour) - 1; s.Missed != missed || missed < 8 || !strings.Contains(s.Reason, "one snapshot for all of them") {
			t.Errorf("it has caught up: %+v; want one for %d more times", s, missed)
		}
		c.AwaitRest(10 * time.Minute)
		time.Sleep(time.Minute)
		if n := len(c.Backend.SnapshotsMade()); n != 4 {
			t.Errorf("the provider has %d snapshots, want 3 and the user's", n)
		}
		c.Validate()
	})
}

// TestLeaderDiesBetweenAnyTwoStepsOfASnapshot: a snapshot is made, a volume is
// made from it, and both go again, while the leader dies with one entry of its
// log. No crash doubles a snapshot or leaves one behind.
func TestLeaderDiesBetweenAnyTwoStepsOfASnapshot(t *testing.T) {
	t.Parallel()
	for step := 1; step < manySteps; step++ {
		died := false
		synctest.Test(t, func(t *testing.T) { died = snapshotLife(t, step) })
		switch {
		case t.Failed():
			return
		case !died && step < 10:
			t.Fatalf("the leader died with none of the entries after %d: it is to die with each", step-1)
		case !died:
			return
		}
	}
	t.Fatalf("a life has more than %d steps", manySteps)
}

func snapshotLife(t *testing.T, step int) (died bool) {
	t.Helper()
	ctx, ns := context.Background(), api.DefaultNamespace
	c := cluster.Start(t, cluster.Config{Agents: 1, Provider: snapshotProvider()})
	defer c.Close()
	c.AwaitRest(time.Minute)
	insist(t, func() error {
		_, err := c.Client.ApplyVolume(ctx, ns, "pg", cluster.VolumeSpec(), 0)
		return err
	})
	c.AwaitVolume("pg", api.VolumeReady, time.Minute)
	over, end := context.WithCancel(ctx)
	comes, fate := c.Doom(step), make(chan bool, 1)
	go func() {
		select {
		case <-comes:
			restartServer(c)
			fate <- true
		case <-over.Done():
			fate <- false
		}
	}()
	insist(t, func() error {
		_, err := c.Client.CreateSnapshot(ctx, ns, "before", api.SnapshotCreation{VolumeID: "pg"})
		return err
	})
	awaitSnapshot(c, "before", api.SnapshotReady)
	copied := cluster.VolumeSpec()
	copied.SnapshotID = "before"
	insist(t, func() error {
		_, err := c.Client.ApplyVolume(ctx, ns, "copy", copied, 0)
		return err
	})
	c.AwaitVolume("copy", api.VolumeReady, 10*time.Minute)
	if made := c.Backend.SnapshotsMade(); len(made) != 1 {
		t.Errorf("step %d: the provider has the snapshots %+v, want one", step, made)
	}
	gone := func(err error) error {
		if api.CodeOf(err) == api.CodeNotFound {
			return nil
		}
		return err
	}
	// The provider deletes neither the volume before the snapshot, nor that before
	// the copy: all are asked for at once, and go in the right order.
	for _, id := range []api.VolumeID{"pg", "copy"} {
		insist(t, func() error { return gone(c.Client.DeleteVolume(ctx, ns, id, 0)) })
	}
	insist(t, func() error { return gone(c.Client.DeleteSnapshot(ctx, ns, "before", 0)) })
	c.AwaitVolume("pg", "", 20*time.Minute)
	end()
	died = <-fate
	c.AwaitRest(10 * time.Minute)
	c.Validate()
	if v, s := c.Backend.Volumes(), c.Backend.SnapshotsMade(); len(v)+len(s) > 0 {
		t.Errorf("step %d: the provider still has %+v and %+v", step, v, s)
	}
	return died
}

func awaitSnapshot(c *cluster.Cluster, id api.SnapshotID, want api.SnapshotState) {
	c.TB.Helper()
	cluster.Await(c, "snapshot "+string(id)+" "+string(want), 10*time.Minute,
		func(ctx context.Context, q client.Query) (api.SnapshotInfo, uint64, error) {
			return c.Client.Snapshot(ctx, api.DefaultNamespace, id, q)
		},
		func(s api.SnapshotInfo, err error) bool { return err == nil && s.Status.State == want })
}
