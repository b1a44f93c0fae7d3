package visit

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/frame"
)

// Conn is the frames of a visitor, and of what is said to it.
type Conn struct {
	In  *frame.Reader
	Out *frame.Writer
	// Close ends what In waits for. It may be called more than once.
	Close func()
	// Drop ends what Out waits for. It is nil where that ends by itself with ctx.
	Drop func()
}

// Input is what a command reads. What has deadlines is also let go of where
// somebody holds the other end and does not read.
type Input interface {
	io.WriteCloser
	SetWriteDeadline(t time.Time) error
}

// Output is what a command writes. What has deadlines is read to its end also
// where somebody else holds it open.
type Output interface {
	io.Reader
	SetReadDeadline(t time.Time) error
}

// Command is a command that runs, as its driver started it.
type Command struct {
	// Input is nil for a command that is given none. Closing it is the end of
	// what the command reads.
	Input Input
	// Output is what the command writes, and Errors what it writes to its
	// standard error: nil where both are one terminal.
	Output, Errors Output
	// Resize is nil without a terminal.
	Resize func(size api.TerminalSize) error
	// Signal sends one of api.ExecSignals.
	Signal func(name string) error
	// Wait returns when the command has ended, and is called once. Its context ends
	// when the command was killed and did not end: it waits in the kernel. Who
	// returns then, with the context's cause, leaves it to be ended later; who may
	// not leave it goes on waiting.
	Wait func(context.Context) (api.ExecExit, error)
	// Kill ends the command, and all that is left of its session. It may be
	// called when that has happened, and more than once.
	Kill func()
}

const (
	// farewell is how long a command whose visitor has gone has after SIGHUP.
	farewell = 2 * time.Second
	// stubborn is how long a command that is killed may take to end.
	stubborn = 10 * time.Second
	// silence is how long a visitor may say nothing: it sends a ping every
	// api.StreamPing.
	silence = 3 * api.StreamPing
	// linger is how long more output is waited for when the command has ended, and
	// rest how much of it is passed on: a pipe holds less, and what goes on is not
	// the command's.
	linger = 500 * time.Millisecond
	rest   = 1 << 20
	// lastWords is how long a visitor whose time is over may take to read what its
	// command wrote. The end of the task waits for it.
	lastWords = time.Second
)

// MaxPerTask bounds the commands that people run in one task at a time.
const MaxPerTask = 8

// TooMany is why one more cannot be run.
func TooMany(open int) error {
	return api.Errorf(api.CodeUnavailable, "%d commands run in the task already, which is all that it is given at a time: end one, or try again", open)
}

// Serve carries a command that has started, until it has ended, and says how it
// ended. When the visitor goes, or ctx ends, the command is hung up and then
// killed, and a visitor that does not read is not waited for. Nothing of the
// command's session is left when Serve returns, but for what cannot be killed:
// see Command.Wait.
func Serve(ctx context.Context, conn Conn, c Command) error {
	ctx, cancel := context.WithCancelCause(ctx)
	v := &visit{conn: conn, command: c, ended: make(chan struct{}), more: make(chan struct{}, 1), leave: cancel}
	if err := conn.Out.Put(frame.Begin, nil); err != nil {
		cancel(err)
	}
	var around, output sync.WaitGroup
	around.Go(v.listen)
	if c.Input != nil {
		around.Go(v.feed)
	}
	for kind, from := range map[frame.Kind]Output{frame.Data: c.Output, frame.Errors: c.Errors} {
		if from != nil {
			output.Go(func() { v.pass(kind, from) })
		}
	}
	waiting, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	around.Go(func() { v.guard(ctx, giveUp) })
	told := make(chan struct{})
	around.Go(func() { v.hurry(ctx, told) })
	exit, err := c.Wait(waiting)
	close(v.ended)
	if err == nil || waiting.Err() == nil {
		c.Kill() // otherwise it was killed, in vain
	}
	if c.Input != nil {
		_ = c.Input.SetWriteDeadline(time.Unix(1, 0)) // what has none, ends by itself
	}
	output.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = v.tell(exit)
	}
	close(told)
	cancel(nil)
	conn.Close()
	around.Wait()
	return err
}

