package simulation_test

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
	"github.com/berth-dev/berth/test/cluster"
)

// Where a plugin says how much room there is, nobody is sent where there is none,
// and who cannot be placed is told why. When there is room again, it goes on.
func TestAllocationsGoWhereThereIsRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster.Start(t, cluster.Config{Agents: 3, Provider: csitest.Options{
			Attach: true, Stage: true, Topology: true, RoomAt: map[string]int64{"n1": 0, "n2": 4 << 20, "n3": 0},
		}})
		defer c.Close()
		ctx := context.Background()
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "warm", scratchJob(1), 0))
		c.AwaitJob("warm", api.JobRunning, 20*time.Minute)
		time.Sleep(2 * time.Minute) // the plugin was asked, for these parameters
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "db", scratchJob(3), 0))
		c.AwaitJob("db", api.JobRunning, time.Minute)
		for _, a := range read[[]*api.Allocation](c)(c.Client.Allocations(ctx, client.Query{})) {
			if a.JobID == "db" && !strings.HasPrefix(string(a.NodeID), "n2") {
				t.Errorf("allocation %s was placed on node %s, where there is no room", a.Name(), a.NodeID)
			}
		}
		time.Sleep(2 * time.Minute)
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "late", scratchJob(1), 0))
		time.Sleep(10 * time.Second)
		info := read[api.JobInfo](c)(c.Client.Job(ctx, api.DefaultNamespace, "late", client.Query{}))
		if text := fmt.Sprint(info.Waits); !strings.Contains(text, "says that it has no room there") {
			t.Errorf("job late waits for %s", text)
		}
		cluster.Must[api.JobInfo](c)(c.Client.StopJob(ctx, api.DefaultNamespace, "db", 0))
		c.AwaitJob("late", api.JobRunning, 3*time.Minute)
		c.AwaitRest(patience)
		c.Validate()
	})
}

// Without any word of the plugin, an allocation whose volume cannot be made near
// its node is tried on another one, once on each, and never in a loop.
func TestVolumeThatCannotBeMadeHereIsMadeElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster.Start(t, cluster.Config{Agents: 4, Provider: csitest.Options{
			Attach: true, Stage: true, Topology: true, RoomAt: map[string]int64{"n1": 0, "n2": 0, "n3": 1 << 20, "n4": 0},
		}})
		defer c.Close()
		ctx := context.Background()
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "db", scratchJob(1), 0))
		c.AwaitJob("db", api.JobRunning, time.Minute)
		if n := len(read[[]*api.Allocation](c)(c.Client.Allocations(ctx, client.Query{}))); n > 4 {
			t.Errorf("it took %d allocations to find the one node of four that has room", n)
		}
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "more", scratchJob(1), 0))
		time.Sleep(time.Hour)
		n := 0
		for _, a := range read[[]*api.Allocation](c)(c.Client.Allocations(ctx, client.Query{})) {
			if a.JobID == "more" {
				n++
			}
		}
		if n > 60 {
			t.Errorf("in an hour without room, %d allocations were placed", n)
		}
		cluster.Must[api.JobInfo](c)(c.Client.StopJob(ctx, api.DefaultNamespace, "db", 0))
		c.AwaitJob("more", api.JobRunning, 10*time.Minute)
		c.AwaitRest(patience)
		c.Validate()
	})
}
