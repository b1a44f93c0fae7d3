package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// service is a job of a task without volumes.
func service(count int, user string) api.JobSpec {
	return api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{Name: "main", Count: count, Tasks: []api.Task{{Name: "t", Driver: "exec", Config: runs(), User: user}}}}}
}

// TestPlanChangesNothing, and its version applies it if nobody was faster.
func TestPlanChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1")
		ctx := t.Context()
		if _, err := w.ApplyJob(ctx, "default", "db", service(1, ""), 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before, err := w.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := w.PlanJob(ctx, "default", "db", service(3, ""), 0)
		if err != nil {
			t.Fatal(err)
		}
		several, err := w.Plan(ctx, api.PlanRequest{
			Volumes: []api.PlanVolume{{ID: "pg", Spec: volume()}},
			Jobs:    []api.PlanJob{{Namespace: "default", ID: "db", Spec: service(3, "")}, {Namespace: "other", ID: "db", Spec: job("pg")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		after, err := w.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if after.Index != before.Index || several.Index != before.Index {
			t.Errorf("the index went from %d to %d, and the plan's is %d", before.Index, after.Index, several.Index)
		}
		if diff := cmp.Diff(plan, several.Jobs[0]); diff != "" {
			t.Errorf("one and several differ (-one +several):\n%s", diff)
		}
		if len(plan.Start) != 2 || len(plan.Keep) != 1 || plan.Keep[0].NodeID != "n1" || plan.Revision != 2 || plan.Action != api.PlanChange {
			t.Errorf("the plan is %+v", plan)
		}
		if v := several.Volumes; len(v) != 1 || v[0].Action != api.PlanCreate || v[0].Namespace != api.DefaultNamespace {
			t.Errorf("volumes %+v", v)
		}
		if j := several.Jobs[1]; len(j.Waits) != 1 || j.Waits[0].Reason != "volume pg does not exist" {
			t.Errorf("a job of another namespace waits for %+v", j.Waits)
		}
		if _, err := w.ApplyJob(ctx, "default", "db", service(3, ""), plan.Version); err != nil {
			t.Errorf("the version of the plan: %v", err)
		}
		if _, err := w.PlanJob(ctx, "default", "db", service(3, ""), plan.Version); api.CodeOf(err) != api.CodeConflict {
			t.Errorf("a plan for a version that was: %v", err)
		}
		if _, err := w.ApplyJob(ctx, "default", "db", service(2, ""), plan.Version); api.CodeOf(err) != api.CodeConflict {
			t.Errorf("the version of the plan, after it was applied: %v", err)
		}
	})
}

// TestRefusedPlans: every problem of everything at once, each with its place.
func TestRefusedPlans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1")
		wrong := service(-1, "")
		wrong.Type = "servce"
		mounts := job("pg")
		mounts.Groups[0].Tasks[0].Driver = "raw_exec"
		_, err := w.Plan(t.Context(), api.PlanRequest{
			Volumes: []api.PlanVolume{{ID: "pg"}, {ID: "pg", Spec: volume()}},
			Jobs:    []api.PlanJob{{ID: "db", Spec: wrong}, {Namespace: "other", ID: "db", Spec: mounts}, {Namespace: "default", ID: "db", Spec: service(1, "")}},
		})
		want := []string{
			"volume[\"pg\"].plugin_id", "volume[\"pg\"].capability", "volume[\"pg\"] is there twice", "job[\"db\"].type is \"servce\"",
			"job[\"db\"].group[\"main\"].count is negative", "job[\"db\"].group[\"main\"].task[\"t\"].driver is \"raw_exec\", which cannot mount volumes",
			"job[\"db\"] is there twice",
		}
		if api.CodeOf(err) != api.CodeInvalid {
			t.Fatalf("answered %v", err)
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q is not in\n%v", text, err)
			}
		}
		_, put := w.ApplyJob(t.Context(), "default", "db", mounts, 0)
		_, plan := w.PlanJob(t.Context(), "default", "db", mounts, 0)
		if fmt.Sprint(put) != fmt.Sprint(plan) || put == nil {
			t.Errorf("applying answers\n%v\nplanning\n%v", put, plan)
		}
		if got := w.send("POST", "/v1/job/default/db/plan", `{"typ":"service"}`).refusal(t); len(got.Fields) != 1 || got.Fields[0].Path != "typ" {
			t.Errorf("a field that does not exist: %+v", got)
		}
	})
}

