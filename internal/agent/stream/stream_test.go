package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/stream"
	"github.com/berth-dev/berth/internal/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// servers take what is dialed: take reads a body, and all of it if it is nil.
type servers struct {
	take func(ctx context.Context, body io.Reader) error

	mu    sync.Mutex // guards below
	dials []string
	said  []string
	ended int
}

func (s *servers) Stream(ctx context.Context, session string, _ uint64, id api.StreamID, body io.ReadWriter) error {
	s.mu.Lock()
	s.dials = append(s.dials, session+"/"+string(id))
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended++
	}()
	if s.take != nil {
		return s.take(ctx, body)
	}
	// A request is cut when its context ends.
	read := make(chan error, 1)
	go func() { read <- s.readAll(body) }()
	select {
	case err := <-read:
		return err
	case <-ctx.Done():
		_ = body.(io.Closer).Close()
		return errors.Join(ctx.Err(), <-read)
	}
}

func (s *servers) readAll(body io.Reader) error {
	r := frame.NewReader(body)
	for {
		kind, payload, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		s.mu.Lock()
		s.said = append(s.said, []string{"ping", "begin", "data", "end"}[kind]+" "+string(payload))
		s.mu.Unlock()
	}
}

func (s *servers) all() (dials, said []string, ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials, s.said, s.ended
}

// run runs a carrier with one handler until stop is called.
func run(t *testing.T, s *servers, h stream.Handler) (c *stream.Carrier, stop func()) {
	t.Helper()
	c = stream.New(s, map[api.StreamKind]stream.Handler{api.StreamLogs: h}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func(c *stream.Carrier) { ended <- c.Run(ctx) }(c)
	return c, sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func offer(ids ...api.StreamID) []api.StreamOffer {
	var all []api.StreamOffer
	for _, id := range ids {
		all = append(all, api.StreamOffer{ID: id, Kind: api.StreamLogs})
	}
	return all
}

// waits is a handler that serves until nobody reads any more.
func waits(ctx context.Context, _ api.StreamOffer, _ *frame.Writer) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestEnds(t *testing.T) {
	t.Parallel()
	encoded := func(e *api.Error) string {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		return "end " + string(b)
	}
	for name, tc := range map[string]struct {
		kind   api.StreamKind
		answer error
		want   string
	}{
		"Done":        {api.StreamLogs, nil, "end "},
		"Refused":     {api.StreamLogs, api.Errorf(api.CodeNotFound, "no such task"), encoded(api.Errorf(api.CodeNotFound, "no such task"))},
		"Failed":      {api.StreamLogs, errors.New("the disk has a hole"), encoded(api.Errorf(api.CodeInternal, "the agent cannot go on: the disk has a hole"))},
		"UnknownKind": {"video", nil, encoded(api.Errorf(api.CodeInvalid, "this agent knows no streams of video: upgrade it"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &servers{}
				c, stop := run(t, s, func(context.Context, api.StreamOffer, *frame.Writer) error { return tc.answer })
				defer stop()
				c.Offer(nil, "session", 1, []api.StreamOffer{{ID: "a", Kind: tc.kind}})
				synctest.Wait()
				dials, said, ended := s.all()
				if diff := cmp.Diff([]any{[]string{"session/a"}, []string{tc.want}, 1}, []any{dials, said, ended}); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestServedOnce: an offer is repeated when the servers do not know that it was
// taken. Afterwards it could be a new one.
func TestServedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		c, stop := run(t, s, waits)
		defer stop()
		for range 3 {
			c.Offer(nil, "session", 1, offer("a", "b"))
			synctest.Wait()
		}
		if dials, _, _ := s.all(); len(dials) != 2 {
			t.Errorf("dialed %v", dials)
		}
	})
}

// TestBounded: a node serves no more than it can, whatever is wanted, and
// taking offers never waits.
func TestBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		c, stop := run(t, s, waits)
		defer stop()
		for i := range 1000 {
			c.Offer(nil, "session", 1, offer(api.StreamID(rune('a'+i))))
		}
		synctest.Wait()
		if dials, _, _ := s.all(); len(dials) != 64 {
			t.Errorf("%d streams are served", len(dials))
		}
	})
}

// TestReaderGoes: the handler ends when the servers want no more.
func TestReaderGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		took := make(chan time.Duration, 1)
		began := time.Now()
		s := &servers{take: func(context.Context, io.Reader) error {
			time.Sleep(time.Minute)
			return nil
		}}
		c, stop := run(t, s, func(ctx context.Context, o api.StreamOffer, out *frame.Writer) error {
			defer func() { took <- time.Since(began) }()
			return waits(ctx, o, out)
		})
		defer stop()
		c.Offer(nil, "session", 1, offer("a"))
		if d := <-took; d != time.Minute {
			t.Errorf("the handler ended after %s", d)
		}
	})
}

