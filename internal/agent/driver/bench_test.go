package driver_test

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/agent/driver"
)

// BenchmarkStartAndStop measures one task after the other, from the call of
// Start until the command runs, and from the call of Stop until nothing of the
// task is left. Each is waited for meanwhile, as an agent does. Run it with TMPDIR on a tmpfs, as run directories should be.
func BenchmarkStartAndStop(b *testing.B) {
	for _, name := range []string{driver.NameExec, driver.NameRawExec} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			d := w.driver(name)
			var starting, stopping time.Duration
			for b.Loop() {
				spec := w.spec("sleep", "1000")
				before := time.Now()
				start(b, d, spec)
				started := time.Now()
				ended := make(chan error, 1)
				go func() {
					_, err := d.Wait(ctx(b), spec.ID)
					ended <- err
				}()
				stop := time.Now()
				if err := d.Stop(ctx(b), spec.ID, "SIGTERM", time.Minute); err != nil {
					b.Fatal(err)
				}
				starting, stopping = starting+started.Sub(before), stopping+time.Since(stop)
				if err := <-ended; err != nil {
					b.Fatal(err)
				}
				if err := d.Destroy(ctx(b), spec.ID); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(starting.Microseconds())/1e3/float64(b.N), "ms/start")
			b.ReportMetric(float64(stopping.Microseconds())/1e3/float64(b.N), "ms/stop")
		})
	}
}
