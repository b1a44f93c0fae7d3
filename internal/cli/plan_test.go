package cli_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cli"
)

// aPlan has one of everything that a plan may have.
func aPlan() api.Plan {
	old, changed := json.RawMessage("1"), json.RawMessage(`"a"`)
	p := api.Plan{
		Index: 7,
		Volumes: []api.VolumePlan{
			{Namespace: "default", ID: "pg", Action: api.PlanNone},
			{Namespace: "default", ID: "new", Action: api.PlanCreate, Waits: []api.Wait{{Subject: "volume default/new", Reason: "no node runs plugin locl; did you mean local?"}}},
			{Namespace: "dev", ID: "old", Action: api.PlanChange, Version: 3, Changes: []api.Change{{Path: "name", Kind: api.Changed, Old: old, New: changed}}},
		},
		Jobs: []api.JobPlan{
			{
				Namespace: "default", ID: "db", Action: api.PlanChange, Version: 12, Revision: 4,
				Changes: []api.Change{
					{Path: `group["side"]`, Kind: api.Removed}, {Path: `group["side"].count`, Kind: api.Removed, Old: old},
					{Path: `group["main"]`, Kind: api.Added}, {Path: `group["main"].task["t"].user`, Kind: api.Added, New: changed},
				},
				Create: []api.PlannedVolume{
					{ID: "pg[1]", From: "pg[0]", PluginID: "disk", CapacityMin: 1 << 30, Topologies: []api.Topology{{"zone": "a"}, {"zone": "b"}}},
					{Request: "scratch", Group: "main", Index: 1, NodeID: "n1", PluginID: "disk", Waits: []api.Wait{{Reason: "node n1 takes nothing new"}}},
				},
				Warnings: []api.Field{{Path: "x", Message: "changes nothing"}},
				Start:    []api.PlannedStart{{Group: "main", Index: 1, NodeID: "n1"}, {Group: "main", Index: 2, NodeID: "n2\x1b", Replaces: "0f1e2d3c4b5a"}, {Group: "main", Index: 3, NodeID: "n1", After: []api.VolumeID{"new", "other"}}},
				Stop:     []api.PlannedStop{{ID: "ffee2d3c4b5a", Group: "side", NodeID: "n1", Reason: "the group was removed from the job"}},
				Keep:     []api.PlannedKeep{{ID: "aa"}, {ID: "bb"}},
				Waits:    []api.Wait{{Subject: "allocation db.main[3]", Reason: "no node fits: node n3 is down"}},
				TurnedDown: []api.TurnedDown{{Group: "main", Nodes: 12, Reasons: []api.TurnedDownReason{
					{Reason: "the node is down", Nodes: 10, Names: []api.NodeID{"n3", "n4"}}, {Reason: "the node has no driver exec", Nodes: 1, Names: []api.NodeID{"n5"}},
				}}},
				Reverted: &api.Reversion{From: 3, To: 2, Reason: "it did not become healthy"}, Cut: true,
			},
			{Namespace: "default", ID: "web", Action: api.PlanStart, Version: 2, Revision: 2},
		},
	}
	for i := range 22 {
		p.Jobs[1].Start = append(p.Jobs[1].Start, api.PlannedStart{Group: "g", Index: i, NodeID: "n1"})
	}
	return p
}

const planOutput = `volume default/pg stays as it is
volume default/new would be created
  It would wait: no node runs plugin locl; did you mean local?
volume dev/old would be changed
  ~ name = 1 -> "a"

job default/db would be changed
  - group["side"]
  - group["side"].count = 1
  + group["main"]
  + group["main"].task["t"].user = "a"
  The scheduler would
    create volume pg[1] like pg[0] (1GiB, plugin disk, zone=a or zone=b)
    create a volume for scratch of db.main[1] (plugin disk, for node n1), which would wait: node n1 takes nothing new
    start db.main[1] on node n1
    start db.main[2] on node n2\x1b, after allocation 0f1e2d3c
    start db.main[3], probably on node n1, when volumes new and other are made
    stop db.side[0] on node n1, allocation ffee2d3c: the group was removed from the job
    keep 2 allocations running
    go back to revision 2 at once: it did not become healthy
    do more, which took too long to find out
  These would wait
    allocation db.main[3]: no node fits: node n3 is down
  12 nodes turned down for group main
    10: the node is down (n3, n4, ...)
    1: the node has no driver exec (n5)
    1 for other reasons
  To apply it only if nobody changes the job before, use --check-version 12

job default/web would be started again
  The scheduler would
    start web.g[0] on node n1
    start web.g[1] on node n1
    start web.g[2] on node n1
    start web.g[3] on node n1
    start web.g[4] on node n1
    start web.g[5] on node n1
    start web.g[6] on node n1
    start web.g[7] on node n1
    start web.g[8] on node n1
    start web.g[9] on node n1
    start web.g[10] on node n1
    start web.g[11] on node n1
    start web.g[12] on node n1
    start web.g[13] on node n1
    start web.g[14] on node n1
    start web.g[15] on node n1
    start web.g[16] on node n1
    start web.g[17] on node n1
    start web.g[18] on node n1
    start web.g[19] on node n1
    start 2 more
  To apply it only if nobody changes the job before, use --check-version 2
`

