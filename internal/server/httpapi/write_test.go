package httpapi_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
)

// TestConditionalWrites: a write that rests on a version is made on that
// version or not at all.
func TestConditionalWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		ctx := t.Context()
		pg := w.join("n1").provision("pg")
		named := pg.Spec
		named.Name = "postgres"
		idle := idleJob()
		if _, err := w.ApplyJob(ctx, "default", "db", idle, 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		info, _, err := w.Job(ctx, "default", "db", client.Query{})
		if err != nil {
			t.Fatal(err)
		}
		other := idle
		other.Type = api.JobBatch
		for _, tc := range []struct {
			name string
			do   func() error
			want string
		}{
			{"NewVolumeThatWasThere", func() error { _, err := w.ApplyVolume(ctx, "default", "new", volume(), 3); return err },
				"conflict: volume new is gone"},
			{"VolumeOfAnOlderVersion", func() error { _, err := w.ApplyVolume(ctx, "default", "pg", named, pg.Version-1); return err },
				fmt.Sprintf("conflict: volume pg is at version %d, and the change was made for version %d", pg.Version, pg.Version-1)},
			{"VolumeOfThatVersion", func() error { _, err := w.ApplyVolume(ctx, "default", "pg", named, pg.Version); return err }, ""},
			{"SameWriteAgain", func() error { _, err := w.ApplyVolume(ctx, "default", "pg", named, pg.Version); return err },
				fmt.Sprintf("conflict: volume pg is at version %d, and the change was made for version %d", pg.Version+1, pg.Version)},
			{"SameSpecAgain", func() error { _, err := w.ApplyVolume(ctx, "default", "pg", named, pg.Version+1); return err }, ""},
			{"DeletionOfAnOlderVersion", func() error { return w.DeleteVolume(ctx, "default", "pg", pg.Version) },
				fmt.Sprintf("conflict: volume pg is at version %d, and the change was made for version %d", pg.Version+1, pg.Version)},
			{"JobOfAnOlderVersion", func() error { _, err := w.ApplyJob(ctx, "default", "db", other, info.Version+1); return err },
				fmt.Sprintf("conflict: job db is at version %d, and the change was made for version %d", info.Version, info.Version+1)},
			{"StopOfAnOlderVersion", func() error { _, err := w.StopJob(ctx, "default", "db", info.Version+1); return err },
				fmt.Sprintf("conflict: job db is at version %d, and the change was made for version %d", info.Version, info.Version+1)},
			{"StopOfThatVersion", func() error { _, err := w.StopJob(ctx, "default", "db", info.Version); return err }, ""},
			{"CreationOfAVolumeThatIsThere", func() error { _, err := w.IfAbsent().ApplyVolume(ctx, "default", "pg", named, 0); return err },
				"conflict: volume pg is there already, at some version, and was to be created"},
			{"CreationOfAVolume", func() error { _, err := w.IfAbsent().ApplyVolume(ctx, "default", "other", volume(), 0); return err }, ""},
			{"CreationOfAVolumeAgain", func() error { _, err := w.IfAbsent().ApplyVolume(ctx, "default", "other", volume(), 0); return err },
				"conflict: volume other is there already, at some version, and was to be created"},
			{"CreationOfAJobThatWasStopped", func() error { _, err := w.IfAbsent().ApplyJob(ctx, "default", "db", other, 0); return err },
				"conflict: job db is there already, at some version, and was to be created"},
			{"CreationOfAJob", func() error { _, err := w.IfAbsent().ApplyJob(ctx, "default", "new", other, 0); return err }, ""},
			{"CreationOfAVersion", func() error { _, err := w.IfAbsent().ApplyJob(ctx, "default", "new", other, 3); return err },
				"invalid: the request has a problem\n  If-None-Match is given, and so is a version, which only what is there can have; leave one of them out"},
			{"DeletionOfWhatIsAbsent", func() error { return w.IfAbsent().DeleteVolume(ctx, "default", "other", 0) },
				"invalid: the request has a problem\n  If-None-Match is given, and nothing is created here; leave it out"},
		} {
			got := ""
			if err := tc.do(); err != nil {
				got = fmt.Sprintf("%s: %s", api.CodeOf(err), err)
			}
			if strings.Contains(got, "is there already") { // controllers write too
				got = regexp.MustCompile(`version \d+`).ReplaceAllString(got, "some version")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.name, diff)
			}
		}
	})
}