// visit is one command and its visitor.
type visit struct {
	conn    Conn
	command Command
	leave   context.CancelCauseFunc
	ended   chan struct{}

	mu     sync.Mutex // guards below
	input  []byte     // at most one window
	closed bool       // the visitor sends no more
	more   chan struct{}
}

// errStubborn is why nobody waits for a command any more.
var errStubborn = api.Errorf(api.CodeUnavailable, "the command was killed and does not end: it waits in the kernel, perhaps for a disk or a server that does not answer")

// guard ends the command with ctx, and gives it up if it does not end.
func (v *visit) guard(ctx context.Context, giveUp context.CancelCauseFunc) {
	select {
	case <-v.ended:
		return
	case <-ctx.Done():
	}
	_ = v.command.Signal("SIGHUP") // it may have ended
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	select {
	case <-v.ended:
	case <-timer.C:
		late := time.AfterFunc(stubborn, func() { giveUp(errStubborn) })
		defer late.Stop()
		v.command.Kill()
		<-v.ended
	}
}

// hurry ends what the visitor is told, until all of it is, when a command has
// ended whose time is over. A visitor that does not read would hold it up.
func (v *visit) hurry(ctx context.Context, told <-chan struct{}) {
	if v.conn.Drop == nil {
		return
	}
	for _, first := range []<-chan struct{}{ctx.Done(), v.ended} {
		select {
		case <-first:
		case <-told:
			return
		}
	}
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-timer.C:
		v.conn.Drop()
	case <-told:
	}
}

// errLeft ends a command whose visitor is gone.
var errLeft = api.Errorf(api.CodeUnavailable, "whoever ran the command is gone")

// listen takes what the visitor says, until it is gone.
func (v *visit) listen() {
	defer v.end()
	for {
		quiet := time.AfterFunc(silence, v.conn.Close)
		kind, payload, err := v.conn.In.Next()
		quiet.Stop()
		if err == nil {
			err = v.take(kind, payload)
		} else {
			err = errLeft
		}
		if err != nil {
			v.leave(err)
			return
		}
	}
}

// take does what a frame says. Its problems are of who sends it.
func (v *visit) take(kind frame.Kind, payload []byte) error {
	switch kind {
	case frame.Ping:
	case frame.Input:
		return v.keep(payload)
	case frame.InputEnd:
		v.end()
	case frame.Resize:
		var size api.TerminalSize
		if v.command.Resize == nil || json.Unmarshal(payload, &size) != nil || !size.Valid() {
			return api.Errorf(api.CodeInvalid, "a terminal was given a size that it cannot have")
		}
		_ = v.command.Resize(size) // the command may have ended
	case frame.Signal:
		if !slices.Contains(api.ExecSignals(), string(payload)) {
			return api.Errorf(api.CodeInvalid, "signal %q is none that can be sent to a command", payload)
		}
		_ = v.command.Signal(string(payload)) // as above
	case frame.End:
		return errLeft
	case frame.Begin, frame.Data, frame.Taken, frame.Errors, frame.Exit:
		return api.Errorf(api.CodeInvalid, "a frame of kind %d is not for a command", kind)
	default:
		return api.Errorf(api.CodeInvalid, "frames of kind %d are not known here", kind)
	}
	return nil
}

// keep keeps input until the command takes it.
func (v *visit) keep(payload []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.command.Input == nil || v.closed:
		return api.Errorf(api.CodeInvalid, "input was sent to a command that reads none")
	case len(v.input)+len(payload) > frame.Window:
		return api.Errorf(api.CodeInvalid, "more input was sent than the %d bytes that may wait", frame.Window)
	}
	v.input = append(v.input, payload...)
	v.wake()
	return nil
}

// end notes that no more input comes.
func (v *visit) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	v.wake()
}

// wake has feed look again; the caller holds mu.
func (v *visit) wake() {
	select {
	case v.more <- struct{}{}:
	default:
	}
}

// feed gives the command its input. Who does not read it any more gets none.
func (v *visit) feed() {
	defer func() { _ = v.command.Input.Close() }() // the command has ended, or gets the end
	reads := true
	for {
		part, closed := v.next()
		if len(part) > 0 {
			if reads {
				_, err := v.command.Input.Write(part)
				reads = err == nil
			}
			if v.conn.Out.Put(frame.Taken, binary.BigEndian.AppendUint32(nil, uint32(len(part)))) != nil { //nolint:gosec // at most a window
				return
			}
			continue
		}
		if closed {
			return
		}
		select {
		case <-v.more:
		case <-v.ended:
			return
		}
	}
}

