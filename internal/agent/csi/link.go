package csi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// Dialer connects to a driver.
type Dialer func(ctx context.Context) (net.Conn, error)

// SocketDialer connects to the unix socket at path.
func SocketDialer(path string) Dialer {
	// sun_path of sockaddr_un, with its final zero byte (unix(7)).
	const most = 107
	return func(ctx context.Context) (net.Conn, error) {
		if len(path) > most {
			return nil, fmt.Errorf("connect to %s: the path has %d bytes, and the kernel takes %d", path, len(path), most)
		}
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
}

var (
	errClosed = errors.New("the client is closed")
	errSpent  = errors.New("the connection to the driver is lost")
)

// link holds at most one connection in use. gRPC would reconnect by itself, in
// the background and with a backoff of its own; here a connection that broke
// stays broken, and the next call makes a new one. So a driver that comes back
// is reached at once, one that is away costs nothing, and a call that could
// not connect says why.
type link struct {
	dial       Dialer
	timeout    time.Duration
	maxMessage int

	mu      sync.Mutex
	current *session
	// leaving are the retired sessions that still have calls.
	leaving map[*session]bool
	attempt *attempt
	closed  bool
	idle    chan struct{} // nil, or closed when the last of leaving has gone
}

// session is one connection, and how many calls are on it.
type session struct {
	conn  *grpc.ClientConn
	calls int
}

// attempt is a connection being made. The call that needs it first makes it,
// within its own time; the others wait for its outcome.
type attempt struct {
	done chan struct{}
	err  error
	// abandoned: the call that made it ended, which says nothing of the driver.
	abandoned bool
}

// acquire is a live session, which must be released.
func (l *link) acquire(ctx context.Context) (*session, error) {
	for {
		s, a, mine, err := l.join()
		switch {
		case s != nil || err != nil:
			return s, err
		case mine:
			return l.connect(ctx, a)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a connection to the driver: %w", ctx.Err())
		case <-a.done:
			if a.err != nil && !a.abandoned {
				return nil, a.err
			}
		}
	}
}

// join is the session in use, or else the attempt to make one, mine if the
// caller is to make it.
func (l *link) join() (s *session, a *attempt, mine bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, nil, false, errClosed
	}
	if s := l.current; s != nil && s.conn.GetState() == connectivity.Ready {
		s.calls++
		return s, nil, false, nil
	}
	l.retire()
	if l.attempt == nil {
		l.attempt, mine = &attempt{done: make(chan struct{})}, true
	}
	return nil, l.attempt, mine, nil
}

// connect makes the attempt a.
func (l *link) connect(ctx context.Context, a *attempt) (*session, error) {
	conn, err := l.open(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(a.done)
	l.attempt = nil
	if err == nil && l.closed {
		err = errors.Join(errClosed, conn.Close())
	}
	if err != nil {
		a.err, a.abandoned = err, ctx.Err() != nil
		return nil, err
	}
	l.current = &session{conn: conn, calls: 1}
	return l.current, nil
}

func (l *link) open(ctx context.Context) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	raw, err := l.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to the driver: %w", err)
	}
	once := make(chan net.Conn, 1)
	once <- raw
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(l.maxMessage)),
		grpc.WithIdleTimeout(0),
		// Messages are small, and simulations have thousands of clients.
		grpc.WithReadBufferSize(8<<10),
		grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case raw := <-once:
				return raw, nil
			default:
				return nil, errSpent
			}
		}))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the driver: %w", err), raw.Close())
	}
	if err := handshake(ctx, conn); err != nil {
		_, _ = conn.Close(), raw.Close()
		return nil, err
	}
	return conn, nil
}

// handshake waits until the driver has answered in HTTP/2. The kernel accepts
// connections to a socket whose process is stopped.
func handshake(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return errors.New("connect to the driver: it took the connection and did not speak gRPC")
		case connectivity.Idle, connectivity.Connecting:
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("connect to the driver: it took the connection and stayed silent: %w", ctx.Err())
		}
	}
}

// release ends a call's use of a session.
func (l *link) release(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.calls--
	if l.leaving[s] && s.calls == 0 {
		delete(l.leaving, s)
		_ = s.conn.Close()
		if len(l.leaving) == 0 && l.idle != nil {
			close(l.idle)
			l.idle = nil
		}
	}
}

// retire lets the calls on the current session end, and has no new ones; the
// last one that leaves closes it. A driver that shuts down in order still
// answers them.
func (l *link) retire() {
	s := l.current
	if s == nil {
		return
	}
	l.current = nil
	if s.calls == 0 {
		_ = s.conn.Close()
		return
	}
	l.leaving[s] = true
}

// distrust retires a session on which a call found the driver away. gRPC takes
// a moment longer to see that the connection is lost, and the next call must
// not find it.
func (l *link) distrust(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == s {
		l.retire()
	}
}

// drain takes no more calls and waits for those in progress.
func (l *link) drain(ctx context.Context) {
	l.mu.Lock()
	l.closed = true
	l.retire()
	idle := make(chan struct{})
	if len(l.leaving) == 0 {
		close(idle)
	} else {
		l.idle = idle
	}
	l.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// close ends the calls in progress, too.
func (l *link) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.retire()
	var err error
	for s := range l.leaving {
		err = errors.Join(err, s.conn.Close())
	}
	clear(l.leaving)
	return err
}

func (l *link) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
