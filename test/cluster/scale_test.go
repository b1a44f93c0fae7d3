package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/consensus"
	"github.com/berth-dev/berth/test/cluster"
)

// callers is how many users ask at once.
const callers = 32

// each calls f for 0 to n-1, by so many callers at once.
func each(tb testing.TB, n int, f func(ctx context.Context, i int) error) {
	tb.Helper()
	g, ctx := errgroup.WithContext(context.Background())
	g.SetLimit(callers)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	if err := g.Wait(); err != nil {
		tb.Fatal(err)
	}
}

// served is a cluster of one server with its files in a directory, and a fleet
// of so many agents.
func served(tb testing.TB, agents int) (*cluster.Cluster, *cluster.Fleet) {
	tb.Helper()
	dir := tb.TempDir()
	c := cluster.Start(tb, cluster.Config{
		Stores: func() (consensus.Stores, error) { return consensus.OpenStores(dir, slog.New(slog.DiscardHandler)) },
	})
	fleet := c.StartFleet(agents)
	return c, fleet
}

// create makes volumes prefix-0 to prefix-(n-1), and waits until they are ready.
func create(tb testing.TB, c *cluster.Cluster, f *cluster.Fleet, prefix string, n int) {
	tb.Helper()
	done := f.Called.Load() + int64(n)
	each(tb, n, func(ctx context.Context, i int) error {
		_, err := c.Client.ApplyVolume(ctx, api.DefaultNamespace, volumeID(prefix, i), cluster.VolumeSpec(), 0)
		return err
	})
	until(tb, "volumes ready", func() bool { return f.Called.Load() >= done })
}

func volumeID(prefix string, i int) api.VolumeID {
	return api.VolumeID(fmt.Sprintf("%s-%d", prefix, i))
}

// register makes known volumes that are there already.
func register(tb testing.TB, c *cluster.Cluster, prefix string, n int) {
	tb.Helper()
	each(tb, n, func(ctx context.Context, i int) error {
		spec := cluster.VolumeSpec()
		spec.CapacityMin, spec.ExternalID = 0, string(volumeID(prefix, i))
		_, err := c.Client.ApplyVolume(ctx, api.DefaultNamespace, volumeID(prefix, i), spec, 0)
		return err
	})
}

// until waits until ok says so.
func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for began := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Minute {
			tb.Fatalf("%s: not within 10 minutes", what)
		}
	}
}

// rows is how many rows a list has, at most two.
func rows[T any](tb testing.TB, list func(context.Context, client.Query) ([]T, uint64, error)) int {
	tb.Helper()
	all, _, err := list(context.Background(), client.Query{Page: &client.Page{Size: 1}})
	if err != nil {
		tb.Fatal(err)
	}
	return len(all)
}

// counts are the server's counters.
func counts(tb testing.TB, c *cluster.Cluster) map[string]int64 {
	tb.Helper()
	status, err := c.Client.Status(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	return status.Counters
}

// processor is the processor time that this process has taken. On a machine that
// is busy it tells more than the time that passed.
func processor(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// useless is how many plans were made in vain: they changed nothing, or were
// refused.
func useless(counters map[string]int64) (n int64) {
	for name, v := range counters {
		if name == "unchanged" || strings.HasSuffix(name, "conflicts") || strings.HasSuffix(name, "_useless") {
			n += v
		}
	}
	return n
}

// BenchmarkRelease10k measures how many attachments a second are released when
// their jobs are stopped all at once: 10,000 volumes of 100 jobs on 100 nodes,
// whose agents and driver answer at once. It counts the entries of the log for
// each of them, their bytes, and what was written in vain.
func BenchmarkRelease10k(b *testing.B) {
	const jobs, groups = 100, 100
	c, f := served(b, 100)
	create(b, c, f, "v", jobs*groups)
	var before, after map[string]int64
	released := 0
	var took time.Duration
	for b.Loop() {
		b.StopTimer()
		runJobs(b, c, jobs, groups)
		before = counts(b, c)
		took -= processor(b)
		b.StartTimer()
		each(b, jobs, func(ctx context.Context, i int) error {
			_, err := c.Client.StopJob(ctx, api.DefaultNamespace, jobID(i), 0)
			return err
		})
		until(b, "attachments released", func() bool { return rows(b, c.Client.Publications) == 0 })
		released += jobs * groups
		took += processor(b)
		after = counts(b, c)
	}
	b.ReportMetric(float64(took.Microseconds())/float64(released), "cpu-us/release")
	per := func(name string) float64 { return float64(after[name]-before[name]) / (jobs * groups) }
	b.ReportMetric(float64(released)/b.Elapsed().Seconds(), "releases/s")
	b.ReportMetric(per("entries"), "entries/release")
	b.ReportMetric(per("entry_bytes"), "log-B/release")
	b.ReportMetric(float64(useless(after)-useless(before)), "useless")
}

func jobID(i int) api.JobID { return api.JobID(fmt.Sprintf("job-%d", i)) }

// runJobs runs jobs of groups, each of which has a volume of its own, and waits
// until all are mounted.
func runJobs(tb testing.TB, c *cluster.Cluster, jobs, groups int) {
	tb.Helper()
	each(tb, jobs, func(ctx context.Context, i int) error {
		var spec api.JobSpec
		for g := range groups {
			one := cluster.JobSpec(1, volumeID("v", i*groups+g))
			one.Groups[0].Name = fmt.Sprintf("group-%d", g)
			spec.Type, spec.Groups = one.Type, append(spec.Groups, one.Groups...)
		}
		_, err := c.Client.ApplyJob(ctx, api.DefaultNamespace, jobID(i), spec, 0)
		return err
	})
	for i := range jobs {
		c.AwaitJob(jobID(i), api.JobRunning, 10*time.Minute)
	}
}

// BenchmarkIdleVolumes measures one release among volumes that nobody uses: a
// job that runs is stopped, and its volume detached. The cost must not grow
// with their number.
func BenchmarkIdleVolumes(b *testing.B) {
	for _, volumes := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("volumes=%d", volumes), func(b *testing.B) {
			c, f := served(b, 10)
			register(b, c, "idle", volumes)
			create(b, c, f, "v", 1)
			var took time.Duration
			for b.Loop() {
				b.StopTimer()
				runJobs(b, c, 1, 1)
				took -= processor(b)
				b.StartTimer()
				if _, err := c.Client.StopJob(context.Background(), api.DefaultNamespace, jobID(0), 0); err != nil {
					b.Fatal(err)
				}
				c.AwaitFree(volumeID("v", 0), time.Minute)
				took += processor(b)
			}
			b.ReportMetric(float64(took.Microseconds())/float64(b.N), "cpu-us/release")
			if n := useless(counts(b, c)); n != 0 {
				b.Errorf("%d plans were made in vain", n)
			}
		})
	}
}

