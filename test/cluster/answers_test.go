package cluster_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/test/cluster"
)

// TestNothingIsStuckWhateverAPluginAnswers: anchors 2.8 and 2.10. A volume is
// made, used, released and deleted, while each kind of call is answered with
// each code three times: with nothing done, and, where the code leaves that
// open, with all done. In the end the provider has nothing, and saw no call out
// of order.
func TestNothingIsStuckWhateverAPluginAnswers(t *testing.T) {
	t.Parallel()
	for _, kind := range []api.OperationKind{api.OperationCreate, api.OperationPublish, api.OperationUnpublish, api.OperationDelete} {
		for _, code := range fit.Codes()[1:] {
			actions := map[string]csitest.Action{"Undone": csitest.Fail(code, "because")}
			verdict := fit.Judge(kind, code)
			if kind == api.OperationDelete && verdict.Done {
				delete(actions, "Undone") // it would be untrue
			}
			if !verdict.Certain || verdict.Done {
				actions["Done"] = csitest.FailAfter(code, "because")
			}
			for what, action := range actions {
				t.Run(string(kind)+"/"+code+"/"+what, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { live(t, kind, action, verdict) })
				})
			}
		}
	}
}

// live is the life of a volume whose calls of one kind go wrong three times.
func live(t *testing.T, kind api.OperationKind, action csitest.Action, verdict fit.Verdict) {
	t.Helper()
	const limit = 30 * time.Minute
	c := cluster.Start(t, cluster.Config{Agents: 2, Provider: csitest.Options{Attach: true, Stage: true}})
	defer c.Close()
	ctx, ns := context.Background(), api.DefaultNamespace
	c.Backend.Script(csitest.Rule{Method: fit.CallOf(kind), Times: 3, Do: action})
	cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, ns, "pg", cluster.VolumeSpec(), 0))
	if kind == api.OperationCreate && verdict.Certain && !verdict.Retry {
		failed := c.AwaitVolume("pg", api.VolumeFailed, limit)
		if failed.Status.Reason == "" {
			t.Error("it has failed, and nobody knows why")
		}
	} else {
		c.AwaitVolume("pg", api.VolumeReady, limit)
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, ns, "db", cluster.JobSpec(1, "pg"), 0))
		c.AwaitJob("db", api.JobRunning, limit)
		cluster.Must[api.JobInfo](c)(c.Client.StopJob(ctx, ns, "db", 0))
		c.AwaitJob("db", api.JobStopped, limit)
		c.AwaitFree("pg", limit)
	}
	if err := c.Client.DeleteVolume(ctx, ns, "pg", 0); err != nil {
		t.Fatal(err)
	}
	c.AwaitVolume("pg", "", limit)
	c.AwaitRest(limit)
	c.Validate()
	if left := c.Backend.Volumes(); len(left) > 0 {
		t.Errorf("the provider has volumes that nobody knows: %+v", left)
	}
}
