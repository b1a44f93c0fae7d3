// Package operation makes the calls that are assigned to this node, of
// controller plugins and of what is mounted here: one function for each kind of
// operation.
//
// It never decides that a call is made, repeated or given up. Invariant: an
// agent makes one call for each attempt, and its outcome, the plugin's code or
// why it was not asked, is said for as long as the attempt is assigned.
package operation

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/telemetry"
)

// Plugins finds the client of a controller plugin on this node.
type Plugins interface {
	Controller(id api.PluginID) (*csi.Client, error)
}

// Facts is where outcomes are said. An outcome is a level: it stays until it is
// forgotten, so that it can be said again to servers that have lost it.
type Facts interface {
	SetOperation(f api.OperationFact)
	ForgetOperation(id api.OperationID, attempt int)
}

// Volumes expands what is mounted on this node.
type Volumes interface {
	Expand(ctx context.Context, op *api.Operation) (api.OperationResult, error)
}

// Secrets asks for the secrets of a volume. They are kept nowhere.
type Secrets interface {
	Secrets(ctx context.Context, ns api.NamespaceID, vol api.VolumeID) (map[string]string, error)
}

// Executor makes calls. Its Run must be running while operations are assigned.
type Executor struct {
	plugins Plugins
	facts   Facts
	secrets Secrets
	log     *slog.Logger
	took    *telemetry.Durations
	volumes Volumes

	mu      sync.Mutex // guards below
	wanted  map[attempt]*api.Operation
	known   map[attempt]*api.Operation // called, or being called
	sent    []*sent                    // being called
	changed chan struct{}              // capacity 1
}

// attempt names one attempt of one operation.
type attempt struct {
	id api.OperationID
	n  int
}

// New returns an executor. It starts nothing.
func New(plugins Plugins, facts Facts, secrets Secrets, log *slog.Logger) *Executor {
	return &Executor{
		plugins: plugins, facts: facts, secrets: secrets, log: log,
		wanted: map[attempt]*api.Operation{}, known: map[attempt]*api.Operation{}, changed: make(chan struct{}, 1),
	}
}

// Mounts makes the executor able to make calls for what is mounted on this node;
// it is called before Run.
func (e *Executor) Mounts(v Volumes) { e.volumes = v }

// Measure makes the executor measure its operations; it is called before Run.
func (e *Executor) Measure(r *telemetry.Registry) {
	e.took = r.Durations("berth_operation_seconds", "How long the calls of operations took on the node that makes them, by their gRPC codes", "plugin", "kind", "code")
}

