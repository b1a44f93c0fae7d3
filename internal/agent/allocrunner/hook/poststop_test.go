package hook_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// TestPoststopLooksAtItsVolumes: such a task runs only where its volumes are
// still mounted, and only after another.
func TestPoststopLooksAtItsVolumes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		never, gone, lost bool
		calls             []string
		reason            string
	}{
		"Mounted":    {calls: []string{"start clean", "stop(,20s) clean", "destroy clean"}},
		"NotMounted": {gone: true, calls: []string{"stop(,20s) clean", "destroy clean"}, reason: "it did not run to its end: volume pg is not mounted any more, as after a restart of the machine"},
		"Lost":       {lost: true, calls: []string{"stop(,20s) clean", "destroy clean"}, reason: "it did not run to its end: the servers had given the allocation up"},
		"NeverBegun": {never: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, a := newFake(), withPoststop(assignment)()
				a.Group.Volumes = []api.VolumeRequest{{Name: "data", Type: api.VolumeTypeCSI, Source: "pg"}}
				a.Group.Tasks[1].VolumeMounts = []api.VolumeMount{{Volume: "data", Destination: "/data"}}
				a.Attachments = []api.AttachmentAssignment{{Attachment: api.Attachment{AllocID: a.ID, Name: "data", VolumeID: "pg"}}}
				if tc.lost {
					alloc := *a.Allocation
					alloc.Status.State, a.Allocation = api.AllocLost, &alloc
				}
				runner, s := tasks(d, a)
				m := &mounter{script: works, gone: map[string]bool{"data": tc.gone}}
				h := hook.NewPoststop(runner, hook.NewVolumes(m, &said{facts: map[string]api.AttachmentFact{}}, runner))
				if !tc.never {
					s.SetTask("pg", api.TaskStatus{State: api.TaskEnded})
				}
				time.AfterFunc(time.Second, func() { d.end(id("clean"), driver.Status{}) })
				if err := h.Down(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				is := s.Tasks()["clean"]
				if is.Reason != tc.reason || (is.State == api.TaskEnded) == tc.never || is.Poststop == tc.never {
					t.Errorf("the task is %+v", is)
				}
				d.mu.Lock()
				calls := slices.DeleteFunc(slices.Clone(d.calls), func(c string) bool { return c == "check clean" })
				mounts := d.specs[id("clean")].Mounts
				d.calls = nil
				d.mu.Unlock()
				if diff := cmp.Diff(tc.calls, calls); diff != "" {
					t.Errorf("calls of the driver (-want +got):\n%s", diff)
				}
				if tc.reason == "" && !tc.never && (len(mounts) != 1 || mounts[0].Source != "/target/data") {
					t.Errorf("the task has the mounts %+v", mounts)
				}
				if len(m.calls) > 0 {
					t.Errorf("the mounter was called: %v", m.calls)
				}
				// Once more, as after a restart of the agent: nothing runs again.
				if err := h.Down(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				if again := s.Tasks()["clean"]; again != is {
					t.Errorf("taken down again, the task is %+v, was %+v", again, is)
				}
			})
		})
	}
}