// TestConditionsInHeaders has HTTP's own words for what the parameter version
// says, and none of them passed over.
func TestConditionsInHeaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1")
		const path = "/v1/volume/default/pg"
		for _, tc := range []struct {
			name, method, path string
			body               any
			headers            []string
			status             int
			want               string
		}{
			{"Create", http.MethodPut, path, volume(), []string{"If-None-Match", "*"}, http.StatusOK, `"id":"pg"`},
			{"CreateAgain", http.MethodPut, path, volume(), []string{"If-None-Match", "*"}, http.StatusConflict, "is there already"},
			{"CreateByEntity", http.MethodPut, path, volume(), []string{"If-None-Match", `"abc"`}, http.StatusBadRequest, "write If-None-Match: *"},
			{"OfAnotherVersion", http.MethodPut, path, volume(), []string{"If-Match", `"7"`}, http.StatusConflict, "the change was made for version 7"},
			{"OfNoVersion", http.MethodPut, path, volume(), []string{"If-Match", "*"}, http.StatusBadRequest, "give the object's version"},
			{"OfTwoVersions", http.MethodPut, path + "?version=1", volume(), []string{"If-Match", "2"}, http.StatusBadRequest, "the parameter version is 1"},
			{"WhereNoVersionCounts", http.MethodPost, path + "/detach", api.DetachRequest{}, []string{"If-Match", "1"}, http.StatusBadRequest, "cannot be made to depend on a version"},
			{"WhereNothingIsCreated", http.MethodPost, "/v1/sweep", api.SweepRequest{}, []string{"If-None-Match", "*"}, http.StatusBadRequest, "nothing is created here"},
			{"Read", http.MethodGet, path, nil, []string{"If-None-Match", "*"}, http.StatusOK, `"id":"pg"`},
			{"PlanOfACreation", http.MethodPost, "/v1/job/default/db/plan", idleJob(), []string{"If-None-Match", "*"}, http.StatusOK, `"action":"create"`},
			{"PlanOfCreations", http.MethodPost, "/v1/plan", api.PlanRequest{Jobs: []api.PlanJob{{ID: "db", Spec: idleJob()}}}, []string{"If-None-Match", "*"}, http.StatusOK, `"action":"create"`},
			{"PlanOfWhatIsThere", http.MethodPost, "/v1/plan", api.PlanRequest{Volumes: []api.PlanVolume{{ID: "pg", Spec: volume()}}}, []string{"If-None-Match", "*"}, http.StatusConflict, "is there already"},
			{"SnapshotOfNothing", http.MethodPut, "/v1/snapshot/default/s", api.SnapshotCreation{VolumeID: "none"}, []string{"If-None-Match", "*"}, http.StatusNotFound, "none"},
			{"DeleteOfAnotherVersion", http.MethodDelete, path, nil, []string{"If-Match", `"7"`}, http.StatusConflict, "the change was made for version 7"},
		} {
			got := w.send(tc.method, tc.path, tc.body, tc.headers...)
			if got.status != tc.status || !strings.Contains(got.body, tc.want) {
				t.Errorf("%s: %d %s, want %d with %q", tc.name, got.status, got.body, tc.status, tc.want)
			}
		}
	})
}

// idleJob is a job of one task.
func idleJob() api.JobSpec {
	return api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{Name: "g", Tasks: []api.Task{{Name: "t", Driver: "exec", Config: runs()}}}}}
}

