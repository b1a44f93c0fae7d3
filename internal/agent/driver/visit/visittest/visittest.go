// Package visittest is a person's side of a command that runs where a task runs,
// for tests of the drivers.
//
// It never talks to a driver: who serves it is the test's. Invariant: when Done
// has answered, all that was said to the person is known.
package visittest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/visit"
	"github.com/berth-dev/berth/internal/frame"
)

// Visitor is the person.
type Visitor struct {
	// Begun is closed when the command runs.
	Begun <-chan struct{}
	// Hang is going without a word.
	Hang func()
	// Done gets how the visit ended.
	Done <-chan error

	tb  testing.TB
	say *frame.Writer

	mu        sync.Mutex // guards below
	out, errs bytes.Buffer
	taken     int
	exit      *api.ExecExit
}

// Begin has serve carry a visit until the visitor hangs up, or the test ends.
func Begin(tb testing.TB, serve func(context.Context, visit.Conn) error) *Visitor {
	tb.Helper()
	toTask, fromUs := io.Pipe()
	toUs, fromTask := io.Pipe()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	begun, done, heard := make(chan struct{}), make(chan error, 1), make(chan struct{})
	v := &Visitor{tb: tb, say: frame.NewWriter(fromUs), Begun: begun, Done: done}
	v.Hang = func() { cancel(); _ = fromUs.Close() }
	tb.Cleanup(v.Hang)
	go func() { defer close(heard); v.listen(frame.NewReader(toUs), begun) }()
	go func() {
		err := serve(ctx, visit.Conn{
			In: frame.NewReader(toTask), Out: frame.NewWriter(fromTask),
			Close: func() { _ = toTask.CloseWithError(io.ErrClosedPipe) },
		})
		_ = fromTask.Close()
		<-heard
		done <- err
	}()
	return v
}

func (v *Visitor) listen(r *frame.Reader, begun chan<- struct{}) {
	for {
		kind, payload, err := r.Next()
		if err != nil {
			return
		}
		v.mu.Lock()
		switch kind {
		case frame.Begin:
			close(begun)
		case frame.Data:
			v.out.Write(payload)
		case frame.Errors:
			v.errs.Write(payload)
		case frame.Taken:
			v.taken += int(binary.BigEndian.Uint32(payload))
		case frame.Exit:
			v.exit = &api.ExecExit{}
			if err := json.Unmarshal(payload, v.exit); err != nil {
				v.tb.Error(err)
			}
		case frame.Ping, frame.End, frame.Input, frame.InputEnd, frame.Resize, frame.Signal:
			v.tb.Errorf("a frame of kind %d for a visitor", kind)
		}
		v.mu.Unlock()
	}
}

// Put says something to the command.
func (v *Visitor) Put(kind frame.Kind, payload string) {
	v.tb.Helper()
	if err := v.say.Put(kind, []byte(payload)); err != nil {
		v.tb.Error(err)
	}
}

// Output is what the command has written so far.
func (v *Visitor) Output() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.out.String()
}

// Shows reports whether the command has written something.
func (v *Visitor) Shows(what string) bool { return strings.Contains(v.Output(), what) }

// Taken is how much input the command has been given.
func (v *Visitor) Taken() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.taken
}

// Exit is how the command ended, or nil.
func (v *Visitor) Exit() *api.ExecExit {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.exit
}

// End waits for the command, and answers what it wrote and how it ended.
func (v *Visitor) End() (out, errs string, exit api.ExecExit) {
	v.tb.Helper()
	if err := <-v.Done; err != nil {
		v.tb.Fatalf("the visit: %v", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.exit == nil {
		v.tb.Fatal("the command's end was not told")
	}
	return v.out.String(), v.errs.String(), *v.exit
}