// TestRevisions are listed newest first, each with what it changed.
func TestRevisions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1")
		ctx := t.Context()
		var times []time.Time
		for i, spec := range []api.JobSpec{service(1, ""), service(1, "pg"), service(1, "pg"), service(0, "pg")} {
			time.Sleep(time.Hour)
			info, err := w.ApplyJob(ctx, "default", "db", spec, 0)
			if err != nil {
				t.Fatal(err)
			}
			if i != 2 { // which changes nothing
				times = append(times, info.ModifyTime)
			}
		}
		count := api.Change{Path: `group["main"].count`, Kind: api.Changed, Old: json.RawMessage("1"), New: json.RawMessage("0")}
		user := api.Change{Path: `group["main"].task["t"].user`, Kind: api.Added, New: json.RawMessage(`"pg"`)}
		want := []api.JobRevision{
			{Revision: 3, Applied: times[2], Current: true, Stable: true, Changes: []api.Change{count}},
			{Revision: 2, Applied: times[1], Changes: []api.Change{user}},
			{Revision: 1, Applied: times[0], Changes: []api.Change{}},
		}
		synctest.Wait() // nothing is to run, so that it is healthy at once
		got, index, err := w.JobRevisions(ctx, "default", "db", client.Query{})
		if diff := cmp.Diff(want, got); diff != "" || err != nil || index == 0 {
			t.Errorf("%v, index %d (-want +got):\n%s", err, index, diff)
		}
		var paged []api.JobRevision
		for page := (&client.Page{Size: 2}); ; {
			some, _, err := w.JobRevisions(ctx, "default", "db", client.Query{Page: page})
			if err != nil || len(some) > 2 {
				t.Fatalf("%d revisions (%v)", len(some), err)
			}
			if paged = append(paged, some...); page.Next == "" {
				break
			}
		}
		if diff := cmp.Diff(want, paged); diff != "" {
			t.Errorf("page by page (-want +got):\n%s", diff)
		}
		spec := service(1, "pg")
		want[1].Spec = &spec
		one, _, err := w.JobRevision(ctx, "default", "db", 2, client.Query{})
		if diff := cmp.Diff(want[1], one); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		for n, text := range map[string]string{
			"0": "job db has no revision 0; it has 1 to 3", "4": "job db has no revision 4; it has 1 to 3",
			"x": "the request has a problem\n  revision is \"x\"; give the number of a revision",
		} {
			e := w.send("GET", "/v1/job/default/db/revision/"+n, nil).refusal(t)
			if e.Error() != text {
				t.Errorf("revision %s: %v", n, e.Error())
			}
		}
	})
}

