package localdriver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
)

// lockName is the file whose lock says that a driver has the root.
const lockName = "lock"

// grace is how long calls that run may take to end when the driver stops.
// After it they are cancelled, and are finished by their repetition.
const grace = 10 * time.Second

// Driver is one local driver.
type Driver struct {
	cfg   Config
	tools filesystem.Tools
	log   *slog.Logger
	// passed is told of every step that lies behind. It does nothing but in
	// tests, which end the process there.
	passed func(step)
}

// New returns a driver, or every problem of its config at once.
func New(cfg Config, log *slog.Logger) (*Driver, error) {
	if cfg.Name == "" {
		cfg.Name = DefaultName
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Driver{cfg: cfg, tools: filesystem.SystemTools(), log: log, passed: func(step) {}}, nil
}

// Run serves until ctx is cancelled, and returns when every call has ended. It
// can be run again afterwards.
func (d *Driver) Run(ctx context.Context) error {
	if err := os.MkdirAll(d.cfg.Root, 0o700); err != nil {
		return fmt.Errorf("make root: %w", err)
	}
	unlock, err := lock(filepath.Join(d.cfg.Root, lockName))
	if err != nil {
		return fmt.Errorf("lock root %s: %w", d.cfg.Root, err)
	}
	defer unlock()
	vols, err := openVolumes(d.cfg.Root, d.cfg.NodeID, d.tools, d.log, d.passed)
	if err != nil {
		return err
	}
	if err := errors.Join(vols.thawAll(), vols.forgetBoot()); err != nil {
		return err
	}
	listener, err := listen(ctx, socketPath(d.cfg.Endpoint))
	if err != nil {
		return err
	}
	d.log.Info("local driver serves", "name", d.cfg.Name, "root", d.cfg.Root, "endpoint", d.cfg.Endpoint, "node", d.cfg.NodeID)

	// Deleting a large tree takes its time, and so does a copy. Both must not
	// keep the others waiting: what is half done is settled next to the calls,
	// and copies outlive theirs, each volume under its own lock.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var beside sync.WaitGroup
	beside.Go(func() { vols.settle(ctx) })
	beside.Go(func() { vols.copies.run(ctx) })
	err = d.serve(ctx, listener, vols)
	cancel()
	beside.Wait()
	return err
}

// serve answers calls until ctx is cancelled.
func (d *Driver) serve(ctx context.Context, listener net.Listener, vols *volumes) error {
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnaryInterceptor(d.intercept))
	csi.RegisterIdentityServer(server, &identity{name: d.cfg.Name, version: d.cfg.Version})
	csi.RegisterControllerServer(server, &controller{volumes: vols})
	csi.RegisterNodeServer(server, &node{volumes: vols, most: d.cfg.MaxVolumes})

	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		server.Stop() // waits for the calls that still run
		return fmt.Errorf("serve %s: %w", d.cfg.Endpoint, err)
	case <-ctx.Done():
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		server.GracefulStop()
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		server.Stop()
		<-stopped
	}
	if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve %s: %w", d.cfg.Endpoint, err)
	}
	return nil
}

// intercept gives every error a code, and logs how a call went. Requests are
// not logged: they may hold secrets.
func (d *Driver) intercept(ctx context.Context, r any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	start := time.Now()
	response, err := handle(ctx, r)
	if err == nil {
		d.log.Debug("call answered", "method", info.FullMethod, "duration", time.Since(start))
		return response, nil
	}
	st, coded := status.FromError(err)
	switch {
	case coded:
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		st = status.New(status.FromContextError(err).Code(), err.Error())
	default:
		st = status.New(codes.Internal, err.Error())
	}
	level := slog.LevelDebug
	if st.Code() == codes.Internal {
		level = slog.LevelError
	}
	d.log.Log(ctx, level, "call failed", "method", info.FullMethod, "duration", time.Since(start), "code", st.Code().String(), "error", err)
	return nil, st.Err()
}

// lock takes a file for this process. The kernel gives it back when the
// process ends, however it ends.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		_ = f.Close()
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.New("another driver is running on it")
	}
	if err != nil {
		return nil, err
	}
	return func() {
		// Closing alone would not do it while a child that is being started
		// still has a copy of the descriptor.
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		_ = f.Close()
	}, nil
}
