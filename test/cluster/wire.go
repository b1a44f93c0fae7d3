package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
)

// wire is a listener in memory. Connections are net.Pipes, whose deadlines are
// those of a socket: net/http relies on them between two requests.
type wire struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newWire() *wire {
	return &wire{conns: make(chan net.Conn), closed: make(chan struct{})}
}

var errRefused = errors.New("connection refused")

// Accept implements net.Listener.
func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

// Addr implements net.Listener.
func (*wire) Addr() net.Addr { return wireAddr{} }

type wireAddr struct{}

func (wireAddr) Network() string { return "memory" }
func (wireAddr) String() string  { return "server" }

// dial connects, or is refused if nobody listens any more.
func (w *wire) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case w.conns <- far:
		return near, nil
	case <-w.closed:
		return nil, &net.OpError{Op: "dial", Err: errRefused}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
	}
}
