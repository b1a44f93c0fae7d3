package cluster_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/test/cluster"
)

// patience bounds each wait, by the cluster's clock.
const patience = 30 * time.Minute

// TestNothingIsStuckWhateverAPluginAnswers: anchors 2.8 and 2.10. A volume is
// made, used, changed, released and deleted, while each kind of call is answered
// with each code three times: with nothing done, and, where the code leaves that
// open, with all done. In the end the provider has nothing, and saw no call out
// of order.
func TestNothingIsStuckWhateverAPluginAnswers(t *testing.T) {
	t.Parallel()
	for _, kind := range []api.OperationKind{
		api.OperationCreate, api.OperationPublish, api.OperationUnpublish, api.OperationDelete,
		api.OperationExpand, api.OperationNodeExpand, api.OperationModify,
		api.OperationSnapshot, api.OperationDeleteSnapshot,
	} {
		for _, code := range fit.Codes()[1:] {
			actions := map[string]csitest.Action{"Undone": csitest.Fail(code, "because")}
			verdict := fit.Judge(kind, code)
			if verdict.Done && (kind == api.OperationDelete || kind == api.OperationDeleteSnapshot) {
				delete(actions, "Undone") // it would be untrue
			}
			if !verdict.Certain || verdict.Done {
				actions["Done"] = csitest.FailAfter(code, "because")
			}
			for what, action := range actions {
				t.Run(string(kind)+"/"+code+"/"+what, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { live(t, kind, code, action) })
				})
			}
		}
	}
}

// live is the life of a volume whose calls of one kind go wrong three times.
func live(t *testing.T, kind api.OperationKind, code string, action csitest.Action) {
	t.Helper()
	c := cluster.Start(t, cluster.Config{Agents: 2, Provider: csitest.Options{
		Attach: true, Stage: true, Expand: true, NodeExpand: true, Modify: true, Snapshot: true,
	}})
	defer c.Close()
	ctx, ns := context.Background(), api.DefaultNamespace
	verdict := fit.Judge(kind, code)
	refused := verdict.Certain && !verdict.Done && !verdict.Retry
	fault := c.Backend.Script(csitest.Rule{Method: fit.CallOf(kind), Times: 3, Do: action})
	cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, ns, "pg", cluster.VolumeSpec(), 0))
	if kind == api.OperationCreate && refused {
		failed := c.AwaitVolume("pg", api.VolumeFailed, patience)
		if failed.Status.Reason == "" {
			t.Error("it has failed, and nobody knows why")
		}
	} else {
		c.AwaitVolume("pg", api.VolumeReady, patience)
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, ns, "db", cluster.JobSpec(1, "pg"), 0))
		c.AwaitJob("db", api.JobRunning, patience)
		switch kind {
		case api.OperationExpand, api.OperationNodeExpand, api.OperationModify:
			change(c, kind, refused)
		case api.OperationSnapshot, api.OperationDeleteSnapshot:
			snapshot(c, refused && kind == api.OperationSnapshot)
		case api.OperationCreate, api.OperationDelete, api.OperationPublish, api.OperationUnpublish:
			release(c)
		}
	}
	if err := c.Client.DeleteVolume(ctx, ns, "pg", 0); err != nil {
		t.Fatal(err)
	}
	c.AwaitVolume("pg", "", patience)
	c.AwaitRest(patience)
	c.Validate()
	if left := c.Backend.Volumes(); len(left) > 0 {
		t.Errorf("the provider has volumes that nobody knows: %+v", left)
	}
	if left := c.Backend.SnapshotsMade(); len(left) > 0 {
		t.Errorf("the provider has snapshots that nobody knows: %+v", left)
	}
	if fault.Fired() == 0 {
		t.Errorf("%s was never called", fit.CallOf(kind))
	}
}