// BenchmarkCreate measures how many volumes a second are made: asked for over
// HTTP by so many callers, written, given to an agent, and ready.
func BenchmarkCreate(b *testing.B) {
	b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
		const volumes = 10_000
		c, f := served(b, 3)
		before, took := counts(b, c), -processor(b)
		n := 0
		for b.Loop() {
			create(b, c, f, fmt.Sprintf("v%d", n), volumes)
			n++
		}
		after := counts(b, c)
		took += processor(b)
		made := float64(n * volumes)
		b.ReportMetric(float64(took.Microseconds())/made, "cpu-us/volume")
		b.ReportMetric(made/b.Elapsed().Seconds(), "volumes/s")
		b.ReportMetric(float64(after["entries"]-before["entries"])/made, "entries/volume")
		b.ReportMetric(float64(after["entry_bytes"]-before["entry_bytes"])/made, "log-B/volume")
		b.ReportMetric(float64(useless(after)-useless(before)), "useless")
	})
}

// BenchmarkRestart measures what a server with many volumes takes that is killed
// right after they were made: memory, after it was started again, and time until
// it serves. With stopped it was stopped in order.
func BenchmarkRestart(b *testing.B) {
	const volumes = 100_000
	b.Run(fmt.Sprintf("volumes=%d", volumes), func(b *testing.B) { restart(b, volumes, true) })
	b.Run(fmt.Sprintf("stopped/volumes=%d", volumes), func(b *testing.B) { restart(b, volumes, false) })
}

func restart(b *testing.B, volumes int, killed bool) {
	dir := b.TempDir()
	c := cluster.Start(b, cluster.Config{
		Stores: func() (consensus.Stores, error) { return consensus.OpenStores(dir, slog.New(slog.DiscardHandler)) },
	})
	f := c.StartFleet(3)
	create(b, c, f, "v", volumes)
	f.Stop()
	left := dir
	if killed {
		// A server writes no file twice over, and syncs what it has told: this is
		// what a kill leaves.
		left = filepath.Join(b.TempDir(), "left")
		if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
			b.Fatal(err)
		}
	}
	took, busy := time.Duration(0), time.Duration(0)
	for b.Loop() {
		b.StopTimer()
		c.StopServer()
		if killed {
			dir = filepath.Join(b.TempDir(), "again")
			if err := os.CopyFS(dir, os.DirFS(left)); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		busy -= processor(b)
		b.StartTimer()
		began := time.Now()
		c.StartServer()
		until(b, "the server serves", func() bool { return served100k(c) })
		took += time.Since(began)
		busy += processor(b)
	}
	b.ReportMetric(busy.Seconds()/float64(b.N), "cpu-s")
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(took.Seconds()/float64(b.N), "s")
	b.ReportMetric(float64(m.HeapInuse+m.StackInuse)/(1<<20), "MiB")
}

// served100k reports whether the server leads and answers.
func served100k(c *cluster.Cluster) bool {
	_, _, err := c.Client.Volume(context.Background(), api.DefaultNamespace, "v-99999", client.Query{})
	return err == nil
}
