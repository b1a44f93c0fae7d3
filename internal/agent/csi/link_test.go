package csi_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
)

// wantError compares but for the message, of which a part is enough.
func wantError(t *testing.T, err error, want csi.Error) {
	t.Helper()
	var got *csi.Error
	if !errors.As(err, &got) {
		t.Fatalf("error = %v, want an *Error", err)
	}
	if !strings.Contains(got.Message, want.Message) {
		t.Errorf("message = %q, want it to have %q", got.Message, want.Message)
	}
	want.Message = got.Message
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestDriver_RestartsBetweenCalls(t *testing.T) {
	t.Parallel()
	d := csitest.NewBackend(csitest.Options{}).Node(csitest.Node{ID: "n1"})
	c := newClient(t, d.Dialer(), patient())
	for range 20 {
		stop := d.Start(t)
		if _, err := c.Info(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop()
		_, err := c.Info(t.Context())
		if code := csi.CodeOf(err); code != csi.CodeUnavailable {
			t.Fatalf("while it is away: %s", code)
		}
	}
}

func TestConnect_TakesASecondAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		c := newClient(t, func(ctx context.Context) (net.Conn, error) {
			tries.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}, csi.Config{})
		start := time.Now()
		// Ten calls at once share one try.
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				_, err := c.Probe(t.Context())
				wantError(t, err, csi.Error{Method: "Probe", Code: csi.CodeUnavailable, Unsent: true})
			})
		}
		calls.Wait()
		if took := time.Since(start); took != time.Second || tries.Load() != 1 {
			t.Errorf("took %s in %d tries, want one try of a second", took, tries.Load())
		}
	})
}

func TestConnect_CallerThatGivesUpDoesNotFailTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int32
		dial := listen(t, always(t, nil))
		c := newClient(t, func(ctx context.Context) (net.Conn, error) {
			if tries.Add(1) == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dial(ctx)
		}, csi.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		first := make(chan error, 1)
		go func() {
			_, err := c.Probe(ctx)
			first <- err
		}()
		synctest.Wait()
		_, err := c.Probe(t.Context())
		if err != nil || tries.Load() != 2 {
			t.Errorf("the other call: %v after %d tries, want success after 2", err, tries.Load())
		}
		wantError(t, <-first, csi.Error{Method: "Probe", Code: csi.CodeDeadlineExceeded, Unsent: true})
	})
}

func TestConnect_WaitingCallerObeysItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, csi.Config{ConnectTimeout: time.Hour})
		go func() { _, _ = c.Probe(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Probe(ctx)
		wantError(t, err, csi.Error{Method: "Probe", Code: csi.CodeDeadlineExceeded, Unsent: true})
	})
}

func TestConnection_IsUsedAgain(t *testing.T) {
	t.Parallel()
	var dials atomic.Int32
	dial := listen(t, always(t, nil))
	c := newClient(t, func(ctx context.Context) (net.Conn, error) {
		dials.Add(1)
		return dial(ctx)
	}, patient())
	told := c.WithCapabilities(nil, nil)
	for range 10 {
		_, err := c.Probe(t.Context())
		_, err2 := told.Probe(t.Context())
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestDeadline_IsTheCallersOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		err := c.DeleteVolume(ctx, api.DeleteRequest{ExternalID: "v"})
		wantError(t, err, csi.Error{Method: "DeleteVolume", Code: csi.CodeDeadlineExceeded})
		if took := time.Since(start); took != 24*time.Hour {
			t.Errorf("took %s, want a day", took)
		}

		ctx, cancel = context.WithCancel(t.Context())
		go cancel()
		err = c.DeleteVolume(ctx, api.DeleteRequest{ExternalID: "v"})
		if code := csi.CodeOf(err); code != csi.CodeCancelled {
			t.Errorf("code = %s, want CANCELLED", code)
		}
	})
}

func TestClose_EndsCallsAndRefusesMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		done := make(chan error, 1)
		go func() { done <- c.DeleteVolume(t.Context(), api.DeleteRequest{ExternalID: "v"}) }()
		synctest.Wait()
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		wantError(t, <-done, csi.Error{Method: "DeleteVolume", Code: csi.CodeUnavailable, Message: "the client is closed"})
		_, err := c.Probe(t.Context())
		wantError(t, err, csi.Error{Method: "Probe", Code: csi.CodeUnavailable, Message: "the client is closed", Unsent: true})
	})
}

// Calls on a connection that has been replaced end, too.
func TestClose_EndsCallsOnAnOldConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := serve(t, func(ctx context.Context, method string, _ []byte) ([]byte, error) {
			if method == "DeleteVolume" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, status.Error(codes.Unavailable, "not now")
		})
		done := make(chan error, 1)
		go func() { done <- c.DeleteVolume(t.Context(), api.DeleteRequest{ExternalID: "v"}) }()
		synctest.Wait()
		_, err := c.Probe(t.Context())
		wantError(t, err, csi.Error{Method: "Probe", Code: csi.CodeUnavailable, Message: "not now"})
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wantError(t, <-done, csi.Error{Method: "DeleteVolume", Code: csi.CodeUnavailable, Message: "the client is closed"})
	})
}

func TestClose_WhileConnecting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dial := listen(t, always(t, nil))
		connect := make(chan struct{})
		c := newClient(t, func(ctx context.Context) (net.Conn, error) {
			<-connect
			return dial(ctx)
		}, csi.Config{})
		done := make(chan error, 1)
		go func() {
			_, err := c.Probe(t.Context())
			done <- err
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		close(connect)
		wantError(t, <-done, csi.Error{Method: "Probe", Code: csi.CodeUnavailable, Message: "the client is closed", Unsent: true})
	})
}

func BenchmarkCall(b *testing.B) {
	for name, dial := range map[string]func(b *testing.B) csi.Dialer{
		"Memory": func(b *testing.B) csi.Dialer { return listen(b, always(b, nil)) },
		"Socket": func(b *testing.B) csi.Dialer {
			lis, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
			if err != nil {
				b.Fatal(err)
			}
			server := newServer(always(b, nil))
			go func() { _ = server.Serve(lis) }()
			b.Cleanup(server.Stop)
			return csi.SocketDialer(lis.Addr().String())
		},
	} {
		b.Run(name, func(b *testing.B) {
			c := newClient(b, dial(b), csi.Config{})
			for b.Loop() {
				if err := c.DeleteVolume(b.Context(), api.DeleteRequest{ExternalID: "v"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
