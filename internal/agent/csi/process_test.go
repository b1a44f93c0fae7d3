package csi_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
)

func TestSocket_MissingStaleOrTooLong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// Bound and never listened on: the same to who connects, and no child of
	// another test can hold it open.
	stale, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = syscall.Bind(stale, &syscall.SockaddrUnix{Name: dir + "/stale"})
	if err := errors.Join(err, syscall.Close(stale), os.WriteFile(dir+"/file", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, message := range map[string]string{
		dir + "/missing":                       "no such file or directory",
		dir + "/stale":                         "connection refused",
		dir + "/file":                          "connection refused",
		dir + "/" + strings.Repeat("long", 30): "the kernel takes 107",
	} {
		c := newClient(t, csi.SocketDialer(path), patient())
		_, err := c.Probe(t.Context())
		wantError(t, err, csi.Error{Method: "Probe", Code: csi.CodeUnavailable, Message: message, Unsent: true})
	}
}

func TestProcess_KilledInTheMiddleOfACallAndBack(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "csi.sock")
	kill, said := start(t, socket)
	c := newClient(t, csi.SocketDialer(socket), patient())
	if ready, err := c.Probe(t.Context()); err != nil || !ready {
		t.Fatalf("probe: %v, %v", ready, err)
	}
	said("Probe")

	done := make(chan error, 1)
	go func() { done <- c.DeleteVolume(t.Context(), api.DeleteRequest{ExternalID: "v"}) }()
	said("DeleteVolume")
	kill()
	wantError(t, <-done, csi.Error{Method: "DeleteVolume", Code: csi.CodeUnavailable})

	// The socket file is still there, and nobody behind it.
	_, err := c.Probe(t.Context())
	wantError(t, err, csi.Error{Method: "Probe", Code: csi.CodeUnavailable, Message: "connection refused", Unsent: true})

	_, said = start(t, socket)
	if ready, err := c.Probe(t.Context()); err != nil || !ready {
		t.Errorf("probe of the driver that came back: %v, %v", ready, err)
	}
	said("Probe")
}

// start runs a driver as a process of its own. said waits until it says the
// line.
func start(t *testing.T, socket string) (kill func(), said func(line string)) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CSI_TEST_SOCKET="+socket)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	lines := bufio.NewScanner(out)
	said = func(line string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != line {
			t.Fatalf("the driver said %q (%v), want %q", lines.Text(), lines.Err(), line)
		}
	}
	said("listening")
	return kill, said
}

// A driver process that is stopped still has its connections accepted, by the
// kernel.
func TestSilentDriver_IsUnavailableAfterTheConnectTimeout(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	c := newClient(t, csi.SocketDialer(lis.Addr().String()), csi.Config{ConnectTimeout: 50 * time.Millisecond})
	_, err = c.Probe(t.Context())
	wantError(t, err, csi.Error{Method: "Probe", Code: csi.CodeUnavailable, Message: "stayed silent", Unsent: true})
}

func TestSomethingElseOnTheSocket_IsUnavailable(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for conn, err := lis.Accept(); err == nil; conn, err = lis.Accept() {
			_, _ = conn.Write([]byte("220 smtp.example.org ESMTP\r\n"))
			_ = conn.Close()
		}
	}()
	c := newClient(t, csi.SocketDialer(lis.Addr().String()), patient())
	_, err = c.Probe(t.Context())
	wantError(t, err, csi.Error{Method: "Probe", Code: csi.CodeUnavailable, Message: "did not speak gRPC", Unsent: true})
	_ = lis.Close()
	<-done
}

// A driver that shuts down in order answers the calls that it has, while new
// ones go to its successor.
func TestGracefulStop_AnswersCallsInProgress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	release := make(chan struct{})
	var served atomic.Int32
	old := newServer(func(context.Context, string, []byte) ([]byte, error) {
		served.Add(1)
		<-release
		return nil, nil
	})
	lis, err := net.Listen("unix", dir+"/old")
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- old.Serve(lis) }()
	successor := listen(t, always(t, nil))
	var retired atomic.Bool
	c := newClient(t, func(ctx context.Context) (net.Conn, error) {
		if retired.Load() {
			return successor(ctx)
		}
		return csi.SocketDialer(dir + "/old")(ctx)
	}, patient())

	done := make(chan error, 1)
	go func() { done <- c.DeleteVolume(t.Context(), api.DeleteRequest{ExternalID: "v"}) }()
	eventually(t, "the call", func() bool { return served.Load() == 1 })
	retired.Store(true)
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		old.GracefulStop()
	}()
	eventually(t, "a call to the successor", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.Probe(ctx)
		return err == nil
	})
	close(release)
	if err := <-done; err != nil {
		t.Errorf("the call in progress: %v", err)
	}
	<-graceful
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
