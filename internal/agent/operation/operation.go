// Package operation makes the controller-plugin calls that are assigned to
// this node: one function for each kind of operation.
//
// It never decides that a call is made, repeated or given up. Invariant: one
// call in flight for each attempt, and each attempt is answered, with the
// plugin's code or with why it was not asked.
package operation

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
)

// Plugins finds the client of a controller plugin on this node.
type Plugins interface {
	Controller(id api.PluginID) (*csi.Client, error)
}

// Facts is where outcomes are said.
type Facts interface {
	AddOperation(f api.OperationFact)
}

// Executor makes calls. Its Run must be running while operations are assigned.
type Executor struct {
	plugins Plugins
	facts   Facts
	log     *slog.Logger

	mu      sync.Mutex // guards below
	wanted  map[attempt]*api.Operation
	known   map[attempt]bool // called, or being called
	changed chan struct{}    // capacity 1
}

// attempt names one attempt of one operation.
type attempt struct {
	id api.OperationID
	n  int
}

// New returns an executor. It starts nothing.
func New(plugins Plugins, facts Facts, log *slog.Logger) *Executor {
	return &Executor{
		plugins: plugins, facts: facts, log: log,
		wanted: map[attempt]*api.Operation{}, known: map[attempt]bool{}, changed: make(chan struct{}, 1),
	}
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
		if !e.known[a] {
			e.wanted[a] = op
		}
	}
	for a := range e.known {
		if !current[a] {
			delete(e.known, a)
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
		e.known[a] = true
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
	limit := op.Status.Deadline.Sub(op.Status.Assigned)
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	result, err := e.call(bounded, op)
	if ctx.Err() != nil {
		return
	}
	fact := api.OperationFact{
		ID: op.ID, Attempt: op.Status.Attempt,
		Code: csi.CodeOf(err), Duration: api.Duration(time.Since(began)), Result: result,
	}
	if err != nil {
		fact.Message = err.Error()
		var refused *csi.Error
		var notCalled *api.Error
		switch {
		case errors.As(err, &refused):
			fact.Message, fact.NotSent = refused.Message, refused.Unsent
		case errors.As(err, &notCalled):
			fact.Code, fact.NotSent = "UNAVAILABLE", true
		}
		e.log.Warn("operation failed", "operation", op.ID, "attempt", op.Status.Attempt, "code", fact.Code, "error", err)
	}
	e.facts.AddOperation(fact)
}

func (e *Executor) call(ctx context.Context, op *api.Operation) (api.OperationResult, error) {
	var none api.OperationResult
	client, err := e.plugins.Controller(op.PluginID)
	if err != nil {
		return none, err
	}
	r := op.Request
	switch {
	case op.Kind == api.OperationCreate && r.Create != nil:
		return client.CreateVolume(ctx, *r.Create)
	case op.Kind == api.OperationDelete && r.Delete != nil:
		return none, client.DeleteVolume(ctx, *r.Delete)
	case op.Kind == api.OperationPublish && r.Publish != nil:
		return client.ControllerPublish(ctx, *r.Publish)
	case op.Kind == api.OperationUnpublish && r.Unpublish != nil:
		return none, client.ControllerUnpublish(ctx, *r.Unpublish)
	}
	return none, api.Errorf(api.CodeInvalid, "this agent does not know how to make the call of operation %s", op.ID)
}
