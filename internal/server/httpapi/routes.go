package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
)

// route is one row of the table of routes. The table is also what the API's
// description is made from.
type route struct {
	pattern string
	// name is the method of the Go client, and the operation's id in the
	// description. doc is a sentence about it.
	name, doc string
	handle    func(*request) (any, error)
	// query are the parameters that it takes; parameters describes them.
	query []string
	// body is a value of the type that the request's JSON has, nil for none, and
	// answer one of the answer's.
	body, answer any
	// media is the type of what is answered, and sent, if it is not JSON.
	media, bodyMedia string
	// creates: the write can be made only for what is not there, by If-None-Match.
	creates bool
	// asked: who asks is kept, by the caller's word.
	asked bool
	// traced: what the request leads to is put below the caller's span.
	traced bool
	// node: the caller is the agent of a node, and proves it.
	node bool
	// always: the route answers also while this server does not lead.
	always bool
	// maxBody is the limit of the request's body in bytes; 0 for the default.
	maxBody int64
}

// Parameters that several routes take.
func polls() []string { return []string{"index", "wait"} }
func lists(more ...string) []string {
	return append(append(polls(), "prefix", "filter", "per_page", "next_token"), more...)
}
func conditional() []string { return []string{"version"} }

func (h *Handler) routes() []route {
	return slices.Concat(h.nounRoutes(), h.computedRoutes(), h.variableRoutes(), h.nodeRoutes(), h.questionRoutes(), h.eventRoutes(), h.agentRoutes(), h.systemRoutes())
}

