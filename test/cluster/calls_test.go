package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/controller/dispatcher"
	"github.com/berth-dev/berth/test/cluster"
)

// TestACallThatHangs: anchors 3 and 4.18, where a plugin that hangs holds the
// queue up for two minutes a call. Here the first call of a create hangs, and
// ten volumes are asked for after it.
func TestACallThatHangs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		calls    dispatcher.Calls
		from, to time.Duration // when the last of the others is ready
	}{
		"DelaysNothingElse":                           {dispatcher.Calls{Max: 2}, 0, 10 * time.Second},
		"DelaysNothingElseWhereEachNodeHasTwo":        {dispatcher.Calls{MaxPerNode: 2}, 0, 10 * time.Second},
		"DelaysAllOthersWithOneCallAtATime":           {dispatcher.Calls{Max: 1}, 2 * time.Minute, 3 * time.Minute},
		"DelaysAllOthersUntilItIsSlow":                {dispatcher.Calls{Max: 1, MaxSlow: new(1)}, 15 * time.Second, 30 * time.Second},
		"DelaysAllOthersNoLongerThanItsOwnTimeAllows": {dispatcher.Calls{Max: 1, Timeout: 20 * time.Second}, 20 * time.Second, 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cl := cluster.Start(t, cluster.Config{Agents: 1, Provider: csitest.Options{Attach: true, Stage: true}, Calls: c.calls})
				defer cl.Close()
				ctx, ns := context.Background(), api.DefaultNamespace
				cl.Backend.Script(csitest.Rule{Method: "CreateVolume", Times: 1, Do: csitest.Hang()})
				cluster.Must[api.VolumeInfo](cl)(cl.Client.ApplyVolume(ctx, ns, "hangs", cluster.VolumeSpec(), 0))
				time.Sleep(5 * time.Second)
				began := time.Now()
				for i := range 10 {
					cluster.Must[api.VolumeInfo](cl)(cl.Client.ApplyVolume(ctx, ns, api.VolumeID(fmt.Sprintf("v%d", i)), cluster.VolumeSpec(), 0))
				}
				time.Sleep(time.Second)
				v, _, err := cl.Client.Volume(ctx, ns, "v9", client.Query{})
				if err != nil {
					t.Fatal(err)
				}
				said := fmt.Sprint(v.Waits)
				if waits := strings.Contains(said, "operation create/default/hangs@1 on node"); waits != (c.from > 0) {
					t.Errorf("explain says %s", said)
				}
				for i := range 10 {
					cl.AwaitVolume(api.VolumeID(fmt.Sprintf("v%d", i)), api.VolumeReady, c.to)
				}
				if took := time.Since(began) + 5*time.Second; took < c.from || took > c.to {
					t.Errorf("the others are ready %s after the call that hangs, want %s to %s", took, c.from, c.to)
				}
				cl.AwaitVolume("hangs", api.VolumeReady, 10*time.Minute)
			})
		})
	}
}

// TestANodeWithoutRoomIsLeft: anchors 2.9. The provider attaches no volume to
// the node that was chosen; the allocation runs on another one.
func TestANodeWithoutRoomIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cl := cluster.Start(t, cluster.Config{Agents: 2, Provider: csitest.Options{Attach: true, Stage: true}})
		defer cl.Close()
		ctx, ns := context.Background(), api.DefaultNamespace
		cluster.Must[api.VolumeInfo](cl)(cl.Client.ApplyVolume(ctx, ns, "pg", cluster.VolumeSpec(), 0))
		cl.AwaitVolume("pg", api.VolumeReady, 10*time.Second)
		cl.Backend.Script(csitest.Rule{Method: "ControllerPublishVolume", Times: 1, Do: csitest.Fail("RESOURCE_EXHAUSTED", "26 volumes")})
		cluster.Must[api.JobInfo](cl)(cl.Client.ApplyJob(ctx, ns, "db", cluster.JobSpec(1, "pg"), 0))
		job := cl.AwaitJob("db", api.JobRunning, time.Minute)
		nodes := map[api.NodeID]bool{}
		for _, a := range job.Allocations {
			nodes[a.NodeID] = true
		}
		if len(job.Allocations) != 2 || len(nodes) != 2 {
			t.Errorf("allocations on %v, want one that left, and its successor on the other node: %+v", nodes, job.Allocations)
		}
		cl.AwaitRest(time.Minute)
		cl.Validate()
	})
}
