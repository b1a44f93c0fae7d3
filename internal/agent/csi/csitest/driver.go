package csitest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
)

// Role is which services a driver serves.
type Role int

// The roles. A monolith serves both.
const (
	Monolith Role = iota
	ControllerOnly
	NodeOnly
)

// Node is a node and the driver on it.
type Node struct {
	// ID is the provider's name for the node.
	ID         string
	Role       Role
	MaxVolumes int64
	Topology   map[string]string
	// Mounter mounts; nil says OK without a mount.
	Mounter Mounter
}

// Driver is the CSI driver of one node: a process that can be started, killed
// and started again by Serve. What it did outlives it, in the backend.
type Driver struct {
	backend  *Backend
	config   Node
	starting atomic.Bool

	mu     sync.Mutex
	listen *bufconn.Listener
}

// Node is a driver for the node. A second one for the same node is another
// process on the same machine.
func (b *Backend) Node(n Node) *Driver {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n.Role != ControllerOnly {
		known := b.nodes[n.ID]
		if known == nil {
			known = &node{paths: make(map[string]*thing)}
			b.nodes[n.ID] = known
		}
		known.topology, known.maxVolumes = maps.Clone(n.Topology), n.MaxVolumes
	}
	return &Driver{backend: b, config: n}
}

// SetStarting makes Probe answer that the driver is not ready yet.
func (d *Driver) SetStarting(starting bool) { d.starting.Store(starting) }

// Serve answers on the listener until ctx ends, and closes it. Calls and
// connections that are open then are cut, as if the process was killed.
func (d *Driver) Serve(ctx context.Context, lis net.Listener) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(d.intercept), grpc.WaitForHandlers(true),
		grpc.ReadBufferSize(8<<10))
	csi.RegisterIdentityServer(server, identityServer{driver: d})
	if d.config.Role != NodeOnly && !d.backend.options.NoController {
		csi.RegisterControllerServer(server, controllerServer{driver: d})
	}
	if d.config.Role != ControllerOnly {
		csi.RegisterNodeServer(server, nodeServer{driver: d})
	}
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		server.Stop()
	}()
	err := server.Serve(listener{lis})
	asked := ctx.Err() != nil
	cancel()
	<-stopped
	if asked || errors.Is(err, grpc.ErrServerStopped) {
		return nil //nolint:nilerr // it was to end
	}
	return fmt.Errorf("serve driver: %w", err)
}

// Listen opens the driver's end of a connection in memory; Dialer is the other
// one. Whoever dials before Serve waits for it.
func (d *Driver) Listen() net.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listen = bufconn.Listen(8 << 10)
	return d.listen
}

// Dialer connects to what Listen opened last. If that is closed, or nothing was
// opened yet, the connection is refused. It fits csi.Dialer.
func (d *Driver) Dialer() func(ctx context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		d.mu.Lock()
		lis := d.listen
		d.mu.Unlock()
		if lis == nil {
			return nil, syscall.ECONNREFUSED
		}
		conn, err := lis.DialContext(ctx)
		if err != nil && ctx.Err() == nil {
			return nil, syscall.ECONNREFUSED
		}
		return conn, err
	}
}

// Start serves the driver in memory until stop is called or the test has ended.
// To stop it is to kill it; Start it again, and its Dialer reaches it again.
func (d *Driver) Start(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	lis := d.Listen()
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, lis) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// intercept is the way of every call: recorded, admitted, judged, struck by
// faults, carried out.
func (d *Driver) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	message, ok := request.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "the request is a %T", request)
	}
	b := d.backend
	c := b.begin(ctx, d, path.Base(info.FullMethod), message)
	if err := b.enter(c); err != nil {
		b.settle(c, err)
		return nil, err
	}
	if hasEffect(c.Method) {
		defer b.leave(c)
	}
	b.judge(c)
	response, err := d.perform(c, next)
	b.settle(c, err)
	return response, err
}

func (d *Driver) perform(c *call, next grpc.UnaryHandler) (any, error) {
	fault := d.backend.fault(c)
	answered, err := fault.strike(c.ctx, false)
	switch {
	case err != nil:
		if c.Method == "DeleteVolume" && status.Code(err) == codes.NotFound {
			d.backend.deceive(c)
		}
		return nil, err
	case answered:
		return d.backend.untrue(c)
	}
	response, err := next(c.ctx, c.message)
	if err != nil {
		return nil, err
	}
	if _, err := fault.strike(c.ctx, true); err != nil {
		if c.Method == "CreateVolume" && refuses(status.Code(err)) {
			d.backend.deceive(c)
		}
		return nil, err
	}
	return response, nil
}

func codeName(err error) string { return code.Code_name[int32(status.Code(err))] } //nolint:gosec // codes are below 17

// listener hands out connections that can be found again from a call.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tracked{Conn: conn}, nil
}

// tracked is a connection whose remote address is itself: the address is what
// gRPC shows to a call.
type tracked struct{ net.Conn }

func (t *tracked) RemoteAddr() net.Addr { return t }
func (t *tracked) Network() string      { return t.Conn.RemoteAddr().Network() }
func (t *tracked) String() string       { return t.Conn.RemoteAddr().String() }

// connection tells connections apart.
func connection(ctx context.Context) net.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr
	}
	return nil
}

// cut closes the connection that a call came on.
func cut(ctx context.Context) {
	if t, ok := connection(ctx).(*tracked); ok {
		_ = t.Close()
	}
}
