// Package carrier is where readers and agents meet. A reader's request wants
// something from an agent, which only ever dials out: the want is offered with
// the agent's next assignments, without a word in the log, and the agent comes
// with a request whose body is what was wanted.
//
// It never decides who may read. Invariants: whoever wants a stream learns at
// once when no agent is there to serve it; memory is one frame for each stream,
// so a slow reader slows its agent and nobody else; when either side goes, so
// does the other.
package carrier

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/frame"
)

const (
	// PerNode bounds the streams of one node.
	PerNode = 32
	// pickup is how long an agent that is connected may take to dial.
	pickup = 10 * time.Second
	// grace is how long an agent may be without a poll: the time between two.
	grace = time.Second
	// repeat is when an offer is made again whose answer may have been lost.
	repeat = 2 * time.Second
	// silence is how long an agent may say nothing on a stream. It sends a ping
	// every api.StreamPing.
	silence = 3 * api.StreamPing
)

// Broker brings wants and agents together. It lives in one server's memory.
type Broker struct {
	mu     sync.Mutex // guards below, and nodes and streams before they are accepted
	nodes  map[api.NodeID]*node
	wanted map[api.StreamID]*Stream
}

// node is what is going on with one node.
type node struct {
	streams int
	polls   int
	wanted  []*Stream
	changed chan struct{} // closed and replaced when polls or wanted change
}

// New returns a broker. It starts nothing.
func New() *Broker {
	return &Broker{nodes: map[api.NodeID]*node{}, wanted: map[api.StreamID]*Stream{}}
}

// at is what goes on with a node; the caller holds mu.
func (b *Broker) at(id api.NodeID) *node {
	n := b.nodes[id]
	if n == nil {
		n = &node{changed: make(chan struct{})}
		b.nodes[id] = n
	}
	return n
}

// change lets everybody look again; the caller holds mu.
func (b *Broker) change(id api.NodeID, n *node) {
	close(n.changed)
	n.changed = make(chan struct{})
	if n.streams == 0 && n.polls == 0 {
		delete(b.nodes, id)
	}
}

// Polling notes that an agent waits for its assignments, until the function is
// called that it returns.
func (b *Broker) Polling(id api.NodeID) (done func()) {
	b.count(id, 1)
	return func() { b.count(id, -1) }
}

func (b *Broker) count(id api.NodeID, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.at(id)
	n.polls += by
	b.change(id, n)
}

// Offers takes the offers that are due to a node. If there is none, it says
// what to wait for: the channel, and the time if it is not zero.
func (b *Broker) Offers(id api.NodeID) (due []api.StreamOffer, changed <-chan struct{}, next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.at(id)
	now := time.Now()
	for _, s := range n.wanted {
		if now.Before(s.again) {
			if next.IsZero() || s.again.Before(next) {
				next = s.again
			}
			continue
		}
		s.again = now.Add(repeat)
		due = append(due, s.offer)
	}
	return due, n.changed, next
}

// Open wants a stream of a node's agent, and returns when that has dialed. The
// caller must close the stream.
func (b *Broker) Open(ctx context.Context, id api.NodeID, offer api.StreamOffer) (*Stream, error) {
	offer.ID = api.StreamID(rand.Text())
	s := &Stream{broker: b, node: id, offer: offer, accepted: make(chan struct{}), closed: make(chan struct{})}
	if err := b.want(s); err != nil {
		return nil, err
	}
	if err := b.await(ctx, s); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (b *Broker) want(s *Stream) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.at(s.node)
	if n.streams >= PerNode {
		return api.Errorf(api.CodeUnavailable, "node %s serves %d streams already, which is all that one node does at a time: end one, or try again", s.node, n.streams)
	}
	n.streams++
	n.wanted = append(n.wanted, s)
	b.wanted[s.offer.ID] = s
	b.change(s.node, n)
	return nil
}

