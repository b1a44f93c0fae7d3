package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/server/httpapi"
)

// TestEveryRoute asks every route for something that is there: the answer is
// JSON of the right shape, whole, and carries an index where it can be polled.
func TestEveryRoute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		n1.provision("pg")
		alloc := n1.run("db", "pg")
		agent := []string{api.HeaderNode, "n1", "Authorization", "Bearer n1-secret", api.HeaderSession, n1.session, api.HeaderEpoch, "1"}
		for _, tc := range []struct {
			route   string
			body    any
			headers []string
			into    any
			polled  bool
		}{
			{"GET /v1/status", nil, nil, &api.Status{}, false},
			{"GET /v1/volumes", nil, nil, &[]*api.Volume{}, true},
			{"GET /v1/volumes?namespace=default", nil, nil, &[]*api.Volume{}, true},
			{"GET /v1/volume/default/pg", nil, nil, &api.VolumeInfo{}, true},
			{"PUT /v1/volume/default/pg", volume(), nil, &api.VolumeInfo{}, false},
			{"PUT /v1/volume/default/other?version=0", volume(), nil, &api.VolumeInfo{}, false},
			{"DELETE /v1/volume/default/other", nil, nil, &api.VolumeInfo{}, false},
			{"GET /v1/jobs", nil, nil, &[]api.JobInfo{}, true},
			{"GET /v1/job/default/db", nil, nil, &api.JobInfo{}, true},
			{"PUT /v1/job/default/db", job("pg"), nil, &api.JobInfo{}, false},
			{"POST /v1/plan", api.PlanRequest{Volumes: []api.PlanVolume{{ID: "pg", Spec: volume()}}, Jobs: []api.PlanJob{{ID: "db", Spec: job("pg")}}}, nil, &api.Plan{}, false},
			{"POST /v1/job/default/db/plan", job("pg"), nil, &api.JobPlan{}, false},
			{"POST /v1/job/default/new/plan?version=0", job("pg"), nil, &api.JobPlan{}, false},
			{"GET /v1/job/default/db/revisions", nil, nil, &[]api.JobRevision{}, true},
			{"GET /v1/job/default/db/revision/1", nil, nil, &api.JobRevision{}, true},
			{"PUT /v1/job/default/tried", api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{
				{Name: "g", Update: &api.Update{Canary: 1}, Tasks: []api.Task{{Name: "t", Driver: "exec", Config: runs()}}},
			}}, nil, &api.JobInfo{}, false},
			{"POST /v1/job/default/tried/promote", api.Promotion{}, nil, &api.JobInfo{}, false},
			{"POST /v1/job/default/db/revert", api.Revert{Revision: 1}, nil, &api.JobInfo{}, false},
			{"POST /v1/job/default/db/scale", map[string]any{"count": 1}, nil, &api.JobInfo{}, false},
			{"GET /v1/allocations", nil, nil, &[]*api.Allocation{}, true},
			{"GET /v1/allocation/" + string(alloc.ID), nil, nil, &api.AllocationInfo{}, true},
			{"GET /v1/allocation/" + string(alloc.ID[:3]), nil, nil, &api.AllocationInfo{}, true},
			{"GET /v1/nodes", nil, nil, &[]*api.Node{}, true},
			{"GET /v1/node/n1", nil, nil, &api.NodeInfo{}, true},
			{"GET /v1/plugins", nil, nil, &[]*api.Plugin{}, true},
			{"GET /v1/plugin/disk", nil, nil, &api.Plugin{}, true},
			{"GET /v1/volume/default/pg/usage", nil, nil, &[]api.VolumeUsage{}, false},
			{"GET /v1/findings?namespace=default", nil, nil, &[]*api.Finding{}, true},
			{"GET /v1/sweep", nil, nil, &[]api.SweepReport{}, false},
			{"POST /v1/sweep", api.SweepRequest{}, nil, &[]api.SweepReport{}, false},
			{"PUT /v1/var/default/nomad/jobs/db", api.VariableSpec{Items: map[string]string{"password": "x"}}, nil, &api.Variable{}, false},
			{"GET /v1/vars?namespace=default&prefix=nomad/", nil, nil, &[]*api.Variable{}, true},
			{"GET /v1/var/default/nomad/jobs/db", nil, nil, &api.VariableInfo{}, true},
			{"GET /v1/var/default/nomad%2Fjobs%2Fdb", nil, nil, &api.VariableInfo{}, true},
			{"DELETE /v1/var/default/nomad/jobs/db?version=1", nil, nil, &struct{}{}, false},
			{"GET /v1/operations", nil, nil, &[]*api.Operation{}, true},
			{"GET /v1/operations?namespace=default&volume=pg", nil, nil, &[]*api.Operation{}, true},
			{"GET /v1/operation/create/default/pg@1", nil, nil, &api.Operation{}, true},
			{"GET /v1/operation/create%2Fdefault%2Fpg%401", nil, nil, &api.Operation{}, true},
			{"GET /v1/publications", nil, nil, &[]*api.Publication{}, true},
			{"GET /v1/publication/default/pg/n1", nil, nil, &api.Publication{}, true},
			{"GET /v1/attachments", nil, nil, &[]*api.Attachment{}, true},
			{"GET /v1/attachment/" + string(alloc.ID) + "/data", nil, nil, &api.Attachment{}, true},
			{"GET /v1/instances", nil, nil, &[]*api.Instance{}, true},
			{"GET /v1/openapi.json", nil, nil, &map[string]any{}, false},
			{"GET /v1/cluster", nil, nil, &api.Cluster{}, true},
			{"POST /v1/agent/register", registration("n1", n1.session), agent, &api.Registered{}, false},
			{"GET /v1/agent/assignments", nil, agent, &api.Assignments{}, true},
			{"POST /v1/agent/report", api.Report{NodeID: "n1", Session: n1.session, Epoch: 1, Sequence: 99}, agent, &api.Reported{}, false},
			{"GET /v1/system/recovery", nil, nil, &api.Recovery{}, false},
			{"POST /v1/system/gc", map[string]any{}, nil, &api.Collected{}, false},
			{"POST /v1/system/recovery", map[string]any{"number": 1}, nil, &api.Recovery{}, false},
			{"DELETE /v1/job/default/db?version=0", nil, nil, &api.JobInfo{}, false},
		} {
			method, path, _ := strings.Cut(tc.route, " ")
			got := w.send(method, path, tc.body, tc.headers...)
			if got.status != http.StatusOK {
				t.Errorf("%s: %d %s", tc.route, got.status, got.body)
				continue
			}
			if kind := got.header.Get("Content-Type"); kind != "application/json" {
				t.Errorf("%s: Content-Type %q", tc.route, kind)
			}
			// What was compressed on its way has a length of its own.
			if length := got.header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(got.body)+1) {
				t.Errorf("%s: Content-Length %q of %d bytes", tc.route, length, len(got.body)+1)
			}
			if index := got.header.Get(api.HeaderIndex); (index != "") != tc.polled {
				t.Errorf("%s: index %q", tc.route, index)
			}
			dec := json.NewDecoder(strings.NewReader(got.body))
			dec.DisallowUnknownFields()
			if err := dec.Decode(tc.into); err != nil {
				t.Errorf("%s: %v in %s", tc.route, err, got.body)
			}
		}
	})
}

