package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/frame"
	"github.com/berth-dev/berth/internal/server/carrier"
	"github.com/berth-dev/berth/internal/supervise"
)

// exec runs a command where a task runs, and carries what is said both ways.
func (h *Handler) exec(r *request) (any, error) {
	v, task := h.Log.View(), r.PathValue("task")
	a, err := findAllocation(v, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if err := hasTask(v, a, task); err != nil {
		return nil, err
	}
	if a.Terminal() {
		return nil, api.Errorf(api.CodeConflict, "allocation %s has ended: nothing of it runs", a.ID.Short())
	}
	if err := h.inContact(v, a.NodeID); err != nil {
		return nil, err
	}
	var req api.ExecRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	if err := req.Validate(); err != nil {
		return nil, err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), api.UpgradeFrames) {
		return nil, api.Errorf(api.CodeInvalid, "a command needs a connection that is upgraded: send the headers Connection: Upgrade and Upgrade: %s", api.UpgradeFrames)
	}
	asker, err := r.asker()
	if err != nil {
		return nil, err
	}
	h.out.Info("command asked for in a task", "alloc", a.ID.Short(), "task", task, "node", a.NodeID, "by", asker.By, "from", asker.From, "command", req.Command)
	s, err := h.Streams.Open(r.Context(), a.NodeID, api.StreamOffer{
		Kind: api.StreamExec, Exec: &api.ExecOffer{AllocID: a.ID, Task: task, Asker: asker, ExecRequest: req},
	})
	if err != nil {
		return nil, r.unlessGone(err)
	}
	defer s.Close()
	defer context.AfterFunc(r.Context(), s.Interrupt)()
	say, err := s.Talk()
	if err != nil {
		return nil, err
	}
	// Before the command runs, what is in its way is the answer.
	switch kind, _, err := s.Next(); {
	case err != nil:
		return nil, r.unlessGone(err)
	case kind != frame.Begin:
		return nil, api.Errorf(api.CodeInternal, "the agent begins a command with something else")
	}
	h.meetings.Add(1)
	defer h.meetings.Done()
	return nil, r.meet(s, say)
}

// meet carries what a person and an agent say. It returns when either has gone,
// and nothing of it goes on.
func (r *request) meet(s *carrier.Stream, say *frame.Writer) error {
	conn, buffered, err := http.NewResponseController(r.w).Hijack()
	if err != nil {
		return err
	}
	r.streamed, r.begun, r.status = true, true, http.StatusSwitchingProtocols
	// Read through the server's buffer, the end of what a person says would end
	// the request's context too.
	early, _ := buffered.Reader.Peek(buffered.Reader.Buffered()) // it is there
	from := io.MultiReader(bytes.NewReader(early), conn)
	p := &person{conn: conn, frames: frame.NewReader(from), out: frame.NewWriter(conn)}
	defer func() { _ = conn.Close() }() // nothing is lost
	_ = conn.SetDeadline(time.Time{})   // never fails
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+api.UpgradeFrames+"\r\n\r\n"); err != nil {
		return nil // who is gone need not be told
	}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		p.listen(s, say)
	}()
	p.answer(r.Context(), s)
	timer := time.NewTimer(2 * grace)
	defer timer.Stop()
	select {
	case <-heard:
	case <-timer.C: // the agent takes nothing any more
		s.Interrupt()
		<-heard
	}
	return nil
}

const (
	// silence is how long a person may say nothing. Their program sends a ping
	// every api.StreamPing.
	silence = 3 * api.StreamPing
	// grace is how long the last words of either side may take.
	grace = time.Second
)

// person is who runs a command.
type person struct {
	conn   net.Conn
	frames *frame.Reader
	out    *frame.Writer

	mu   sync.Mutex // guards below, and the deadline of reading
	over bool
}

// next is the next frame. When all is over, no more time is given.
func (p *person) next() (kind frame.Kind, payload []byte, over bool, err error) {
	p.mu.Lock()
	if !p.over {
		_ = p.conn.SetReadDeadline(time.Now().Add(silence)) // never fails
	}
	p.mu.Unlock()
	kind, payload, err = p.frames.Next()
	p.mu.Lock()
	defer p.mu.Unlock()
	return kind, payload, p.over, err
}

// listen hands on what the person says. Who goes without a word takes the
// command along.
func (p *person) listen(s *carrier.Stream, say *frame.Writer) {
	for {
		kind, payload, over, err := p.next()
		if err == nil && !over { // else nobody is left to hear it
			err = say.Put(kind, payload)
		}
		if err == nil {
			continue
		}
		if !over {
			s.Interrupt()
			_ = p.conn.SetWriteDeadline(time.Now().Add(grace)) // who is gone takes nothing
		}
		return
	}
}

// answer hands on what the agent says, and in the end why there is no more.
func (p *person) answer(ctx context.Context, s *carrier.Stream) {
	pinging, stop := context.WithCancel(ctx)
	var around sync.WaitGroup
	around.Go(func() {
		for supervise.Sleep(pinging, api.StreamPing) {
			_ = p.out.Ping() // who is gone is noticed elsewhere
		}
	})
	err := p.out.Put(frame.Begin, nil)
	for err == nil {
		var kind frame.Kind
		var payload []byte
		if kind, payload, err = s.Next(); err == nil {
			err = p.out.Put(kind, payload)
		}
	}
	stop()
	around.Wait()
	var last []byte
	switch {
	case errors.Is(err, io.EOF):
	case ctx.Err() != nil:
		last, _ = json.Marshal(api.Errorf(api.CodeUnavailable, "the server stops")) // it is an error of Berth
	default:
		last, _ = json.Marshal(toAPI(err)) // as above
	}
	p.finish()
	_ = p.out.Put(frame.End, last) // who is gone need not be told
}

// finish notes that the last word is being said: from now on, who goes is not
// missed.
func (p *person) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	_ = p.conn.SetReadDeadline(time.Now().Add(grace)) // never fails
}
