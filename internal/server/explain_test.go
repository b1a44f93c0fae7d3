package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/server"
	"github.com/berth-dev/berth/internal/state"
	"github.com/berth-dev/berth/internal/state/statetest"
)

// Lines of worlds that many tests need.
const (
	nodeReady = `node {"id":"n1","status":{"state":"ready","drivers":{"exec":{"healthy":true,"mounts_volumes":true}}}}` + "\n"
	nodeDown  = `node {"id":"n1","status":{"state":"down"}}` + "\n"
	healthy   = `instance {"node_id":"n1","healthy":true,"external_node_id":"ext","plugin_capabilities":["CONTROLLER_SERVICE"],` +
		`"controller_capabilities":["CREATE_DELETE_VOLUME","PUBLISH_UNPUBLISH_VOLUME"]}` + "\n"
	broken = `instance {"node_id":"n1","reason":"it does not answer","plugin_capabilities":["CONTROLLER_SERVICE"],` +
		`"controller_capabilities":["CREATE_DELETE_VOLUME","PUBLISH_UNPUBLISH_VOLUME"]}` + "\n"
	ready = `volume {"id":"pg","status":{"state":"ready"}}` + "\n"
	onN1  = ready + `publication {"volume_id":"pg","node_id":"n1"}` + "\n"
	alloc = `allocation {"id":"aaaaaaaa1","job_id":"db","node_id":"n1"}` + "\n"
	job   = `job {"id":"db","spec":{"groups":[{"count":1,"volumes":[{"source":"pg"}],"tasks":[{"name":"t","driver":"exec"}]}]}}` + "\n"
)

func creating(op string) string {
	return `volume {"id":"pg","status":{"operation":"create/default/pg@1"}}` + "\n" +
		`operation {"kind":"create","volume_id":"pg","status":` + op + "}\n"
}

func attached(state, more string) string {
	return `attachment {"alloc_id":"aaaaaaaa1","volume_id":"pg","node_id":"n1","job_id":"db","status":{"state":"` + state + `"` + more + "}}\n"
}