// TestWhatIsNotThere: every route that names something says that it is not.
func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		w.join("n1").provision("pg")
		for route, want := range map[string]string{
			"GET /v1/volume/default/db":             "volume db does not exist in namespace default",
			"GET /v1/volume/other/pg":               "volume pg does not exist in namespace other",
			"GET /v1/volume/default/PG":             "volume PG does not exist in namespace default",
			"GET /v1/volume/default/p":              "volume p does not exist in namespace default",
			"GET /v1/volume/default/%2E%2E":         "volume .. does not exist in namespace default",
			"DELETE /v1/volume/default/db":          "volume db does not exist in namespace default",
			"GET /v1/job/default/db":                "job db does not exist in namespace default",
			"DELETE /v1/job/default/db":             "job db does not exist in namespace default",
			"GET /v1/job/default/db/revisions":      "job db does not exist in namespace default",
			"GET /v1/job/default/db/revision/1":     "job db does not exist in namespace default",
			"GET /v1/allocation/ab":                 "allocation ab does not exist",
			"GET /v1/attachment/ab/data":            "attachment ab/data does not exist",
			"GET /v1/publication/default/pg/n1":     "publication pg/n1 does not exist in namespace default",
			"GET /v1/node/n2":                       "node n2 does not exist",
			"GET /v1/plugin/tape":                   "plugin tape does not exist",
			"DELETE /v1/finding/leak-1":             "finding leak-1 does not exist",
			"GET /v1/finding/leak-1":                "finding leak-1 does not exist",
			"GET /v1/volume/default/db/usage":       "volume db does not exist in namespace default",
			"GET /v1/var/default/nomad/jobs":        "variable nomad/jobs does not exist in namespace default",
			"DELETE /v1/var/other/nomad/jobs":       "variable nomad/jobs does not exist in namespace other",
			"GET /v1/operation/create/default/pg":   "operation create/default/pg does not exist",
			"GET /v1/operation/create/default/pg@2": "operation create/default/pg@2 does not exist",
		} {
			method, path, _ := strings.Cut(route, " ")
			got := w.send(method, path, nil)
			if e := got.refusal(t); got.status != http.StatusNotFound || e.Code != api.CodeNotFound || e.Message != want {
				t.Errorf("%s: %d %s; want %s", route, got.status, got.body, want)
			}
		}
	})
}

