package operation_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/operation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a driver with a provider behind it, and what is said of its calls.
type world struct {
	t       *testing.T
	backend *csitest.Backend
	client  *csi.Client
	absent  error  // why there is no client
	before  func() // is called when secrets are asked for

	mu        sync.Mutex // guards below
	facts     map[string]api.OperationFact
	forgotten []string
	asked     []string // for the secrets of volumes
	sealed    error    // why there are none
}

func key(id api.OperationID, attempt int) string { return fmt.Sprintf("%s/%d", id, attempt) }

func (w *world) Controller(id api.PluginID) (*csi.Client, error) {
	if id != "ebs" {
		w.t.Errorf("plugin %s is asked for", id)
	}
	return w.client, w.absent
}

func (w *world) SetOperation(f api.OperationFact) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.facts[key(f.ID, f.Attempt)] = f
}

func (w *world) ForgetOperation(id api.OperationID, attempt int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.facts, key(id, attempt))
	w.forgotten = append(w.forgotten, key(id, attempt))
}

func (w *world) said(op *api.Operation) (api.OperationFact, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f, there := w.facts[key(op.ID, op.Status.Attempt)]
	return f, there
}

func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.facts)
}

// calls counts the calls of a method that reached the driver.
func (w *world) calls(method string) (n int) {
	for _, c := range w.backend.Calls() {
		if c.Method == method {
			n++
		}
	}
	return n
}

// bubble runs a test with a driver and an executor, and then ends both. The
// function that it passes on ends the executor before.
func bubble(t *testing.T, f func(w *world, e *operation.Executor, end func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, facts: map[string]api.OperationFact{}}
		w.backend = csitest.NewBackend(csitest.Options{Expand: true, Modify: true, Attach: true, GetVolume: true, Snapshot: true, SnapshotWork: 1})
		d := w.backend.Node(csitest.Node{ID: "i-1"})
		stop := d.Start(t)
		defer stop()
		w.client = csi.New(d.Dialer(), csi.Config{}, slog.New(slog.DiscardHandler))
		defer func() { _ = w.client.Close() }()
		e := operation.New(w, w, w, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		end := sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		defer end()
		f(w, e, end)
	})
}

// assigned is an attempt of an operation that has a minute.
func assigned(kind api.OperationKind, n int, r api.OperationRequest) *api.Operation {
	now := time.Now()
	return &api.Operation{
		ID: api.OperationID(fmt.Sprintf("%s/default/pg@1", kind)), Kind: kind, PluginID: "ebs", Request: r,
		Status: api.OperationStatus{State: api.OperationAssigned, Attempt: n, Assigned: now, Deadline: now.Add(time.Minute)},
	}
}

func capability() api.Capability {
	return api.Capability{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}
}

func create(n int) *api.Operation {
	return assigned(api.OperationCreate, n, api.OperationRequest{Create: &api.CreateRequest{
		Name: "csi-1", CapacityMin: 1 << 30, Capabilities: []api.Capability{capability()},
	}})
}

// run assigns operations and lets time pass until the calls have ended.
func run(e *operation.Executor, ops ...*api.Operation) {
	e.Assign(ops)
	after(5 * time.Second)
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestEachKindMakesItsCall(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		op := create(1)
		run(e, op)
		made, _ := w.said(op)
		volume := made.Result.ExternalID
		if made.Code != csi.CodeOK || volume == "" || made.Result.Capacity != 1<<30 {
			w.t.Fatalf("create: %+v", made)
		}
		for _, op := range []*api.Operation{
			assigned(api.OperationPublish, 1, api.OperationRequest{Publish: &api.PublishRequest{
				ExternalID: volume, ExternalNodeID: "i-1", Capability: capability(), Context: made.Result.Context,
			}}),
			assigned(api.OperationUnpublish, 1, api.OperationRequest{Unpublish: &api.UnpublishRequest{ExternalID: volume, ExternalNodeID: "i-1"}}),
			assigned(api.OperationExpand, 1, api.OperationRequest{Expand: &api.ExpandRequest{ExternalID: volume, CapacityMin: 2 << 30, Capability: capability()}}),
			assigned(api.OperationModify, 1, api.OperationRequest{Modify: &api.ModifyRequest{ExternalID: volume, MutableParameters: map[string]string{"iops": "1"}}}),
			assigned(api.OperationDelete, 1, api.OperationRequest{Delete: &api.DeleteRequest{ExternalID: volume}}),
		} {
			run(e, op)
			if f, there := w.said(op); !there || f.Code != csi.CodeOK {
				w.t.Errorf("%s: %+v", op.Kind, f)
			}
		}
		for _, method := range []string{"CreateVolume", "ControllerPublishVolume", "ControllerUnpublishVolume", "ControllerExpandVolume", "ControllerModifyVolume", "DeleteVolume"} {
			if n := w.calls(method); n != 1 {
				w.t.Errorf("%d calls of %s", n, method)
			}
		}
		if v := w.backend.Violations(); len(v) > 0 {
			w.t.Errorf("the provider complains: %v", v)
		}
	})
}

