package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path"
	"slices"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

// server is the mock behind an interceptor.
type server struct {
	socket string
	grpc   *grpc.Server
	mounts mounts
	dieIn  string
	die    func()
	log    *slog.Logger

	disableStage bool
	secrets      secrets

	// turn is held for a whole call. The mock guards its maps with locks, but
	// answers with the maps themselves, which gRPC reads after the lock is
	// gone: two callers at once garble answers, or bring it down. Its calls take
	// microseconds, so nobody waits.
	turn   sync.Mutex
	faults faults // guarded by turn
	calls  calls  // guarded by turn
}

// newServer makes a server that records its calls on record. die must not
// return; it is called once, in the call that the options name.
func newServer(opts options, record io.Writer, die func(), log *slog.Logger) *server {
	s := &server{
		socket: opts.socket,
		dieIn:  opts.dieIn,

		disableStage: opts.disableStage,
		secrets:      maps.Clone(opts.secrets),

		die:    die,
		log:    log,
		faults: slices.Clone(opts.faults),
		calls:  newCalls(record),
	}
	if opts.realMounts {
		s.mounts = mounts{dir: opts.stateDir, fuse: opts.fuseMounts, apart: opts.fuseApart, log: log}
	}
	s.grpc = grpc.NewServer(grpc.UnaryInterceptor(s.intercept))
	mock := service.New(opts.driver)
	for i := range opts.moreVolumes {
		// It numbers what it makes, so this is what another mock makes next.
		if _, err := mock.CreateVolume(context.Background(), &csi.CreateVolumeRequest{
			Name: fmt.Sprintf("more %d", i+1), VolumeCapabilities: []*csi.VolumeCapability{{}},
		}); err != nil {
			log.Error("begin with more volumes", "err", err)
		}
	}
	csi.RegisterIdentityServer(s.grpc, mock)
	csi.RegisterControllerServer(s.grpc, mock)
	csi.RegisterNodeServer(s.grpc, mock)
	return s
}

// Run serves until ctx ends, and then until the calls under way are answered.
// The socket is gone afterwards; mounts stay, as those of any driver do.
func (s *server) Run(ctx context.Context) error {
	// A process that died leaves its socket behind.
	if err := removeSocket(s.socket); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", s.socket)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer context.AfterFunc(ctx, s.grpc.GracefulStop)()

	s.log.Info("serving", "path", s.socket, "state", s.mounts.dir)
	// Serve closes the listener, and waits for a graceful stop to end.
	if err := s.grpc.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve %s: %w", s.socket, err)
	}
	s.log.Info("served", "path", s.socket)
	return nil
}

// intercept is a grpc.UnaryServerInterceptor: it answers, records, and may die.
func (s *server) intercept(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	s.turn.Lock()
	defer s.turn.Unlock()

	method := path.Base(info.FullMethod)
	reply, answer := s.answer(ctx, method, req, handler)
	if err := s.calls.add(method, message(req), reply, answer); err != nil {
		// A record with a hole would prove nothing: the caller must not go on.
		return nil, status.Error(codes.Internal, err.Error())
	}
	if method == s.dieIn {
		s.log.Info("dying", "method", method)
		s.die()
	}
	return reply, answer
}

// answer has the mock do its work, unless a fault stands in for it. The reply
// is a copy that no later call can change.
func (s *server) answer(
	ctx context.Context, method string, req any, handler grpc.UnaryHandler,
) (proto.Message, error) {
	if code, ok := s.faults.next(method); ok {
		return nil, status.Error(code, "answered by -fault")
	}
	if err := s.secrets.check(req); err != nil {
		return nil, err
	}
	if err := s.mounts.before(req); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	reply, err := handler(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := s.mounts.after(req); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if r, ok := reply.(*csi.NodeGetCapabilitiesResponse); ok && s.disableStage {
		r.Capabilities = slices.DeleteFunc(r.Capabilities, func(c *csi.NodeServiceCapability) bool {
			return c.GetRpc().GetType() == csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME
		})
	}
	return proto.Clone(message(reply)), nil
}

// message is a generated message in today's protobuf interface: those of the
// specification that the mock is built on have the old one.
func message(m any) proto.Message {
	return protoadapt.MessageV2Of(m.(protoadapt.MessageV1))
}

// removeSocket removes a socket, and nothing else, from path.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("remove old socket: %s is no socket", path)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove old socket: %w", err)
	}
	return nil
}
