package consensus_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/consensus"
	"github.com/berth-dev/berth/internal/state"
)

// BenchmarkPropose measures commands a second through the whole write path:
// overlay, log on disk, and state.
func BenchmarkPropose(b *testing.B) {
	for _, callers := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			c := single(b)
			var next atomic.Int64
			b.ResetTimer()
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for {
						n := next.Add(1)
						if n > int64(b.N) {
							return
						}
						if _, err := c.Propose(b.Context(), volume(n)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commands/s")
			b.ReportMetric(float64(b.N)/float64(c.Counters().Entries.Load()), "commands/entry")
		})
	}
}

func volume(n int64) *command.ApplyVolume {
	return &command.ApplyVolume{
		Namespace: api.DefaultNamespace,
		ID:        api.VolumeID(fmt.Sprintf("volume-%d", n)),
		UID:       fmt.Sprintf("%032x", n),
		Spec: api.VolumeSpec{
			PluginID:     "local",
			CapacityMin:  1 << 30,
			Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
			MountOptions: &api.MountOptions{FSType: "ext4"},
		},
	}
}

// single is a cluster of one server with its log on disk.
func single(tb testing.TB) *consensus.Consensus {
	tb.Helper()
	log := slog.New(slog.DiscardHandler)
	stores, err := consensus.OpenStores(tb.TempDir(), log)
	if err != nil {
		tb.Fatal(err)
	}
	store, err := state.New()
	if err != nil {
		tb.Fatal(err)
	}
	_, transport := raft.NewInmemTransport("one")
	leads := make(chan struct{})
	var once sync.Once
	c, err := consensus.New(consensus.Config{
		ServerID: "one", Expect: 1, Discover: consensus.Alone{}, Transport: transport, Stores: stores,
		Lead: func(ctx context.Context) error {
			once.Do(func() { close(leads) })
			<-ctx.Done()
			return nil
		},
	}, store, log)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
	<-leads
	if _, err := c.Propose(tb.Context(), &command.InitCluster{ClusterID: "test", FeatureLevel: api.FeatureLevel}); err != nil {
		tb.Fatal(err)
	}
	return c
}
