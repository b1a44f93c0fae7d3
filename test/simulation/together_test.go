package simulation_test

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/cluster"
)

// Two jobs that want the same two volumes never have one each: who is first gets
// both, then the other.
func TestTwoJobsWithTheSameTwoVolumesBothRunInTheEnd(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Agents: 2, Provider: provider}, func(_ *testing.T, p *patient) {
		for _, id := range []api.VolumeID{"v1", "v2"} {
			p.make(id)
			p.AwaitVolume(id, api.VolumeReady, limit)
		}
		p.apply("z", cluster.JobSpec(1, "v2"))
		p.AwaitJob("z", api.JobRunning, limit)
		both := func(priority int) api.JobSpec {
			spec, second := cluster.JobSpec(1, "v1"), cluster.JobSpec(1, "v2")
			second.Groups[0].Name = "second"
			spec.Groups = append(spec.Groups, second.Groups...)
			spec.Priority = priority
			return spec
		}
		p.apply("low", both(50))
		p.pass(time.Minute)
		p.apply("high", both(60))
		p.pass(time.Minute)
		p.stop("z")
		p.AwaitJob("high", api.JobRunning, limit)
		p.stop("high")
		p.AwaitJob("low", api.JobRunning, limit)
		p.stop("low")
	})
}
