package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/consensus"
	"github.com/berth-dev/berth/internal/controller/collector"
	"github.com/berth-dev/berth/internal/server"
)

// world is one server as main wires it, with its log and its wire in memory.
// Tests of it run in bubbles.
type world struct {
	*client.Client
	t    *testing.T
	http *http.Client
	wire *wire
	logs *lockedBuffer
	stop func()
}

// start starts a server and waits until it leads.
func start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, wire: newWire(), logs: &lockedBuffer{}}
	_, transport := raft.NewInmemTransport("server")
	s, err := server.New(server.Config{
		ServerID: "server", Version: "1.2.3", Expect: 1, Discover: consensus.Alone{},
		Transport: transport, Stores: consensus.MemoryStores(), Tuning: consensus.AloneTuning(),
		HTTP: w.wire, Keep: collector.DefaultKeep(), Keyring: ring(t),
	}, slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return w.wire.Dial(ctx) }
	transportOf := &http.Transport{DialContext: dial}
	w.http = &http.Client{Transport: transportOf, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if w.Client, err = client.New(client.Config{Address: "http://server", Dial: dial, Patience: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
		w.Close()
		transportOf.CloseIdleConnections()
	})
	t.Cleanup(w.stop)
	// The cluster's id is the first thing that a leader writes.
	for {
		status, err := w.Status(ctx)
		if err == nil && status.ClusterID != "" {
			return w
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// response is what a request was answered.
type response struct {
	status int
	header http.Header
	body   string
}

// send makes a request by hand. The body is JSON, or text that is to be sent as
// it is.
func (w *world) send(method, path string, body any, headers ...string) response {
	w.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, "http://server"+path, r)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.http.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return response{resp.StatusCode, resp.Header, strings.TrimSuffix(string(text), "\n")}
}

// refusal is the error in an answer.
func (r response) refusal(t *testing.T) api.Error {
	t.Helper()
	var e api.Error
	if err := json.Unmarshal([]byte(r.body), &e); err != nil || e.Code == "" {
		t.Fatalf("the answer %q is no error of the API", r.body)
	}
	return e
}

// volume is a volume of the plugin that nodes of a world have.
func volume() api.VolumeSpec {
	return api.VolumeSpec{
		PluginID:     "disk",
		Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
	}
}

// job is a service of one task on a volume.
func job(source api.VolumeID) api.JobSpec {
	return api.JobSpec{Type: api.JobService, Groups: []api.TaskGroup{{
		Name: "main", Count: 1,
		Volumes: []api.VolumeRequest{{
			Name: "data", Type: api.VolumeTypeCSI, Source: source, AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem,
		}},
		Tasks: []api.Task{{Name: "t", Driver: "exec", Config: runs(), VolumeMounts: []api.VolumeMount{{Volume: "data", Destination: "/data"}}}},
	}}}
}

// runs is the config of a task that runs something.
func runs() map[string]any { return map[string]any{"command": "/bin/true"} }

// agent is an agent that does nothing but talk.
type agent struct {
	*client.Agent
	w        *world
	id       api.NodeID
	session  string
	epoch    uint64
	sequence uint64
}

// registration is what the agent of a node sends.
func registration(id api.NodeID, session string) api.Registration {
	return api.Registration{
		NodeID: id, Name: string(id), Session: session, BootID: "boot", Version: "1.2.3", FeatureLevel: api.FeatureLevel,
		Drivers: map[string]api.Driver{"exec": {Healthy: true, MountsVolumes: true}, "raw_exec": {Healthy: true}},
	}
}

// join registers a node that has the plugin disk. The node's secret is its id
// with "-secret" behind it.
func (w *world) join(id api.NodeID) *agent {
	w.t.Helper()
	a := &agent{Agent: w.Agent(id, string(id)+"-secret"), w: w, id: id, session: "session-of-" + string(id)}
	answer, err := a.Register(context.Background(), registration(id, a.session))
	if err != nil {
		w.t.Fatal(err)
	}
	a.epoch, a.sequence = answer.Epoch, answer.Sequence
	a.report(api.Facts{Instances: []api.InstanceFact{{PluginID: "disk", InstanceStatus: api.InstanceStatus{
		Type: api.InstanceMonolith, Healthy: true, Driver: "disk.example", ExternalNodeID: "ext-" + string(id),
		PluginCapabilities:     []string{api.CapControllerService},
		ControllerCapabilities: []string{api.CapCreateDeleteVolume, api.CapPublishUnpublish},
		NodeCapabilities:       []string{api.CapStageUnstage},
	}}}})
	return a
}

func (a *agent) report(facts api.Facts) {
	a.w.t.Helper()
	a.sequence++
	_, err := a.Report(context.Background(), api.Report{
		NodeID: a.id, Session: a.session, Epoch: a.epoch, Sequence: a.sequence, Facts: facts,
	})
	if err != nil {
		a.w.t.Fatal(err)
	}
}

// assigned waits for an operation and answers the OK of a driver that did what
// was asked.
func (a *agent) answerOperation() {
	a.w.t.Helper()
	for index := uint64(0); ; {
		work, err := a.Assignments(context.Background(), a.session, a.epoch, index, 5*time.Second)
		if err != nil {
			a.w.t.Fatal(err)
		}
		index = work.Index
		for _, op := range work.Operations {
			fact := api.OperationFact{ID: op.ID, Attempt: op.Status.Attempt, Code: "OK"}
			switch op.Kind {
			case api.OperationCreate:
				fact.Result = api.OperationResult{ExternalID: "ext-" + string(op.VolumeID), Capacity: 1 << 30, Context: map[string]string{"share": "7"}}
			case api.OperationPublish:
				fact.Result.PublishContext = map[string]string{"device": "sdb"}
			case api.OperationDelete, api.OperationUnpublish, api.OperationExpand, api.OperationModify, api.OperationNodeExpand,
				api.OperationSnapshot, api.OperationDeleteSnapshot:
			}
			a.report(api.Facts{Operations: []api.OperationFact{fact}})
			return
		}
	}
}

// provision makes a volume that is ready.
func (a *agent) provision(id api.VolumeID) api.VolumeInfo {
	a.w.t.Helper()
	if _, err := a.w.ApplyVolume(context.Background(), "default", id, volume(), 0); err != nil {
		a.w.t.Fatal(err)
	}
	a.answerOperation()
	info, _, err := a.w.Volume(context.Background(), "default", id, client.Query{})
	if err != nil || info.Status.State != api.VolumeReady {
		a.w.t.Fatalf("volume %s is %+v (%v), want it ready", id, info.Status, err)
	}
	return info
}

// run places a job on a volume that is ready, up to where the node's part begins.
func (a *agent) run(id api.JobID, source api.VolumeID) *api.Allocation {
	a.w.t.Helper()
	if _, err := a.w.ApplyJob(context.Background(), "default", id, job(source), 0); err != nil {
		a.w.t.Fatal(err)
	}
	a.answerOperation() // the publish
	info, _, err := a.w.Job(context.Background(), "default", id, client.Query{})
	if err != nil || len(info.Allocations) != 1 {
		a.w.t.Fatalf("job %s has allocations %v (%v), want one", id, info.Allocations, err)
	}
	return info.Allocations[0]
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
