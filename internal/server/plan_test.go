package server_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/controller"
	"github.com/berth-dev/berth/internal/controller/scheduler"
	"github.com/berth-dev/berth/internal/server"
	"github.com/berth-dev/berth/internal/server/httpapi"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// planLines are a plan as text.
func planLines(p api.JobPlan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s version %d revision %d\n", p.Action, p.Version, p.Revision)
	for _, c := range p.Changes {
		fmt.Fprintf(&b, "%s %s %s %s\n", c.Kind, c.Path, c.Old, c.New)
	}
	for _, v := range p.Create {
		fmt.Fprintf(&b, "create %s%s of %s %d", v.ID, v.Request, v.PluginID, v.CapacityMin)
		if v.From != "" {
			fmt.Fprintf(&b, " like %s", v.From)
		}
		if v.Request != "" {
			fmt.Fprintf(&b, " for %s[%d] on %s", v.Group, v.Index, v.NodeID)
		}
		for _, t := range v.Topologies {
			fmt.Fprintf(&b, " in %v", t)
		}
		for _, w := range v.Waits {
			fmt.Fprintf(&b, " waits: %s", w.Reason)
		}
		fmt.Fprintln(&b)
	}
	for _, s := range p.Start {
		after := string(s.Replaces)
		if s.Beside {
			after = "beside " + after
		}
		if len(s.After) > 0 {
			after = fmt.Sprintf("after %v", s.After)
		}
		fmt.Fprintf(&b, "start %s[%d] on %s %s\n", s.Group, s.Index, s.NodeID, after)
	}
	for _, s := range p.Stop {
		fmt.Fprintf(&b, "stop %s %s[%d] on %s: %s\n", s.ID, s.Group, s.Index, s.NodeID, s.Reason)
	}
	for _, k := range p.InPlace {
		fmt.Fprintf(&b, "in place %s %s[%d] on %s\n", k.ID, k.Group, k.Index, k.NodeID)
	}
	for _, k := range p.Keep {
		fmt.Fprintf(&b, "keep %s %s[%d] on %s\n", k.ID, k.Group, k.Index, k.NodeID)
	}
	for _, w := range p.Waits {
		fmt.Fprintf(&b, "wait %s: %s\n", w.Subject, w.Reason)
	}
	for _, t := range p.TurnedDown {
		fmt.Fprintf(&b, "turned down for %s: %d\n", t.Group, t.Nodes)
		for _, r := range t.Reasons {
			fmt.Fprintf(&b, "  %d %s %v\n", r.Nodes, r.Reason, r.Names)
		}
	}
	if p.Cut {
		fmt.Fprintln(&b, "cut")
	}
	return strings.ReplaceAll(b.String(), " \n", "\n")
}

