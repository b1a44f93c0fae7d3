package carrier_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/frame"
	"github.com/berth-dev/berth/internal/server/carrier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opened is what Open answered.
type opened struct {
	stream *carrier.Stream
	err    error
	took   time.Duration
}

func open(ctx context.Context, b *carrier.Broker, node api.NodeID) <-chan opened {
	got := make(chan opened, 1)
	began := time.Now()
	go func() {
		s, err := b.Open(ctx, node, api.StreamOffer{Kind: api.StreamLogs})
		got <- opened{s, err, time.Since(began)}
	}()
	return got
}

// dial plays the agent: it takes one offer and comes with a connection, whose
// near end it returns. What Accept answers is in the channel.
func dial(t *testing.T, b *carrier.Broker, node api.NodeID) (net.Conn, <-chan error) {
	t.Helper()
	synctest.Wait()
	due, _, _ := b.Offers(node)
	if len(due) != 1 {
		t.Fatalf("%d offers, want one", len(due))
	}
	near, far := net.Pipe()
	t.Cleanup(func() { _ = near.Close() })
	accepted := make(chan error, 1)
	go func() { accepted <- b.Accept(node, due[0].ID, oneWay{far}) }()
	return near, accepted
}

func put(t *testing.T, conn net.Conn, kind frame.Kind, payload string) {
	t.Helper()
	go func() {
		if err := frame.NewWriter(conn).Put(kind, []byte(payload)); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	}()
}

// begin is a stream of node n1 that flows.
func begin(t *testing.T, b *carrier.Broker) (*carrier.Stream, net.Conn, <-chan error) {
	t.Helper()
	defer b.Polling("n1")()
	got := open(t.Context(), b, "n1")
	conn, accepted := dial(t, b, "n1")
	o := <-got
	if o.err != nil {
		t.Fatal(o.err)
	}
	return o.stream, conn, accepted
}

func TestFrames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := carrier.New()
		s, conn, accepted := begin(t, b)
		go func() {
			w := frame.NewWriter(conn)
			for _, err := range []error{w.Put(frame.Begin, nil), w.Put(frame.Ping, nil), w.Put(frame.Data, []byte("a")), w.Put(frame.End, nil)} {
				if err != nil {
					t.Error(err)
				}
			}
		}()
		for _, want := range []frame.Kind{frame.Begin, frame.Data} {
			if kind, _, err := s.Next(); err != nil || kind != want {
				t.Fatalf("got kind %d (%v), want %d", kind, err, want)
			}
		}
		if _, _, err := s.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("the end is %v", err)
		}
		s.Close()
		if err := <-accepted; err != nil {
			t.Errorf("the agent was answered %v", err)
		}
		if n := b.Streams(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// TestNoAgent: that nobody is there is said at once; that somebody does not
// come, as soon as it can be known.
func TestNoAgent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		polls bool
		want  string
		after time.Duration
	}{
		"NotConnected": {false, "node n1 is not connected: its agent does not poll", time.Second},
		"DoesNotDial":  {true, "the agent of node n1 was asked, and did not answer within 10s", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := carrier.New()
				if tc.polls {
					defer b.Polling("n1")()
				}
				o := <-open(t.Context(), b, "n1")
				if api.CodeOf(o.err) != api.CodeUnavailable || o.err.Error() != tc.want || o.took != tc.after {
					t.Errorf("after %s: %v", o.took, o.err)
				}
				if due, _, _ := b.Offers("n1"); len(due) > 0 || b.Streams() > 0 {
					t.Errorf("%v is still offered", due)
				}
			})
		})
	}
}

// TestBetweenTwoPolls an agent is there all the same.
func TestBetweenTwoPolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := carrier.New()
		got := open(t.Context(), b, "n1")
		time.Sleep(900 * time.Millisecond)
		done := b.Polling("n1")
		time.Sleep(2 * time.Second)
		done()
		time.Sleep(900 * time.Millisecond)
		defer b.Polling("n1")()
		_, _ = dial(t, b, "n1")
		o := <-got
		if o.err != nil {
			t.Fatal(o.err)
		}
		o.stream.Close()
	})
}