// change asks for a larger volume, or for other parameters of it, while the job
// uses it. That comes true, or is refused for good and says why, or waits until
// nobody uses the volume, as the plugin wants it; the job runs all the while.
func change(c *cluster.Cluster, kind api.OperationKind, refused bool) {
	c.TB.Helper()
	ctx, ns := context.Background(), api.DefaultNamespace
	spec := cluster.VolumeSpec()
	if kind == api.OperationModify {
		spec.MutableParameters = map[string]string{"iops": "3000"}
	} else {
		spec.CapacityMin *= 2
	}
	cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, ns, "pg", spec, 0))
	offline := false
	await := func(what string, ok func(api.VolumeInfo) bool) {
		c.TB.Helper()
		cluster.Await(c, what, patience,
			func(ctx context.Context, q client.Query) (api.VolumeInfo, uint64, error) {
				return c.Client.Volume(ctx, ns, "pg", q)
			},
			func(v api.VolumeInfo, err error) bool { return err == nil && ok(v) })
	}
	if refused {
		await("the refusal is shown", func(v api.VolumeInfo) bool { return strings.Contains(refusal(v), "because") })
	} else {
		await("the change is made, or waits for the job's end", func(v api.VolumeInfo) bool {
			offline = v.Status.Expansion != nil && v.Status.Expansion.Offline
			return offline || changed(v, spec)
		})
	}
	c.AwaitJob("db", api.JobRunning, patience)
	release(c)
	if offline {
		await("the change is made when nobody uses the volume", func(v api.VolumeInfo) bool {
			return v.Status.Expansion == nil && v.Status.Capacity >= spec.CapacityMin
		})
	}
	if kind != api.OperationNodeExpand || !refused {
		return
	}
	// It is tried again when the volume is staged again, and keeps nobody from using
	// the volume.
	cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, ns, "db", cluster.JobSpec(1, "pg"), 0))
	c.AwaitJob("db", api.JobRunning, patience)
	release(c)
}

// changed reports whether the volume is as its spec asks, on its nodes too.
func changed(v api.VolumeInfo, spec api.VolumeSpec) bool {
	s := v.Status
	if s.Expansion != nil || s.Modification != nil || s.NodeExpansion != 0 || s.Capacity < spec.CapacityMin ||
		!maps.Equal(s.MutableParameters, spec.MutableParameters) {
		return false
	}
	return !slices.ContainsFunc(v.Publications, func(p *api.Publication) bool { return p.Status.NodeExpansion != 0 })
}

// refusal is why a change was refused for good.
func refusal(v api.VolumeInfo) string {
	switch s := v.Status; {
	case s.Expansion != nil:
		return s.Expansion.Refused
	case s.Modification != nil:
		return s.Modification.Refused
	case len(v.Publications) > 0:
		return v.Publications[0].Status.NodeExpansionRefused
	}
	return ""
}

// snapshot has a snapshot of the volume made, unless it is refused for good and
// says why, and deleted.
func snapshot(c *cluster.Cluster, refused bool) {
	c.TB.Helper()
	ctx, ns := context.Background(), api.DefaultNamespace
	await := func(what string, ok func(api.SnapshotInfo, error) bool) {
		c.TB.Helper()
		cluster.Await(c, what, patience,
			func(ctx context.Context, q client.Query) (api.SnapshotInfo, uint64, error) {
				return c.Client.Snapshot(ctx, ns, "before", q)
			}, ok)
	}
	cluster.Must[api.SnapshotInfo](c)(c.Client.CreateSnapshot(ctx, ns, "before", api.SnapshotCreation{VolumeID: "pg"}))
	if refused {
		await("the refusal is shown", func(s api.SnapshotInfo, err error) bool {
			return err == nil && s.Status.State == api.SnapshotFailed && strings.Contains(s.Status.Reason, "because")
		})
	} else {
		await("the snapshot is ready", func(s api.SnapshotInfo, err error) bool { return err == nil && s.Status.State == api.SnapshotReady })
	}
	if err := c.Client.DeleteSnapshot(ctx, ns, "before", 0); err != nil {
		c.TB.Fatal(err)
	}
	await("the snapshot is gone", func(_ api.SnapshotInfo, err error) bool { return api.CodeOf(err) == api.CodeNotFound })
	release(c)
}

// release stops the job, and waits until the volume is free.
func release(c *cluster.Cluster) {
	c.TB.Helper()
	cluster.Must[api.JobInfo](c)(c.Client.StopJob(context.Background(), api.DefaultNamespace, "db", 0))
	c.AwaitJob("db", api.JobStopped, patience)
	c.AwaitFree("pg", patience)
}
