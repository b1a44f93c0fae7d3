package simulation_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/test/cluster"
)

const larger = 2 << 20

// TestDiesBetweenAnyTwoStepsOfAnExpansion changes a volume that a job uses, and
// lets the leader, the agent, or both die with each entry that is written
// meanwhile. Whichever it is, the volume has its size and its parameters in the
// end, at the provider and on its node, and the driver saw no rule broken.
func TestDiesBetweenAnyTwoStepsOfAnExpansion(t *testing.T) {
	t.Parallel()
	both := csitest.Options{Attach: true, Stage: true, Expand: true, NodeExpand: true, Modify: true}
	offline := both
	offline.Offline = true
	for name, o := range map[string]csitest.Options{
		"InUse": both, "Offline": offline, "OnlyTheNode": {Stage: true, NodeExpand: true}, "NothingIsStaged": {Expand: true, NodeExpand: true, Modify: true},
	} {
		for who, dies := range map[string]struct {
			when func(int) moment
			dies func(*cluster.Cluster)
		}{
			"Leader": {doom, restartServer}, "Agent": {written, restartAgent},
			"Both": {doom, func(c *cluster.Cluster) { restartServer(c); restartAgent(c) }},
		} {
			t.Run(name+"/"+who, func(t *testing.T) {
				t.Parallel()
				for step := 1; ; step++ {
					died := false
					t.Run(strconv.Itoa(step), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { died = expansion(t, o, dies.when(step), dies.dies) })
					})
					if !died || t.Failed() {
						break
					}
					if step == manySteps {
						t.Fatalf("an expansion has more than %d steps", manySteps)
					}
				}
			})
		}
	}
}

// expansion changes a volume in use, and calls dies at some moment of it. It
// answers whether the moment came.
func expansion(t *testing.T, o csitest.Options, when moment, dies func(*cluster.Cluster)) (died bool) {
	t.Helper()
	c := cluster.Start(t, cluster.Config{Agents: 1, Provider: o})
	defer c.Close()
	c.AwaitRest(time.Minute)
	ctx, ns := context.Background(), api.DefaultNamespace
	spec := cluster.VolumeSpec()
	cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, ns, "pg", spec, 0))
	cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, ns, "db", cluster.JobSpec(1, "pg"), 0))
	c.AwaitJob("db", api.JobRunning, time.Minute)
	c.AwaitRest(time.Minute)

	over, end := context.WithCancel(ctx)
	fate := make(chan bool, 1)
	comes := when(c)
	go func() {
		select {
		case <-comes:
			dies(c)
			fate <- true
		case <-over.Done():
			fate <- false
		}
	}()
	spec.CapacityMin = larger
	if o.Modify {
		spec.MutableParameters = map[string]string{"iops": "3000"}
	}
	insist(t, func() error {
		_, err := c.Client.ApplyVolume(ctx, ns, "pg", spec, 0)
		return err
	})
	if o.Offline {
		insist(t, func() error {
			_, err := c.Client.StopJob(ctx, ns, "db", 0)
			return err
		})
		c.AwaitJob("db", api.JobStopped, 10*time.Minute)
		insist(t, func() error {
			_, err := c.Client.ApplyJob(ctx, ns, "db", cluster.JobSpec(1, "pg"), 0)
			return err
		})
		c.AwaitJob("db", api.JobRunning, 10*time.Minute)
	}
	awaitChanged(c)
	c.AwaitRest(10 * time.Minute)
	time.Sleep(time.Minute) // the job becomes stable
	c.AwaitRest(10 * time.Minute)
	v := awaitChanged(c)
	have := c.Backend.Volumes()[0]
	if have.Capacity != larger || have.Grown != larger || v.Status.Capacity != larger {
		t.Errorf("the provider has %d bytes, %d of them grown on the node, and the state says %d; want %d", have.Capacity, have.Grown, v.Status.Capacity, larger)
	}
	if o.Modify && (have.Mutable["iops"] != "3000" || v.Status.MutableParameters["iops"] != "3000") {
		t.Errorf("the provider has the parameters %v, and the state says %v", have.Mutable, v.Status.MutableParameters)
	}
	c.Validate()
	// Only now: who dies later than that is not brought back.
	end()
	return <-fate
}

// awaitChanged waits until the volume is as its spec says, also on its node.
func awaitChanged(c *cluster.Cluster) api.VolumeInfo {
	c.TB.Helper()
	return cluster.Await(c, "volume pg changed", 10*time.Minute,
		func(ctx context.Context, q client.Query) (api.VolumeInfo, uint64, error) {
			return c.Client.Volume(ctx, api.DefaultNamespace, "pg", q)
		},
		func(v api.VolumeInfo, err error) bool {
			if err != nil || v.Status.Expansion != nil || v.Status.Modification != nil || v.Status.NodeExpansion != 0 {
				return false
			}
			for _, p := range v.Publications {
				if p.Status.NodeExpansion != 0 {
					return false
				}
			}
			return true
		})
}

// TestExpand_OnSeveralNodes expands a volume that jobs use on three nodes: each
// of them grows it. A fourth that mounts it later has nothing left to do.
func TestExpand_OnSeveralNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster.Start(t, cluster.Config{Agents: 4, Provider: csitest.Options{Attach: true, Stage: true, Expand: true, NodeExpand: true}})
		defer c.Close()
		ctx, ns := context.Background(), api.DefaultNamespace
		spec := cluster.VolumeSpec()
		spec.Capabilities[0].AccessMode = api.MultiNodeMultiWriter
		cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, ns, "pg", spec, 0))
		job := cluster.JobSpec(3, "pg")
		job.Groups[0].Volumes[0].AccessMode = api.MultiNodeMultiWriter
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, ns, "db", job, 0))
		c.AwaitJob("db", api.JobRunning, time.Minute)
		c.AwaitRest(time.Minute)
		nodes := map[string]bool{}
		for _, n := range c.Backend.Volumes()[0].Staged {
			nodes[n] = true
		}
		spec.CapacityMin = larger
		cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, ns, "pg", spec, 0))
		awaitChanged(c)
		grew := map[string]int{}
		for _, call := range c.Backend.Calls() {
			if call.Method == "NodeExpandVolume" {
				grew[call.Node]++
			}
		}
		if len(grew) != len(nodes) {
			t.Errorf("it grew on %v, want once on each of %v", grew, nodes)
		}
		for n, times := range grew {
			if times != 1 || !nodes[n] {
				t.Errorf("it grew %d times on %s", times, n)
			}
		}
		c.AwaitRest(time.Minute)
		c.Validate()
	})
}