func planned(t *testing.T, store *state.Store, id api.JobID, spec string) api.JobPlan {
	t.Helper()
	var s api.JobSpec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		t.Fatalf("%v in %s", err, spec)
	}
	before, index := statetest.Print(t, store.View()), store.View().Index()
	got, err := server.Plan(store, statetest.Now()).Plan(t.Context(), httpapi.Specs{
		Jobs: []*command.ApplyJob{{Namespace: "default", ID: id, UID: "new-uid", Spec: s}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(before, statetest.Print(t, store.View())); diff != "" || store.View().Index() != index || got.Index != index {
		t.Errorf("the plan of index %d has changed the state (-before +after):\n%s", got.Index, diff)
	}
	return got.Jobs[0]
}

// TestPlan is what people read before they apply.
func TestPlan(t *testing.T) {
	t.Parallel()
	const (
		nodes = `
node {"id":"n1","status":{"state":"ready","drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}
node {"id":"n10","status":{"state":"ready","drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}
node {"id":"old","status":{"state":"ready","drivers":{"docker":{"healthy":true}}}}
node {"id":"off","status":{"state":"down","drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}
instance {"node_id":"n1","healthy":true}
volume {"id":"pg","status":{"state":"ready"}}
`
		running = nodes + `
job {"id":"db","version":4,"revision":2,"spec":{"groups":[{"count":2,"tasks":[{"name":"t","driver":"exec"}]}]},"status":{"settled":true,"serial":2}}
allocation {"id":"a1","job_id":"db","node_id":"n1","revision":2,"status":{"state":"running"}}
allocation {"id":"a2","job_id":"db","node_id":"n10","index":1,"revision":2,"status":{"state":"running"}}
`
	)
	job := func(count int, more string) string {
		return fmt.Sprintf(`{"type":"service","groups":[{"name":"g","count":%d,"tasks":[{"name":"t","driver":"exec"%s}]}]}`, count, more)
	}
	for name, tc := range map[string]struct{ world, spec, want string }{
		"New": {nodes, job(1, ""), `create version 0 revision 1
start g[0] on n10
turned down for g: 2
  1 the node has no driver exec [old]
  1 the node is down [off]
`},
		"Same": {running, job(2, ""), `none version 4 revision 2
keep a1 g[0] on n1
keep a2 g[1] on n10
`},
		"More": {running, job(3, ""), `change version 4 revision 3
changed group["g"].count 2 3
start g[2] on n1
keep a1 g[0] on n1
keep a2 g[1] on n10
turned down for g: 2
  1 the node has no driver exec [old]
  1 the node is down [off]
`},
		"Fewer": {running, job(1, ""), `change version 4 revision 3
changed group["g"].count 2 1
stop a2 g[1] on n10: the group's count was lowered
keep a1 g[0] on n1
`},
		"InPlace": {running, strings.Replace(job(2, ""), `"count"`, `"restart":{"attempts":5},"count"`, 1), `change version 4 revision 3
added group["g"].restart 
added group["g"].restart.attempts  5
in place a1 g[0] on n1
in place a2 g[1] on n10
`},
		"Otherwise": {running, job(2, `,"user":"pg"`), `change version 4 revision 3
added group["g"].task["t"].user  "pg"
start g[0] on n1 beside a1
keep a2 g[1] on n10
wait allocation db.g[1]: runs revision 2 until it is its turn: group g exchanges 1 at a time
wait allocation db.g[0]: allocation a1 of revision 2 runs until allocation db.g[0] is healthy
turned down for g: 2
  1 the node has no driver exec [old]
  1 the node is down [off]
`},
		"OtherwiseStopFirst": {running, strings.Replace(job(2, `,"user":"pg"`), `"count"`, `"update":{"order":"stop-first"},"count"`, 1), `change version 4 revision 3
added group["g"].update 
added group["g"].update.order  "stop-first"
added group["g"].task["t"].user  "pg"
stop a1 g[0] on n1: the job was changed
keep a2 g[1] on n10
wait allocation db.g[1]: runs revision 2 until it is its turn: group g exchanges 1 at a time
wait allocation db.g[0]: allocation a1 before it is ending
`},
		"NoVolume": {nodes, strings.Replace(job(1, ""), `"count"`, `"volumes":[{"name":"data","type":"csi","source":"none","access_mode":"single-node-writer","attachment_mode":"file-system"}],"count"`, 1), `create version 0 revision 1
wait allocation db.g[0]: volume none does not exist
`},
		"OneVolume": {nodes, strings.Replace(job(1, ""), `"count"`, `"volumes":[{"name":"data","type":"csi","source":"pg","access_mode":"single-node-writer","attachment_mode":"file-system"}],"count"`, 1), `create version 0 revision 1
start g[0] on n1
turned down for g: 3
  1 the node does not run plugin disk [n10]
  1 the node has no driver exec [old]
  1 the node is down [off]
`},
		"NoNodeForAll": {nodes, strings.Replace(job(3, ""), `"count"`, `"constraints":[{"operator":"distinct_hosts"}],"count"`, 1), `create version 0 revision 1
start g[0] on n10
start g[1] on n1
wait allocation db.g[2]: no node fits: constraint distinct_hosts: the node has an allocation of the group (2 nodes); node off is down; node old has no driver exec
turned down for g: 4
  2 constraint distinct_hosts: the node has an allocation of the group [n1 n10]
  1 the node has no driver exec [old]
  1 the node is down [off]
`},
		"Everywhere": {nodes, strings.Replace(job(1, ""), "service", "system", 1), `create version 0 revision 1
start g[0] on n1
start g[1] on n10
turned down for g: 2
  1 the node has no driver exec [old]
  1 the node is down [off]
`},
		"Stopped": {strings.Replace(nodes, "\n", "\n"+`job {"id":"db","version":3,"desired":"absent","spec":{"groups":[{"count":1,"tasks":[{"name":"t","driver":"exec"}]}]}}`+"\n", 1), job(1, ""), `start version 3 revision 2
start g[0] on n10
turned down for g: 2
  1 the node has no driver exec [old]
  1 the node is down [off]
`},
		"NothingAtAll": {"", job(1, ""), "create version 0 revision 1\nwait allocation db.g[0]: the cluster has no nodes\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := planLines(planned(t, statetest.Load(t, tc.world), "db", tc.spec))
			if diff := gocmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestPlanOfABigFleet names a few nodes of each reason, and counts all.
func TestPlanOfABigFleet(t *testing.T) {
	t.Parallel()
	var world strings.Builder
	for i := range 300 {
		fmt.Fprintf(&world, `node {"id":"n%03d","status":{"state":"down"}}`+"\n", i)
	}
	for i := range 30 {
		fmt.Fprintf(&world, `node {"id":"m%03d","status":{"state":"ready","drivers":{"exec":{"reason":"fault %d"}}}}`+"\n", i, i)
	}
	got := planned(t, statetest.Load(t, world.String()), "db", `{"type":"service","groups":[{"name":"g","count":2,"tasks":[{"name":"t","driver":"exec"}]}]}`)
	if len(got.TurnedDown) != 1 || got.TurnedDown[0].Nodes != 330 || len(got.TurnedDown[0].Reasons) != 16 {
		t.Fatalf("turned down %+v", got.TurnedDown)
	}
	want := api.TurnedDownReason{Reason: "the node is down", Nodes: 300, Names: []api.NodeID{"n000", "n001", "n002", "n003", "n004"}}
	if diff := gocmp.Diff(want, got.TurnedDown[0].Reasons[0]); diff != "" {
		t.Errorf("the first reason (-want +got):\n%s", diff)
	}
}

// TestPlanIsEnded: what takes too long says that it is not all.
func TestPlanIsEnded(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, `node {"id":"n1","status":{"state":"ready","drivers":{"exec":{"healthy":true}}}}`)
	specs := httpapi.Specs{Jobs: []*command.ApplyJob{{Namespace: "default", ID: "db", UID: "u", Spec: api.JobSpec{
		Type: api.JobService, Groups: []api.TaskGroup{{Name: "g", Count: 200, Tasks: []api.Task{{Name: "t", Driver: "exec"}}}},
	}}}}
	whole, err := server.Plan(store, statetest.Now()).Plan(t.Context(), specs)
	if err != nil || whole.Jobs[0].Cut || len(whole.Jobs[0].Start) != 200 {
		t.Errorf("%d starts, cut %v (%v), want all 200", len(whole.Jobs[0].Start), whole.Jobs[0].Cut, err)
	}
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	planner := server.Plan(store, statetest.Now())
	for range 20 { // a turn that is free and a time that is over are both there: either is taken
		cut, err := planner.Plan(late, specs)
		if err == nil && (!cut.Jobs[0].Cut || len(cut.Jobs[0].Start) > 0) {
			t.Fatalf("%d starts, cut %v", len(cut.Jobs[0].Start), cut.Jobs[0].Cut)
		}
		if err != nil && api.CodeOf(err) != api.CodeUnavailable {
			t.Fatal(err)
		}
	}
}

// TestPlanOfSeveral: what comes first is there for what comes after it.
func TestPlanOfSeveral(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, `
node {"id":"n1","status":{"state":"ready","drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}
volume {"id":"old","version":7,"status":{"state":"ready"},"spec":{"plugin_id":"disk"}}
volume {"id":"same","version":2,"status":{"state":"ready"},"spec":{"plugin_id":"disk"}}
`)
	spec := api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{
		Name: "g", Count: 1, Tasks: []api.Task{{Name: "t", Driver: "exec"}},
		Volumes: []api.VolumeRequest{{Name: "data", Type: "csi", Source: "pg", AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
	}}}
	same := store.View().Volume("default", "same").Spec
	renamed := store.View().Volume("default", "old").Spec
	renamed.Name = "the old one"
	got, err := server.Plan(store, statetest.Now()).Plan(t.Context(), httpapi.Specs{
		Volumes: []*command.ApplyVolume{
			{Namespace: "default", ID: "pg", UID: "u", Spec: renamed},
			{Namespace: "default", ID: "old", UID: "u", Spec: renamed},
			{Namespace: "default", ID: "same", UID: "u", Spec: same},
		},
		Jobs: []*command.ApplyJob{{Namespace: "default", ID: "db", UID: "u", Spec: spec}},
	})
	if err != nil {
		t.Fatal(err)
	}
	none := []api.Change{}
	want := []api.VolumePlan{
		{Namespace: "default", ID: "pg", Action: api.PlanCreate, Changes: none, Waits: []api.Wait{{Subject: "volume default/pg", Reason: "no node runs plugin disk", Since: statetest.Now()}}},
		{Namespace: "default", ID: "old", Action: api.PlanChange, Version: 7, Changes: []api.Change{{Path: "name", Kind: api.Added, New: json.RawMessage(`"the old one"`)}},
			Waits: []api.Wait{{Subject: "volume default/old", Reason: "no node runs plugin disk", Since: statetest.Now()}}},
		{Namespace: "default", ID: "same", Action: api.PlanNone, Version: 2, Changes: none},
	}
	if diff := gocmp.Diff(want, got.Volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff("create version 0 revision 1\nwait allocation db.g[0]: volume pg is being created\n", planLines(got.Jobs[0])); diff != "" {
		t.Errorf("the job (-want +got):\n%s", diff)
	}

	renamed.PluginID = "tape"
	_, err = server.Plan(store, statetest.Now()).Plan(t.Context(), httpapi.Specs{Volumes: []*command.ApplyVolume{{Namespace: "default", ID: "old", UID: "u", Spec: renamed}}})
	const refused = "volume default/old: the volume has a problem\n  plugin_id cannot be changed once the volume is made; put the old value back, or make a new volume"
	if err == nil || err.Error() != refused || api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a change that cannot be: %v", err)
	}
	_, err = server.Plan(store, statetest.Now()).Plan(t.Context(), httpapi.Specs{Jobs: []*command.ApplyJob{{Namespace: "default", ID: "db", UID: "u", Spec: spec, Version: 3}}})
	if err == nil || err.Error() != "job default/db: job db is gone" || api.CodeOf(err) != api.CodeConflict {
		t.Errorf("a version of what is not there: %v", err)
	}
}

// TestPlanOfAVolumeAndItsJob: what a first use applies together is planned
// together. What keeps the volume from being made is told, and so are the nodes
// that its job does not take.
func TestPlanOfAVolumeAndItsJob(t *testing.T) {
	t.Parallel()
	const nodes = `
node {"id":"n1","status":{"state":"ready","profile":{"class":"gpu"},"drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}
node {"id":"n2","status":{"state":"ready","drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}
node {"id":"n3","status":{"state":"ready","drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}
`
	instances := func(id, health string, topology bool) string {
		var b strings.Builder
		for _, n := range []string{"n1", "n2"} {
			access, where := "", ""
			if topology {
				access, where = `,"VOLUME_ACCESSIBILITY_CONSTRAINTS"`, fmt.Sprintf(`,"topology":{"node":%q}`, n)
			}
			fmt.Fprintf(&b, `instance {"plugin_id":%q,"node_id":%q,"driver":"d","healthy":%s,"plugin_capabilities":["CONTROLLER_SERVICE"%s],"controller_capabilities":["CREATE_DELETE_VOLUME"]%s}`+"\n", id, n, health, access, where)
		}
		return b.String()
	}
	for name, tc := range map[string]struct {
		world, volume, constraint, volumes, job string
	}{
		"Anywhere": {nodes + instances("disk", "true", false), `{"plugin_id":"disk"}`, "", "", `create version 0 revision 1
start g[0] on n2 after [pg]
turned down for g: 1
  1 the node does not run plugin disk [n3]
`},
		"Constraint": {nodes + instances("disk", "true", false), `{"plugin_id":"disk"}`, "none", "", `create version 0 revision 1
wait allocation db.g[0]: no node fits: constraint ${node.class} = none: the node has no ${node.class} (2 nodes); constraint ${node.class} = none: the node has "gpu"
turned down for g: 3
  2 constraint ${node.class} = none: the node has no ${node.class} [n2 n3]
  1 constraint ${node.class} = none: the node has "gpu" [n1]
`},
		"Topology": {nodes + instances("disk", "true", true), `{"plugin_id":"disk","topology_request":{"required":[{"node":"n2"}]}}`, "", "", `create version 0 revision 1
start g[0] on n2 after [pg]
turned down for g: 2
  1 the node does not run plugin disk [n3]
  1 volume pg cannot be reached from the node [n1]
`},
		"Mistyped": {nodes + instances("disk", "true", false), `{"plugin_id":"dsk"}`, "gpu", "no node runs plugin dsk; did you mean disk?",
			"create version 0 revision 1\nwait allocation db.g[0]: volume pg is being created\n"},
		"Registered": {nodes + instances("disk", "true", false), `{"plugin_id":"dsk","external_id":"x"}`, "", "no node runs plugin dsk; did you mean disk?", `create version 0 revision 1
wait allocation db.g[0]: no node fits: node n1 does not run plugin dsk; node n2 does not run plugin dsk; node n3 does not run plugin dsk
turned down for g: 3
  3 the node does not run plugin dsk [n1 n2 n3]
`},
		"NotHealthy": {nodes + instances("disk", "false", false), `{"plugin_id":"disk"}`, "", "no controller instance of plugin disk is healthy: on node n2, ",
			"create version 0 revision 1\nwait allocation db.g[0]: volume pg is being created\n"},
		"CannotCreate": {nodes + strings.ReplaceAll(instances("disk", "true", false), "CREATE_DELETE_VOLUME", "PUBLISH_UNPUBLISH_VOLUME"), `{"plugin_id":"disk"}`, "",
			"plugin disk cannot create volumes: no controller instance of it has the capability CREATE_DELETE_VOLUME",
			"create version 0 revision 1\nwait allocation db.g[0]: volume pg is being created\n"},
		"CannotClone": {nodes + instances("disk", "true", false), `{"plugin_id":"disk","clone_id":"other"}`, "",
			"plugin disk cannot make a volume from another volume: no controller instance of it has the capability CLONE_VOLUME",
			"create version 0 revision 1\nwait allocation db.g[0]: volume pg is being created\n"},
		"CopyOfWhatComesAfterIt": {nodes + strings.ReplaceAll(instances("disk", "true", false), `"CREATE_`, `"CLONE_VOLUME","CREATE_`), `{"plugin_id":"disk","clone_id":"original"}`, "", "", `create version 0 revision 1
start g[0] on n2 after [pg]
turned down for g: 1
  1 the node does not run plugin disk [n3]
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := statetest.Load(t, tc.world)
			spec := api.VolumeSpec{}
			if err := json.Unmarshal([]byte(tc.volume), &spec); err != nil {
				t.Fatal(err)
			}
			spec.Capabilities = []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}}
			original := spec
			original.CloneID, original.ExternalID = "", ""
			job := api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{
				Name: "g", Count: 1, Tasks: []api.Task{{Name: "t", Driver: "exec"}},
				Volumes: []api.VolumeRequest{{Name: "data", Type: "csi", Source: "pg", AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
			}}}
			if tc.constraint != "" {
				job.Groups[0].Constraints = []api.Constraint{{Attribute: "${node.class}", Operator: "=", Value: tc.constraint}}
			}
			before := statetest.Print(t, store.View())
			got, err := server.Plan(store, statetest.Now()).Plan(t.Context(), httpapi.Specs{
				Volumes: []*command.ApplyVolume{{Namespace: "default", ID: "pg", UID: "u", Spec: spec}, {Namespace: "default", ID: "original", UID: "v", Spec: original}},
				Jobs:    []*command.ApplyJob{{Namespace: "default", ID: "db", UID: "w", Spec: job}},
			})
			if err != nil {
				t.Fatal(err)
			}
			var volumes []string
			for _, w := range got.Volumes[0].Waits {
				volumes = append(volumes, w.Reason)
			}
			if diff := gocmp.Diff(tc.volumes, strings.Join(volumes, "\n")); diff != "" {
				t.Errorf("what the volume waits for (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(tc.job, planLines(got.Jobs[0])); diff != "" {
				t.Errorf("the job (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(before, statetest.Print(t, store.View())); diff != "" {
				t.Errorf("the plan has changed the state (-before +after):\n%s", diff)
			}
		})
	}
}

// TestPlanOfALongChain: copies of copies, the last one first, are each looked at
// once more when what they are copies of is taken for made; and a plan that has
// no time left says so of what it did not look at.
func TestPlanOfALongChain(t *testing.T) {
	t.Parallel()
	const length = 60
	volumes := make([]*command.ApplyVolume, length)
	for i := range length {
		spec := api.VolumeSpec{PluginID: "disk", Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}}}
		if i < length-1 {
			spec.CloneID = fmt.Sprintf("v%d", i+1)
		}
		volumes[i] = &command.ApplyVolume{Namespace: "default", ID: api.VolumeID(fmt.Sprintf("v%d", i)), UID: fmt.Sprintf("u%d", i), Spec: spec}
	}
	store := statetest.Load(t, `node {"id":"n1","status":{"state":"ready"}}
instance {"plugin_id":"disk","node_id":"n1","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE"],"controller_capabilities":["CREATE_DELETE_VOLUME","CLONE_VOLUME"]}
`)
	for name, late := range map[string]bool{"InTime": false, "TooLate": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			now := func() time.Time { // the plan asks for it when it begins
				if late {
					cancel()
				}
				return statetest.Now()
			}
			got, err := server.PlanAt(store, now).Plan(ctx, httpapi.Specs{Volumes: volumes})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range got.Volumes {
				skipped := len(p.Waits) == 1 && strings.Contains(p.Waits[0].Reason, "took too long")
				if skipped != late || !late && len(p.Waits) > 0 {
					t.Errorf("volume %s waits for %v", p.ID, p.Waits)
				}
			}
		})
	}
}

var newHolder = regexp.MustCompile(`allocation \S+\[\d+\] of job \S+ on node \S+ holds it`)

// TestPlanIsWhatHappens plans in random worlds, then applies and lets all
// controllers of a server do what they do until they rest: no more and no less
// than the plan has happened.
func TestPlanIsWhatHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newPlanWorld(t)
		id := rapid.SampledFrom([]api.JobID{"db", "web", "new"}).Draw(t, "id")
		// Nobody plans what cannot be applied: it is refused before.
		spec := jobSpecs().Filter(func(s api.JobSpec) bool { return s.Validate() == nil }).Draw(t, "spec")
		if job := w.store.View().Job("default", id); job != nil && rapid.Bool().Draw(t, "changes little") {
			if little := changed(t, job.Spec); little.Validate() == nil {
				spec = little
			}
		}
		before := map[api.AllocID]api.Allocation{}
		for a := range w.store.View().Allocations() {
			before[a.ID] = *a
		}
		plan, err := server.Plan(w.store, w.now).Plan(context.Background(), httpapi.Specs{
			Jobs: []*command.ApplyJob{{Namespace: "default", ID: id, UID: "uid-of-the-plan", Spec: spec}},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.apply(id, spec)
		w.rest()
		v := w.store.View()
		want, got := plan.Jobs[0], api.JobPlan{
			Namespace: "default", ID: id, Action: plan.Jobs[0].Action, Version: plan.Jobs[0].Version, Changes: plan.Jobs[0].Changes,
			TurnedDown: plan.Jobs[0].TurnedDown, Revision: v.Job("default", id).Revision,
			Start: []api.PlannedStart{}, Stop: []api.PlannedStop{}, Keep: []api.PlannedKeep{}, Waits: []api.Wait{},
		}
		var names []string
		for a := range v.Allocations() {
			was, there := before[a.ID]
			switch {
			case a.JobID != id:
				if there && a.Version != was.Version {
					t.Errorf("allocation %s of another job was changed", a.ID)
				}
			case !there:
				got.Start = append(got.Start, api.PlannedStart{Group: a.Group, Index: a.Index, NodeID: a.NodeID})
				names = append(names, a.ID.Short(), a.Name())
			case was.Desired == api.DesireRun && a.Desired == api.DesireStop && !was.Terminal():
				got.Stop = append(got.Stop, api.PlannedStop{ID: a.ID, Group: a.Group, Index: a.Index, NodeID: a.NodeID, Reason: a.DesiredReason})
			case !a.Terminal() && a.Desired == api.DesireRun && !a.Replaced: // else it goes when its successor is healthy
				got.Keep = append(got.Keep, api.PlannedKeep{ID: a.ID, Group: a.Group, Index: a.Index, NodeID: a.NodeID})
			}
		}
		for i := range want.Start {
			if r := want.Start[i].Replaces; r != "" && !v.Allocation(r).Replaced {
				t.Errorf("allocation %s is not replaced", r)
			}
			if s := want.Start[i]; s.Beside && (v.Allocation(s.Replaces).Terminal() || v.Allocation(s.Replaces).Desired != api.DesireRun) {
				t.Errorf("allocation %s does not run beside what starts", s.Replaces)
			}
			want.Start[i].Replaces, want.Start[i].Beside = "", false
		}
		keys := []controller.Key{scheduler.HealthKey("default", id)}
		if !v.Job("default", id).Status.Settled {
			keys = append([]controller.Key{scheduler.JobKey("default", id)}, keys...)
		}
		for _, k := range keys {
			rest, err := scheduler.Controller{}.Reconcile(v, w.now, k)
			if err != nil || len(rest.Commands) > 0 {
				t.Fatalf("the scheduler has more to do: %+v (%v)", rest.Commands, err)
			}
			for _, wait := range rest.Waits {
				// A plan cannot know the ids of what is not there yet.
				wait.Reason = strings.NewReplacer(names...).Replace(wait.Reason)
				got.Waits = append(got.Waits, wait)
			}
		}
		for _, waits := range [][]api.Wait{want.Waits, got.Waits} {
			for i := range waits {
				// Nor which of several that hold a volume has the least id, and is named.
				waits[i].Reason = newHolder.ReplaceAllString(waits[i].Reason, "one that is new holds it")
			}
		}
		if plan.Jobs[0].Reverted != nil {
			got.Reverted = v.Job("default", id).Status.Reverted
		}
		for _, p := range []*api.JobPlan{&want, &got} {
			slices.SortFunc(p.Start, func(a, b api.PlannedStart) int {
				return cmp.Or(strings.Compare(a.Group, b.Group), a.Index-b.Index, strings.Compare(string(a.NodeID), string(b.NodeID)))
			})
			slices.SortFunc(p.Stop, func(a, b api.PlannedStop) int { return strings.Compare(string(a.ID), string(b.ID)) })
			slices.SortFunc(p.Keep, func(a, b api.PlannedKeep) int { return strings.Compare(string(a.ID), string(b.ID)) })
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Fatalf("planned (-) and happened (+):\n%s\nin\n%s", diff, statetest.Print(t, v))
		}
	})
}

// changed is a spec with one thing of one group as it was not.
func changed(t *rapid.T, spec api.JobSpec) api.JobSpec {
	spec.Groups = slices.Clone(spec.Groups)
	g := &spec.Groups[len(spec.Groups)-1]
	switch rapid.IntRange(0, 3).Draw(t, "change") {
	case 0:
		g.Count++
	case 1:
		g.Count = max(0, g.Count-1)
	case 2:
		g.Constraints = []api.Constraint{{Attribute: "${meta.rack}", Value: "r0"}}
	}
	return spec
}

// planWorld is a cluster in which some jobs run, at rest.
type planWorld struct {
	t     *rapid.T
	store *state.Store
	now   time.Time
	index uint64
}

func newPlanWorld(t *rapid.T) *planWorld {
	var world strings.Builder
	world.WriteString(`cluster {}` + "\n")
	for i := range rapid.IntRange(0, 6).Draw(t, "nodes") {
		status := rapid.SampledFrom([]string{"ready", "ready", "ready", "down"}).Draw(t, "node state")
		drivers := rapid.SampledFrom([]string{
			`"exec":{"healthy":true,"mounts_volumes":true}`, `"exec":{"healthy":true,"mounts_volumes":true},"docker":{"healthy":true}`, `"docker":{"reason":"it hangs"}`,
		}).Draw(t, "drivers")
		fmt.Fprintf(&world, `node {"id":"n%d","status":{"state":%q,"drivers":{%s},"profile":{"meta":{"rack":"r%d"}}}}`+"\n", i, status, drivers, i%2)
		if rapid.IntRange(0, 3).Draw(t, "instance") > 0 {
			fmt.Fprintf(&world, `instance {"node_id":"n%d","healthy":true,"external_node_id":"e%d","max_volumes":%d,"plugin_capabilities":["CONTROLLER_SERVICE"],`+
				`"controller_capabilities":["CREATE_DELETE_VOLUME","PUBLISH_UNPUBLISH_VOLUME"]}`+"\n", i, i, rapid.IntRange(0, 2).Draw(t, "max volumes"))
		}
	}
	for _, id := range []string{"v1", "v2"} {
		capabilities := `[{"access_mode":"single-node-writer","attachment_mode":"file-system"},{"access_mode":"multi-node-multi-writer","attachment_mode":"file-system"}]`
		if rapid.Bool().Draw(t, "volume") {
			fmt.Fprintf(&world, `volume {"id":%q,"spec":{"capabilities":%s},"status":{"state":"ready"}}`+"\n", id, capabilities)
		}
	}
	w := &planWorld{t: t, store: statetest.Load(t, world.String()), now: statetest.Now(), index: 100}
	for _, id := range []api.JobID{"db", "web"} {
		for range rapid.IntRange(0, 2).Draw(t, "revisions") {
			if spec := jobSpecs().Draw(t, "earlier spec"); spec.Validate() == nil {
				w.apply(id, spec)
				w.rest()
				w.live()
				w.rest()
			}
		}
	}
	return w
}

// write commits at the next index.
func (w *planWorld) write(f func(*state.Tx)) {
	w.index++
	tx := w.store.Begin(w.index, w.now)
	defer tx.Abort()
	f(tx)
	tx.Commit()
}

// apply applies a job, from the log.
func (w *planWorld) apply(id api.JobID, spec api.JobSpec) {
	said := command.ApplyJob{Namespace: "default", ID: id, UID: "uid-" + string(id), Spec: spec}
	b, err := json.Marshal(said)
	if err != nil {
		w.t.Fatal(err)
	}
	var read command.ApplyJob
	if err := json.Unmarshal(b, &read); err != nil {
		w.t.Fatal(err)
	}
	w.write(func(tx *state.Tx) {
		if err := read.Apply(tx); err != nil {
			w.t.Fatal(err)
		}
	})
}

// rest lets all controllers do what they have to do.
func (w *planWorld) rest() {
	for round := 0; ; round++ {
		if round > 100 {
			w.t.Fatalf("the controllers do not come to rest in\n%s", statetest.Print(w.t, w.store.View()))
		}
		busy := false
		for _, c := range server.Controllers() {
			for _, k := range slices.Collect(c.Pending(w.store.View())) {
				plan, err := c.Reconcile(w.store.View(), w.now, k)
				if err != nil {
					w.t.Fatal(err)
				}
				if len(plan.Commands) == 0 {
					continue
				}
				busy = true
				w.write(func(tx *state.Tx) {
					if err := plan.Commands.Apply(tx); err != nil {
						w.t.Fatalf("%s of %s: %v", k, c.Name(), err)
					}
				})
			}
		}
		if !busy {
			return
		}
	}
}

// live lets time pass, and some allocations start, or end.
func (w *planWorld) live() {
	w.now = w.now.Add(rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Minute}).Draw(w.t, "time"))
	for _, a := range slices.Collect(w.store.View().Allocations()) {
		if a.Terminal() {
			continue
		}
		w.write(func(tx *state.Tx) {
			next := *a
			next.Status.State = rapid.SampledFrom([]api.AllocState{api.AllocRunning, api.AllocRunning, api.AllocPending, api.AllocFailed, api.AllocComplete}).Draw(w.t, "became")
			if next.Status.State == api.AllocRunning && next.Running.IsZero() {
				next.Running = w.now
			}
			tx.PutAllocation(&next)
			job := *tx.Job("default", a.JobID)
			job.Status.Settled = false
			tx.PutJob(&job)
		})
	}
}

// jobSpecs are specs of all sorts, some of them wrong.
func jobSpecs() *rapid.Generator[api.JobSpec] {
	constraints := rapid.SampledFrom([][]api.Constraint{nil, nil, {{Operator: api.DistinctHosts}}, {{Attribute: "${meta.rack}", Value: "r1"}}})
	groups := rapid.Custom(func(t *rapid.T) api.TaskGroup {
		g := api.TaskGroup{
			Count: rapid.IntRange(0, 3).Draw(t, "count"), Constraints: constraints.Draw(t, "constraints"),
			Tasks: []api.Task{{Name: "t", Driver: rapid.SampledFrom([]string{"exec", "exec", "docker"}).Draw(t, "driver"), Env: map[string]string{
				"A": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "env"),
			}}},
		}
		if rapid.Bool().Draw(t, "has rules of updates") {
			g.Update = &api.Update{MaxParallel: 1, AutoRevert: true}
		}
		if rapid.Bool().Draw(t, "has a volume") {
			g.Volumes = []api.VolumeRequest{{
				Name: "data", Type: api.VolumeTypeCSI, Source: rapid.SampledFrom([]api.VolumeID{"v1", "v2"}).Draw(t, "source"), AttachmentMode: api.FileSystem,
				AccessMode: rapid.SampledFrom([]api.AccessMode{api.SingleNodeWriter, api.MultiNodeMultiWriter}).Draw(t, "mode"),
			}}
			if g.Volumes[0].AccessMode == api.SingleNodeWriter {
				g.Count = min(g.Count, 1)
			}
		}
		return g
	})
	return rapid.Custom(func(t *rapid.T) api.JobSpec {
		s := api.JobSpec{
			Type:        rapid.SampledFrom([]api.JobType{api.JobService, api.JobService, api.JobBatch, api.JobSystem}).Draw(t, "type"),
			Priority:    rapid.SampledFrom([]int{0, 0, 80}).Draw(t, "priority"),
			Constraints: constraints.Draw(t, "constraints of the job"),
		}
		named := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b"}), groups, 1, 2).Draw(t, "groups")
		for _, name := range slices.Sorted(maps.Keys(named)) {
			g := named[name]
			if g.Name = name; s.Type.Everywhere() {
				g.Count = min(g.Count, 1)
			}
			if s.Type.Ends() {
				g.Update = nil
			}
			s.Groups = append(s.Groups, g)
		}
		return s
	})
}

// TestPlanOfVolumesThatAreMadeForAJob: of a family and of allocations' own, it says
// what is made and where, and goes on with what runs on them.
func TestPlanOfVolumesThatAreMadeForAJob(t *testing.T) {
	t.Parallel()
	const (
		nodes = `
node {"id":"n1","status":{"state":"ready","drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}
node {"id":"n2","status":{"state":"ready","drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}
`
		makes = `instance {"node_id":"n1","driver":"d","healthy":true,"plugin_capabilities":["CONTROLLER_SERVICE","VOLUME_ACCESSIBILITY_CONSTRAINTS"],"controller_capabilities":["CREATE_DELETE_VOLUME"],"topology":{"node":"n1"}}
`
		cannot = `instance {"node_id":"n1","driver":"d","healthy":true,"topology":{"node":"n1"}}
`
		family = `volume {"id":"pg[0]","spec":{"plugin_id":"disk","capacity_min":1024},"status":{"state":"ready","external_id":"x","accessible_topology":[{"node":"n1"}]}}
`
		ofFamily = `{"type":"service","groups":[{"name":"g","count":2,"volumes":[{"name":"data","type":"csi","source":"pg","per_alloc":true,"access_mode":"single-node-writer","attachment_mode":"file-system"}],"tasks":[{"name":"t","driver":"exec"}]}]}`
		ofItsOwn = `{"type":"service","groups":[{"name":"g","count":1,"volumes":[{"name":"scratch","type":"csi","access_mode":"single-node-writer","attachment_mode":"file-system","ephemeral":{"plugin_id":"disk","capacity_min":4096}}],"tasks":[{"name":"t","driver":"exec"}]}]}`
	)
	for name, tc := range map[string]struct{ world, job, want string }{
		"Family": {nodes + makes + family, ofFamily, `create version 0 revision 1
create pg[1] of disk 1024 like pg[0] in map[node:n1]
start g[0] on n1
start g[1] on n1 after [pg[1]]
turned down for g: 1
  1 the node does not run plugin disk [n2]
`},
		"FamilyThatNobodyMakes": {nodes + cannot + family, ofFamily, `create version 0 revision 1
create pg[1] of disk 1024 like pg[0] waits: plugin disk cannot create volumes: no controller instance of it has the capability CREATE_DELETE_VOLUME
start g[0] on n1
wait allocation db.g[1]: volume pg[1] is being created
turned down for g: 1
  1 the node does not run plugin disk [n2]
`},
		"Ephemeral": {nodes + makes, ofItsOwn, `create version 0 revision 1
create scratch of disk 4096 for g[0] on n1 in map[node:n1]
start g[0] on n1
turned down for g: 1
  1 the node does not run plugin disk [n2]
`},
	} {
		if diff := gocmp.Diff(tc.want, planLines(planned(t, statetest.Load(t, tc.world), "db", tc.job))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