// nounRoutes are for whoever works with the nouns.
func (h *Handler) nounRoutes() []route {
	return []route{
		{pattern: "GET /v1/volumes", name: "Volumes", doc: "List volumes.",
			handle: list(h, volumes()), query: lists("namespace"), answer: []*api.Volume{}},
		{pattern: "GET /v1/volume/{namespace}/{id}", name: "Volume", doc: "Read a volume with all that concerns it.",
			handle: h.getVolume, query: polls(), answer: api.VolumeInfo{}},
		{pattern: "PUT /v1/volume/{namespace}/{id}", name: "ApplyVolume", doc: "Create a volume, or change its spec.",
			handle: h.putVolume, traced: true, creates: true, query: conditional(), body: api.VolumeSpec{}, answer: api.VolumeInfo{}},
		{pattern: "DELETE /v1/volume/{namespace}/{id}", name: "DeleteVolume", doc: "Let a volume go as soon as nothing holds it.",
			handle: h.deleteVolume, traced: true, query: append(conditional(), "reclaim"), answer: api.VolumeInfo{}},
		{pattern: "POST /v1/volume/{namespace}/{id}/detach", name: "DetachVolume", doc: "Take a volume off nodes: what waits for that is tried at once, and what uses it is stopped first if that is said.",
			handle: h.detachVolume, body: api.DetachRequest{}, answer: api.Detach{}},
		{pattern: "GET /v1/publications", name: "Publications", doc: "List the presences of volumes on nodes. The prefix is one of volumes.",
			handle: list(h, publications()), query: lists("namespace"), answer: []*api.Publication{}},
		{pattern: "GET /v1/publication/{namespace}/{volume}/{node}", name: "Publication", doc: "Read the presence of a volume on a node.",
			handle: h.getPublication, query: polls(), answer: api.Publication{}},
		{pattern: "GET /v1/attachments", name: "Attachments", doc: "List the holds of allocations on volumes. The prefix is one of allocations.",
			handle: list(h, attachments()), query: lists("namespace"), answer: []*api.Attachment{}},
		{pattern: "GET /v1/attachment/{allocation}/{name}", name: "Attachment", doc: "Read an allocation's hold on a volume by the name of its request.",
			handle: h.getAttachment, query: polls(), answer: api.Attachment{}},
		{pattern: "GET /v1/jobs", name: "Jobs", doc: "List jobs, each with its state.",
			handle: list(h, jobs()), query: lists("namespace"), answer: []api.JobInfo{}},
		{pattern: "GET /v1/job/{namespace}/{id}", name: "Job", doc: "Read a job with its allocations.",
			handle: h.getJob, query: polls(), answer: api.JobInfo{}},
		{pattern: "PUT /v1/job/{namespace}/{id}", name: "ApplyJob", doc: "Create a job, change its spec, or start it again.",
			handle: h.putJob, traced: true, creates: true, query: conditional(), body: api.JobSpec{}, answer: api.JobInfo{}},
		{pattern: "DELETE /v1/job/{namespace}/{id}", name: "StopJob", doc: "Stop a job.",
			handle: h.stopJob, asked: true, query: conditional(), answer: api.JobInfo{}},
		{pattern: "POST /v1/plan", name: "Plan", doc: "Say what applying volumes and jobs would do, one after the other, and do nothing.",
			handle: h.plan, creates: true, body: api.PlanRequest{}, answer: api.Plan{}},
		{pattern: "POST /v1/job/{namespace}/{id}/plan", name: "PlanJob", doc: "Say what applying a job would do, and do nothing.",
			handle: h.planJob, creates: true, query: conditional(), body: api.JobSpec{}, answer: api.JobPlan{}},
		{pattern: "GET /v1/job/{namespace}/{id}/revisions", name: "JobRevisions", doc: "List the specs that were applied for a job, without them, newest first.",
			handle: h.jobRevisions, query: append(polls(), "per_page", "next_token"), answer: []api.JobRevision{}},
		{pattern: "GET /v1/job/{namespace}/{id}/revision/{revision}", name: "JobRevision", doc: "Read a spec that was applied for a job.",
			handle: h.getJobRevision, query: polls(), answer: api.JobRevision{}},
		{pattern: "POST /v1/job/{namespace}/{id}/revert", name: "RevertJob", doc: "Apply an earlier spec of a job again.",
			handle: h.revertJob, traced: true, body: api.Revert{}, answer: api.JobInfo{}},
		{pattern: "POST /v1/job/{namespace}/{id}/promote", name: "PromoteJob", doc: "Have the revision that a job's canaries try take the place of the one before it.",
			handle: h.promoteJob, body: api.Promotion{}, answer: api.JobInfo{}},
		{pattern: "POST /v1/job/{namespace}/{id}/scale", name: "ScaleJob", doc: "Apply a job with another count of a group.",
			handle: h.scaleJob, traced: true, body: api.Scale{}, answer: api.JobInfo{}},
		{pattern: "GET /v1/allocations", name: "Allocations", doc: "List allocations.",
			handle: list(h, allocations()), query: lists("namespace"), answer: []*api.Allocation{}},
		{pattern: "GET /v1/allocation/{id}", name: "Allocation", doc: "Read an allocation with its attachments, by any unambiguous prefix of its id.",
			handle: h.getAllocation, query: polls(), answer: api.AllocationInfo{}},
		{pattern: "GET /v1/allocation/{id}/stats", name: "AllocFigures", doc: "Read what an allocation's tasks use of processors and memory, as their node measures it now.",
			handle: h.figures, answer: api.AllocFigures{}},
		{pattern: "GET /v1/allocation/{id}/logs/{task}", name: "Logs", doc: "Read what a task wrote: a stream that ends with the task if it is followed. The trailer " + api.TrailerError + " says why it broke off.",
			handle: h.logs, query: []string{"type", "offset", "tail", "follow"}, media: text},
		{pattern: "POST /v1/allocation/{id}/exec/{task}", name: "Exec", doc: "Run a command where a task runs. The connection is upgraded to " + api.UpgradeFrames + ", and ends with the command.",
			handle: h.exec, asked: true, body: api.ExecRequest{}, media: octets},
		{pattern: "POST /v1/allocation/{id}/restart", name: "RestartAllocation", doc: "Start tasks of an allocation again, on the same node, with its volumes.",
			handle: h.restartAllocation, asked: true, body: api.RestartRequest{}, answer: api.Allocation{}},
		{pattern: "POST /v1/allocation/{id}/signal", name: "SignalAllocation", doc: "Send a signal to tasks of an allocation that run.",
			handle: h.signalAllocation, asked: true, body: api.SignalRequest{}, answer: api.Signalled{}},
		{pattern: "GET /v1/plugins", name: "Plugins", doc: "List plugins, without their instances.",
			handle: list(h, plugins()), query: lists(), answer: []*api.Plugin{}},
		{pattern: "GET /v1/plugin/{id}", name: "Plugin", doc: "Read a plugin with its instances.",
			handle: h.getPlugin, query: polls(), answer: api.Plugin{}},
		{pattern: "GET /v1/instances", name: "Instances", doc: "List the instances of plugins. The prefix is one of plugins.",
			handle: list(h, instances()), query: lists(), answer: []*api.Instance{}},
		{pattern: "GET /v1/snapshots", name: "Snapshots", doc: "List snapshots.",
			handle: list(h, snapshots()), query: lists("namespace", "volume"), answer: []*api.Snapshot{}},
		{pattern: "GET /v1/snapshot/{namespace}/{id}", name: "Snapshot", doc: "Read a snapshot with all that concerns it.",
			handle: h.getSnapshot, query: polls(), answer: api.SnapshotInfo{}},
		{pattern: "PUT /v1/snapshot/{namespace}/{id}", name: "CreateSnapshot", doc: "Make a snapshot of a volume. The same again changes nothing.",
			handle: h.putSnapshot, creates: true, body: api.SnapshotCreation{}, answer: api.SnapshotInfo{}},
		{pattern: "DELETE /v1/snapshot/{namespace}/{id}", name: "DeleteSnapshot", doc: "Let a snapshot go as soon as the plugin lets it.",
			handle: h.deleteSnapshot, query: conditional(), answer: api.SnapshotInfo{}},
		{pattern: "GET /v1/operations", name: "Operations", doc: "List operations, open and ended.",
			handle: list(h, operations()), query: lists("namespace", "volume"), answer: []*api.Operation{}},
		{pattern: "GET /v1/operation/{id...}", name: "Operation", doc: "Read an operation.",
			handle: h.getOperation, query: polls(), answer: api.Operation{}},
		{pattern: "DELETE /v1/operation/{id...}", name: "AbandonOperation", doc: "Give up a create whose outcome is not known.",
			handle: h.abandonOperation, query: conditional(), answer: api.Operation{}},
	}
}