// TestPlanOutput: the difference first, then what would happen, then why it
// would not happen elsewhere; and long lists are counted.
func TestPlanOutput(t *testing.T) {
	t.Parallel()
	f := newFake(t, map[string]any{"POST /v1/plan": aPlan()})
	files := write(t, volumeFile, jobFile)
	got := run(t, f.URL, append([]string{"plan"}, files...)...)
	if diff := cmp.Diff(result{stdout: planOutput, stderr: "warning: job default/db: x changes nothing\n"}, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = run(t, f.URL, append([]string{"plan", "--json"}, files...)...)
	b, err := json.Marshal(aPlan())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(value(t, string(b)), value(t, got.stdout)); diff != "" || got.stderr != "" {
		t.Errorf("for a program, stderr %q (-answered +printed):\n%s", got.stderr, diff)
	}
	if diff := cmp.Diff([]string{"POST /v1/plan", "POST /v1/plan"}, f.writes()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestPlanExitStatus is the one for changes only where that was asked for.
func TestPlanExitStatus(t *testing.T) {
	t.Parallel()
	none := api.Plan{Volumes: []api.VolumePlan{{Action: api.PlanNone}}, Jobs: []api.JobPlan{{Action: api.PlanNone}}}
	volume := api.Plan{Volumes: []api.VolumePlan{{Action: api.PlanCreate}}, Jobs: []api.JobPlan{{Action: api.PlanNone}}}
	for name, tc := range map[string]struct {
		answer any
		flags  []string
		want   int
	}{
		"Changes":          {aPlan(), nil, cli.ExitDone},
		"ChangesDetailed":  {aPlan(), []string{"--detailed-exitcode"}, cli.ExitChanges},
		"ChangesAsJSON":    {aPlan(), []string{"--detailed-exitcode", "--json"}, cli.ExitChanges},
		"VolumeOnly":       {volume, []string{"--detailed-exitcode"}, cli.ExitChanges},
		"NothingDetailed":  {none, []string{"--detailed-exitcode"}, cli.ExitDone},
		"ConflictDetailed": {api.Errorf(api.CodeConflict, "no"), []string{"--detailed-exitcode"}, cli.ExitFailed},
		"InvalidDetailed":  {api.Errorf(api.CodeInvalid, "no"), []string{"--detailed-exitcode"}, cli.ExitUsage},
	} {
		f := newFake(t, map[string]any{"POST /v1/plan": tc.answer})
		got := run(t, f.URL, append(append([]string{"plan"}, tc.flags...), write(t, jobFile)...)...)
		if got.status != tc.want {
			t.Errorf("%s: exit status %d, want %d (stderr %q)", name, got.status, tc.want, got.stderr)
		}
	}
}

// TestAmendments: what scale and revert send is what was typed.
func TestAmendments(t *testing.T) {
	t.Parallel()
	answers := world()
	job := answers["GET /v1/job/default/db"]
	answers["POST /v1/job/default/db/scale"] = job
	answers["POST /v1/job/default/db/revert"] = inTurn{job, api.Errorf(api.CodeNotFound, "job db has no revision 9; it has 1 to 2")}
	f := newFake(t, answers)
	for _, tc := range []struct {
		command []string
		want    result
	}{
		{[]string{"job", "scale", "db", "main", "2"}, result{stdout: "job default/db applied (revision 2)\njob default/db is running\n"}},
		{[]string{"job", "revert", "db", "1", "--detach"}, result{stdout: "job default/db applied (revision 2)\n"}},
		{[]string{"job", "revert", "db", "9"}, result{stderr: "berth: job db has no revision 9; it has 1 to 2 (see 'berth job history db')\n", status: cli.ExitFailed}},
		{[]string{"job", "scale", "d", "2"}, result{stderr: "berth: /v1/job/default/d/scale is not there; did you mean db? (see 'berth job list')\n", status: cli.ExitFailed}},
	} {
		got := run(t, f.URL, tc.command...)
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(result{})); diff != "" {
			t.Errorf("berth %v (-want +got):\n%s", tc.command, diff)
		}
	}
}
