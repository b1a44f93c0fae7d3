package cluster

import (
	"context"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// VolumeSpec is a volume of the provider that one node may write to.
func VolumeSpec() api.VolumeSpec {
	return api.VolumeSpec{
		PluginID:     PluginID,
		CapacityMin:  1 << 20,
		Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
	}
}

// JobSpec is a service of count instances, each with one task that uses the
// volumes.
func JobSpec(count int, volumes ...api.VolumeID) api.JobSpec {
	group := api.TaskGroup{Name: "main", Count: count, Tasks: []api.Task{{Name: "task", Driver: DriverName}}}
	for _, v := range volumes {
		group.Volumes = append(group.Volumes, api.VolumeRequest{
			Name: string(v), Type: api.VolumeTypeCSI, Source: v,
			AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem,
		})
		group.Tasks[0].VolumeMounts = append(group.Tasks[0].VolumeMounts,
			api.VolumeMount{Volume: string(v), Destination: "/" + string(v)})
	}
	return api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{group}}
}

// Await reads something again and again, each time when it may have changed,
// until ok says so. It fails the test after limit.
func Await[T any](c *Cluster, what string, limit time.Duration, read func(context.Context, client.Query) (T, uint64, error), ok func(T, error) bool) T {
	c.TB.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var last T
	var lastErr error
	for index := uint64(0); ; {
		v, at, err := read(ctx, client.Query{Index: index, Wait: time.Second})
		if ctx.Err() != nil {
			status, _ := c.Client.Status(context.Background())
			c.TB.Fatalf("%s: not within %s; last %+v (%v); the cluster waits for %+v", what, limit, last, lastErr, status.Waits)
		}
		if ok(v, err) {
			return v
		}
		last, lastErr = v, err
		if err == nil {
			index = at
			continue
		}
		index = 0
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// AwaitVolume waits for a state of a volume; "" waits until it is gone.
func (c *Cluster) AwaitVolume(id api.VolumeID, want api.VolumeState, limit time.Duration) api.VolumeInfo {
	c.TB.Helper()
	return Await(c, "volume "+string(id)+" "+string(want), limit,
		func(ctx context.Context, q client.Query) (api.VolumeInfo, uint64, error) {
			return c.Client.Volume(ctx, api.DefaultNamespace, id, q)
		},
		func(v api.VolumeInfo, err error) bool {
			if want == "" {
				return api.CodeOf(err) == api.CodeNotFound
			}
			return err == nil && v.Status.State == want
		})
}

// AwaitJob waits for a state of a job.
func (c *Cluster) AwaitJob(id api.JobID, want api.JobState, limit time.Duration) api.JobInfo {
	c.TB.Helper()
	return Await(c, "job "+string(id)+" "+string(want), limit,
		func(ctx context.Context, q client.Query) (api.JobInfo, uint64, error) {
			return c.Client.Job(ctx, api.DefaultNamespace, id, q)
		},
		func(j api.JobInfo, err error) bool { return err == nil && j.State == want })
}

// AwaitFree waits until nothing holds a volume.
func (c *Cluster) AwaitFree(id api.VolumeID, limit time.Duration) {
	c.TB.Helper()
	Await(c, "volume "+string(id)+" free", limit,
		func(ctx context.Context, q client.Query) (api.VolumeInfo, uint64, error) {
			return c.Client.Volume(ctx, api.DefaultNamespace, id, q)
		},
		func(v api.VolumeInfo, err error) bool {
			return err == nil && len(v.Attachments) == 0 && len(v.Publications) == 0
		})
}

// Must fails the test on an error of a call that answers something.
func Must[T any](c *Cluster) func(T, error) T {
	return func(v T, err error) T {
		c.TB.Helper()
		if err != nil {
			c.TB.Fatal(err)
		}
		return v
	}
}