// variableRoutes are for whoever keeps variables, and for tasks that read them.
func (h *Handler) variableRoutes() []route {
	return []route{
		{pattern: "GET /v1/vars", name: "Variables", doc: "List variables, without their values. The prefix is one of paths.",
			handle: list(h, variables()), query: lists("namespace"), answer: []*api.Variable{}},
		{pattern: "GET /v1/var/{namespace}/{path...}", name: "Variable", doc: "Read a variable with its values. With an index it also waits for one that is not there.",
			handle: h.getVariable, query: polls(), answer: api.VariableInfo{}},
		{pattern: "PUT /v1/var/{namespace}/{path...}", name: "PutVariable", doc: "Put items under a path, in the place of those that are there.",
			handle: h.putVariable, creates: true, query: conditional(), body: api.VariableSpec{}, answer: api.Variable{}},
		{pattern: "DELETE /v1/var/{namespace}/{path...}", name: "DeleteVariable", doc: "Delete a variable.",
			handle: h.deleteVariable, query: conditional(), answer: struct{}{}},
	}
}

// computedRoutes are for what has no rows of its own.
func (h *Handler) computedRoutes() []route {
	return []route{
		{pattern: "GET /v1/namespaces", name: "Namespaces", doc: "List the namespaces that have something in them, and the default one, with how much there is in each.",
			handle: list(h, namespaces()), query: lists(), answer: []api.NamespaceInfo{}},
		{pattern: "GET /v1/services", name: "Services", doc: "List the services that jobs offer, each with where it is found.",
			handle: list(h, services()), query: lists("namespace"), answer: []api.ServiceInfo{}},
		{pattern: "GET /v1/service/{name}", name: "Service", doc: "Find a service: the address and port of each allocation that offers it and is healthy, or of all of them.",
			handle: h.getService, query: append(polls(), "namespace", "all"), answer: api.ServiceInfo{}},
	}
}

