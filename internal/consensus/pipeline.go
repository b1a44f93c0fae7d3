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
func (p *proposer) run(ctx context.Context, barrier func() error, ready chan<- struct{}) error {
	for first := true; ctx.Err() == nil; {
		if err := barrier(); err != nil {
			p.log.Warn("barrier failed", "error", err)
			supervise.Sleep(ctx, retryBarrier)
			continue
		}
		o := p.begin()
		if first {
			close(ready)
			first = false
		}
		p.serve(ctx, o)
	}
	return nil
}

// sentDraft is an entry that raft has.
type sentDraft struct {
	*draft
	future raft.ApplyFuture
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
			sent <- sentDraft{d, p.submit(d)}
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

func (p *proposer) submit(d *draft) raft.ApplyFuture {
	plans := make([]command.Encoded, len(d.plans))
	for i, it := range d.plans {
		plans[i] = it.encoded
	}
	entry, err := command.EncodeEntry(d.id, d.after, d.time, plans)
	if err != nil {
		return failedFuture{err}
	}
	p.Entries.Add(1)
	p.Bytes.Add(int64(len(entry)))
	return p.append(entry)
}

// collect waits for each entry in turn and answers its plans. At the first
// error the overlay is dropped; the entries behind are void or lost, and each
// gets its own answer.
func (p *proposer) collect(o *overlay, sent <-chan sentDraft) {
	failed := false
	for s := range sent {
		err := s.future.Error()
		if err == nil {
			err, _ = s.future.Response().(error)
		}
		if err != nil && !failed {
			failed = true
			p.log.Warn("entry was not committed", "entry", s.id.Sequence, "error", err)
			p.drop(o)
		}
		p.mu.Lock()
		o.finished(p.store, !failed)
		p.mu.Unlock()
		if err != nil {
			s.answer(0, outcome(err))
			continue
		}
		s.answer(s.future.Index(), nil)
	}
}

// outcome tells who proposed whether the plan can still come true.
func outcome(err error) error {
	switch {
	case errors.Is(err, command.ErrVoid), errors.Is(err, raft.ErrNotLeader),
		errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return api.Errorf(api.CodeUnavailable, "nothing was written: %v", err)
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown),
		errors.Is(err, raft.ErrAbortedByRestore):
		return api.Errorf(api.CodeUncertain, "it is not known whether this was written: %v", err)
	}
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return api.Errorf(api.CodeInternal, "the entry failed: %v", err)
}

// failedFuture is an entry that never got to raft.
type failedFuture struct{ err error }

func (f failedFuture) Error() error  { return f.err }
func (f failedFuture) Response() any { return nil }
func (f failedFuture) Index() uint64 { return 0 }
