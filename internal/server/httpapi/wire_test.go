package httpapi_test

import (
	"context"
	"net"
	"sync"
)

// wire is a network of one listener in memory. bufconn would do but for its
// deadlines: one that was cleared may still fire, and net/http then takes the
// caller for gone.
type wire struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	mu     sync.Mutex // guards made
	made   []net.Conn
}

func newWire() *wire { return &wire{conns: make(chan net.Conn), closed: make(chan struct{})} }

// Dial connects to whoever accepts.
func (w *wire) Dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	w.mu.Lock()
	w.made = append(w.made, here)
	w.mu.Unlock()
	select {
	case w.conns <- there:
		return here, nil
	case <-w.closed:
		return nil, &net.OpError{Op: "dial", Net: "wire", Err: net.ErrClosed}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cut breaks all connections.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.made {
		_ = c.Close()
	}
	w.made = nil
}

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
func (*wire) Addr() net.Addr { return &net.UnixAddr{Name: "wire", Net: "unix"} }