// nodeRoutes are for whoever looks after machines.
func (h *Handler) nodeRoutes() []route {
	return []route{
		{pattern: "GET /v1/nodes", name: "Nodes", doc: "List nodes.",
			handle: list(h, nodes()), query: lists(), answer: []*api.Node{}},
		{pattern: "GET /v1/node/{id}", name: "Node", doc: "Read a node with what it runs.",
			handle: h.getNode, query: polls(), answer: api.NodeInfo{}},
		{pattern: "POST /v1/node/{id}/fence", name: "FenceNode", doc: "Take it as a fact that a node is off or cut off from its storage: what it ran is lost, and its volumes go on without it.",
			handle: h.fenceNode, body: api.FenceRequest{}, answer: api.NodeInfo{}},
		{pattern: "POST /v1/node/{id}/drain", name: "DrainNode", doc: "Have a node emptied: what it runs moves away, with its volumes, and it gets nothing new.",
			handle: h.drainNode, asked: true, query: conditional(), body: api.DrainRequest{}, answer: api.NodeInfo{}},
		{pattern: "DELETE /v1/node/{id}/drain", name: "StopDrain", doc: "Call the drain of a node off.",
			handle: h.stopDrain, asked: true, query: append(conditional(), "ineligible"), answer: api.NodeInfo{}},
		{pattern: "POST /v1/node/{id}/eligibility", name: "SetEligibility", doc: "Say whether a node gets new allocations. What runs there goes on.",
			handle: h.setEligibility, asked: true, query: conditional(), body: api.EligibilityRequest{}, answer: api.NodeInfo{}},
		{pattern: "DELETE /v1/node/{id}", name: "ForgetNode", doc: "Remove a node that is gone and holds nothing.",
			handle: h.forgetNode, query: conditional(), answer: struct{}{}},
	}
}

// questionRoutes are for whoever asks what plugins say. Their answers are not in
// the state.
func (h *Handler) questionRoutes() []route {
	return []route{
		{pattern: "GET /v1/plugin/{id}/volumes", name: "PluginVolumes", doc: "List the volumes that a plugin has, each with the volume that it is, as the plugin says now.",
			handle: h.pluginVolumes, query: []string{"per_page", "next_token"}, answer: []api.ListedVolume{}},
		{pattern: "GET /v1/plugin/{id}/snapshots", name: "PluginSnapshots", doc: "List the snapshots that a plugin has, each with the snapshot that it is, as the plugin says now.",
			handle: h.pluginSnapshots, query: []string{"per_page", "next_token"}, answer: []api.ListedSnapshot{}},
		{pattern: "GET /v1/plugin/{id}/capacity", name: "PluginCapacity", doc: "Read how much room a plugin has, in each of its topologies, as it says now.",
			handle: h.pluginCapacity, answer: []api.PlaceCapacity{}},
		{pattern: "GET /v1/volume/{namespace}/{id}/usage", name: "VolumeUsage", doc: "Read how full a volume is, as each node that has it mounted says now.",
			handle: h.volumeUsage, answer: []api.VolumeUsage{}},
		{pattern: "GET /v1/findings", name: "Findings", doc: "List what was found to differ between plugins and the state.",
			handle: list(h, findings()), query: lists("namespace"), answer: []*api.Finding{}},
		{pattern: "GET /v1/finding/{id}", name: "Finding", doc: "Read a finding.",
			handle: h.getFinding, query: polls(), answer: api.Finding{}},
		{pattern: "DELETE /v1/finding/{id}", name: "DeleteFound", doc: "Have the plugin delete a volume that was found and is not known: it is registered, and deleted with its data.",
			handle: h.deleteFound, answer: api.VolumeInfo{}},
		{pattern: "POST /v1/volume/{namespace}/{id}/import", name: "ImportVolume", doc: "Register a volume that exists already, after its plugin has said that it is there and can be used so.",
			handle: h.importVolume, traced: true, creates: true, query: []string{"check"}, body: api.VolumeSpec{}, answer: api.VolumeInfo{}},
		{pattern: "GET /v1/sweep", name: "SweepReports", doc: "Read how the last comparison of each plugin with the state went.",
			handle: h.sweepReports, answer: []api.SweepReport{}},
		{pattern: "POST /v1/sweep", name: "Sweep", doc: "Compare plugins with the state now: one, or all.",
			handle: h.sweepNow, body: api.SweepRequest{}, answer: []api.SweepReport{}},
	}
}