func TestSnapshotIsCutAskedForAndDeleted(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		op := create(1)
		run(e, op)
		made, _ := w.said(op)
		request := api.OperationRequest{Snapshot: &api.SnapshotRequest{Name: "s-1", SourceID: made.Result.ExternalID}}
		var cut *api.SnapshotResult
		for attempt := range 2 {
			op := assigned(api.OperationSnapshot, attempt+1, request)
			run(e, op)
			f, _ := w.said(op)
			cut = f.Result.Snapshot
			if cut == nil || cut.ExternalID == "" || cut.Ready != (attempt == 1) || cut.Size != 1<<30 || cut.Created.IsZero() {
				w.t.Fatalf("attempt %d: %+v", attempt+1, cut)
			}
		}
		op = assigned(api.OperationDeleteSnapshot, 1, api.OperationRequest{DeleteSnapshot: &api.DeleteSnapshotRequest{ExternalID: cut.ExternalID}})
		run(e, op)
		if f, _ := w.said(op); f.Code != csi.CodeOK {
			w.t.Errorf("delete: %+v", f)
		}
		if left := w.backend.SnapshotsMade(); len(left) > 0 {
			w.t.Errorf("left: %v", left)
		}
		if v := w.backend.Violations(); len(v) > 0 {
			w.t.Errorf("the provider complains: %v", v)
		}
	})
}

func TestCodeOfThePluginIsSaid(t *testing.T) {
	t.Parallel()
	for _, code := range []string{
		csi.CodeCancelled, csi.CodeUnknown, csi.CodeInvalidArgument, csi.CodeDeadlineExceeded, csi.CodeNotFound,
		csi.CodeAlreadyExists, csi.CodePermissionDenied, csi.CodeResourceExhausted, csi.CodeFailedPrecondition,
		csi.CodeAborted, csi.CodeOutOfRange, csi.CodeUnimplemented, csi.CodeInternal, csi.CodeUnavailable,
		csi.CodeDataLoss, csi.CodeUnauthenticated,
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(w *world, e *operation.Executor, _ func()) {
				w.backend.Script(csitest.Rule{Method: "CreateVolume", Do: csitest.Fail(code, "because")})
				op := create(1)
				run(e, op)
				got, _ := w.said(op)
				want := api.OperationFact{ID: op.ID, Attempt: 1, Code: code, Message: "because"}
				got.Duration = 0
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("said (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestCallThatWasNotSentSaysSo(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(w *world, op *api.Operation)
		code    string
	}{
		"NoPlugin": {func(w *world, _ *api.Operation) {
			w.absent = api.Errorf(api.CodeUnavailable, "plugin ebs cannot be used")
		}, csi.CodeUnavailable},
		"UnknownKind":    {func(_ *world, op *api.Operation) { op.Kind = "expand" }, csi.CodeUnavailable},
		"WithoutRequest": {func(_ *world, op *api.Operation) { op.Request.Create = nil }, csi.CodeUnavailable},
		"TooLate":        {func(_ *world, op *api.Operation) { op.Status.Deadline = op.Status.Assigned }, csi.CodeDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(w *world, e *operation.Executor, _ func()) {
				op := create(1)
				tc.prepare(w, op)
				run(e, op)
				if f, there := w.said(op); !there || !f.NotSent || f.Code != tc.code || f.Message == "" {
					t.Errorf("said: %+v, want %s, not sent", f, tc.code)
				}
				if n := w.calls("CreateVolume"); n != 0 {
					t.Errorf("%d calls", n)
				}
			})
		})
	}
}

func TestCallThatHangsEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		w.backend.Script(csitest.Rule{Method: "CreateVolume", Do: csitest.Hang()})
		op := create(1)
		run(e, op)
		if _, there := w.said(op); there {
			w.t.Error("an outcome is said of a call in flight")
		}
		after(time.Minute)
		if f, _ := w.said(op); f.Code != csi.CodeDeadlineExceeded || f.NotSent || time.Duration(f.Duration) < time.Minute {
			w.t.Errorf("said: %+v", f)
		}
	})
}

func TestEndOfTheAgentIsNoOutcome(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, end func()) {
		w.backend.Script(csitest.Rule{Method: "CreateVolume", Do: csitest.Hang()})
		run(e, create(1))
		end()
		if w.count() != 0 {
			w.t.Errorf("said: %+v", w.facts)
		}
	})
}

func TestAttemptIsMadeOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		hang := w.backend.Script(csitest.Rule{Method: "CreateVolume", Do: csitest.Hang(), Times: 1})
		first := create(1)
		run(e, first)
		run(e, first) // in flight
		hang.Release()
		run(e, first) // ended
		if n := w.calls("CreateVolume"); n != 1 {
			w.t.Errorf("%d calls of one attempt", n)
		}
		second := create(2)
		run(e, second)
		if n := w.calls("CreateVolume"); n != 2 {
			w.t.Errorf("%d calls of two attempts", n)
		}
		if _, there := w.said(first); there {
			w.t.Error("the first attempt is still spoken of")
		}
		if f, _ := w.said(second); f.Code != csi.CodeOK {
			w.t.Errorf("said: %+v", f)
		}
		run(e)
		if w.count() != 0 {
			w.t.Errorf("an operation that is gone is spoken of: %+v", w.facts)
		}
	})
}

func TestOutcomeThatNobodyAsksForAnyMoreIsNotSaid(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		hang := w.backend.Script(csitest.Rule{Method: "CreateVolume", Do: csitest.Hang(), Times: 1})
		run(e, create(1))
		run(e)
		hang.Release()
		run(e)
		if w.count() != 0 {
			w.t.Errorf("said: %+v", w.facts)
		}
	})
}

// Servers that were put back to a backup give an id to another operation.
func TestOutcomeIsNotSaidOfAnotherOperationWithTheSameID(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		old := w.backend.Script(csitest.Rule{Method: "CreateVolume", Do: csitest.Hang(), Times: 1})
		run(e, create(1))
		run(e)
		other := create(1)
		other.VolumeID = "another"
		request := *other.Request.Create
		request.Name = "another"
		other.Request.Create = &request
		next := w.backend.Script(csitest.Rule{Method: "CreateVolume", Do: csitest.Hang(), Times: 1})
		run(e, other)
		if n := w.calls("CreateVolume"); n != 2 {
			w.t.Errorf("%d calls of two operations", n)
		}
		old.Release()
		after(time.Millisecond)
		if f, there := w.said(other); there {
			w.t.Errorf("the first's outcome is said of the second: %+v", f)
		}
		next.Release()
		after(time.Millisecond)
		if f, _ := w.said(other); f.Code != csi.CodeOK {
			w.t.Errorf("said: %+v", f)
		}
	})
}

func TestHangingCallKeepsNoOther(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		w.backend.Script(csitest.Rule{Method: "DeleteVolume", Do: csitest.Hang()})
		ops := []*api.Operation{assigned(api.OperationDelete, 1, api.OperationRequest{Delete: &api.DeleteRequest{ExternalID: "v"}})}
		for i := range 100 {
			op := create(1)
			op.ID = api.OperationID(fmt.Sprintf("create/default/v%d@1", i))
			request := *op.Request.Create
			request.Name = fmt.Sprintf("csi-%d", i)
			op.Request.Create = &request
			ops = append(ops, op)
		}
		run(e, ops...)
		if w.count() != 100 {
			w.t.Errorf("%d of 100 calls have an outcome", w.count())
		}
	})
}

// passphrase is a volume's secret.
const passphrase = "correct horse battery staple"

// Secrets implements operation.Secrets.
func (w *world) Secrets(_ context.Context, ns api.NamespaceID, vol api.VolumeID) (map[string]string, error) {
	if w.before != nil {
		w.before()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, string(ns)+"/"+string(vol))
	return map[string]string{"passphrase": passphrase}, w.sealed
}