// TestRevertAndScale are applies, which become revisions.
func TestRevertAndScale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1")
		ctx := t.Context()
		two := service(1, "pg")
		two.Groups = append(two.Groups, api.TaskGroup{Name: "side", Count: 1, Tasks: []api.Task{{Name: "t", Driver: "exec", Config: runs()}}})
		for _, spec := range []api.JobSpec{service(1, ""), two} {
			if _, err := w.ApplyJob(ctx, "default", "db", spec, 0); err != nil {
				t.Fatal(err)
			}
		}
		held := service(1, "")
		held.Groups[0].Volumes = []api.VolumeRequest{{Name: "data", Type: "csi", Source: "pg", AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}}
		if _, err := w.ApplyJob(ctx, "default", "held", held, 0); err != nil {
			t.Fatal(err)
		}
		number := func(n int) *int { return &n }
		scale := func(job api.JobID, to api.Scale) func() (api.JobInfo, error) {
			return func() (api.JobInfo, error) { return w.ScaleJob(ctx, "default", job, to) }
		}
		revert := func(to api.Revert) func() (api.JobInfo, error) {
			return func() (api.JobInfo, error) { return w.RevertJob(ctx, "default", "db", to) }
		}
		for _, tc := range []struct {
			name string
			do   func() (api.JobInfo, error)
			want string
		}{
			{"ScaleOneOfTwo", scale("db", api.Scale{Group: "side", Count: number(3)}), "revision 3 main 1 side 3"},
			{"ScaleToWhatIsSo", scale("db", api.Scale{Group: "side", Count: number(3)}), "revision 3 main 1 side 3"},
			{"ScaleNoGroup", scale("db", api.Scale{Count: number(3)}), "invalid: the request has a problem\n  group is missing, and the job has several; use one of main, side"},
			{"ScaleAnotherGroup", scale("db", api.Scale{Group: "sid"}),
				"invalid: the request has 2 problems\n  group is \"sid\", and the job has no such group; use one of main, side\n  count is missing; say how many allocations the group is to have"},
			{"ScaleBelowNothing", scale("db", api.Scale{Group: "side", Count: number(-1)}), "invalid: the request has a problem\n  group[\"side\"].count is negative; use 0 or more"},
			{"ScaleWhatIsNotThere", scale("none", api.Scale{Count: number(1)}), "not_found: job none does not exist in namespace default"},
			{"ScaleAnOlderVersion", scale("db", api.Scale{Group: "side", Count: number(2), Version: 1}), "conflict: job db is at version N, and the change was made for version 1"},
			{"ScaleAVolumeForOne", scale("held", api.Scale{Count: number(2)}),
				"invalid: the request has a problem\n  group[\"main\"].volume[\"data\"] would be held by 2 allocations, and access mode single-node-writer allows one; use count = 1, per_alloc = true for a volume each, or an access mode for several"},
			{"ScaleTheOnlyGroup", scale("held", api.Scale{Count: number(0)}), "revision 2 main 0"},
			{"Revert", revert(api.Revert{Revision: 1}), "revision 4 main 1"},
			{"RevertAgain", revert(api.Revert{Revision: 1}), "revision 4 main 1"},
			{"RevertForth", revert(api.Revert{Revision: 3}), "revision 5 main 1 side 3"},
			{"RevertToNothing", revert(api.Revert{}), "invalid: the request has a problem\n  revision is missing; give the number of one of the job's revisions"},
			{"RevertToTheFuture", revert(api.Revert{Revision: 6}), "not_found: job db has no revision 6; it has 1 to 5"},
			{"RevertAnOlderVersion", revert(api.Revert{Revision: 1, Version: 1}), "conflict: job db is at version N, and the change was made for version 1"},
			{"Stop", func() (api.JobInfo, error) { return w.StopJob(ctx, "default", "db", 0) }, "revision 5 main 1 side 3"},
			{"ScaleWhatIsStopped", scale("db", api.Scale{Group: "side", Count: number(1)}), "conflict: job db is stopped: apply it, or revert it to revision 5, and it starts again"},
			{"RevertStarts", revert(api.Revert{Revision: 5}), "revision 6 main 1 side 3"},
		} {
			info, err := tc.do()
			var got string
			if err != nil {
				got = fmt.Sprintf("%s: %s", api.CodeOf(err), err)
				if before, after, found := strings.Cut(got, "is at version "); found {
					got = before + "is at version N" + strings.TrimLeft(after, "0123456789")
				}
			} else {
				got = fmt.Sprintf("revision %d", info.Revision)
				for _, g := range info.Spec.Groups {
					got += fmt.Sprintf(" %s %d", g.Name, g.Count)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.name, diff)
			}
		}
	})
}

// TestScaleWhileTheJobMoves: a scheduler that is writing the same job is no
// conflict for who named no version.
func TestScaleWhileTheJobMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1")
		if _, err := w.ApplyJob(t.Context(), "default", "db", service(1, ""), 0); err != nil {
			t.Fatal(err)
		}
		for n := range 40 {
			info, err := w.ScaleJob(t.Context(), "default", "db", api.Scale{Count: &n})
			if err != nil || info.Spec.Groups[0].Count != n {
				t.Fatalf("scale to %d: %v", n, err)
			}
		}
	})
}
