package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/cli"
)

// fake answers requests from a table: "GET /v1/volumes" is an answer, a list of
// answers that are given one by one and the last of which stays, or an error.
type fake struct {
	*httptest.Server
	mu      sync.Mutex // guards below
	answers map[string]any
	asked   []string
	sent    []string
}

// inTurn are answers that are given one after the other.
type inTurn []any

func newFake(t *testing.T, answers map[string]any) *fake {
	t.Helper()
	f := &fake{answers: answers}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	route := r.Method + " " + r.URL.EscapedPath()
	f.asked = append(f.asked, route)
	if body, err := io.ReadAll(r.Body); err == nil && len(body) > 0 {
		f.sent = append(f.sent, strings.TrimSpace(string(body)))
	}
	answer, known := f.answers[route]
	if turns, ok := answer.(inTurn); ok {
		answer = turns[0]
		if len(turns) > 1 {
			f.answers[route] = turns[1:]
		}
	}
	if !known {
		answer = api.Errorf(api.CodeNotFound, "%s is not there", r.URL.Path)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(api.HeaderIndex, "7")
	if _, refused := answer.(*api.Error); refused {
		w.WriteHeader(http.StatusTeapot) // the client looks at the code only
	}
	_ = json.NewEncoder(w).Encode(answer) // the client says so, if it is gone
}

// bodies are what requests came with.
func (f *fake) bodies() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sent)
}

// requests are the routes that were asked for writes.
func (f *fake) writes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var writes []string
	for _, route := range f.asked {
		if !strings.HasPrefix(route, http.MethodGet) {
			writes = append(writes, route)
		}
	}
	return writes
}

// result is what a run of the command line left.
type result struct {
	stdout, stderr string
	status         int
}

// wide is a terminal on which everything fits, and pipe is none.
func wide() int { return 200 }
func pipe() int { return 0 }

// run runs a command line against a server at address, at a wide terminal
// without colours.
func run(t *testing.T, address string, args ...string) result {
	t.Helper()
	return runWith(t, cli.Env{}, address, args...)
}