// TestSecretsAreAskedForWithEachAttempt, and only where there are some.
func TestSecretsAreAskedForWithEachAttempt(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		plain, sealed := create(1), create(2)
		sealed.Status.Secrets, sealed.Namespace, sealed.VolumeID = true, "default", "pg"
		run(e, plain)
		run(e, sealed)
		if f, _ := w.said(sealed); f.Code != csi.CodeOK {
			w.t.Fatalf("create: %+v", f)
		}
		if len(w.asked) != 1 || w.asked[0] != "default/pg" {
			w.t.Errorf("asked for the secrets of %v", w.asked)
		}
		for i, c := range w.backend.Calls() {
			with := strings.Contains(string(c.Request), passphrase)
			if c.Method == "CreateVolume" && with != (i > 0 && strings.Contains(string(c.Request), "secrets")) {
				w.t.Errorf("call %d: %s", i, c.Request)
			}
		}
		if n := strings.Count(fmt.Sprint(requests(w)), passphrase); n != 1 {
			w.t.Errorf("%d calls have the secret", n)
		}
	})
}

func requests(w *world) (all []string) {
	for _, c := range w.backend.Calls() {
		all = append(all, string(c.Request))
	}
	return all
}

// TestWithoutItsSecretsNoCallIsMade: the attempt ends as one that did nothing.
func TestWithoutItsSecretsNoCallIsMade(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		w.sealed = api.Errorf(api.CodeUnavailable, "no server answers")
		op := create(1)
		op.Status.Secrets = true
		run(e, op)
		f, _ := w.said(op)
		if f.Code != csi.CodeUnavailable || !f.NotSent || f.Message != "ask for the volume's secrets: no server answers" || w.calls("CreateVolume") != 0 {
			w.t.Errorf("%d calls, and said %+v", w.calls("CreateVolume"), f)
		}
	})
}

// A restarted agent makes the assigned attempt again, and then says once more
// what the earlier one had to say: the servers go on, and the next call for the
// volume waits until the stray one has ended.
func TestNextCallForTheVolumeWaitsForOneThatIsNotAssignedAnyMore(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world, e *operation.Executor, _ func()) {
		hang := w.backend.Script(csitest.Rule{Method: "CreateVolume", Do: csitest.Hang(), Times: 1})
		run(e, create(1))
		next := assigned(api.OperationDelete, 1, api.OperationRequest{Delete: &api.DeleteRequest{ExternalID: "v"}})
		run(e, next)
		if n := w.calls("DeleteVolume"); n != 0 {
			w.t.Errorf("%d calls while another for the volume is under way", n)
		}
		hang.Release()
		after(time.Millisecond)
		if f, _ := w.said(next); f.Code != csi.CodeOK {
			w.t.Errorf("said: %+v", f)
		}
	})
}

// mounter expands what is mounted here, or says why not.
type mounter struct {
	asked []*api.Operation
	err   error
}

func (m *mounter) Expand(_ context.Context, op *api.Operation) (api.OperationResult, error) {
	m.asked = append(m.asked, op)
	return api.OperationResult{Capacity: 2 << 30}, m.err
}

func TestNodeExpandIsTheMountersCall(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err  error
		want api.OperationFact
	}{
		"Done":       {nil, api.OperationFact{Code: csi.CodeOK, Result: api.OperationResult{Capacity: 2 << 30}}},
		"Refused":    {&csi.Error{Method: "NodeExpandVolume", Code: csi.CodeFailedPrecondition, Message: "in use"}, api.OperationFact{Code: csi.CodeFailedPrecondition, Message: "in use", Result: api.OperationResult{Capacity: 2 << 30}}},
		"NotMounted": {api.Errorf(api.CodeUnavailable, "it is not mounted"), api.OperationFact{Code: csi.CodeUnavailable, NotSent: true, Message: "it is not mounted", Result: api.OperationResult{Capacity: 2 << 30}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(w *world, e *operation.Executor, _ func()) {
				w.absent = api.Errorf(api.CodeUnavailable, "no controller serves here")
				m := &mounter{err: tc.err}
				e.Mounts(m)
				op := assigned(api.OperationNodeExpand, 1, api.OperationRequest{NodeExpand: &api.NodeExpandRequest{ExternalID: "v", CapacityMin: 2 << 30}})
				run(e, op)
				got, _ := w.said(op)
				tc.want.ID, tc.want.Attempt, got.Duration = op.ID, 1, 0
				if diff := cmp.Diff(tc.want, got); diff != "" || len(m.asked) != 1 {
					t.Errorf("asked %d times, said (-want +got):\n%s", len(m.asked), diff)
				}
			})
		})
	}
}