// next takes a part of the input that waits. It is small, so that there is soon
// room for more.
func (v *visit) next() (part []byte, closed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := min(len(v.input), frame.Window/8)
	part = slices.Clone(v.input[:n])
	v.input = append(v.input[:0], v.input[n:]...)
	return part, v.closed && len(v.input) == 0
}

// pass hands on what the command writes.
func (v *visit) pass(kind frame.Kind, from Output) {
	buf := make([]byte, 32<<10)
	stop := make(chan struct{})
	var around sync.WaitGroup
	defer around.Wait()
	defer close(stop)
	around.Go(func() {
		select {
		case <-v.ended:
			_ = from.SetReadDeadline(time.Now().Add(linger)) // what has none, ends by itself
		case <-stop:
		}
	})
	told, again := true, false
	for left := rest; left > 0; {
		n, err := from.Read(buf)
		if n > 0 && told {
			if told = v.conn.Out.Put(kind, buf[:n]) == nil; !told {
				v.leave(errLeft)
			}
		}
		// A limit that passed while a slow visitor read is no sign that nothing is
		// left: it is looked for once more.
		late := errors.Is(err, os.ErrDeadlineExceeded)
		if err != nil && (!late || again) {
			return
		}
		again = late
		if v.over() {
			left -= n
			_ = from.SetReadDeadline(time.Now().Add(linger)) // as above
		}
	}
}

// over reports whether the command has ended.
func (v *visit) over() bool {
	select {
	case <-v.ended:
		return true
	default:
		return false
	}
}

func (v *visit) tell(exit api.ExecExit) error {
	b, err := json.Marshal(exit)
	if err == nil {
		err = v.conn.Out.Put(frame.Exit, b)
	}
	if err != nil {
		return fmt.Errorf("tell the end: %w", err)
	}
	return nil
}

// ErrServerGone is what Relay answers if the server went without a last word.
var ErrServerGone = errors.New("whoever served the command is gone")

// Relay hands on the frames of a visitor to whoever serves them, and back, until
// one side ends. It closes both, and answers what the server said in the end.
func Relay(visitor, server Conn) error {
	var around sync.WaitGroup
	left := make(chan struct{})
	around.Go(func() {
		_, read, _ := forward(visitor.In, server.Out)
		if !read {
			close(left)
		}
		server.Close()
	})
	last, read, done := forward(server.In, visitor.Out)
	first := false // the visitor went first, and the server because of it
	select {
	case <-left:
		first = true
	default:
	}
	server.Close()
	visitor.Close()
	var err error
	switch {
	case done:
		err = ended(last)
	case read, first: // read: who does not take what is said
		err = errLeft
	default:
		err = ErrServerGone
	}
	around.Wait()
	return err
}

// forward copies frames until the last one, and answers what that says. Otherwise
// read tells whether there was one to be copied when it failed.
func forward(from *frame.Reader, to *frame.Writer) (last []byte, read, done bool) {
	for {
		kind, payload, err := from.Next()
		if err != nil {
			return nil, false, false
		}
		if kind == frame.End {
			return payload, false, true
		}
		if to.Put(kind, payload) != nil {
			return nil, true, false
		}
	}
}

func ended(payload []byte) error {
	if len(payload) == 0 {
		return nil
	}
	e := &api.Error{}
	if json.Unmarshal(payload, e) != nil || e.Code == "" {
		return api.Errorf(api.CodeInternal, "a command ended with what is no error of Berth")
	}
	return e
}

// Last is the payload of the frame End that says err.
func Last(err error) []byte {
	if err == nil {
		return nil
	}
	e, is := errors.AsType[*api.Error](err)
	if !is {
		e = api.Errorf(api.CodeInternal, "%v", err)
	}
	b, err := json.Marshal(e)
	if err != nil || len(b) > frame.Max {
		return []byte(`{"code":"internal","message":"the command cannot go on"}`)
	}
	return b
}