// TestNoRoute: whoever reads JSON reads it here too.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		for _, tc := range []struct {
			request, allow, message string
			status                  int
		}{
			{"GET /", "", "there is no / in this API", 404},
			{"GET /v1", "", "there is no /v1 in this API", 404},
			{"GET /v2/status", "", "there is no /v2/status in this API", 404},
			{"GET /v1/status/", "", "there is no /v1/status/ in this API", 404},
			{"GET /v1/volume/default", "", "there is no /v1/volume/default in this API", 404},
			{"GET /v1/volume/default/", "", "there is no /v1/volume/default/ in this API", 404},
			{"GET /v1/volume/default/a/b", "", "there is no /v1/volume/default/a/b in this API", 404},
			{"GET /v1//nothing", "", "there is no /v1//nothing in this API", 404},
			{"GET /v1/../../etc/passwd", "", "there is no /v1/../../etc/passwd in this API", 404},
			{"PATCH /nothing", "", "there is no /nothing in this API", 404},
			{"POST /v1/status", "GET", "/v1/status takes no POST\n  method is POST; use GET", 405},
			{"POST /v1/volume/default/pg", "GET, PUT, DELETE", "/v1/volume/default/pg takes no POST\n  method is POST; use GET, PUT, DELETE", 405},
			{"OPTIONS /v1/volumes", "GET", "/v1/volumes takes no OPTIONS\n  method is OPTIONS; use GET", 405},
			{"GET /v1/agent/register", "POST", "/v1/agent/register takes no GET\n  method is GET; use POST", 405},
			{"DELETE /v1/system/snapshot", "GET, PUT", "/v1/system/snapshot takes no DELETE\n  method is DELETE; use GET, PUT", 405},
		} {
			method, path, _ := strings.Cut(tc.request, " ")
			got := w.send(method, path, nil)
			e := got.refusal(t)
			if diff := cmp.Diff(tc.message, e.Error()); diff != "" {
				t.Errorf("%s: message (-want +got):\n%s", tc.request, diff)
			}
			if got.status != tc.status || got.header.Get("Allow") != tc.allow || got.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %d, Allow %q, %s; want %d, %q, application/json",
					tc.request, got.status, got.header.Get("Allow"), got.header.Get("Content-Type"), tc.status, tc.allow)
			}
		}
	})
}

