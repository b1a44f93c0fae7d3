package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/consensus"
	"github.com/berth-dev/berth/test/cluster"
)

// BenchmarkApplyToPublished measures the time from the apply of a volume and a
// job to the moment at which the state says that the volume is mounted on its
// node: twelve commits or so, with raft's log and the agent's database on disk,
// and a driver that attaches, stages and answers at once.
func BenchmarkApplyToPublished(b *testing.B) {
	c := start(b)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprintf("v%d", i)
		began := time.Now()
		applyAndAwait(b, c, id)
		took = append(took, time.Since(began))
		b.StopTimer()
		remove(b, c, id)
		b.StartTimer()
	}
	slices.Sort(took)
	ms := func(share float64) float64 {
		return float64(took[int(share*float64(len(took)-1))]) / float64(time.Millisecond)
	}
	b.ReportMetric(ms(0.50), "p50-ms")
	b.ReportMetric(ms(0.99), "p99-ms")
}

// BenchmarkBurst measures how many volumes a second are made, bound and mounted
// when they are all asked for at once.
func BenchmarkBurst(b *testing.B) {
	for _, volumes := range []int{100, 1000} {
		b.Run(fmt.Sprintf("volumes=%d", volumes), func(b *testing.B) {
			c := start(b)
			for i := 0; b.Loop(); i++ {
				var g errgroup.Group
				g.SetLimit(32)
				for n := range volumes {
					g.Go(func() error { return apply(b.Context(), c, fmt.Sprintf("v%d-%d", i, n)) })
				}
				if err := g.Wait(); err != nil {
					b.Fatal(err)
				}
				for n := range volumes {
					awaitPublished(c, fmt.Sprintf("v%d-%d", i, n), 10*time.Minute)
				}
			}
			b.ReportMetric(float64(b.N*volumes)/b.Elapsed().Seconds(), "volumes/s")
		})
	}
}

// start begins a cluster of one server and one agent with their files on disk,
// and a driver that attaches, stages and answers at once.
func start(b *testing.B) *cluster.Cluster {
	b.Helper()
	c := cluster.Start(b, cluster.Config{
		Agents:   1,
		Provider: csitest.Options{Attach: true, Stage: true, Forget: true},
		Stores: func() (consensus.Stores, error) {
			return consensus.OpenStores(b.TempDir(), slog.New(slog.DiscardHandler))
		},
		Disk: true,
	})
	ready(b, c)
	return c
}

// ready waits until the node and its plugin are there.
func ready(b *testing.B, c *cluster.Cluster) {
	b.Helper()
	cluster.Await(c, "the plugin", time.Minute,
		func(ctx context.Context, q client.Query) (*api.Plugin, uint64, error) {
			return c.Client.Plugin(ctx, cluster.PluginID, q)
		},
		func(p *api.Plugin, err error) bool { return err == nil && p.NodesHealthy == 1 })
}

func applyAndAwait(b *testing.B, c *cluster.Cluster, id string) {
	b.Helper()
	if err := apply(b.Context(), c, id); err != nil {
		b.Fatal(err)
	}
	awaitPublished(c, id, time.Minute)
}

// apply asks for a volume and a job that uses it.
func apply(ctx context.Context, c *cluster.Cluster, id string) error {
	if _, err := c.Client.ApplyVolume(ctx, api.DefaultNamespace, api.VolumeID(id), cluster.VolumeSpec(), 0); err != nil {
		return err
	}
	_, err := c.Client.ApplyJob(ctx, api.DefaultNamespace, api.JobID(id), cluster.JobSpec(1, api.VolumeID(id)), 0)
	return err
}

func awaitPublished(c *cluster.Cluster, id string, limit time.Duration) {
	c.TB.Helper()
	cluster.Await(c, "volume "+id+" published", limit,
		func(ctx context.Context, q client.Query) (api.VolumeInfo, uint64, error) {
			return c.Client.Volume(ctx, api.DefaultNamespace, api.VolumeID(id), q)
		},
		func(v api.VolumeInfo, err error) bool {
			return err == nil && len(v.Attachments) == 1 && v.Attachments[0].Status.State == api.NodePublished
		})
}

func remove(b *testing.B, c *cluster.Cluster, id string) {
	b.Helper()
	ctx := context.Background()
	if _, err := c.Client.StopJob(ctx, api.DefaultNamespace, api.JobID(id), 0); err != nil {
		b.Fatal(err)
	}
	c.AwaitFree(api.VolumeID(id), time.Minute)
	if err := c.Client.DeleteVolume(ctx, api.DefaultNamespace, api.VolumeID(id), 0); err != nil {
		b.Fatal(err)
	}
	c.AwaitVolume(api.VolumeID(id), "", time.Minute)
}