// TestSlowReader: a handler writes no faster than the servers read, and nothing
// is cut because that takes long.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		s.take = func(_ context.Context, body io.Reader) error {
			time.Sleep(time.Hour)
			return s.readAll(body)
		}
		c, stop := run(t, s, func(_ context.Context, _ api.StreamOffer, out *frame.Writer) error {
			return out.Put(frame.Data, []byte("a"))
		})
		defer stop()
		c.Offer(nil, "session", 1, offer("a"))
		time.Sleep(2 * time.Hour)
		_, said, ended := s.all()
		if len(said) < 2 || said[len(said)-1] != "end " || ended != 1 {
			t.Errorf("said %q", said)
		}
	})
}

// TestEndsWithItsSession: the servers of another session do not know it.
func TestEndsWithItsSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		c, stop := run(t, s, waits)
		defer stop()
		over := make(chan struct{})
		c.Offer(over, "session", 1, offer("a"))
		time.Sleep(time.Hour)
		if _, said, ended := s.all(); ended > 0 || len(said) != 359 && len(said) != 360 {
			t.Errorf("within an hour %d pings, and %d streams ended", len(said), ended)
		}
		close(over)
		synctest.Wait()
		if _, said, ended := s.all(); ended != 1 || said[len(said)-1] != `end {"code":"unavailable","message":"the agent stops","retry":true}` {
			t.Errorf("%d streams ended, the last word is %q", ended, said[len(said)-1])
		}
	})
}

// TestStops: an agent that stops says so, and does not wait for who does not
// read.
func TestStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		c, stop := run(t, s, waits)
		c.Offer(nil, "session", 1, offer("a"))
		synctest.Wait()
		stop()
		if _, said, _ := s.all(); len(said) != 1 || said[0] != `end {"code":"unavailable","message":"the agent stops","retry":true}` {
			t.Errorf("said %q", said)
		}
		deaf := &servers{take: func(ctx context.Context, _ io.Reader) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		c, stop = run(t, deaf, waits)
		c.Offer(nil, "session", 1, offer("a"))
		synctest.Wait()
		began := time.Now()
		stop()
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("stopping took %s", took)
		}
	})
}

// TestLastWordWhileTheServersSpeak: what a visitor types while its command ends
// cut the stream, and how the command had ended was lost.
func TestLastWordWhileTheServersSpeak(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &servers{}
		s.take = func(_ context.Context, body io.Reader) error {
			time.Sleep(time.Second)
			if _, err := body.(io.Writer).Write([]byte("typed too late")); err != nil {
				return err
			}
			return s.readAll(body)
		}
		c := stream.New(s, nil, slog.New(slog.DiscardHandler))
		c.Both(api.StreamExec, func(_ context.Context, _ api.StreamOffer, in *io.PipeReader, _ *frame.Writer) error {
			return in.CloseWithError(io.ErrClosedPipe)
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		c.Offer(nil, "session", 1, []api.StreamOffer{{ID: "a", Kind: api.StreamExec}})
		time.Sleep(time.Minute)
		if _, said, _ := s.all(); len(said) != 1 || said[0] != "end " {
			t.Errorf("said %q", said)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
