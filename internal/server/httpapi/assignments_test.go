package httpapi_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-dev/berth/api"
)

// work is what a node is to do now.
func (a *agent) work(since uint64) *api.Assignments {
	a.w.t.Helper()
	work, err := a.Assignments(a.w.t.Context(), a.session, a.epoch, since, 0)
	if err != nil {
		a.w.t.Fatal(err)
	}
	return work
}

// TestAssignmentsHaveEverything that an agent needs to run, mount and undo
// without asking again.
func TestAssignmentsHaveEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		spec := volume()
		spec.MountOptions = &api.MountOptions{FSType: "xfs", MountFlags: []string{"noatime"}}
		if _, err := w.ApplyVolume(t.Context(), "default", "pg", spec, 0); err != nil {
			t.Fatal(err)
		}
		n1.answerOperation()
		jobSpec := job("pg")
		jobSpec.Groups[0].Volumes[0].MountOptions = &api.MountOptions{MountFlags: []string{"ro"}}
		if _, err := w.ApplyJob(t.Context(), "default", "db", jobSpec, 0); err != nil {
			t.Fatal(err)
		}
		n1.answerOperation()
		synctest.Wait()
		status, err := w.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := n1.work(0)
		id := got.Allocations[0].ID
		want := &api.Assignments{
			ClusterID: status.ClusterID, Generation: status.Generation, Epoch: 1, Index: got.Index, Operations: got.Operations,
			Allocations: []api.AllocAssignment{{
				ID: id,
				Allocation: &api.Allocation{
					ID: id, Namespace: "default", JobID: "db", JobUID: got.Allocations[0].Allocation.JobUID, Revision: 1,
					Group: "main", NodeID: "n1", Desired: api.DesireRun, Status: api.AllocStatus{State: api.AllocPending},
				},
				JobType: api.JobService,
				Group:   &jobSpec.Groups[0],
				Attachments: []api.AttachmentAssignment{{
					Attachment: api.Attachment{
						AllocID: id, Name: "data", Namespace: "default", VolumeID: "pg", PluginID: "disk", NodeID: "n1", JobID: "db",
						AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem,
						MountOptions: &api.MountOptions{FSType: "xfs", MountFlags: []string{"ro"}},
						Status:       api.AttachmentStatus{State: api.ControllerPublished},
					},
					ExternalID:     "ext-pg",
					StageOptions:   spec.MountOptions,
					Context:        map[string]string{"share": "7"},
					PublishContext: map[string]string{"device": "sdb"},
				}},
			}},
		}
		ignore := cmp.Options{cmpopts.IgnoreTypes(api.Meta{}), cmpopts.IgnoreFields(api.AttachmentStatus{}, "Steps")}
		if diff := cmp.Diff(want, got, ignore); diff != "" {
			t.Errorf("assignments (-want +got):\n%s", diff)
		}
		if len(got.Operations) != 0 {
			t.Errorf("operations that were answered are there: %v", got.Operations)
		}
	})
}

// TestAssignmentsNameWhatHasNotChanged, and say the rest again.
func TestAssignmentsNameWhatHasNotChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		n1.provision("a")
		n1.provision("b")
		first := n1.run("job-a", "a")
		synctest.Wait()
		seen := n1.work(0).Index
		if again := n1.work(seen); !again.Same || len(again.Allocations) != 0 || again.Index != seen {
			t.Errorf("nothing has changed, and it says %+v", again)
		}
		second := n1.run("job-b", "b")
		synctest.Wait()
		said := map[api.AllocID]bool{}
		for _, a := range n1.work(seen).Allocations {
			said[a.ID] = a.Allocation != nil && a.Group != nil && len(a.Attachments) == 1
		}
		if diff := cmp.Diff(map[api.AllocID]bool{first.ID: false, second.ID: true}, said); diff != "" {
			t.Errorf("allocations that are said whole (-want +got):\n%s", diff)
		}
		seen = n1.work(0).Index
		if _, err := w.StopJob(t.Context(), "default", "job-a", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, a := range n1.work(seen).Allocations {
			switch {
			case a.ID == second.ID && a.Allocation != nil:
				t.Error("the other job's allocation is said again")
			case a.ID == first.ID && (a.Allocation == nil || a.Allocation.Desired != api.DesireStop || a.Attachments[0].Attachment.Status.State != api.Unpublishing):
				t.Errorf("the stopped allocation is said as %+v", a)
			}
		}
	})
}

// TestAssignmentsAreOfOneNode: what others are to do is not told, and wakes
// nobody else.
func TestAssignmentsAreOfOneNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		n1.provision("pg")
		n1.run("db", "pg")
		synctest.Wait()
		n2 := w.join("n2")
		idle := n2.work(0)
		if len(idle.Allocations) != 0 || len(idle.Operations) != 0 {
			t.Errorf("a new node is told %+v", idle)
		}
		polled := make(chan time.Duration, 1)
		began := time.Now()
		go func() {
			if _, err := n2.Assignments(t.Context(), n2.session, 1, idle.Index, 10*time.Second); err != nil {
				t.Error(err)
			}
			polled <- time.Since(began)
		}()
		synctest.Wait()
		if _, err := w.StopJob(t.Context(), "default", "db", 0); err != nil {
			t.Fatal(err)
		}
		n1.report(api.Facts{})
		if took := <-polled; took != 10*time.Second {
			t.Errorf("the other node was woken after %s", took)
		}
	})
}
