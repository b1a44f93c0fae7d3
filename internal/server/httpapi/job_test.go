package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/berth-dev/berth/api"
)

// TestJobState sums up jobs of two instances, c0 and c1.
func TestJobState(t *testing.T) {
	t.Parallel()
	const (
		c0 = `allocation {"id":"c0","job_id":"db","index":0,`
		c1 = `allocation {"id":"c1","job_id":"db","index":1,`
	)
	alloc := func(head, state string, more string) string {
		return fmt.Sprintf("%s\"status\":{\"state\":%q}%s}\n", head, state, more)
	}
	const unmounting = `"status":{"state":"running","tasks":{"pg":{"state":"ended"}}}}` + "\n"
	const stop, replaced = `,"desired":"stop"`, `,"replaced":true`
	for name, tc := range map[string]struct {
		kind, desired string
		settled       bool
		count         int
		allocs        string
		want          api.JobState
	}{
		"New":                  {"service", "present", false, 2, "", api.JobPending},
		"Placed":               {"service", "present", true, 2, alloc(c0, "pending", "") + alloc(c1, "pending", ""), api.JobPending},
		"HalfRunning":          {"service", "present", true, 2, alloc(c0, "running", "") + alloc(c1, "pending", ""), api.JobPending},
		"Running":              {"service", "present", true, 2, alloc(c0, "running", "") + alloc(c1, "running", ""), api.JobRunning},
		"ItsTasksEnded":        {"service", "present", true, 2, alloc(c0, "running", "") + c1 + unmounting, api.JobPending},
		"BatchUnmounting":      {"batch", "present", true, 2, alloc(c0, "running", "") + c1 + unmounting, api.JobRunning},
		"OldRevisionRuns":      {"service", "present", false, 2, alloc(c0, "running", "") + alloc(c1, "running", ""), api.JobPending},
		"OneIsToStop":          {"service", "present", true, 2, alloc(c0, "running", "") + alloc(c1, "running", stop), api.JobPending},
		"OneWasReplaced":       {"service", "present", true, 1, alloc(c0, "failed", replaced) + alloc(c1, "running", ""), api.JobRunning},
		"OneFailed":            {"service", "present", false, 2, alloc(c0, "running", "") + alloc(c1, "failed", ""), api.JobPending},
		"ServiceThatCompleted": {"service", "present", false, 1, alloc(c0, "complete", ""), api.JobPending},
		"NothingWanted":        {"service", "present", true, 0, "", api.JobRunning},
		"BatchRunning":         {"batch", "present", true, 2, alloc(c0, "running", "") + alloc(c1, "running", ""), api.JobRunning},
		"BatchHalfDone":        {"batch", "present", true, 2, alloc(c0, "complete", "") + alloc(c1, "running", ""), api.JobPending},
		"BatchDone":            {"batch", "present", true, 2, alloc(c0, "complete", "") + alloc(c1, "complete", ""), api.JobComplete},
		"BatchDoneUnsettled":   {"batch", "present", false, 2, alloc(c0, "complete", "") + alloc(c1, "complete", ""), api.JobPending},
		"BatchWaitsToTryAgain": {"batch", "present", false, 2, alloc(c0, "complete", "") + alloc(c1, "failed", ""), api.JobPending},
		"BatchGaveUpOnOne":     {"batch", "present", true, 2, alloc(c0, "complete", "") + alloc(c1, "failed", ""), api.JobFailed},
		"BatchGivesUpLater":    {"batch", "present", true, 2, alloc(c0, "running", "") + alloc(c1, "failed", ""), api.JobPending},
		"BatchOfNothing":       {"batch", "present", true, 0, "", api.JobComplete},
		"Stopping":             {"service", "absent", false, 2, alloc(c0, "running", stop) + alloc(c1, "complete", stop), api.JobStopping},
		"StoppingNotTold":      {"service", "absent", false, 2, alloc(c0, "running", ""), api.JobStopping},
		"Stopped":              {"service", "absent", true, 2, alloc(c0, "complete", stop+replaced) + alloc(c1, "failed", stop+replaced), api.JobStopped},
		"SystemLeftANode":      {"system", "present", true, 1, alloc(c0, "complete", stop) + alloc(c1, "running", ""), api.JobRunning},
		"SystemStartsOnANode":  {"system", "present", true, 1, alloc(c0, "pending", "") + alloc(c1, "running", ""), api.JobPending},
		"SysbatchDone":         {"sysbatch", "present", true, 1, alloc(c0, "complete", "") + alloc(c1, "complete", ""), api.JobComplete},
		"StoppedBeforeItRan":   {"service", "absent", false, 2, "", api.JobStopped},
		"BatchStopped":         {"batch", "absent", true, 1, alloc(c0, "failed", stop+replaced), api.JobStopped},
	} {
		world := fmt.Sprintf(`job {"id":"db","desired":%q,"status":{"settled":%v},"spec":{"type":%q,"groups":[{"count":%d}]}}`+"\n%s",
			tc.desired, tc.settled, tc.kind, tc.count, tc.allocs)
		f := newFake(t, world, nil)
		if got := into[api.JobInfo](t, f.get("GET", "/v1/job/default/db")).State; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
		if got := into[[]api.JobInfo](t, f.get("GET", "/v1/jobs"))[0].State; got != tc.want {
			t.Errorf("%s in the list: %s, want %s", name, got, tc.want)
		}
	}
}

