package visit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/visit"
	"github.com/berth-dev/berth/internal/frame"
)

// command is one that does what a test wants: it reads and writes at the far
// ends of its pipes, and ends when it is told to.
type command struct {
	visit.Command
	stdin, stdout, stderr net.Conn

	exit chan api.ExecExit
	// heedless: SIGHUP does not end it.
	heedless bool

	mu    sync.Mutex // guards below
	heard []string
	sizes []api.TerminalSize
	kills int
}

func newCommand(input bool) *command {
	c := &command{exit: make(chan api.ExecExit, 8)}
	c.stdout, c.Output = pipe()
	c.stderr, c.Errors = pipe()
	if input {
		c.stdin, c.Input = pipe()
	}
	c.Resize = func(size api.TerminalSize) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sizes = append(c.sizes, size)
		return nil
	}
	c.Signal = func(name string) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.heard = append(c.heard, name)
		if name == "SIGHUP" && !c.heedless {
			c.end(api.ExecExit{Signal: 1})
		}
		return nil
	}
	c.Kill = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.kills++
		c.end(api.ExecExit{Signal: 9})
	}
	c.Wait = func(context.Context) (api.ExecExit, error) { return <-c.exit, nil }
	return c
}

func pipe() (far, near net.Conn) { return net.Pipe() }

func (c *command) end(how api.ExecExit) {
	select {
	case c.exit <- how:
	default:
	}
}

// leave closes what a command that has ended holds open.
func (c *command) leave() {
	_ = c.stdout.Close()
	_ = c.stderr.Close()
}

func (c *command) signals() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.heard, " ")
}

// person is at the far end of a connection.
type person struct {
	conn net.Conn
	in   *frame.Reader
	out  *frame.Writer
	end  chan error
}

// serve has a command served to a person.
func serve(ctx context.Context, c *command) *person {
	far, near := net.Pipe()
	p := &person{conn: far, in: frame.NewReader(far), out: frame.NewWriter(far), end: make(chan error, 1)}
	go func() {
		p.end <- visit.Serve(ctx, visit.Conn{
			In: frame.NewReader(near), Out: frame.NewWriter(near),
			Close: func() { _ = near.SetReadDeadline(time.Unix(1, 0)) }, Drop: func() { _ = near.SetWriteDeadline(time.Unix(1, 0)) },
		}, c.Command)
		_ = near.Close()
	}()
	return p
}

// reads takes the frames that come, until one of that kind.
func (p *person) reads(t *testing.T, until frame.Kind) (all map[frame.Kind][]byte) {
	t.Helper()
	all = map[frame.Kind][]byte{}
	for {
		kind, payload, err := p.in.Next()
		if err != nil {
			t.Fatalf("a frame of kind %d was waited for: %v", until, err)
		}
		all[kind] = append(all[kind], payload...)
		if kind == until {
			return all
		}
	}
}

func (p *person) says(t *testing.T, kind frame.Kind, payload string) {
	t.Helper()
	if err := p.out.Put(kind, []byte(payload)); err != nil {
		t.Fatal(err)
	}
}

// TestServe: what is said reaches the command, and what it writes its visitor,
// to the end.
func TestServe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCommand(true)
		p := serve(t.Context(), c)
		p.reads(t, frame.Begin)
		p.says(t, frame.Ping, "")
		p.says(t, frame.Resize, `{"rows":3,"columns":4}`)
		p.says(t, frame.Signal, "SIGINT")
		p.says(t, frame.Input, "hello")
		p.says(t, frame.InputEnd, "")
		go func() {
			got, _ := io.ReadAll(c.stdin) // it ends
			_, _ = c.stdout.Write(bytes.ToUpper(got))
			_, _ = c.stderr.Write([]byte("oops"))
			c.leave()
			c.end(api.ExecExit{Code: 7})
		}()
		all := p.reads(t, frame.Exit)
		if string(all[frame.Data]) != "HELLO" || string(all[frame.Errors]) != "oops" || string(all[frame.Taken]) != "\x00\x00\x00\x05" {
			t.Errorf("it said %q", all)
		}
		var exit api.ExecExit
		if err := json.Unmarshal(all[frame.Exit], &exit); err != nil || exit.Code != 7 {
			t.Errorf("it ended with %+v (%v)", exit, err)
		}
		if err := <-p.end; err != nil {
			t.Error(err)
		}
		if c.signals() != "SIGINT" || len(c.sizes) != 1 || c.sizes[0] != (api.TerminalSize{Rows: 3, Columns: 4}) || c.kills == 0 {
			t.Errorf("it heard %s, %+v, and its session was ended %d times", c.signals(), c.sizes, c.kills)
		}
	})
}

