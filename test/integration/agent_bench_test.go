package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// BenchmarkAgentRestart measures an agent with 500 allocations, 200 of which hold
// a staged volume: how long the next agent takes from its start until it has
// found all of them, the memory that it has then, and the processor time that it
// uses in a second in which nothing happens.
func BenchmarkAgentRestart(b *testing.B) {
	const plain, staged = 300, 200
	metrics := host.FreeAddress(b)
	m := host.StartMock(b, "-real-mounts")
	berth := host.Start(b, host.Options{Apart: true, Config: fmt.Sprintf(
		"plugin \"mock\" {\n socket = %q\n}\ntelemetry {\n metrics_address = %q\n}\n", m.Socket, metrics)})
	f := &fleet{tb: b, berth: berth, client: berth.Client()}
	task := api.Task{Name: "task", Driver: "raw_exec", Config: map[string]any{"command": "/bin/sleep", "args": []any{"100000"}}}
	spec := api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{Name: "main", Count: plain, Tasks: []api.Task{task}}}}
	if _, err := f.client.ApplyJob(b.Context(), api.DefaultNamespace, "plain", spec, 0); err != nil {
		b.Fatal(err)
	}
	for i := range staged {
		id := api.VolumeID(fmt.Sprintf("v%d", i))
		f.volume(id)
		f.submit(api.JobID(id), id)
	}
	vitals := func(all bool) (v host.Vitals) {
		berth.Eventually("all allocations are up", 10*time.Minute, func() (err error) {
			if v, err = berth.Vitals(metrics); err == nil && all && v.Up < plain+staged {
				err = fmt.Errorf("%d are", v.Up)
			}
			return err
		})
		return v
	}
	vitals(true)
	var took []time.Duration
	var last host.Vitals
	for b.Loop() {
		berth.Kill()
		began := time.Now()
		berth.Launch()
		last = vitals(true)
		took = append(took, time.Since(began))
	}
	const rest = 10 * time.Second
	<-time.After(rest)
	idle := vitals(false)
	percentiles(b, "-ms", took)
	b.ReportMetric(float64(idle.Memory)/(1<<20), "MiB")
	b.ReportMetric(float64(idle.CPU-last.CPU)/float64(rest)*100, "%cpu-idle")
	b.ReportMetric(float64(last.CPU)/float64(time.Millisecond), "cpu-ms/restart")
	f.stop("plain")
	for i := range staged {
		f.stop(api.JobID(fmt.Sprintf("v%d", i)))
	}
	for i := range staged {
		f.untilFree(api.VolumeID(fmt.Sprintf("v%d", i)))
	}
	berth.Eventually("everything has ended", 10*time.Minute, func() error {
		a, err := berth.Account(f.client)
		if err == nil && len(a.Supervisors) > 0 {
			err = fmt.Errorf("%d supervisors", len(a.Supervisors))
		}
		return err
	})
}
