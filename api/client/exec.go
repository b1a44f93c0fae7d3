package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/frame"
)

// ExecIO is what a command is given, and where what it says goes. All may be nil.
type ExecIO struct {
	// Input is read while the command does, and not to its end: a read of it may
	// still be waiting when Exec has returned.
	Input io.Reader
	// Output and Errors get what the command writes; with a terminal, all of it
	// is Output.
	Output, Errors io.Writer
	// Begun is called when the command runs.
	Begun func()
	// Sizes are those that the terminal changes to, and Signals are for the
	// command: api.ExecSignals.
	Sizes   <-chan api.TerminalSize
	Signals <-chan string
}

// execSilence is how long the servers may say nothing: they send a ping every
// api.StreamPing.
const execSilence = 3 * api.StreamPing

// Exec runs a command where a task runs, and returns when it has ended. When ctx
// ends before, or the connection breaks, the command ends with it. It is not
// repeated, whatever the client's patience.
func (c *Client) Exec(ctx context.Context, alloc api.AllocID, task string, req api.ExecRequest, x ExecIO) (api.ExecExit, error) {
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := call{method: http.MethodPost, path: []string{"allocation", string(alloc), "exec", task}, body: req, copyTo: io.Discard}
	made, err := c.request(ctx, r)
	if err != nil {
		return api.ExecExit{}, err
	}
	made.Header.Set("Connection", "Upgrade")
	made.Header.Set("Upgrade", api.UpgradeFrames)
	resp, err := c.begin(made, cancel)
	if err != nil {
		return api.ExecExit{}, c.unreachable(caller, r, err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost
	conn, upgraded := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !upgraded {
		return api.ExecExit{}, c.refused(r, resp)
	}
	e := &execution{out: frame.NewWriter(conn), x: x, ctx: ctx, room: make(chan struct{}, 1), left: frame.Window}
	var around sync.WaitGroup
	defer around.Wait()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	defer cancel(nil)
	around.Go(e.ping)
	if req.Input && x.Input != nil {
		go e.feed() // nobody can wait for who reads from a person
	} else if req.Input {
		around.Go(func() { _ = e.out.Put(frame.InputEnd, nil) }) // as with a ping
	}
	around.Go(e.tell)
	exit, err := e.listen(conn, cancel)
	if err != nil && context.Cause(ctx) != nil {
		err = context.Cause(ctx)
	}
	return exit, err
}

// execution is one command that runs.
type execution struct {
	out *frame.Writer
	x   ExecIO
	ctx context.Context //nolint:containedctx // it is the one call's

	mu   sync.Mutex // guards left
	left int        // of the window
	room chan struct{}
}

// ping tells the servers that this side lives.
func (e *execution) ping() {
	for sleep(e.ctx, api.StreamPing) {
		if e.out.Ping() != nil {
			return
		}
	}
}

// tell hands on sizes and signals.
func (e *execution) tell() {
	for {
		var err error
		select {
		case size := <-e.x.Sizes:
			var b []byte
			if b, err = json.Marshal(size); err == nil {
				err = e.out.Put(frame.Resize, b)
			}
		case s := <-e.x.Signals:
			err = e.out.Put(frame.Signal, []byte(s))
		case <-e.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// feed hands on the input, as far as there is room for it.
func (e *execution) feed() {
	buf := make([]byte, 32<<10)
	for {
		n, err := e.x.Input.Read(buf)
		for part := buf[:n]; len(part) > 0; {
			some := e.take(len(part))
			if some == 0 || e.out.Put(frame.Input, part[:some]) != nil {
				return
			}
			part = part[some:]
		}
		if err != nil {
			_ = e.out.Put(frame.InputEnd, nil) // the command has ended, or is told
			return
		}
	}
}

// take waits for room, and takes as much of it as is wanted. 0 means that
// nothing is taken any more.
func (e *execution) take(wanted int) int {
	for {
		e.mu.Lock()
		n := min(wanted, e.left)
		e.left -= n
		e.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-e.room:
		case <-e.ctx.Done():
			return 0
		}
	}
}

func (e *execution) taken(payload []byte) {
	if len(payload) != 4 {
		return
	}
	e.mu.Lock()
	e.left = min(frame.Window, e.left+int(binary.BigEndian.Uint32(payload)))
	e.mu.Unlock()
	select {
	case e.room <- struct{}{}:
	default:
	}
}

// listen hands out what the command says, to its end.
func (e *execution) listen(from io.Reader, cancel context.CancelCauseFunc) (exit api.ExecExit, err error) {
	broken := api.Errorf(api.CodeUnavailable, "the connection broke, and the command ends with it")
	r, told := frame.NewReader(from), false
	begun := sync.OnceFunc(func() {
		if e.x.Begun != nil {
			e.x.Begun()
		}
	})
	for {
		quiet := time.AfterFunc(execSilence, func() { cancel(broken) })
		kind, payload, err := r.Next()
		quiet.Stop()
		switch {
		case err != nil:
			return exit, broken
		case kind == frame.Begin:
			begun() // an agent may say it again
		case kind == frame.Data:
			err = write(e.x.Output, payload)
		case kind == frame.Errors:
			err = write(e.x.Errors, payload)
		case kind == frame.Taken:
			e.taken(payload)
		case kind == frame.Exit:
			err = json.Unmarshal(payload, &exit)
			told = true
		case kind == frame.End:
			return exit, lastWord(payload, told)
		}
		if err != nil {
			return exit, err
		}
	}
}

func write(to io.Writer, payload []byte) error {
	if to == nil {
		return nil
	}
	_, err := to.Write(payload)
	return err
}

// lastWord is why a command did not come to its end, or nil.
func lastWord(payload []byte, told bool) error {
	e := &api.Error{}
	switch {
	case len(payload) > 0 && (json.Unmarshal(payload, e) != nil || e.Code == ""):
		return errors.New("the command ended, and what is said of it is no error of Berth")
	case len(payload) > 0:
		return e
	case !told:
		return api.Errorf(api.CodeInternal, "the command ended, and nobody says how")
	}
	return nil
}
