package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/test/host"
)

// fleet is an agent with volumes of a driver that answers at once, and jobs
// that use them: for measurements.
type fleet struct {
	tb     testing.TB
	berth  *host.Berth
	client *client.Client
}

// startFleet starts an agent beside the mock driver, which attaches, stages and
// publishes for real and at once.
func startFleet(tb testing.TB, config string) *fleet {
	tb.Helper()
	m := host.StartMock(tb, "-real-mounts")
	b := host.Start(tb, host.Options{Config: fmt.Sprintf("plugin \"mock\" {\n socket = %q\n}\n%s", m.Socket, config)})
	return &fleet{tb: tb, berth: b, client: b.Client()}
}

// volume makes a volume.
func (f *fleet) volume(id api.VolumeID) {
	f.tb.Helper()
	spec := api.VolumeSpec{
		PluginID: "mock", CapacityMin: 1 << 20,
		Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
	}
	if _, err := f.client.ApplyVolume(f.tb.Context(), api.DefaultNamespace, id, spec, 0); err != nil {
		f.tb.Fatal(err)
	}
	f.untilVolume(id, func(v *api.VolumeInfo) bool { return v.Status.State == api.VolumeReady })
}

// start submits a job, with the volume of its name if it has one, and returns
// when its task runs.
func (f *fleet) start(id api.JobID, volumes ...api.VolumeID) *api.Allocation {
	f.tb.Helper()
	f.submit(id, volumes...)
	return f.untilRunning(id)
}

func (f *fleet) submit(id api.JobID, volumes ...api.VolumeID) {
	f.tb.Helper()
	if err := f.apply(id, volumes...); err != nil {
		f.tb.Fatal(err)
	}
}

// apply is submit for who is not the test's own goroutine.
func (f *fleet) apply(id api.JobID, volumes ...api.VolumeID) error {
	_, err := f.client.ApplyJob(f.tb.Context(), api.DefaultNamespace, id, sleeper(volumes...), 0)
	return err
}

// sleeper is a job of one task, which sleeps, with volumes.
func sleeper(volumes ...api.VolumeID) api.JobSpec {
	task := api.Task{Name: "task", Driver: "exec", Config: map[string]any{"command": "/bin/sleep", "args": []any{"100000"}}}
	group := api.TaskGroup{Name: "main", Count: 1}
	for _, v := range volumes {
		group.Volumes = append(group.Volumes, api.VolumeRequest{
			Name: string(v), Type: api.VolumeTypeCSI, Source: v, AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem,
		})
		task.VolumeMounts = append(task.VolumeMounts, api.VolumeMount{Volume: string(v), Destination: "/" + string(v)})
	}
	group.Tasks = []api.Task{task}
	return api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{group}}
}

// untilRunning returns when the job's task runs.
func (f *fleet) untilRunning(id api.JobID) (running *api.Allocation) {
	f.tb.Helper()
	until(f.tb, "job "+string(id)+" runs", func(ctx context.Context, q client.Query) (api.JobInfo, uint64, error) {
		return f.client.Job(ctx, api.DefaultNamespace, id, q)
	}, func(j *api.JobInfo) bool {
		for _, a := range j.Allocations {
			if a.Status.State == api.AllocRunning && a.Desired == api.DesireRun {
				running = a
				return true
			}
		}
		return false
	})
	return running
}

// stop stops a job.
func (f *fleet) stop(id api.JobID) {
	f.tb.Helper()
	if _, err := f.client.StopJob(f.tb.Context(), api.DefaultNamespace, id, 0); err != nil {
		f.tb.Fatal(err)
	}
}

// untilFree returns when nothing holds the volume.
func (f *fleet) untilFree(id api.VolumeID) {
	f.tb.Helper()
	f.untilVolume(id, func(v *api.VolumeInfo) bool { return len(v.Attachments) == 0 && len(v.Publications) == 0 })
}

func (f *fleet) untilVolume(id api.VolumeID, ok func(*api.VolumeInfo) bool) {
	f.tb.Helper()
	until(f.tb, "volume "+string(id), func(ctx context.Context, q client.Query) (api.VolumeInfo, uint64, error) {
		return f.client.Volume(ctx, api.DefaultNamespace, id, q)
	}, ok)
}

// until reads whenever there may be something new, until ok.
func until[T any](tb testing.TB, what string, read func(context.Context, client.Query) (T, uint64, error), ok func(*T) bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	for index := uint64(0); ; {
		v, at, err := read(ctx, client.Query{Index: index, Wait: time.Minute})
		if err != nil {
			tb.Fatalf("%s: %v; last %+v", what, err, v)
		}
		if ok(&v) {
			return
		}
		index = at
	}
}

// percentiles reports how long things took.
func percentiles(b *testing.B, unit string, took []time.Duration) {
	b.Helper()
	if testing.Verbose() {
		b.Log(took)
	}
	slices.Sort(took)
	for _, p := range []struct {
		name  string
		share float64
	}{{"p50", 0.50}, {"p99", 0.99}} {
		at := took[int(p.share*float64(len(took)-1))]
		b.ReportMetric(float64(at)/float64(time.Millisecond), p.name+unit)
	}
}

// BenchmarkAllocStart measures the time from the submission of a job to the
// moment at which the API says that its task runs, with a volume attached,
// staged and published by a driver that answers at once.
func BenchmarkAllocStart(b *testing.B) {
	f := startFleet(b, "")
	f.volume("v")
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		id := api.JobID(fmt.Sprintf("j%d", i))
		began := time.Now()
		f.start(id, "v")
		took = append(took, time.Since(began))
		b.StopTimer()
		f.stop(id)
		f.untilFree("v")
		b.StartTimer()
	}
	percentiles(b, "-ms", took)
}

// BenchmarkAllocStop measures the time from the end of a task, which was told to
// stop, to the moment at which the API says that its volume is free; and as
// stop-p50-ms and stop-p99-ms the time from the request to stop the job.
func BenchmarkAllocStop(b *testing.B) {
	f := startFleet(b, "")
	f.volume("v")
	var whole, release []time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		id := api.JobID(fmt.Sprintf("j%d", i))
		alloc := f.start(id, "v")
		b.StartTimer()
		began := time.Now()
		f.stop(id)
		f.untilFree("v")
		now := time.Now()
		whole = append(whole, now.Sub(began))
		b.StopTimer()
		release = append(release, now.Sub(f.ended(alloc.ID)))
		b.StartTimer()
	}
	percentiles(b, "-ms", release)
	percentiles(b, "-stop-ms", whole)
}

// ended is when the task of an allocation ended.
func (f *fleet) ended(id api.AllocID) (at time.Time) {
	f.tb.Helper()
	until(f.tb, "the end of the task", func(ctx context.Context, q client.Query) (api.AllocationInfo, uint64, error) {
		return f.client.Allocation(ctx, string(id), q)
	}, func(a *api.AllocationInfo) bool {
		at = a.Status.Tasks["task"].Ended
		return a.Status.State.Terminal()
	})
	return at
}