// TestStatusOfEveryCode: a code without a row of its own would look like a
// fault of Berth.
func TestStatusOfEveryCode(t *testing.T) {
	t.Parallel()
	want := map[api.Code]int{
		api.CodeInvalid: 400, api.CodeNotFound: 404, api.CodeConflict: 409, api.CodeInUse: 409, api.CodeForbidden: 403,
		api.CodeUnavailable: 503, api.CodeUncertain: 504, api.CodeWrongCluster: 409, api.CodeIdentityInUse: 409,
		api.CodeStaleSession: 401, api.CodeRolledBack: 503, api.CodeRecovering: 503, api.CodeGone: 410, api.CodeMethodNotAllowed: 405, api.CodeTooLarge: 413, api.CodeInternal: 500,
	}
	got := map[api.Code]int{}
	for _, code := range api.Codes() {
		got[code] = httpapi.StatusOf(code)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status of codes (-want +got):\n%s", diff)
	}
	if got := httpapi.StatusOf("of a later version"); got != 500 {
		t.Errorf("an unknown code is %d, want 500", got)
	}
}

// TestEmptyListsAreLists, and not null: programs iterate over them.
func TestEmptyListsAreLists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		for _, list := range []string{"volumes", "jobs", "allocations", "nodes", "plugins", "instances", "operations", "publications", "attachments", "vars"} {
			if got := w.send(http.MethodGet, "/v1/"+list, nil); got.body != "[]" {
				t.Errorf("%s: %d %s", list, got.status, got.body)
			}
		}
	})
}

// TestListsAreOfTheirNamespace.
func TestListsAreOfTheirNamespace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		n1.provision("pg")
		n1.run("db", "pg")
		if _, err := w.ApplyVolume(t.Context(), "other", "pg", volume(), 0); err != nil {
			t.Fatal(err)
		}
		idle := job("pg")
		idle.Groups[0].Count = 0
		if _, err := w.ApplyJob(t.Context(), "other", "idle", idle, 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for ns, want := range map[api.NamespaceID]string{
			"": "volumes 2 jobs 2 allocations 1 operations 3", "default": "volumes 1 jobs 1 allocations 1 operations 2",
			"other": "volumes 1 jobs 1 allocations 0 operations 1", "def": "volumes 0 jobs 0 allocations 0 operations 0",
		} {
			q := client.Query{Namespace: ns}
			volumes, _, err1 := w.Volumes(t.Context(), q)
			jobs, _, err2 := w.Jobs(t.Context(), q)
			allocations, _, err3 := w.Allocations(t.Context(), q)
			operations, _, err4 := w.Operations(t.Context(), q)
			got := fmt.Sprintf("volumes %d jobs %d allocations %d operations %d", len(volumes), len(jobs), len(allocations), len(operations))
			if got != want {
				t.Errorf("namespace %q: %s (%v %v %v %v), want %s", ns, got, err1, err2, err3, err4, want)
			}
		}
	})
}

// TestSavedState comes back whole; what is none is refused, and changes nothing.
func TestSavedState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		defer w.stop()
		n1 := w.join("n1")
		n1.provision("pg")
		var saved bytes.Buffer
		if err := w.SaveState(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		n1.provision("later")
		got := w.send(http.MethodPut, "/v1/system/snapshot", "no state")
		if e := got.refusal(t); e.Code != api.CodeInvalid || !strings.Contains(e.Message, "this is not a saved state of Berth, or it is cut") {
			t.Errorf("a text was taken for a state: %d %s", got.status, got.body)
		}
		got = w.send(http.MethodPut, "/v1/system/snapshot", saved.String()[:saved.Len()/2])
		if e := got.refusal(t); e.Code != api.CodeInvalid {
			t.Errorf("half a state was taken for a whole one: %d %s", got.status, got.body)
		}
		if list, _, err := w.Volumes(t.Context(), client.Query{}); err != nil || len(list) != 2 {
			t.Errorf("%d volumes after refused restores (%v), want 2", len(list), err)
		}
		rec, err := w.RestoreState(t.Context(), bytes.NewReader(saved.Bytes()))
		if err != nil || !rec.Generation.Recovering || rec.Generation.Number != 2 || len(rec.Missing) != 1 {
			t.Errorf("restored: %+v (%v), want generation 2 that waits for a node", rec, err)
		}
		if list, _, err := w.Volumes(t.Context(), client.Query{}); err != nil || len(list) != 1 {
			t.Errorf("%d volumes after the restore (%v), want 1", len(list), err)
		}
	})
}