// TestRefusedWrites is what a person gets to read, with all problems at once.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		ctx := t.Context()
		n1 := w.join("n1")
		pg := n1.provision("pg")
		alloc := n1.run("db", "pg")
		synctest.Wait()
		larger := pg.Spec
		larger.PluginID, larger.CapacityMin = "tape", 1<<40
		broken := job("pg")
		broken.Type = "cron"
		broken.Groups[0].Tasks[0].Driver = "raw_exec"
		for _, tc := range []struct {
			name string
			do   func() error
			want string
		}{
			{"VolumeWithoutAnything", func() error { _, err := w.ApplyVolume(ctx, "a b", "-", api.VolumeSpec{}, 0); return err },
				`invalid: volume - has 4 problems
  namespace has the character " "; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit
  id begins with "-"; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit
  plugin_id is empty; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit
  capability is missing; add capability { access_mode = "single-node-writer" attachment_mode = "file-system" }`},
			{"WhatAPluginHasMade", func() error { _, err := w.ApplyVolume(ctx, "default", "pg", larger, 0); return err },
				`invalid: the volume has 2 problems
  plugin_id cannot be changed once the volume is made; put the old value back, or make a new volume
  capacity_min cannot be raised: plugin disk cannot expand volumes: no instance of it has the capability EXPAND_VOLUME; put the old value back, or make a new volume`},
			{"VolumeThatIsHeld", func() error { return w.DeleteVolume(ctx, "default", "pg", 0) },
				"in_use: volume pg is held by allocation " + alloc.ID.Short() + " of job db on node n1 (controller-published)"},
			{"JobWithFaultsOfEveryKind", func() error { _, err := w.ApplyJob(ctx, "default", "db", broken, 0); return err },
				`invalid: job db has 2 problems
  type is "cron"; use one of service, batch, system, sysbatch
  group["main"].task["t"].driver is "raw_exec", which cannot mount volumes: it runs the command directly on the host; use driver "exec", which can, or remove the task's volume_mount`},
		} {
			err := tc.do()
			if diff := cmp.Diff(tc.want, fmt.Sprintf("%s: %v", api.CodeOf(err), err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.name, diff)
			}
		}
	})
}

// TestEligibilityIsSaid: a node that gets nothing new is one of which somebody
// said so.
func TestEligibilityIsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1")
		for _, body := range []string{`{}`, `{"eligible":null}`} {
			got := w.send(http.MethodPost, "/v1/node/n1/eligibility", strings.NewReader(body))
			e := got.refusal(t)
			if diff := cmp.Diff("the eligibility has a problem\n  eligible is missing; say true or false", e.Error()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", body, diff)
			}
		}
		n, _, err := w.Node(t.Context(), "n1", client.Query{})
		if err != nil || n.Spec.Ineligible {
			t.Errorf("the node is %+v, %v", n.Spec, err)
		}
	})
}

// TestDrainKeepsWhatIsNotSaid of a node that is being drained already.
func TestDrainKeepsWhatIsNotSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		n1.provision("pg")
		n1.run("db", "pg")
		ignore := true
		for _, step := range []struct {
			ask       api.DrainRequest
			unbounded bool
			ignore    bool
		}{
			{ask: api.DrainRequest{NoDeadline: true, IgnoreSystem: &ignore}, unbounded: true, ignore: true},
			{ask: api.DrainRequest{By: "ada"}, unbounded: true, ignore: true},
			{ask: api.DrainRequest{Deadline: api.Duration(time.Hour)}, ignore: true},
			{ask: api.DrainRequest{IgnoreSystem: new(bool)}},
		} {
			n, err := w.DrainNode(t.Context(), "n1", step.ask, 0)
			if err != nil || n.Spec.Drain == nil {
				t.Fatalf("drain: %+v, %v", n.Node, err)
			}
			if d := n.Spec.Drain; d.Deadline.IsZero() != step.unbounded || d.IgnoreSystem != step.ignore {
				t.Errorf("after %+v the drain is %+v", step.ask, d)
			}
		}
	})
}

// TestDriverThatNobodyHasYet is waited for: a node that has it may come.
func TestDriverThatNobodyHasYet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1").provision("pg")
		spec := job("pg")
		spec.Groups[0].Tasks[0].Driver = "docker"
		info, err := w.ApplyJob(t.Context(), "default", "db", spec, 0)
		if err != nil || info.State != api.JobPending {
			t.Fatalf("applied: %s (%v), want it pending", info.State, err)
		}
		synctest.Wait()
		if info, _, err = w.Job(t.Context(), "default", "db", client.Query{}); err != nil || len(info.Waits) != 1 ||
			!strings.Contains(info.Waits[0].Reason, "node n1 has no driver docker") {
			t.Errorf("it waits for %v (%v)", info.Waits, err)
		}
	})
}