// TestAllocationByPrefix: people type the first characters.
func TestAllocationByPrefix(t *testing.T) {
	t.Parallel()
	world := `job {"id":"db","spec":{"groups":[{"count":9}]}}` + "\n"
	for i, id := range []string{"aaaa000000001", "aaaa000000002", "ab01", "ab02", "ab03", "ab04", "ab05", "ab06", "c"} {
		world += fmt.Sprintf("allocation {\"id\":%q,\"job_id\":\"db\",\"index\":%d}\n", id, i)
	}
	f := newFake(t, world, nil)
	for prefix, want := range map[string]string{
		"c":             "c",
		"aaaa000000002": "aaaa000000002",
		"aaaa00000000":  "several allocations begin with aaaa00000000: aaaa000000001 db.g[0], aaaa000000002 db.g[1]",
		"ab":            "several allocations begin with ab: ab01 db.g[2], ab02 db.g[3], ab03 db.g[4], ab04 db.g[5], ab05 db.g[6], and others",
		"cc":            "allocation cc does not exist",
		"C":             "allocation C does not exist",
		"*":             "allocation * does not exist",
	} {
		got := f.get("GET", "/v1/allocation/"+prefix)
		var text string
		if got.status == 200 {
			text = string(into[api.AllocationInfo](t, got).ID)
		} else {
			text = got.refusal(t).Message
		}
		if text != want {
			t.Errorf("%q: %s, want %s", prefix, text, want)
		}
	}
}

// TestPlugin is computed from its instances.
func TestPlugin(t *testing.T) {
	t.Parallel()
	const world = `
instance {"node_id":"n1","type":"monolith","healthy":true,"driver":"disk.example","vendor_version":"1.0","plugin_capabilities":["CONTROLLER_SERVICE"]}
instance {"node_id":"n2","type":"node","healthy":true,"driver":"disk.example","vendor_version":"1.1"}
instance {"node_id":"n3","type":"node","driver":"","reason":"it does not answer"}
instance {"node_id":"n4","type":"controller","driver":"disk.example","vendor_version":"1.0","plugin_capabilities":["CONTROLLER_SERVICE"]}
instance {"plugin_id":"tape","node_id":"n1","type":"node","driver":""}
`
	f := newFake(t, world, nil)
	list := into[[]api.Plugin](t, f.get("GET", "/v1/plugins"))
	got := ""
	for _, p := range list {
		got += fmt.Sprintf("%s %s %v controllers %d/%d nodes %d/%d\n", p.ID, p.Driver, p.VendorVersions,
			p.ControllersHealthy, p.ControllersExpected, p.NodesHealthy, p.NodesExpected)
		if p.Instances != nil {
			t.Errorf("the list has the instances of %s", p.ID)
		}
	}
	want := "disk disk.example [1.0 1.1] controllers 1/2 nodes 2/3\ntape  [] controllers 0/0 nodes 0/1\n"
	if got != want {
		t.Errorf("plugins\n%swant\n%s", got, want)
	}
	if one := into[api.Plugin](t, f.get("GET", "/v1/plugin/disk")); len(one.Instances) != 4 {
		t.Errorf("the plugin has %d instances, want 4", len(one.Instances))
	}
}

// TestATaskWithoutConfigIsRefused where its driver can run nothing then; of another
// driver nobody here knows.
func TestATaskWithoutConfigIsRefused(t *testing.T) {
	t.Parallel()
	f := newFake(t, "cluster {}\n", nil)
	f.commits = true
	for driver, want := range map[string]string{
		"exec":     `is missing, and driver exec runs the command in it; add config { command = "/path/of/program" }`,
		"raw_exec": `is missing, and driver raw_exec runs the command in it; add config { command = "/path/of/program" }`,
		"docker":   `is missing, and driver docker runs the image in it; add config { image = "name:tag" }`,
		"other":    "",
	} {
		got := f.send(http.MethodPut, "/v1/job/default/of-"+driver, fmt.Sprintf(`{"type":"service","groups":[{"name":"g","count":1,"tasks":[{"name":"t","driver":%q}]}]}`, driver))
		if want == "" {
			into[api.JobInfo](t, got)
			continue
		}
		want = fmt.Sprintf("job of-%s has a problem\n  group[\"g\"].task[\"t\"].config %s", driver, want)
		if e := got.refusal(t); got.status != http.StatusBadRequest || e.Error() != want {
			t.Errorf("%s: %d %s, want %s", driver, got.status, e.Error(), want)
		}
	}
}
