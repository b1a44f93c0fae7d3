// Package simulation_test runs whole clusters in synctest bubbles, where time
// is virtual and hours pass in milliseconds.
package simulation_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/test/cluster"
)

// limit bounds everything that should happen without any timer: it is less
// than the shortest of them would take to fire twice.
const limit = 10 * time.Second

func TestLife(t *testing.T) {
	t.Parallel()
	all := csitest.Options{Attach: true, Stage: true, Topology: true}
	for name, tc := range map[string]struct {
		provider csitest.Options
		want     string
	}{
		"AttachAndStage": {all, `CreateVolume pg OK
ControllerPublishVolume pg n1 OK
NodeStageVolume pg n1 OK
NodePublishVolume pg n1 OK
NodeUnpublishVolume pg n1 OK
NodeUnstageVolume pg n1 OK
ControllerUnpublishVolume pg n1 OK
DeleteVolume pg OK
`},
		"StageOnly": {csitest.Options{Stage: true}, `CreateVolume pg OK
NodeStageVolume pg n1 OK
NodePublishVolume pg n1 OK
NodeUnpublishVolume pg n1 OK
NodeUnstageVolume pg n1 OK
DeleteVolume pg OK
`},
		"PublishOnly": {csitest.Options{}, `CreateVolume pg OK
NodePublishVolume pg n1 OK
NodeUnpublishVolume pg n1 OK
DeleteVolume pg OK
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := cluster.Start(t, cluster.Config{Agents: 1, Provider: tc.provider})
				defer c.Close()
				live(t, c)
				c.Validate()
				if diff := cmp.Diff(tc.want, named(c.Backend.Calls(), "pg")); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// live carries one volume through its whole life.
func live(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx := context.Background()
	ns := api.DefaultNamespace
	cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, ns, "pg", cluster.VolumeSpec(), 0))
	cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, ns, "db", cluster.JobSpec(1, "pg"), 0))
	c.AwaitJob("db", api.JobRunning, limit)
	info := c.AwaitVolume("pg", api.VolumeReady, limit)
	if len(info.Attachments) != 1 || info.Attachments[0].Status.State != api.NodePublished {
		t.Fatalf("attachments of a running job: %+v", info.Attachments)
	}
	if err := c.Client.DeleteVolume(ctx, ns, "pg", 0); api.CodeOf(err) != api.CodeInUse {
		t.Fatalf("delete a held volume: got %v, want in_use", err)
	}
	cluster.Must[api.JobInfo](c)(c.Client.StopJob(ctx, ns, "db", 0))
	c.AwaitJob("db", api.JobStopped, limit)
	c.AwaitFree("pg", limit)
	if err := c.Client.DeleteVolume(ctx, ns, "pg", 0); err != nil {
		t.Fatal(err)
	}
	c.AwaitVolume("pg", "", limit)
}

// named renders the calls with the volume's CSI name replaced by its id.
func named(calls []csitest.Call, id string) string {
	for i := range calls {
		calls[i].Name = id
	}
	return csitest.Sequence(calls)
}