// TestWhoGoesTakesTheCommandAlong: with the connection, after a long silence, and
// with the task; one that does not heed it is killed.
func TestWhoGoesTakesTheCommandAlong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		going    func(p *person, cancel context.CancelFunc)
		heedless bool
		after    time.Duration
	}{
		"HangsUp":     {going: func(p *person, _ context.CancelFunc) { _ = p.conn.Close() }},
		"SaysGoodbye": {going: func(p *person, _ context.CancelFunc) { _ = p.out.Put(frame.End, nil) }},
		"IsSilent":    {going: func(*person, context.CancelFunc) {}, after: 3 * api.StreamPing},
		"IsTold":      {going: func(_ *person, cancel context.CancelFunc) { cancel() }},
		"Stays":       {going: func(p *person, _ context.CancelFunc) { _ = p.conn.Close() }, heedless: true, after: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := newCommand(false)
				c.heedless = test.heedless
				p := serve(ctx, c)
				p.reads(t, frame.Begin)
				synctest.Wait()
				began := time.Now()
				test.going(p, cancel)
				if err := <-p.end; err == nil {
					t.Error("nobody is told")
				}
				// Its pipes stay open: what is left in them is waited for, no longer.
				if took := time.Since(began) - test.after; took < 0 || took > 3*time.Second {
					t.Errorf("it took %s and %s more", test.after, took)
				}
				if c.signals() != "SIGHUP" || c.kills == 0 {
					t.Errorf("it heard %s, and was killed %d times", c.signals(), c.kills)
				}
				_ = p.conn.Close()
			})
		})
	}
}

// TestWhatCannotBeKilled is given up: it waits in the kernel, and neither the end
// of its task nor a check that runs it may wait with it.
func TestWhatCannotBeKilled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := newCommand(false)
		kills := 0
		c.Signal = func(string) error { return nil }
		c.Kill = func() { kills++ }
		c.Wait = func(ctx context.Context) (api.ExecExit, error) {
			<-ctx.Done()
			return api.ExecExit{}, context.Cause(ctx)
		}
		p := serve(ctx, c)
		p.reads(t, frame.Begin)
		cancel()
		began := time.Now()
		err := <-p.end
		if took := time.Since(began); took < 12*time.Second || took > 15*time.Second {
			t.Errorf("it was given up after %s", took)
		}
		if api.CodeOf(err) != api.CodeUnavailable || !strings.Contains(err.Error(), "does not end") {
			t.Errorf("it answers %v", err)
		}
		if kills != 1 {
			t.Errorf("it was killed %d times, each of which may take long", kills)
		}
		c.leave()
	})
}

// TestWhoDoesNotReadHoldsNothingUp: a visitor whose terminal is stopped. The
// command waits for it; the end of the task does not.
func TestWhoDoesNotReadHoldsNothingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := newCommand(false)
		p := serve(ctx, c)
		p.reads(t, frame.Begin)
		go func() { _, _ = c.stdout.Write(bytes.Repeat([]byte("y\n"), 1<<20)) }() // nobody reads so much
		for range 10 {
			time.Sleep(api.StreamPing)
			p.says(t, frame.Ping, "")
		}
		select {
		case err := <-p.end:
			t.Fatalf("a visitor was not waited for: %v", err)
		default:
		}
		cancel()
		began := time.Now()
		if err := <-p.end; err == nil || time.Since(began) > 2*time.Second {
			t.Errorf("it took %s, and answers %v", time.Since(began), err)
		}
		_ = c.stdout.Close()
	})
}