// TestExplain is what people read where something waits, of one volume, of one
// job, and in the list of everything.
func TestExplain(t *testing.T) {
	t.Parallel()
	const op = "operation create/default/pg@1: "
	for name, tc := range map[string]struct {
		world string
		want  []string // of the volume pg
		job   []string // of the job db
		other []string // of everything, if that is not both together
	}{
		"Ready":              {world: nodeReady + healthy + ready},
		"NoPlugin":           {world: nodeReady + `volume {"id":"pg"}`, want: []string{"volume default/pg: no node runs plugin disk"}},
		"PluginCannotCreate": {world: nodeReady + `instance {"node_id":"n1","healthy":true}` + "\n" + `volume {"id":"pg"}`, want: []string{"volume default/pg: plugin disk cannot create volumes: no controller instance of it has the capability CREATE_DELETE_VOLUME"}},
		"CreateWaits":        {world: nodeReady + broken + creating(`{"state":"waiting"}`), want: []string{"volume default/pg: waits for operation create/default/pg@1", op + "no controller instance of plugin disk is healthy: on node n1, it does not answer"}, other: []string{op + "no controller instance of plugin disk is healthy: on node n1, it does not answer"}},
		"CreateIsTriedAgain": {world: nodeReady + healthy + creating(`{"state":"waiting","attempt":2,"next":"now+5s","code":"UNAVAILABLE","message":"try later"}`), want: []string{"volume default/pg: waits for operation create/default/pg@1", op + "attempt 2 answered UNAVAILABLE: try later. The call was not made; next in 5s"}, other: []string{op + "attempt 2 answered UNAVAILABLE: try later. The call was not made; next in 5s"}},
		"CreateIsMade":       {world: nodeReady + healthy + creating(`{"state":"assigned","executor":"n1","assigned":"now-3s"}`), want: []string{"volume default/pg: waits for operation create/default/pg@1", op + "node n1 makes the call; since 3s"}, other: []string{op + "node n1 makes the call; since 3s"}},
		"CreateIsLostSight":  {world: nodeDown + healthy + creating(`{"state":"assigned","executor":"n1"}`), want: []string{"volume default/pg: waits for operation create/default/pg@1", op + "node n1 has the call, and is down; if the machine is off or cut off from its storage, say so with 'berth node fence n1'"}, other: []string{op + "node n1 has the call, and is down; if the machine is off or cut off from its storage, say so with 'berth node fence n1'"}},
		"Failed":             {world: `volume {"id":"pg","status":{"state":"failed","reason":"INVALID_ARGUMENT: no"}}`},
		"DeletedWhileHeld":   {world: nodeReady + healthy + `volume {"id":"pg","desired":"absent","status":{"external_id":"e"}}` + "\n" + `publication {"volume_id":"pg","node_id":"n1"}` + "\n", want: []string{"volume default/pg: is still published to node n1"}},
		"Deleting":           {world: nodeReady + healthy + `volume {"id":"pg","desired":"absent","status":{"external_id":"e","operation":"delete/default/pg@1"}}` + "\n" + `operation {"kind":"delete","volume_id":"pg","status":{"state":"assigned","executor":"n1"}}`, want: []string{"volume default/pg: waits for operation delete/default/pg@1", "operation delete/default/pg@1: node n1 makes the call"}, other: []string{"operation delete/default/pg@1: node n1 makes the call"}},
		"Attaching":          {world: nodeReady + healthy + ready + alloc + `publication {"volume_id":"pg","node_id":"n1","status":{"operation":"publish/default/pg/n1@1"}}` + "\n" + `operation {"kind":"publish","volume_id":"pg","node_id":"n1","status":{"state":"assigned","executor":"n1"}}` + "\n" + attached("claimed", ""), want: []string{"operation publish/default/pg/n1@1: node n1 makes the call", "attachment aaaaaaaa/data: waits for operation publish/default/pg/n1@1"}},
		"AttachNeedsPlugin":  {world: nodeReady + ready + alloc + `publication {"volume_id":"pg","node_id":"n1"}` + "\n" + attached("claimed", ""), want: []string{"attachment aaaaaaaa/data: no node runs plugin disk"}},
		"Mounting":           {world: nodeReady + healthy + onN1 + alloc + attached("controller-published", ""), want: []string{"attachment aaaaaaaa/data: node n1 is to mount it; since 1h0m0s"}},
		"MountFails":         {world: nodeReady + healthy + onN1 + alloc + attached("controller-published", `,"problem":{"step":"NodeStageVolume","code":"NOT_FOUND","message":"no device","since":"now-1m","next":"now+2s"}`), want: []string{"attachment aaaaaaaa/data: node n1 is to mount it: NodeStageVolume: NOT_FOUND: no device; since 1m0s; next in 2s"}},
		"GivenToItsGroup":    {world: nodeReady + healthy + onN1 + alloc + attached("node-published", `,"problem":{"step":"give to fs_group","message":"9 entries looked at so far, 3 of them changed"}`), want: []string{"attachment aaaaaaaa/data: node n1 is to mount it: give to fs_group: 9 entries looked at so far, 3 of them changed"}},
		"PluginIsIll":        {world: nodeReady + healthy + onN1 + alloc + attached("node-published", `,"problem":{"step":"plugin","message":"plugin disk is not healthy on this node: it hangs","since":"now-1m"}`), want: []string{"attachment aaaaaaaa/data: on node n1 it is mounted, and can be neither unmounted nor grown now: plugin disk is not healthy on this node: it hangs; since 1m0s"}},
		"MountFailsHere":     {world: nodeReady + healthy + onN1 + alloc + attached("controller-published", `,"problem":{"step":"waiting for plugin","message":"plugin disk is not healthy"}`), want: []string{"attachment aaaaaaaa/data: node n1 is to mount it: waiting for plugin: plugin disk is not healthy"}},
		"Mounted":            {world: nodeReady + healthy + onN1 + alloc + attached("node-published", "")},
		"Unmounting":         {world: nodeReady + healthy + onN1 + alloc + attached("unpublishing", ""), want: []string{"attachment aaaaaaaa/data: node n1 is to unmount it; since 1h0m0s"}},
		"UnmountingOnALostNode": {world: nodeDown + healthy + onN1 + alloc + attached("unpublishing", ""),
			want: []string{"attachment aaaaaaaa/data: node n1 is to unmount it, and is down: start its agent; until it answers, the volume may still be in use there; if the machine is off or cut off from its storage, say so with 'berth node fence n1'; since 1h0m0s"},
			other: []string{"attachment aaaaaaaa/data: node n1 is to unmount it, and is down: start its agent; until it answers, the volume may still be in use there; if the machine is off or cut off from its storage, say so with 'berth node fence n1'; since 1h0m0s",
				"allocation aaaaaaaa db.g[0]: node n1 is down: it may still be running there, and is neither ended nor moved until the node's agent is back; if the machine is off or cut off from its storage, say so with 'berth node fence n1'"}},
		"RowsAreMissing":   {world: nodeReady + healthy + ready + alloc + attached("node-published", ""), want: []string{"volumewatcher default/pg/n1: default/pg/n1 has attachments, and no volume or publication"}, other: []string{}},
		"Freed":            {world: nodeReady + healthy + ready + alloc + attached("freed", "")},
		"JobWithoutVolume": {world: nodeReady + job, job: []string{"allocation db.g[0]: volume pg does not exist"}},
		"JobWithoutNode":   {world: ready + job, job: []string{"allocation db.g[0]: the cluster has no nodes"}},
		"JobOnADeadNode":   {world: nodeDown + ready + job, job: []string{"allocation db.g[0]: no node fits: node n1 is down"}},
		"JobSettled":       {world: nodeReady + healthy + ready + alloc + strings.Replace(job, `{"id":"db",`, `{"id":"db","status":{"settled":true},`, 1)},
		"TaskDoesNotStart": {world: nodeReady + healthy + ready + strings.Replace(job, `{"id":"db",`, `{"id":"db","status":{"settled":true},`, 1) + strings.Replace(alloc, `"node_id":"n1"}`, `"node_id":"n1","status":{"problem":{"step":"start t","message":"no such user"}}}`, 1), job: []string{"allocation aaaaaaaa db.g[0]: start t: no such user"}},
		"EndedTask":        {world: nodeReady + healthy + ready + strings.Replace(job, `{"id":"db",`, `{"id":"db","desired":"absent",`, 1) + strings.Replace(alloc, `"node_id":"n1"}`, `"node_id":"n1","replaced":true,"status":{"state":"failed","problem":{"step":"run t","message":"exit 1"}}}`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(statetest.Now()))
				v := statetest.Load(t, tc.world).View()
				explain := server.Explain()
				if vol := v.Volume("default", "pg"); vol != nil {
					if diff := cmp.Diff(tc.want, lines(explain.Volume(v, vol))); diff != "" {
						t.Errorf("the volume (-want +got):\n%s", diff)
					}
				}
				if job := v.Job("default", "db"); job != nil {
					if diff := cmp.Diff(tc.job, lines(explain.Job(v, job))); diff != "" {
						t.Errorf("the job (-want +got):\n%s", diff)
					}
				}
				all := tc.other
				if all == nil {
					all = append(append([]string{}, tc.want...), tc.job...)
				}
				if diff := cmp.Diff(strings.Join(all, "\n"), strings.Join(lines(explain.Everything(v)), "\n")); diff != "" {
					t.Errorf("everything (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// lines are waits as text. Times are said where they differ from those of a
// world that says none.
func lines(waits []api.Wait) []string {
	var all []string
	for _, w := range waits {
		line := w.Subject + ": " + w.Reason
		if d := statetest.Now().Sub(w.Since); !w.Since.IsZero() && (d != time.Hour || strings.HasPrefix(w.Subject, "attachment") && strings.Contains(w.Reason, "is to")) {
			line += "; since " + d.String()
		}
		if !w.Next.IsZero() {
			line += "; next in " + w.Next.Sub(statetest.Now()).String()
		}
		all = append(all, line)
	}
	return all
}

// TestExplainNeverFails goes through states that commands would never bring
// together: whoever looks at a cluster that is out of order needs it most.
func TestExplainNeverFails(t *testing.T) {
	t.Parallel()
	const rows = ready + job + alloc + `
attachment {"alloc_id":"aaaaaaaa1","volume_id":"pg","node_id":"n1","job_id":"db"}
publication {"volume_id":"pg","node_id":"n1"}
operation {"kind":"create","volume_id":"pg","status":{"executor":"n1"}}
operation {"kind":"publish","volume_id":"pg","node_id":"n1","status":{"executor":"n9"}}
`
	const later = "of a later version"
	for _, nodes := range []string{"", nodeReady + healthy, nodeReady + broken, nodeDown + healthy, nodeReady} {
		store := statetest.Load(t, nodes+rows)
		for _, vol := range []api.VolumeState{api.VolumeCreating, api.VolumeReady, api.VolumeFailed, api.VolumeDeleting, later, ""} {
			for _, attachment := range append(api.AttachmentStates(), later, "") {
				for _, op := range []api.OperationState{
					api.OperationWaiting, api.OperationAssigned, api.OperationSucceeded, api.OperationFailed, api.OperationCancelled, later, "",
				} {
					tx := store.Fork()
					spoil(tx, vol, attachment, op)
					explainAll(t, tx.View)
					tx.Abort()
				}
			}
		}
	}
}

// spoil brings the rows of one volume into these states, or takes them away.
func spoil(tx *state.Tx, vol api.VolumeState, attachment api.AttachmentState, op api.OperationState) {
	v := *tx.Volume("default", "pg")
	v.Status.State, v.Status.Operation = vol, "create/default/pg@1"
	if vol == api.VolumeDeleting {
		v.Desired = api.Absent
	}
	if vol == "" {
		tx.DeleteVolume(tx.Volume("default", "pg"))
	} else {
		tx.PutVolume(&v)
	}
	a := *tx.Attachment("aaaaaaaa1", "data")
	a.Status.State = attachment
	if attachment == "" {
		tx.DeleteAttachment(&a)
	} else {
		tx.PutAttachment(&a)
	}
	p := *tx.Publication("default", "pg", "n1")
	p.Status.Operation = "publish/default/pg/n1@1"
	if op == "" {
		tx.DeletePublication(&p)
	} else {
		tx.PutPublication(&p)
	}
	for _, id := range []api.OperationID{"create/default/pg@1", "publish/default/pg/n1@1"} {
		o := *tx.Operation(id)
		o.Status.State = op
		if op == "" {
			tx.DeleteOperation(&o)
		} else {
			tx.PutOperation(&o)
		}
	}
}

func explainAll(t *testing.T, v state.View) {
	t.Helper()
	explain := server.Explain()
	waits := append(explain.Everything(v), explain.Job(v, v.Job("default", "db"))...)
	if vol := v.Volume("default", "pg"); vol != nil {
		waits = append(waits, explain.Volume(v, vol)...)
	}
	for _, w := range waits {
		if w.Subject == "" || w.Reason == "" || strings.HasSuffix(w.Reason, ": ") {
			t.Fatalf("%+v in\n%s", w, statetest.Print(t, v))
		}
	}
}

// TestExplainChangesNothing: it asks the controllers, whose answers are plans.
func TestExplainChangesNothing(t *testing.T) {
	t.Parallel()
	store := statetest.Load(t, nodeReady+healthy+`volume {"id":"pg"}`+"\n"+job)
	before := statetest.Print(t, store.View())
	everything := func(v state.View) { server.Explain().Everything(v) }
	everything(store.View())
	if diff := cmp.Diff(before, statetest.Print(t, store.View())); diff != "" {
		t.Errorf("the state (-before +after):\n%s", diff)
	}
}

// TestExplainAllocation is what people read of one allocation: its volumes and
// its node, and nothing of the other holders of a volume.
func TestExplainAllocation(t *testing.T) {
	t.Parallel()
	const id = "allocation aaaaaaaa db.g[0]: "
	with := func(more string) string {
		return strings.Replace(alloc, `"node_id":"n1"}`, `"node_id":"n1",`+more+"}", 1)
	}
	for name, tc := range map[string]struct {
		world string
		want  []string
	}{
		"Starting": {nodeReady + with(`"status":{"state":"pending"}`), []string{id + "node n1 is to start its tasks"}},
		"Running":  {nodeReady + with(`"status":{"state":"running"}`), nil},
		"Ending":   {nodeReady + with(`"desired":"stop","status":{"state":"running"}`), []string{id + "node n1 is to end its tasks"}},
		"Ended":    {nodeReady + with(`"desired":"stop","status":{"state":"complete"}`), nil},
		"Fails":    {nodeReady + with(`"status":{"state":"pending","problem":{"step":"start t","message":"no such user"}}`), []string{id + "start t: no such user"}},
		"Lost": {nodeDown + with(`"status":{"state":"running"}`),
			[]string{id + "node n1 is down: it may still be running there, and is neither ended nor moved until the node's agent is back; if the machine is off or cut off from its storage, say so with 'berth node fence n1'"}},
		"Mounting": {nodeReady + healthy + onN1 + with(`"status":{"state":"pending"}`) + attached("controller-published", ""),
			[]string{"attachment aaaaaaaa/data: node n1 is to mount it; since 1h0m0s"}},
		"OtherHolder": {nodeReady + healthy + onN1 + with(`"status":{"state":"running"}`) + attached("node-published", "") +
			`allocation {"id":"bbbbbbbb1","job_id":"db","node_id":"n1","index":1}` + "\n" +
			strings.Replace(attached("controller-published", ""), "aaaaaaaa1", "bbbbbbbb1", 1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(statetest.Now()))
				v := statetest.Load(t, tc.world).View()
				if diff := cmp.Diff(tc.want, lines(server.Explain().Allocation(v, v.Allocation("aaaaaaaa1")))); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestExplainNode is what a drain waits for.
func TestExplainNode(t *testing.T) {
	t.Parallel()
	const draining = `node {"id":"n1","spec":{"ineligible":true,"drain":{"started":"now-1m"}},"status":{"state":"ready","drivers":{"exec":{"healthy":true}}}}` + "\n"
	detaching := ready + `publication {"volume_id":"pg","node_id":"n1","status":{"outcome":"published","operation":"unpublish/default/pg/n1@1"}}` + "\n" +
		`operation {"kind":"unpublish","volume_id":"pg","node_id":"n1","status":{"state":"waiting","attempt":2,"next":"now+5s","code":"INTERNAL","message":"quota"}}` + "\n" +
		strings.Replace(alloc, `"node_id":"n1"}`, `"node_id":"n1","desired":"stop","status":{"state":"complete"}}`, 1) + attached("node-detached", "")
	idle := `job {"id":"db","spec":{"groups":[{"count":1,"tasks":[{"name":"t","driver":"exec"}]}]}}` + "\n" +
		strings.Replace(alloc, `"node_id":"n1"}`, `"node_id":"n1","status":{"state":"running"}}`, 1)
	for name, tc := range map[string]struct {
		world string
		want  []string
	}{
		"NotDrained": {nodeReady + idle, nil},
		"OfTwoJobs": {draining + idle + strings.ReplaceAll(strings.ReplaceAll(idle, `"db"`, `"web"`), "aaaaaaaa1", "bbbbbbbb1"), []string{
			"node n1: is being drained: 2 allocations are to go; since 1m0s",
			"allocation aaaaaaaa db.g[0]: it has nowhere to go: the cluster has no other node; since 1m0s",
			"allocation bbbbbbbb web.g[0]: it has nowhere to go: the cluster has no other node; since 1m0s",
		}},
		"ProviderRefuses": {draining + healthy + detaching, []string{
			"node n1: is being drained: 1 volume is to go; since 1m0s",
			"attachment aaaaaaaa/data: waits for operation unpublish/default/pg/n1@1",
			"operation unpublish/default/pg/n1@1: attempt 2 answered INTERNAL: quota. The call was not made; next in 5s",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(statetest.Now()))
				v := statetest.Load(t, tc.world).View()
				if diff := cmp.Diff(tc.want, lines(server.Explain().Node(v, v.Node("n1")))); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}
