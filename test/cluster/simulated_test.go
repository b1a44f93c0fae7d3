package cluster_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/test/cluster"
)

// everywhere applies a job that runs on every node, and waits until it does.
func everywhere(c *cluster.Cluster, nodes int) {
	spec := cluster.JobSpec(1)
	spec.Type = api.JobSystem
	if _, err := c.Client.ApplyJob(context.Background(), api.DefaultNamespace, "logs", spec, 0); err != nil {
		c.TB.Fatal(err)
	}
	run(c, nodes)
}

// run waits until so many allocations of the job run.
func run(c *cluster.Cluster, n int) {
	cluster.Await(c, "allocations", time.Minute, func(ctx context.Context, q client.Query) (api.JobInfo, uint64, error) {
		return c.Client.Job(ctx, api.DefaultNamespace, "logs", q)
	}, func(j api.JobInfo, err error) bool {
		found := 0
		for _, a := range j.Allocations {
			if a.Status.State == api.AllocRunning {
				found++
			}
		}
		return err == nil && found == n
	})
}

// Agents whose runners were made by another factory run what they are told, and
// end it, without a task or a mount.
func TestAgentsRunWithOtherRunners(t *testing.T) {
	t.Parallel()
	const agents = 20
	c := cluster.Start(t, cluster.Config{})
	c.StartAgents(agents)
	everywhere(c, agents)
	nodes, _, err := c.Client.Nodes(context.Background(), client.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.DrainNode(context.Background(), nodes[0].ID, api.DrainRequest{}, 0); err != nil {
		t.Fatal(err)
	}
	cluster.Await(c, "the drain", time.Minute, func(ctx context.Context, q client.Query) (api.NodeInfo, uint64, error) {
		return c.Client.Node(ctx, nodes[0].ID, q)
	}, func(n api.NodeInfo, err error) bool {
		return err == nil && n.Status.Drained != nil && n.Status.Drained.Complete
	})
	run(c, agents-1)
	if _, err := c.Client.SetEligibility(context.Background(), nodes[0].ID, true, 0); err != nil {
		t.Fatal(err)
	}
	run(c, agents)
	if _, err := c.Client.StopJob(context.Background(), api.DefaultNamespace, "logs", 0); err != nil {
		t.Fatal(err)
	}
	run(c, 0)
}

// BenchmarkSimulatedAgents is what 2,000 whole agents and their server take in
// one process: to start, of memory, of a processor while nothing happens, and
// until a job runs on all.
func BenchmarkSimulatedAgents(b *testing.B) {
	const agents = 2000
	for range b.N {
		c := cluster.Start(b, cluster.Config{})
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		c.StartAgents(agents)
		b.ReportMetric(time.Since(began).Seconds(), "start-s")
		began = time.Now()
		everywhere(c, agents)
		b.ReportMetric(time.Since(began).Seconds(), "job-s")
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/agents/1024, "KiB/agent")
		used := processor(b)
		const idle = 10 * time.Second
		<-time.After(idle)
		b.ReportMetric(100*(processor(b)-used).Seconds()/idle.Seconds(), "idle-cpu-%")
	}
}