// Assign takes the operations that this node has now. An attempt that it has
// made already is not made again; one that is gone is forgotten.
func (e *Executor) Assign(operations []*api.Operation) {
	e.mu.Lock()
	defer e.mu.Unlock()
	current := map[attempt]bool{}
	for _, op := range operations {
		a := attempt{op.ID, op.Status.Attempt}
		current[a] = true
		if e.known[a] == nil {
			e.wanted[a] = op
		}
	}
	for a := range e.known {
		if !current[a] {
			delete(e.known, a)
			e.facts.ForgetOperation(a.id, a.n)
		}
	}
	for a := range e.wanted {
		if !current[a] {
			delete(e.wanted, a)
		}
	}
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// take returns what is to be called, and notes it as known.
func (e *Executor) take() []*api.Operation {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ops []*api.Operation
	for a, op := range e.wanted {
		ops = append(ops, op)
		e.known[a] = op
		delete(e.wanted, a)
	}
	return ops
}

// Run makes calls until ctx ends. Calls in flight end with it; the next agent
// makes them again, as the specification allows.
func (e *Executor) Run(ctx context.Context) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		for _, op := range e.take() {
			calls.Go(func() { e.execute(ctx, op) })
		}
		select {
		case <-e.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// execute makes one call and says what came of it, unless the agent ends: then
// nobody knows, and the call is made again.
func (e *Executor) execute(ctx context.Context, op *api.Operation) {
	began := time.Now()
	result, seen, err := e.make(ctx, op)
	if ctx.Err() != nil || errors.Is(err, errTakenBack) {
		return
	}
	fact := api.OperationFact{
		ID: op.ID, Attempt: op.Status.Attempt,
		Code: csi.CodeOf(err), Duration: api.Duration(time.Since(began)), Result: result, Seen: seen,
	}
	if err != nil {
		fact.Message = err.Error()
		var refused *csi.Error
		var notCalled *api.Error
		switch {
		case errors.As(err, &refused):
			fact.Message, fact.NotSent = refused.Message, refused.Unsent
		case errors.As(err, &notCalled):
			fact.Code, fact.NotSent = csi.CodeUnavailable, true
		}
		e.log.Warn("operation failed", "operation", op.ID, "attempt", op.Status.Attempt, "code", fact.Code, "error", err)
	}
	e.took.Observe(time.Duration(fact.Duration), string(op.PluginID), string(op.Kind), fact.Code)
	e.answer(op, fact)
}

// answer says what came of an attempt, unless it is not assigned any more: then
// nobody asks, or another operation has its id after a restore.
func (e *Executor) answer(op *api.Operation, f api.OperationFact) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known[attempt{op.ID, op.Status.Attempt}] == op {
		e.facts.SetOperation(f)
	}
}

// sent is a call that is being made.
type sent struct {
	op    *api.Operation
	ended chan struct{} // closed when it has
}

// begin notes that an attempt's call is made now. One that is not assigned any
// more, and was not sent, is not sent: nobody would hear of it. One that was sent
// is left to end, whatever becomes of its assignment: to cancel it undoes nothing.
// The next call for its volume waits for that: a restarted agent makes a call
// again, and may then say what the earlier agent had to say of it.
func (e *Executor) begin(ctx context.Context, op *api.Operation) (*sent, error) {
	for {
		e.mu.Lock()
		assigned, stray := e.known[attempt{op.ID, op.Status.Attempt}] == op, e.stray(op)
		switch {
		case !assigned:
			e.mu.Unlock()
			return nil, errTakenBack
		case stray == nil:
			s := &sent{op: op, ended: make(chan struct{})}
			e.sent = append(e.sent, s)
			e.mu.Unlock()
			return s, nil
		}
		e.mu.Unlock()
		select {
		case <-stray.ended:
		case <-ctx.Done():
			return nil, api.Errorf(api.CodeUnavailable, "an earlier call for the volume, of operation %s, has not ended", stray.op.ID)
		}
	}
}

// stray is a call for the volume of an operation that is not assigned any more,
// or nil. The caller holds mu.
func (e *Executor) stray(op *api.Operation) *sent {
	for _, s := range e.sent {
		if s.op.Namespace == op.Namespace && s.op.VolumeID == op.VolumeID && e.known[attempt{s.op.ID, s.op.Status.Attempt}] != s.op {
			return s
		}
	}
	return nil
}

func (e *Executor) end(ended *sent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent = slices.DeleteFunc(e.sent, func(s *sent) bool { return s == ended })
	close(ended.ended)
}

// errTakenBack: nobody asks for the attempt any more.
var errTakenBack = errors.New("the attempt was taken back")

// make makes the call, and reads its result back where that says more.
func (e *Executor) make(ctx context.Context, op *api.Operation) (result api.OperationResult, seen *api.VolumeSeen, err error) {
	bounded, cancel := context.WithTimeout(ctx, op.Status.Deadline.Sub(op.Status.Assigned))
	defer cancel()
	if op.Kind == api.OperationNodeExpand && op.Request.NodeExpand != nil && e.volumes != nil {
		result, err = e.volumes.Expand(bounded, op)
		return result, nil, err
	}
	client, err := e.client(bounded, op)
	if err != nil {
		return result, nil, err
	}
	s, err := e.begin(bounded, op)
	if err != nil {
		return result, nil, err
	}
	defer e.end(s)
	result, err = call(bounded, client, op)
	return result, e.readBack(ctx, client, op, err), err
}

// client is the plugin's, with the secrets that the call takes.
func (e *Executor) client(ctx context.Context, op *api.Operation) (*csi.Client, error) {
	client, err := e.plugins.Controller(op.PluginID)
	if err != nil || !op.Status.Secrets {
		return client, err
	}
	secrets, err := e.secrets.Secrets(ctx, op.Namespace, op.VolumeID)
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "ask for the volume's secrets: %s", err)
	}
	return client.WithSecrets(secrets), nil
}

func call(ctx context.Context, client *csi.Client, op *api.Operation) (api.OperationResult, error) {
	var none api.OperationResult
	r := op.Request
	switch {
	case op.Kind == api.OperationCreate && r.Create != nil:
		return client.CreateVolume(ctx, *fit.Asked(r.Create))
	case op.Kind == api.OperationDelete && r.Delete != nil:
		return none, client.DeleteVolume(ctx, *r.Delete)
	case op.Kind == api.OperationPublish && r.Publish != nil:
		return client.ControllerPublish(ctx, *r.Publish)
	case op.Kind == api.OperationUnpublish && r.Unpublish != nil:
		return none, client.ControllerUnpublish(ctx, *r.Unpublish)
	case op.Kind == api.OperationSnapshot && r.Snapshot != nil:
		return client.CreateSnapshot(ctx, *r.Snapshot)
	case op.Kind == api.OperationDeleteSnapshot && r.DeleteSnapshot != nil:
		return none, client.DeleteSnapshot(ctx, *r.DeleteSnapshot)
	case op.Kind == api.OperationExpand && r.Expand != nil:
		return client.ControllerExpand(ctx, *r.Expand)
	case op.Kind == api.OperationModify && r.Modify != nil:
		return none, client.ControllerModify(ctx, *r.Modify)
	}
	return none, api.Errorf(api.CodeInvalid, "this agent does not know how to make the call of operation %s", op.ID)
}