func runWith(t *testing.T, env cli.Env, address string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	env.Args, env.Version = args, "1.2.3"
	if env.Stdin == nil {
		env.Stdin = strings.NewReader("")
	}
	if env.Stdout == nil {
		env.Stdout = &out
	}
	env.Stderr = &errOut
	if env.Columns == nil {
		env.Columns = wide
	}
	if env.Getenv == nil {
		env.Getenv = variables(map[string]string{"BERTH_ADDRESS": address, "NO_COLOR": "1"})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	status := cli.Main(ctx, env)
	return result{out.String(), errOut.String(), status}
}

func variables(m map[string]string) func(string) string {
	return func(name string) string { return m[name] }
}

// days ago, and a while in which tests do not come to the next minute.
func daysAgo() time.Time { return time.Now().Add(-73 * time.Hour) }
func soon() time.Time    { return time.Now().Add(90*time.Minute + 40*time.Second) }

// world is one volume with a job on it, and a volume that waits.
func world() map[string]any {
	meta := api.Meta{Version: 2, CreateIndex: 5, ModifyIndex: 7, CreateTime: daysAgo()}
	later := meta
	later.CreateIndex = 6
	variable := &api.Variable{Meta: meta, Namespace: "default", Path: "nomad/jobs/db", Keys: []string{"password", "tls.crt", "user"}}
	crossed := &api.Variable{Meta: later, Namespace: "default", Path: "nomad/jobs/db/main", Keys: []string{"token"}}
	variable.ModifyTime, crossed.ModifyTime = daysAgo(), daysAgo()
	vol := &api.Volume{
		Meta: meta, Namespace: "default", ID: "pg", UID: "u", Desired: api.Present,
		Spec: api.VolumeSpec{Name: "the database", PluginID: "disk", Capabilities: []api.Capability{
			{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem},
			{AccessMode: api.MultiNodeReaderOnly, AttachmentMode: api.BlockDevice},
		}},
		Status: api.VolumeStatus{State: api.VolumeReady, ExternalID: "vol-0a1b\x1b[31m\n2", Capacity: 10 << 30, AccessibleTopology: []api.Topology{
			{"zone": "a", "rack": "7"}, {"zone": "b"},
		}},
	}
	stuck := &api.Volume{Meta: meta, Namespace: "default", ID: "archive", Desired: api.Present, Spec: api.VolumeSpec{PluginID: "tape"}, Status: api.VolumeStatus{State: api.VolumeCreating}}
	att := &api.Attachment{
		AllocID: "0f1e2d3c4b5a69788796a5b4c3d2e1f0", Name: "data", Namespace: "default", VolumeID: "pg", PluginID: "disk",
		NodeID: "db-1-9f31c2aa", JobID: "db", AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem,
		Status: api.AttachmentStatus{State: api.NodePublished, TargetPath: "/var/lib/berth/csi/mount/data-35a5ae8f59f5"},
	}
	create := &api.Operation{
		Meta: meta, ID: "create/default/pg@1", Kind: api.OperationCreate, Namespace: "default", VolumeID: "pg", PluginID: "disk",
		Status: api.OperationStatus{State: api.OperationSucceeded, Attempt: 1, Executor: "db-1-9f31c2aa", Code: "OK", Duration: api.Duration(3020 * time.Microsecond)},
	}
	publish := &api.Operation{
		Meta: later, ID: "publish/default/pg/db-1-9f31c2aa@2", Kind: api.OperationPublish, Namespace: "default", VolumeID: "pg", PluginID: "disk", NodeID: "db-1-9f31c2aa",
		Status: api.OperationStatus{State: api.OperationWaiting, Attempt: 3, Executor: "db-1-9f31c2aa", Code: "UNAVAILABLE", Message: "try\tlater", Uncertain: true, Next: soon(), Duration: api.Duration(2 * time.Minute)},
	}
	alloc := &api.Allocation{
		Meta: meta, ID: att.AllocID, Namespace: "default", JobID: "db", Group: "main", NodeID: "db-1-9f31c2aa", Desired: api.DesireRun,
		Status: api.AllocStatus{State: api.AllocRunning, Tasks: map[string]api.TaskStatus{
			"postgres": {State: api.TaskRunning, PID: 4711, Started: daysAgo(), Dir: "/var/lib/berth/alloc/0f1e/postgres", Restarts: 2, Last: api.TaskEnd{Signal: 11, Ended: daysAgo()}},
			"backup":   {State: api.TaskEnded, PID: 4712, ExitCode: 3, Dir: "/var/lib/berth/alloc/0f1e/backup"},
			"init":     {State: api.TaskPending, Restarts: 1, Last: api.TaskEnd{ExitCode: 1, Ended: daysAgo()}, Next: soon()},
			"hook":     {State: api.TaskEnded, Signal: 9},
			"web":      {State: api.TaskPending, Restarts: 1},
			"probe":    {State: api.TaskEnded, Reason: "killed: out of memory"},
		}},
	}
	old := &api.Allocation{
		Meta: later, ID: "ffee2d3c4b5a69788796a5b4c3d2e1f0", Namespace: "default", JobID: "db", Group: "main", NodeID: "db-1-9f31c2aa",
		Desired: api.DesireStop, DesiredReason: "the job has changed",
		Status: api.AllocStatus{State: api.AllocFailed, Problem: &api.Problem{Step: "NodeStageVolume", Code: "NOT_FOUND", Message: "no device\nat all"}},
	}
	job := &api.Job{Meta: meta, Namespace: "default", ID: "db", Desired: api.Present, Revision: 2, Spec: api.JobSpec{Type: api.JobService}}
	node := &api.Node{Meta: meta, ID: "db-1-9f31c2aa", Name: "db-1", Status: api.NodeStatus{
		State: api.NodeReady, Epoch: 1, BootID: "464549af", Session: daysAgo(), Version: "1.2.3", Drivers: map[string]api.Driver{
			"raw_exec": {Healthy: true}, "exec": {Healthy: true, MountsVolumes: true}, "docker": {Reason: "it does not answer"},
		},
	}}
	instance := &api.Instance{Meta: meta, PluginID: "disk", NodeID: node.ID, InstanceStatus: api.InstanceStatus{
		Type: api.InstanceMonolith, Healthy: true, Driver: "disk.example", VendorVersion: "v4", MaxVolumes: 24,
		PluginCapabilities: []string{api.CapControllerService}, ControllerCapabilities: []string{api.CapCreateDeleteVolume, api.CapPublishUnpublish}, NodeCapabilities: []string{api.CapStageUnstage},
	}}
	plugin := &api.Plugin{ID: "disk", Driver: "disk.example", VendorVersions: []string{"v3", "v4"}, ControllersHealthy: 1, ControllersExpected: 1, NodesHealthy: 1, NodesExpected: 2}
	whole := *plugin
	whole.Instances = []*api.Instance{instance}
	findings := []*api.Finding{
		{Meta: meta, ID: "leak-0a1b2c3d4e5f", Observation: api.Observation{Kind: api.FindingLeak, PluginID: "disk", ExternalID: "vol\x1b-9", Capacity: 1 << 30, Nodes: []string{"i-9"}, Message: "it bears a name", Since: daysAgo()}},
		{Meta: meta, ID: "retained-0a1b2c3d4e5f", Observation: api.Observation{Kind: api.FindingRetained, PluginID: "disk", ExternalID: "vol-8", Namespace: "default", VolumeID: "old", Message: "it was kept"}},
		{Meta: meta, ID: "attached-0a1b2c3d4e5f", Observation: api.Observation{Kind: api.FindingAttached, PluginID: "disk", ExternalID: "vol-0a1b", Namespace: "default", VolumeID: "pg", ExternalNodeID: "i-9", Message: "nobody knows why", Since: daysAgo()}},
		{Meta: meta, ID: "abnormal-0a1b2c3d4e5f", Observation: api.Observation{Kind: api.FindingAbnormal, PluginID: "disk", ExternalID: "vol-0a1b", Namespace: "default", VolumeID: "pg", Message: "the plugin says: it\nsmokes", Since: daysAgo()}},
	}
	waits := []api.Wait{
		{Subject: "volume default/archive", Reason: "no node runs plugin tape"},
		{Subject: "operation publish/default/pg/db-1-9f31c2aa@2", Reason: "attempt 3 answered UNAVAILABLE: try\tlater", Since: daysAgo(), Next: soon()},
	}
	user := api.Change{Path: `group["main"].task["postgres"].user`, Kind: api.Added, New: json.RawMessage(`"pg\u001b[31m"`)}
	counted := api.Change{Path: `group["main"].count`, Kind: api.Changed, Old: json.RawMessage("1"), New: json.RawMessage("2")}
	return map[string]any{
		"GET /v1/job/default/db/revisions": []api.JobRevision{
			{Revision: 2, Applied: daysAgo(), Current: true, Changes: []api.Change{user, counted}},
			{Revision: 1, Stable: true, Changes: []api.Change{}},
		},
		"GET /v1/status": api.Status{
			ClusterID: "CLUSTER", ServerID: "db-1", Leader: "db-1", Version: "1.2.3", Generation: api.Generation{Number: 1},
			Index: 7, Nodes: 2, NodesReady: 1, Volumes: 2, Jobs: 1, VolumesFailed: 1, Waits: waits,
		},
		"GET /v1/vars": []*api.Variable{variable, crossed},
		"GET /v1/var/default/nomad/jobs/db": api.VariableInfo{Variable: variable, Items: map[string]string{
			"password": "hunter2\x1b[2J", "tls.crt": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "user": "db",
		}},
		"PUT /v1/var/default/nomad/jobs/db":    variable,
		"DELETE /v1/var/default/nomad/jobs/db": struct{}{},
		"GET /v1/volumes":                      []*api.Volume{vol, stuck},
		"GET /v1/volume/default/pg":            api.VolumeInfo{Volume: vol, Attachments: []*api.Attachment{att}, Publications: []*api.Publication{{NodeID: node.ID, Status: api.PublicationStatus{Outcome: api.OutcomePublished, Staged: true, ExternalNodeID: "i-123"}}, {NodeID: "db-2", Status: api.PublicationStatus{Outcome: api.OutcomeNone}}}, Operations: []*api.Operation{publish, create}, Waits: waits[1:], Findings: findings[2:]},
		"GET /v1/findings":                     findings,
		"POST /v1/sweep":                       []api.SweepReport{{PluginID: "disk", Volumes: 3, Unknown: 2, Waiting: 1, Next: soon(), Problems: []string{"node db-2 is not connected"}}},
		"GET /v1/sweep":                        []api.SweepReport{{PluginID: "disk", Volumes: 3, Unknown: 2, Waiting: 1, Next: soon(), Problems: []string{"node db-2 is not connected"}}},
		"GET /v1/namespaces":                   []api.NamespaceInfo{{ID: "default", Volumes: 2, Jobs: 1}, {ID: "staging", Snapshots: 3}},
		"GET /v1/volume/default/pg/usage": []api.VolumeUsage{
			{NodeID: node.ID, Bytes: &api.Usage{Total: 10 << 30, Used: 4 << 30, Available: 6 << 30}, Inodes: &api.Usage{Total: 1000, Used: 5, Available: 995}, Condition: &api.VolumeCondition{Abnormal: true, Message: "it\nsmokes"}},
			{NodeID: "db-2", Unknown: "node db-2 is down"},
		},
		"GET /v1/plugin/disk/volumes": []api.ListedVolume{
			{PluginID: "disk", ExternalVolume: api.ExternalVolume{ExternalID: "vol-1", Capacity: 10 << 30, Nodes: []string{"i-123"}, Condition: &api.VolumeCondition{}}, Namespace: "default", VolumeID: "pg"},
			{PluginID: "disk", ExternalVolume: api.ExternalVolume{ExternalID: "berth-0\x1b[31m"}, Origin: api.OriginOurs},
		},
		"GET /v1/plugin/broken/volumes":                        []api.ListedVolume{{PluginID: "broken", Problem: "node db-2 is not connected"}},
		"GET /v1/plugin/disk/capacity":                         []api.PlaceCapacity{{Topology: api.Topology{"zone": "a"}, AvailableCapacity: api.AvailableCapacity{Available: 1 << 40, Maximum: 64 << 30}}, {Problem: "node db-2 is not connected"}},
		"GET /v1/volume/default/archive":                       api.VolumeInfo{Volume: stuck, Waits: waits[:1]},
		"GET /v1/jobs":                                         []api.JobInfo{{Job: job, State: api.JobRunning}},
		"GET /v1/job/default/db":                               api.JobInfo{Job: job, State: api.JobRunning, Allocations: []*api.Allocation{old, alloc}},
		"GET /v1/allocations":                                  []*api.Allocation{old, alloc},
		"GET /v1/allocation/0f1e2d3c":                          api.AllocationInfo{Allocation: alloc, Attachments: []*api.Attachment{att}},
		"GET /v1/allocation/ffee":                              api.AllocationInfo{Allocation: old},
		"GET /v1/allocation/f":                                 api.Errorf(api.CodeConflict, "several allocations begin with f: ffee2d3c4 db.main[0], fa11 web.main[3]"),
		"GET /v1/nodes":                                        []*api.Node{node},
		"GET /v1/node/db-1-9f31c2aa":                           api.NodeInfo{Node: node, Instances: []*api.Instance{instance}, Allocations: []*api.Allocation{alloc}},
		"GET /v1/plugins":                                      []*api.Plugin{plugin},
		"GET /v1/plugin/disk":                                  whole,
		"GET /v1/operations":                                   []*api.Operation{publish, create},
		"GET /v1/operation/create/default/pg@1":                create,
		"GET /v1/operation/publish/default/pg/db-1-9f31c2aa@2": publish,
		"POST /v1/system/gc":                                   api.Collected{Operations: 3, Attachments: 2, Allocations: 2, Jobs: 1},
		"GET /v1/system/recovery":                              api.Recovery{Generation: api.Generation{Number: 2, Recovering: true, Reason: "a backup was restored"}, Missing: []api.NodeID{"db-2-1"}},
	}
}