// TestInputThatNobodyReads: a command that has ended may leave somebody who holds its
// input open, and does not read.
func TestInputThatNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCommand(true)
		p := serve(t.Context(), c)
		p.reads(t, frame.Begin)
		p.says(t, frame.Input, "nobody reads this")
		synctest.Wait()
		c.leave()
		c.end(api.ExecExit{Code: 1})
		go func() { _, _ = io.Copy(io.Discard, p.conn) }()
		if err := <-p.end; err != nil {
			t.Error(err)
		}
	})
}

// TestWhatMakesNoSense ends the command, and says what it was.
func TestWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind    frame.Kind
		payload string
		input   bool
		want    string
	}{
		"InputForNobody": {kind: frame.Input, payload: "x", want: "reads none"},
		"TooMuchInput":   {kind: frame.Input, payload: strings.Repeat("x", frame.Max), input: true, want: "more input"},
		"NoSize":         {kind: frame.Resize, payload: `{"rows":-1}`, want: "a size that it cannot have"},
		"NoSignal":       {kind: frame.Signal, payload: "SIGKILL", want: `signal "SIGKILL"`},
		"NotForIt":       {kind: frame.Exit, payload: "{}", want: "kind 10 is not for a command"},
		"Unknown":        {kind: 99, want: "kind 99 are not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCommand(test.input)
				p := serve(t.Context(), c)
				p.reads(t, frame.Begin)
				go func() { _, _ = io.Copy(io.Discard, p.conn) }()
				for range 8 { // more than a window; the later ones are not heard any more
					_ = p.out.Put(test.kind, []byte(test.payload))
				}
				if err := <-p.end; api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), test.want) {
					t.Errorf("it answers %v, not %s", err, test.want)
				}
			})
		})
	}
}

// TestRelay tells who of the two has gone, and what the server said.
func TestRelay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do   func(visitor, server net.Conn)
		code api.Code
		gone bool
	}{
		"ItEnds": {do: func(_, server net.Conn) { _ = frame.NewWriter(server).Put(frame.End, nil) }},
		"ItEndsBadly": {do: func(_, server net.Conn) {
			_ = frame.NewWriter(server).Put(frame.End, visit.Last(api.Errorf(api.CodeConflict, "x")))
		}, code: api.CodeConflict},
		"ServerGoes":    {do: func(_, server net.Conn) { _ = server.Close() }, gone: true},
		"VisitorGoes":   {do: func(visitor, _ net.Conn) { _ = visitor.Close() }, code: api.CodeUnavailable},
		"NoneOfBerth's": {do: func(_, server net.Conn) { _ = frame.NewWriter(server).Put(frame.End, []byte("{")) }, code: api.CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				visitor, ours := net.Pipe()
				theirs, server := net.Pipe()
				conn := func(c net.Conn) visit.Conn {
					return visit.Conn{In: frame.NewReader(c), Out: frame.NewWriter(c), Close: func() { _ = c.Close() }}
				}
				end := make(chan error, 1)
				go func() { end <- visit.Relay(conn(ours), conn(theirs)) }()
				// What is said both ways comes through.
				go func() { _ = frame.NewWriter(visitor).Put(frame.Signal, []byte("SIGINT")) }()
				if kind, payload, err := frame.NewReader(server).Next(); kind != frame.Signal || string(payload) != "SIGINT" || err != nil {
					t.Errorf("the server hears %d, %q, %v", kind, payload, err)
				}
				test.do(visitor, server)
				err := <-end
				if test.gone != errors.Is(err, visit.ErrServerGone) || test.code != "" && api.CodeOf(err) != test.code || (err == nil) != (test.code == "" && !test.gone) {
					t.Errorf("it answers %v", err)
				}
			})
		})
	}
}