// eventRoutes are for whoever follows what happens.
func (h *Handler) eventRoutes() []route {
	return []route{
		{pattern: "GET /v1/events", name: "Events", doc: "Follow what is committed: a stream of lines of JSON that does not end by itself.",
			handle: h.events, query: []string{"topic", "namespace", "index", "generation"}, media: ndjson, answer: api.EventFrame{}},
	}
}

// agentRoutes are for agents.
func (h *Handler) agentRoutes() []route {
	return []route{
		{pattern: "POST /v1/agent/register", name: "Register", doc: "Open an agent's session.",
			handle: h.register, node: true, body: api.Registration{}, answer: api.Registered{}},
		{pattern: "GET /v1/agent/assignments", name: "Assignments", doc: "Read what a node is to do.",
			handle: h.assignments, node: true, query: append(polls(), "brief"), answer: api.Assignments{}},
		{pattern: "GET /v1/agent/secrets/{namespace}/{id}", name: "Secrets", doc: "Read the secrets of a volume that the node has a call to make for.",
			handle: h.secrets, node: true, answer: api.Secrets{}},
		{pattern: "POST /v1/agent/report", name: "Report", doc: "Tell the servers facts about a node.",
			handle: h.report, node: true, body: api.Report{}, answer: api.Reported{}, maxBody: maxReport},
		{pattern: "POST /v1/agent/stream/{id}", name: "Stream", doc: "Send a stream that was offered with the assignments.",
			handle: h.stream, node: true, bodyMedia: octets, answer: struct{}{}, maxBody: maxStream},
	}
}

// systemRoutes are for whoever runs the servers.
func (h *Handler) systemRoutes() []route {
	return []route{
		{pattern: "GET /v1/status", name: "Status", doc: "Read what the server says of itself and its cluster, and all that waits.",
			handle: h.status, answer: api.Status{}, always: true},
		{pattern: "GET /v1/metrics", name: "Metrics", doc: "Read what this process measures, as Prometheus does.",
			handle: h.serveMetrics, media: text, always: true},
		{pattern: "GET /v1/openapi.json", name: "OpenAPI", doc: "Read the description of this API.",
			handle: h.openAPI, answer: map[string]any{}, always: true},
		{pattern: "GET /v1/cluster", name: "Cluster", doc: "Read the cluster's own row.",
			handle: h.getCluster, query: polls(), answer: api.Cluster{}},
		{pattern: "POST /v1/system/gc", name: "CollectGarbage", doc: "Remove now what has ended, whatever its age.",
			handle: h.collectGarbage, body: struct{}{}, answer: api.Collected{}},
		{pattern: "GET /v1/system/snapshot", name: "SaveState", doc: "Save the whole state.",
			handle: h.saveSnapshot, media: octets},
		{pattern: "PUT /v1/system/snapshot", name: "RestoreState", doc: "Replace the state by a saved one, and begin a new generation.",
			handle: h.restoreSnapshot, bodyMedia: octets, answer: api.Recovery{}, maxBody: maxSnapshot},
		{pattern: "GET /v1/system/recovery", name: "Recovery", doc: "Read where a restored cluster is on its way back.",
			handle: h.recovery, answer: api.Recovery{}},
		{pattern: "POST /v1/system/recovery", name: "ConfirmRecovery", doc: "Let a restored cluster go on.",
			handle: h.confirmRecovery, body: api.RecoveryConfirmation{}, answer: api.Recovery{}},
	}
}