// TestOffersAreRepeated: an answer that carried one may have been lost.
func TestOffersAreRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := carrier.New()
		defer b.Polling("n1")()
		_, changed, _ := b.Offers("n1")
		ctx, cancel := context.WithCancel(t.Context())
		got := open(ctx, b, "n1")
		<-changed
		first, _, _ := b.Offers("n1")
		none, _, next := b.Offers("n1")
		if len(first) != 1 || len(none) != 0 || time.Until(next) != 2*time.Second {
			t.Fatalf("offered %v, then %v, the next time in %s", first, none, time.Until(next))
		}
		time.Sleep(2 * time.Second)
		again, _, _ := b.Offers("n1")
		if len(again) != 1 || again[0].ID != first[0].ID {
			t.Errorf("offered again: %v", again)
		}
		other, _, _ := b.Offers("n2")
		if len(other) > 0 {
			t.Errorf("another node is offered %v", other)
		}
		cancel()
		if o := <-got; !errors.Is(o.err, context.Canceled) {
			t.Errorf("got %v", o.err)
		}
		if err := b.Accept("n1", first[0].ID, nil); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("a stream that nobody wants any more was taken: %v", err)
		}
	})
}

// TestOfAnotherNode: a node cannot answer for another.
func TestOfAnotherNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := carrier.New()
		defer b.Polling("n1")()
		ctx, cancel := context.WithCancel(t.Context())
		got := open(ctx, b, "n1")
		synctest.Wait()
		due, _, _ := b.Offers("n1")
		if err := b.Accept("n2", due[0].ID, nil); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("got %v", err)
		}
		cancel()
		<-got
	})
}

// TestLimit: one node serves so many streams, and others are not concerned.
func TestLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := carrier.New()
		defer b.Polling("n1")()
		ctx, cancel := context.WithCancel(t.Context())
		var all []<-chan opened
		for range carrier.PerNode {
			all = append(all, open(ctx, b, "n1"))
		}
		synctest.Wait()
		if o := <-open(ctx, b, "n1"); api.CodeOf(o.err) != api.CodeUnavailable || o.took != 0 {
			t.Errorf("one too many: %v after %s", o.err, o.took)
		}
		if o := <-open(ctx, b, "n2"); o.err == nil || o.err.Error() != "node n2 is not connected: its agent does not poll" {
			t.Errorf("of another node: %v", o.err)
		}
		cancel()
		for _, got := range all {
			<-got
		}
		if n := b.Streams(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

// TestAgentGoes: its end, its error, its death and its silence are told apart.
func TestAgentGoes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		do   func(t *testing.T, conn net.Conn)
		code api.Code
		want string
	}{
		"Error": {func(t *testing.T, conn net.Conn) {
			t.Helper()
			put(t, conn, frame.End, `{"code":"not_found","message":"it is gone"}`)
		}, api.CodeNotFound, "it is gone"},
		"Nonsense": {func(t *testing.T, conn net.Conn) { t.Helper(); put(t, conn, frame.End, `{}`) }, api.CodeInternal, "the agent ended the stream with what is no error of Berth"},
		"Death":    {func(_ *testing.T, conn net.Conn) { _ = conn.Close() }, api.CodeUnavailable, "the agent of node n1 went away in the middle of the stream"},
		"Silence":  {func(*testing.T, net.Conn) {}, api.CodeUnavailable, "the agent of node n1 went silent in the middle of the stream"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, conn, accepted := begin(t, carrier.New())
				tc.do(t, conn)
				_, _, err := s.Next()
				if api.CodeOf(err) != tc.code || err.Error() != tc.want {
					t.Errorf("got %v", err)
				}
				s.Close()
				if err := <-accepted; err != nil {
					t.Errorf("the agent was answered %v", err)
				}
			})
		})
	}
}

// TestPingsKeepAQuietStream for as long as its agent lives.
func TestPingsKeepAQuietStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, conn, accepted := begin(t, carrier.New())
		go func() {
			for range 30 {
				time.Sleep(api.StreamPing)
				if err := frame.NewWriter(conn).Put(frame.Ping, nil); err != nil {
					t.Error(err)
				}
			}
			put(t, conn, frame.Data, "late")
		}()
		if _, payload, err := s.Next(); err != nil || string(payload) != "late" {
			t.Errorf("got %q (%v)", payload, err)
		}
		s.Close()
		if err := <-accepted; err != nil {
			t.Errorf("the agent was answered %v", err)
		}
	})
}

// TestReaderGoes: a quiet stream ends with its reader, at once.
func TestReaderGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, accepted := begin(t, carrier.New())
		began := time.Now()
		time.AfterFunc(time.Second, s.Interrupt)
		if _, _, err := s.Next(); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, _, err := s.Next(); !errors.Is(err, context.Canceled) {
			t.Errorf("and again %v", err)
		}
		s.Close()
		if err := <-accepted; err != nil || time.Since(began) != time.Second {
			t.Errorf("the agent was answered %v after %s", err, time.Since(began))
		}
	})
}

// oneWay is an agent that nobody answers.
type oneWay struct{ net.Conn }

func (oneWay) Answer() (io.Writer, error) { return io.Discard, nil }
