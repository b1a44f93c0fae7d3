// Package stream takes up the streams that servers want from this node. An
// agent only ever dials out: for each stream it makes one request, whose body
// is what was wanted.
//
// It never decides what is worth sending; handlers of the kinds do. Invariants:
// a stream is served once, however often it is offered; it ends with its
// reader, with the session in which it was offered, and with Run.
package stream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/frame"
	"github.com/berth-dev/berth/internal/supervise"
)

// Servers is the API as streams use it. It returns when the servers have read
// the body, which is what is read from both, or want no more of it. What they
// say meanwhile is written to it.
type Servers interface {
	Stream(ctx context.Context, session string, epoch uint64, id api.StreamID, both io.ReadWriter) error
}

// both is the two directions of a stream.
type both struct {
	io.ReadCloser
	io.Writer
}

// heard takes what the servers say to the end of the stream, also when nobody
// listens any more: an error would cut the stream, and its last word with it.
type heard struct{ to *io.PipeWriter }

func (h heard) Write(p []byte) (int, error) {
	_, _ = h.to.Write(p) // nobody listens any more
	return len(p), nil
}

// Handler serves one stream. What it answers becomes the stream's end. ctx ends
// when nobody reads any more.
type Handler func(ctx context.Context, offer api.StreamOffer, out *frame.Writer) error

// Exchange serves a stream that goes both ways, as a Handler does. in is closed
// when it returns.
type Exchange func(ctx context.Context, offer api.StreamOffer, in *io.PipeReader, out *frame.Writer) error

const (
	// maxStreams bounds what this node serves, whatever servers want.
	maxStreams = 64
	// farewell is how long the last frame of a stream may take.
	farewell = 2 * time.Second
)

// Carrier serves streams. Its Run must be running while they are offered.
type Carrier struct {
	servers  Servers
	handlers map[api.StreamKind]Handler
	// exchanges are for streams that go both ways.
	exchanges map[api.StreamKind]Exchange
	log       *slog.Logger

	offers chan offered
	mu     sync.Mutex // guards serving
	// serving are the streams that are being served.
	serving map[api.StreamID]bool
}

// offered is an offer, and what it came with.
type offered struct {
	api.StreamOffer
	session string
	epoch   uint64
	over    <-chan struct{} // the session has ended
}

// New returns a carrier. It starts nothing.
func New(servers Servers, handlers map[api.StreamKind]Handler, log *slog.Logger) *Carrier {
	return &Carrier{servers: servers, handlers: handlers, exchanges: map[api.StreamKind]Exchange{}, log: log, offers: make(chan offered, maxStreams), serving: map[api.StreamID]bool{}}
}

// Both has streams of a kind served that go both ways. It is called before Run.
func (c *Carrier) Both(kind api.StreamKind, x Exchange) { c.exchanges[kind] = x }

// Offer takes what servers want in a session, until over is closed. It never
// waits: what is too much is offered again.
func (c *Carrier) Offer(over <-chan struct{}, session string, epoch uint64, offers []api.StreamOffer) {
	for _, o := range offers {
		if !c.begin(o.ID) {
			continue
		}
		select {
		case c.offers <- offered{o, session, epoch, over}:
		default:
			c.end(o.ID)
		}
	}
}

func (c *Carrier) begin(id api.StreamID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving[id] || len(c.serving) >= maxStreams {
		return false
	}
	c.serving[id] = true
	return true
}

func (c *Carrier) end(id api.StreamID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.serving, id)
}

// Serving is how many streams are being served.
func (c *Carrier) Serving() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.serving)
}

// Run serves what is offered until ctx ends.
func (c *Carrier) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case o := <-c.offers:
			running.Go(func() {
				defer c.end(o.ID)
				c.serve(ctx, o)
			})
		case <-ctx.Done():
			return nil
		}
	}
}

// errGone is what a handler gets that writes to nobody.
var errGone = errors.New("nobody reads the stream any more")

// serve dials, lets the kind's handler write, and says how it ended.
func (c *Carrier) serve(ctx context.Context, o offered) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dialing, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	body, pipe := io.Pipe()
	out := frame.NewWriter(pipe)
	in, said := io.Pipe()
	directions := both{body, io.Discard}
	if c.exchanges[o.Kind] != nil {
		directions.Writer = heard{said}
	}
	gone := make(chan struct{})
	var around sync.WaitGroup
	around.Go(func() {
		err := c.servers.Stream(dialing, o.session, o.epoch, o.ID, directions)
		_ = said.CloseWithError(errGone) // nor does this
		_ = body.CloseWithError(errGone) // never fails
		c.log.Debug("stream ended", "stream", o.Kind, "error", err)
		cancel()
		close(gone)
	})
	around.Go(func() {
		select {
		case <-o.over:
			cancel()
		case <-ctx.Done():
		}
		timer := time.NewTimer(farewell)
		defer timer.Stop()
		select {
		case <-timer.C:
			hangUp()
		case <-gone:
		}
	})
	around.Go(func() {
		for supervise.Sleep(ctx, api.StreamPing) {
			if out.Ping() != nil {
				return
			}
		}
	})
	err := c.handle(ctx, o.StreamOffer, in, out)
	_ = in.CloseWithError(errGone)         // nobody listens to what is said any more
	_ = out.Put(frame.End, last(ctx, err)) // the reader is gone: nobody is left to tell
	_ = pipe.Close()                       // never fails
	around.Wait()
}

func (c *Carrier) handle(ctx context.Context, offer api.StreamOffer, in *io.PipeReader, out *frame.Writer) error {
	if x := c.exchanges[offer.Kind]; x != nil {
		return x(ctx, offer, in, out)
	}
	h := c.handlers[offer.Kind]
	if h == nil {
		return api.Errorf(api.CodeInvalid, "this agent knows no streams of %s: upgrade it", offer.Kind)
	}
	return h(ctx, offer, out)
}

// last is the payload of a stream's last frame.
func last(ctx context.Context, err error) []byte {
	var e *api.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
	case ctx.Err() != nil:
		e = api.Errorf(api.CodeUnavailable, "the agent stops")
	default:
		e = api.Errorf(api.CodeInternal, "the agent cannot go on: %v", err)
	}
	b, err := json.Marshal(e)
	if err != nil || len(b) > frame.Max {
		return []byte(`{"code":"internal","message":"the agent cannot go on"}`)
	}
	return b
}