// Types of what is not one value of JSON.
const (
	octets = "application/octet-stream"
	ndjson = "application/x-ndjson"
	text   = "text/plain; charset=utf-8"
)

// parameter describes what stands in a path or a query.
type parameter struct {
	doc string
	// number: it is one, and not text.
	number bool
	// signed: the number may be below 0. Else least is the least, and most the
	// greatest if it is not 0.
	signed      bool
	least, most int
	// many: it may be there several times.
	many bool
}

// parameters are all that any route takes in its path or query.
func parameters() map[string]parameter {
	return map[string]parameter{
		"allocation": {doc: "The whole id of an allocation."},
		"check":      {doc: "true: say what there is to say against it, and do nothing."},
		"filter":     {doc: "A condition on the rows: field==value, field!=value or field^=prefix, the value as it is or in quotes. All that are given must hold.", many: true},
		"follow":     {doc: "true goes on until the task has ended."},
		"generation": {doc: "The generation that index is of, which the stream said with it.", number: true},
		"id":         {doc: "The id of what is meant."},
		"brief":      {doc: "true names no allocation if none has changed since the index that is given, and says so."},
		"index":      {doc: "Answer when there is something newer than this index, which an answer's " + api.HeaderIndex + " header gave, or an event.", number: true},
		"all":        {doc: "true: also where it is not healthy."},
		"ineligible": {doc: "true: the node gets no new allocations nevertheless."},
		"name":       {doc: "The name of a volume request."},
		"namespace":  {doc: "The namespace; in lists * or none for all."},
		"next_token": {doc: "Where the page begins: the " + api.HeaderNext + " header of the one before."},
		"node":       {doc: "The id of a node."},
		"offset":     {doc: "The position to begin at, counted in all bytes that the task ever wrote; below 0 from the end.", number: true, signed: true},
		"path":       {doc: "The path of a variable: words with slashes between them."},
		"per_page":   {doc: fmt.Sprintf("How many rows a page has at most, 1 to %d. Without it there is one page.", maxPage), number: true, least: 1, most: maxPage},
		"prefix":     {doc: "How the ids begin."},
		"reclaim":    {doc: "What becomes of the volume's data: delete or retain. Without it, retain for a volume that was registered, else delete."},
		"tail":       {doc: "Begin so many lines before the end.", number: true},
		"task":       {doc: "The name of a task."},
		"topic":      {doc: "A noun, such as volume, or one row, such as volume:pg. Several are added up; none are all.", many: true},
		"revision":   {doc: "The number of a revision.", number: true, least: 1},
		"type":       {doc: "Which of the two that a task writes: stdout or stderr; stdout if it is not given."},
		"version":    {doc: "Write only if the object has this version.", number: true},
		"volume":     {doc: "The id of a volume."},
		"wait":       {doc: `How long to wait for something newer than index, such as "30s"; 1m if it is not given, and 5m at most.`},
	}
}

// noRoute answers for what is in no row of the table.
func (h *Handler) noRoute(w http.ResponseWriter, r *http.Request) {
	req := &request{Request: r, w: w, buffers: &h.buffers}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete} {
		other := *r
		other.Method = method
		if _, pattern := h.mux.Handler(&other); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		req.write(http.StatusNotFound, api.Errorf(api.CodeNotFound, "there is no %s in this API", r.URL.Path))
		return
	}
	methods := strings.Join(allowed, ", ")
	w.Header().Set("Allow", methods)
	req.write(http.StatusMethodNotAllowed, &api.Error{Code: api.CodeMethodNotAllowed, Message: fmt.Sprintf("%s takes no %s", r.URL.Path, r.Method),
		Fields: []api.Field{{Path: "method", Message: "is " + r.Method, Mend: "use " + methods}}})
}