// TestRecoveringClusterChangesNothing, but for what brings it back.
func TestRecoveringClusterChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		n1.provision("pg")
		var saved strings.Builder
		if err := w.SaveState(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		if _, err := w.RestoreState(t.Context(), strings.NewReader(saved.String())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the server looks at what it has now
		for route, body := range map[string]any{
			"PUT /v1/volume/default/new":   volume(),
			"DELETE /v1/volume/default/pg": nil,
			"PUT /v1/job/default/db":       job("pg"),
			"DELETE /v1/job/default/db":    nil,
		} {
			method, path, _ := strings.Cut(route, " ")
			got := w.send(method, path, body)
			e := got.refusal(t)
			if got.status != 503 || e.Code != api.CodeRecovering || !e.Retry || !strings.Contains(e.Message, "berth system recovery confirm") {
				t.Errorf("%s: %d %s", route, got.status, got.body)
			}
		}
		got := w.send("POST", "/v1/system/recovery", map[string]any{"number": 2})
		if e := got.refusal(t); e.Message != "node n1 has not reported since the restore; start its agent, or force if the machine is gone" {
			t.Errorf("confirmed too early: %d %s", got.status, got.body)
		}
		if got = w.send("POST", "/v1/system/recovery", map[string]any{"number": 1, "force": true}); got.refusal(t).Code != api.CodeConflict {
			t.Errorf("confirmed an older generation: %d %s", got.status, got.body)
		}
		n1 = w.join("n1")
		if rec, err := w.Recovery(t.Context()); err != nil || len(rec.Missing) != 0 {
			t.Errorf("missing %v (%v) after all have reported", rec.Missing, err)
		}
		rec, err := w.ConfirmRecovery(t.Context(), 2, false)
		if err != nil || !rec.Generation.Recovering || !slices.Equal(rec.Clearing, []api.NodeID{"n1"}) {
			t.Fatalf("confirmed: %+v, %v; want it to wait for n1", rec, err)
		}
		if err := w.DeleteVolume(t.Context(), "default", "pg", 0); api.CodeOf(err) != api.CodeRecovering {
			t.Errorf("before the node is clear: %v", err)
		}
		n1.report(api.Facts{Cleared: 2})
		if rec, err := w.Recovery(t.Context()); err != nil || rec.Generation.Recovering || len(rec.Clearing) != 0 {
			t.Errorf("recovery is %+v (%v) after all are clear", rec, err)
		}
		if err := w.DeleteVolume(t.Context(), "default", "pg", 0); err != nil {
			t.Errorf("after the confirmation: %v", err)
		}
	})
}

// TestAbandonedCreateFreesItsVolume: a plugin that never says whether it made
// the volume would otherwise keep it from being deleted, for ever.
func TestAbandonedCreateFreesItsVolume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		if _, err := w.ApplyVolume(t.Context(), "default", "pg", volume(), 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		info, _, err := w.Volume(t.Context(), "default", "pg", client.Query{})
		if err != nil {
			t.Fatal(err)
		}
		op := info.Status.Operation
		if _, err := w.AbandonOperation(t.Context(), op, 0); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "node n1 makes the call") {
			t.Errorf("abandoned while it is made: %v", err)
		}
		n1.report(api.Facts{Operations: []api.OperationFact{{ID: op, Attempt: 1, Code: "INTERNAL", Message: "it broke"}}})
		if _, err := w.AbandonOperation(t.Context(), op, 99); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "was made for version 99") {
			t.Errorf("abandoned an operation of another version: %v", err)
		}
		ended, err := w.AbandonOperation(t.Context(), op, 0)
		if err != nil || ended.Status.State != api.OperationCancelled {
			t.Fatalf("abandoned: %+v, %v", ended, err)
		}
		if info, _, err = w.Volume(t.Context(), "default", "pg", client.Query{}); err != nil || info.Status.State != api.VolumeFailed ||
			info.Status.Reason != "its create was given up: the provider may have a volume named berth-"+info.UID {
			t.Errorf("volume is %+v (%v)", info.Status, err)
		}
		if _, err := w.AbandonOperation(t.Context(), op, 0); api.CodeOf(err) != api.CodeConflict {
			t.Errorf("abandoned twice: %v", err)
		}
		if _, err := w.AbandonOperation(t.Context(), "create/default/no@1", 0); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("abandoned what is not there: %v", err)
		}
		if err := w.DeleteVolume(t.Context(), "default", "pg", 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, _, err := w.Volume(t.Context(), "default", "pg", client.Query{}); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("after it was deleted: %v", err)
		}
	})
}
