package csi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/internal/agent/csi"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv("CSI_TEST_SOCKET"); socket != "" {
		os.Exit(driverProcess(socket))
	}
	goleak.VerifyTestMain(m)
}

// driverProcess is a driver that says on stdout what it is called, answers
// Probe, and nothing else.
func driverProcess(socket string) int {
	_ = os.Remove(socket)
	lis, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	server := newServer(func(ctx context.Context, method string, _ []byte) ([]byte, error) {
		fmt.Println(method)
		if method != "Probe" {
			<-ctx.Done()
		}
		return nil, ctx.Err()
	})
	fmt.Println("listening")
	if err := server.Serve(lis); err != nil {
		return 1
	}
	return 0
}

// answer is a driver: the method's name and the request's bytes in, the
// answer's bytes or an error out.
type answer func(ctx context.Context, method string, request []byte) ([]byte, error)

func newServer(answer answer) *grpc.Server {
	handle := func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		var request []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		response, err := answer(stream.Context(), path.Base(method), request)
		if err != nil {
			return err
		}
		return stream.SendMsg(response)
	}
	return grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(handle),
		grpc.WaitForHandlers(true))
}

// rawCodec passes bytes through, so that a driver can answer anything at all.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// serve is a client of a driver in memory.
func serve(t testing.TB, answer answer) *csi.Client {
	t.Helper()
	return newClient(t, listen(t, answer), patient())
}

// listen serves in memory until the test has ended.
func listen(t testing.TB, answer answer) csi.Dialer {
	t.Helper()
	lis := bufconn.Listen(64 << 10)
	server := newServer(answer)
	done := make(chan error, 1)
	go func() { done <- server.Serve(lis) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return func(ctx context.Context) (net.Conn, error) { return lis.DialContext(ctx) }
}

// patient is for tests of anything but time: the machine may be busy.
func patient() csi.Config { return csi.Config{ConnectTimeout: time.Minute} }

func newClient(t testing.TB, dial csi.Dialer, config csi.Config) *csi.Client {
	t.Helper()
	c := csi.New(dial, config, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// always answers every call with one message.
func always(t testing.TB, m proto.Message) answer {
	t.Helper()
	bytes, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return func(context.Context, string, []byte) ([]byte, error) { return bytes, nil }
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(10 * time.Second)
	defer end.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("%s did not come about", what)
		}
	}
}