// await returns when the agent has dialed, or when that is not to be expected.
func (b *Broker) await(ctx context.Context, s *Stream) error {
	limit := time.NewTimer(pickup)
	defer limit.Stop()
	alone := time.NewTimer(grace)
	defer alone.Stop()
	for {
		connected, changed := b.look(s.node)
		if connected {
			alone.Reset(grace)
		}
		select {
		case <-s.accepted:
			return nil
		case <-changed:
		case <-alone.C:
			if !connected {
				return api.Errorf(api.CodeUnavailable, "node %s is not connected: its agent does not poll", s.node)
			}
		case <-limit.C:
			return api.Errorf(api.CodeUnavailable, "the agent of node %s was asked, and did not answer within %s", s.node, pickup)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *Broker) look(id api.NodeID) (connected bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.at(id)
	return n.polls > 0, n.changed
}

// Conn is an agent's request.
type Conn interface {
	io.Reader
	SetReadDeadline(t time.Time) error
	// Answer begins the answer to the request, while that goes on. It is for
	// streams that go both ways.
	Answer() (io.Writer, error)
	// SetWriteDeadline is the answer's.
	SetWriteDeadline(t time.Time) error
}

// Accept hands an agent's request to whoever wanted that stream, and returns
// when the stream is closed.
func (b *Broker) Accept(id api.NodeID, stream api.StreamID, conn Conn) error {
	s := b.accept(id, stream, conn)
	if s == nil {
		return api.Errorf(api.CodeNotFound, "nobody waits for this stream of node %s any more", id)
	}
	<-s.closed
	return nil
}

func (b *Broker) accept(id api.NodeID, stream api.StreamID, conn Conn) *Stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.wanted[stream]
	if s == nil || s.node != id {
		return nil
	}
	b.unwant(s)
	s.conn, s.frames = conn, frame.NewReader(conn)
	close(s.accepted)
	return s
}

// unwant takes back the offer; the caller holds mu.
func (b *Broker) unwant(s *Stream) {
	delete(b.wanted, s.offer.ID)
	n := b.at(s.node)
	for i, other := range n.wanted {
		if other == s {
			n.wanted = append(n.wanted[:i:i], n.wanted[i+1:]...)
			break
		}
	}
}

func (b *Broker) leave(s *Stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unwant(s)
	n := b.at(s.node)
	n.streams--
	b.change(s.node, n)
}

// Streams counts the streams that are wanted or flow.
func (b *Broker) Streams() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := 0
	for _, n := range b.nodes {
		all += n.streams
	}
	return all
}

// Stream is what an agent sends. It has one reader.
type Stream struct {
	broker   *Broker
	node     api.NodeID
	offer    api.StreamOffer
	again    time.Time // when to offer it again
	accepted chan struct{}
	closed   chan struct{}
	once     sync.Once

	conn   Conn
	frames *frame.Reader

	mu          sync.Mutex // guards below, and the deadline
	interrupted bool
	finished    bool // the agent has said its last word
	over        bool
}

// Next is the next frame but pings. An agent that is gone, or was silent for
// too long, is an api.CodeUnavailable. The agent's own end is io.EOF, or the
// error that it gave.
func (s *Stream) Next() (frame.Kind, []byte, error) {
	for {
		if err := s.extend(); err != nil {
			return 0, nil, s.broken(err)
		}
		kind, payload, err := s.frames.Next()
		switch {
		case err != nil:
			return 0, nil, s.broken(err)
		case kind == frame.Ping:
		case kind == frame.End:
			return 0, nil, s.ended(payload)
		default:
			return kind, payload, nil
		}
	}
}

// ended is what the agent said in the end.
func (s *Stream) ended(payload []byte) error {
	s.mu.Lock()
	s.finished = true
	s.mu.Unlock()
	if len(payload) == 0 {
		return io.EOF
	}
	var e api.Error
	if err := json.Unmarshal(payload, &e); err != nil || e.Code == "" {
		return api.Errorf(api.CodeInternal, "the agent ended the stream with what is no error of Berth")
	}
	return &e
}

func (s *Stream) broken(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var slow interface{ Timeout() bool }
	switch {
	case s.interrupted:
		return context.Canceled
	case errors.As(err, &slow) && slow.Timeout():
		return api.Errorf(api.CodeUnavailable, "the agent of node %s went silent in the middle of the stream", s.node)
	}
	return api.Errorf(api.CodeUnavailable, "the agent of node %s went away in the middle of the stream", s.node)
}

// Talk begins what is said to the agent, on a stream that goes both ways. Nobody
// may write any more when the stream is closed.
func (s *Stream) Talk() (*frame.Writer, error) {
	to, err := s.conn.Answer()
	if err != nil {
		return nil, api.Errorf(api.CodeUnavailable, "the agent of node %s cannot be talked to: %v", s.node, err)
	}
	return frame.NewWriter(to), nil
}

// extend gives the agent more time.
func (s *Stream) extend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interrupted {
		return context.Canceled
	}
	return s.conn.SetReadDeadline(time.Now().Add(silence))
}

// Interrupt ends Next, now and for good, and what is being said to the agent.
func (s *Stream) Interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.interrupted = true
		s.deadline(time.Unix(1, 0))
		_ = s.conn.SetWriteDeadline(time.Unix(1, 0)) // as below
	}
}

// deadline bounds reading; the caller holds mu. What has no deadlines is closed
// with the request.
func (s *Stream) deadline(t time.Time) { _ = s.conn.SetReadDeadline(t) }

// Close ends the stream on the agent's side. Next must not be running.
func (s *Stream) Close() {
	s.once.Do(func() {
		s.broker.leave(s)
		s.mu.Lock()
		s.over = true
		switch {
		case s.conn == nil: // the agent has not come
		case s.finished:
			// What is left of the request is its end, and the connection is good.
			s.deadline(time.Now().Add(grace))
		default:
			s.deadline(time.Unix(1, 0))
		}
		s.mu.Unlock()
		close(s.closed)
	})
}

// Agents counts the nodes whose agents poll.
func (b *Broker) Agents() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := 0
	for _, n := range b.nodes {
		if n.polls > 0 {
			all++
		}
	}
	return all
}
