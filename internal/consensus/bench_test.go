package consensus_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkPropose measures commands a second through the whole write path:
// overlay, log on disk, and state.
func BenchmarkPropose(b *testing.B) {
	for _, callers := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			c := single(b, b.TempDir())
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
