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

// scratchJob is a service whose allocations have a volume each, which goes with
// them.
func scratchJob(count int) api.JobSpec {
	spec := cluster.JobSpec(count)
	spec.Groups[0].Volumes = []api.VolumeRequest{{
		Name: "scratch", Type: api.VolumeTypeCSI, AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem,
		Ephemeral: &api.EphemeralVolume{PluginID: cluster.PluginID, CapacityMin: 1 << 20},
	}}
	spec.Groups[0].Tasks[0].VolumeMounts = []api.VolumeMount{{Volume: "scratch", Destination: "/scratch"}}
	return spec
}

// owned are the volumes that the cluster knows, by their owner.
func owned(c *cluster.Cluster) map[api.AllocID]*api.Volume {
	c.TB.Helper()
	all := map[api.AllocID]*api.Volume{}
	for _, v := range read[[]*api.Volume](c)(c.Client.Volumes(context.Background(), client.Query{})) {
		all[v.Owner] = v
	}
	return all
}

// An allocation's own volume is there as long as a process may write to it: on a
// lost node until that is fenced. Then it goes, and the successor has another.
func TestEphemeralVolumeOfALostNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster.Start(t, cluster.Config{Agents: 2, Provider: csitest.Options{Attach: true, Stage: true, Topology: true}})
		defer c.Close()
		ctx := context.Background()
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "db", scratchJob(1), 0))
		c.AwaitJob("db", api.JobRunning, time.Minute)
		var first *api.Volume
		for owner, v := range owned(c) {
			if first = v; v.ID != api.EphemeralID(owner, "scratch") || v.Status.State != api.VolumeReady {
				t.Errorf("the volume is %s, %s", v.ID, v.Status.State)
			}
		}
		if n := len(c.Backend.Volumes()); n != 1 {
			t.Fatalf("the provider has %d volumes, want 1", n)
		}
		alloc := read[api.AllocationInfo](c)(c.Client.Allocation(ctx, string(first.Owner), client.Query{}))
		for _, n := range c.Nodes {
			if n.ID() == alloc.NodeID {
				switchOff(n)
			}
		}
		silent(c, alloc.NodeID)
		time.Sleep(10 * time.Minute)
		if v := owned(c)[first.Owner]; v == nil || v.Desired != api.Present {
			t.Fatalf("the volume of an allocation that may run is %+v", v)
		}
		cluster.Must[api.NodeInfo](c)(c.Client.FenceNode(ctx, alloc.NodeID, off))
		c.AwaitJob("db", api.JobRunning, time.Minute)
		c.AwaitRest(patience)
		now := owned(c)
		if len(now) != 1 || now[first.Owner] != nil || len(c.Backend.Volumes()) != 1 {
			t.Errorf("volumes after the fence: %v; the provider has %d", now, len(c.Backend.Volumes()))
		}
		cluster.Must[api.JobInfo](c)(c.Client.StopJob(ctx, api.DefaultNamespace, "db", 0))
		c.AwaitRest(patience)
		if now := owned(c); len(now) != 0 || len(c.Backend.Volumes()) != 0 {
			t.Errorf("volumes of a stopped job: %v; the provider has %d", now, len(c.Backend.Volumes()))
		}
		c.Validate()
	})
}

// A volume that is refused for good is what its allocation fails by, and the job
// goes on by its rule for that.
func TestEphemeralVolumeThatIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster.Start(t, cluster.Config{Agents: 1, Provider: csitest.Options{Stage: true}})
		defer c.Close()
		ctx := context.Background()
		c.Backend.Script(csitest.Rule{Method: "CreateVolume", Times: 1, Do: csitest.Fail("INVALID_ARGUMENT", "no such pool")})
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "db", scratchJob(1), 0))
		c.AwaitJob("db", api.JobRunning, 10*time.Minute)
		failed := 0
		for _, a := range read[[]*api.Allocation](c)(c.Client.Allocations(ctx, client.Query{})) {
			if a.Status.State == api.AllocFailed {
				failed++
				if p := a.Status.Problem; p == nil || !strings.Contains(p.Message, "no such pool") {
					t.Errorf("the allocation failed by %+v", p)
				}
			}
		}
		c.AwaitRest(patience)
		if n := len(owned(c)); failed != 1 || n != 1 || len(c.Backend.Volumes()) != 1 {
			t.Errorf("%d allocations failed, and there are %d volumes", failed, n)
		}
	})
}
