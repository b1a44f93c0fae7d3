package cli_test

import (
	"slices"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/spec"
	"github.com/berth-dev/berth/test/cluster"
)

// TestExamplesRun applies examples to a cluster whose driver runs nothing and
// whose plugin is in memory. All else is as in the files: their volumes and
// allocations come to be. Directories of nodes are left out.
func TestExamplesRun(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"batch.hcl", "block.hcl", "docker.hcl", "replicas.hcl", "shared.hcl", "updates.hcl"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := spec.Parse(name, []byte(read(t, "examples/"+name)))
			if err != nil {
				t.Fatal(err)
			}
			c := cluster.Start(t, cluster.Config{Agents: 3, Provider: csitest.Options{Attach: true, Stage: true, Snapshot: true, MountGroup: true}})
			for _, v := range f.Volumes {
				v.Spec.PluginID = cluster.PluginID
				if _, err := c.Client.ApplyVolume(t.Context(), api.DefaultNamespace, v.ID, v.Spec, 0); err != nil {
					t.Fatal(err)
				}
			}
			for _, j := range f.Jobs {
				inMemory(&j.Spec)
				if _, err := c.Client.ApplyJob(t.Context(), api.DefaultNamespace, j.ID, j.Spec, 0); err != nil {
					t.Fatal(err)
				}
			}
			for _, j := range f.Jobs {
				want := api.JobRunning
				if j.Spec.Type == api.JobBatch {
					want = api.JobComplete
				}
				got := c.AwaitJob(j.ID, want, limit)
				if want == api.JobRunning && len(got.Allocations) != j.Spec.Groups[0].Count {
					t.Errorf("job %s has %d allocations", j.ID, len(got.Allocations))
				}
			}
		})
	}
}

// inMemory has a job run where nothing real is.
func inMemory(j *api.JobSpec) {
	isHost := func(r api.VolumeRequest) bool { return r.Type == api.VolumeTypeHost }
	for i := range j.Groups {
		g := &j.Groups[i]
		host := map[string]bool{}
		for k := range g.Volumes {
			host[g.Volumes[k].Name] = isHost(g.Volumes[k])
			if e := g.Volumes[k].Ephemeral; e != nil {
				e.PluginID = cluster.PluginID
			}
		}
		g.Volumes = slices.DeleteFunc(g.Volumes, isHost)
		for k := range g.Tasks {
			task := &g.Tasks[k]
			task.Driver, task.User, task.Config = cluster.DriverName, "", nil
			if j.Type == api.JobBatch {
				task.Config = map[string]any{"run": "50ms"}
			}
			task.VolumeMounts = slices.DeleteFunc(task.VolumeMounts, func(m api.VolumeMount) bool { return host[m.Volume] })
		}
	}
}
