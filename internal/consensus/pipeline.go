package consensus

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/supervise"
)

// retryBarrier is how long to wait after a barrier failed on a leader.
const retryBarrier = 100 * time.Millisecond

// run proposes while this server leads: ctx is the leadership. After any error
// of raft the overlay is dropped, a barrier shows what came true, and planning
// starts again from there. ready is closed when plans are taken for the first
// time.
func (p *proposer) run(ctx context.Context, ready chan<- struct{}) error {
	for first := true; ctx.Err() == nil; {
		term := p.raft.term()
		err := p.raft.barrier()
		if err == nil && p.raft.term() != term {
			err = errTerm
		}
		if err != nil {
			p.log.Warn("barrier failed", "error", err)
			supervise.Sleep(ctx, retryBarrier)
			continue
		}
		o := p.begin(term)
		if first {
			close(ready)
			first = false
		}
		p.serve(ctx, o)
	}
	return nil
}

// errTerm: the leadership in which the overlay was made has ended. This server
// may lead again already, and others have written in between.
var errTerm = errors.New("leadership has changed")

// sentDraft is a draft that raft has; wait answers what came of it.
type sentDraft struct {
	*draft
	wait  func() (index uint64, err error)
	began time.Time
}

// serve sends drafts and answers them until ctx ends or the overlay is
// dropped. Everything that was sent has been answered when it returns.
func (p *proposer) serve(ctx context.Context, o *overlay) {
	sent := make(chan sentDraft, maxInFlight)
	var g errgroup.Group
	g.Go(func() error {
		defer close(sent)
		defer p.drop(o)
		p.send(ctx, o, sent)
		return nil
	})
	g.Go(func() error {
		p.collect(o, sent)
		return nil
	})
	_ = g.Wait() // neither returns an error
}

// send hands drafts to raft in their order. One goroutine does: raft keeps the
// order in which it is called.
func (p *proposer) send(ctx context.Context, o *overlay, sent chan<- sentDraft) {
	for {
		p.mu.Lock()
		d := o.next()
		p.mu.Unlock()
		if d != nil {
			began := time.Now()
			sent <- sentDraft{d, p.submit(o, d), began}
			continue
		}
		select {
		case <-o.flush:
		case <-o.over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// submit hands a draft to raft.
func (p *proposer) submit(o *overlay, d *draft) func() (uint64, error) {
	if len(d.plans) == 0 {
		return p.confirm(o)
	}
	encoded, plans := make([]command.Encoded, len(d.plans)), make([]command.Plan, len(d.plans))
	for i, it := range d.plans {
		encoded[i], plans[i] = it.encoded, it.plan
	}
	entry, err := command.EncodeEntry(d.id, d.after, d.time, encoded)
	if err != nil {
		return func() (uint64, error) { return 0, failed(err) }
	}
	p.Entries.Add(1)
	p.Bytes.Add(int64(len(entry)))
	p.sent.add(entry, &command.Entry{ID: d.id, After: d.after, Time: d.time, Plans: plans, Bytes: len(entry)})
	future := p.raft.append(entry)
	return func() (uint64, error) {
		defer p.sent.remove(entry)
		if err := future.Error(); err != nil {
			return 0, lost(err)
		}
		if err, ok := future.Response().(error); ok {
			return 0, failed(err)
		}
		return future.Index(), nil
	}
}

// confirm asks whether this server has led without a break since the overlay
// was made, so that the overlay is the state of the cluster.
func (p *proposer) confirm(o *overlay) func() (uint64, error) {
	future := p.raft.verify()
	return func() (uint64, error) {
		err := future.Error()
		if err == nil && p.raft.term() != o.term {
			err = errTerm
		}
		if err != nil {
			return 0, api.Errorf(api.CodeUnavailable, "nothing was written: %v", err)
		}
		return p.store.View().Index(), nil
	}
}

// collect waits for each draft in turn and answers who waits for it. At the
// first error the overlay is dropped; the entries behind are void or lost, and
// each gets its own answer.
func (p *proposer) collect(o *overlay, sent <-chan sentDraft) {
	sound := true
	for s := range sent {
		index, err := s.wait()
		if err != nil && sound {
			sound = false
			p.log.Warn("entry was not committed", "entry", s.id.Sequence, "error", err)
			p.drop(o)
		}
		if err == nil && len(s.plans) > 0 {
			p.commits.Observe(time.Since(s.began))
			p.batches.Observe(len(s.plans))
		}
		p.mu.Lock()
		o.finished(p.store, sound)
		p.mu.Unlock()
		s.answer(index, err)
	}
}

// lost tells who proposed whether an entry that raft did not commit can still
// come true. Where raft had it, it can: even an entry that the log store
// failed to write may be found there after a restart.
func lost(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress),
		errors.Is(err, raft.ErrEnqueueTimeout):
		return api.Errorf(api.CodeUnavailable, "nothing was written: %v", err)
	}
	return api.Errorf(api.CodeUncertain, "it is not known whether this was written: %v", err)
}

// failed tells who proposed why an entry has changed nothing, on any server.
func failed(err error) error {
	if errors.Is(err, command.ErrVoid) {
		return api.Errorf(api.CodeUnavailable, "nothing was written: %v", err)
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	return errFault()
}
