package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/process"
	"github.com/berth-dev/berth/internal/agent/driver/visit"
	"github.com/berth-dev/berth/internal/frame"
)

// visits are the commands that people run in the task.
type visits struct {
	mu     sync.Mutex // guards below
	task   task       // nil until it runs
	over   bool
	going  sync.WaitGroup
	cancel map[*int]context.CancelFunc // of those that go on
}

// host lets visitors in, now that the task runs.
func (v *visits) host(t task) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.task = t
}

// begin lets one visitor in, until done is called.
func (v *visits) begin(parent context.Context) (ctx context.Context, t task, done func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.task == nil:
		return nil, nil, nil, api.Errorf(api.CodeConflict, "the task does not run yet")
	case v.over:
		return nil, nil, nil, errOver()
	case len(v.cancel) >= visit.MaxPerTask:
		return nil, nil, nil, visit.TooMany(len(v.cancel))
	}
	v.going.Add(1)
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	key := new(int)
	if v.cancel == nil {
		v.cancel = map[*int]context.CancelFunc{}
	}
	v.cancel[key] = cancel
	return ctx, v.task, sync.OnceFunc(func() {
		cancel()
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.cancel, key)
		v.going.Done()
	}), nil
}

func errOver() error { return api.Errorf(api.CodeConflict, "the task has ended") }

// end sees the visitors out, for the task has ended.
func (v *visits) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = true
	for _, cancel := range v.cancel {
		cancel()
	}
}

// serveVisit runs a command in the task, and carries it on the connection.
func (s *supervisor) serveVisit(w http.ResponseWriter, r *http.Request) {
	var req api.ExecRequest
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 8*api.MaxCommand)).Decode(&req)
	if err == nil {
		err = req.Validate()
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, failure(err))
		return
	}
	ctx, t, done, err := s.visits.begin(r.Context())
	if err != nil {
		refuse(w, http.StatusConflict, failure(err))
		return
	}
	defer done()
	e, err := t.enter(ctx, s.spec, &req)
	if err != nil {
		refuse(w, http.StatusConflict, failure(err))
		return
	}
	conn, frames, err := upgrade(w)
	if err != nil {
		s.log.Warn("visit", "err", err)
		e.discard()
		return
	}
	defer func() { _ = conn.Close() }()
	err = visit.Serve(ctx, visit.Conn{In: frame.NewReader(frames), Out: frame.NewWriter(conn), Close: sync.OnceFunc(func() {
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // never fails
	}), Drop: func() {
		_ = conn.SetWriteDeadline(time.Unix(1, 0)) // never fails
	}}, e.command())
	e.close()
	if ctx.Err() != nil {
		err = errOver()
	}
	_ = conn.SetWriteDeadline(time.Now().Add(lastWord))       // never fails
	_ = frame.NewWriter(conn).Put(frame.End, visit.Last(err)) // who is gone need not be told
}

// lastWord is how long a visitor may take to hear why there is no more. The
// task's end waits for it.
const lastWord = time.Second

// upgrade takes the connection over. What was read of it already comes first.
func upgrade(w http.ResponseWriter) (net.Conn, io.Reader, error) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, fmt.Errorf("take over connection: %w", err)
	}
	_ = conn.SetDeadline(time.Time{}) // never fails
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+api.UpgradeFrames+"\r\n\r\n")
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("take over connection: %w", err), conn.Close())
	}
	return conn, buffered, nil
}

// entered is a command that runs in a task beside its own.
type entered struct {
	kill   func()
	id     process.ID
	ended  <-chan result
	ours   []io.Closer // the near ends of what follows
	input  visit.Input
	output visit.Output
	errors visit.Output
	resize func(api.TerminalSize) error
}

type result struct {
	ending
	err error
}

func (e *entered) command() visit.Command {
	return visit.Command{
		Input: e.input, Output: e.output, Errors: e.errors, Resize: e.resize,
		Signal: func(name string) error { return e.id.Signal(unix.SignalNum(name)) },
		// The end of the task waits for all that it may have to do with its volumes.
		Wait: func(context.Context) (api.ExecExit, error) {
			r := <-e.ended
			return api.ExecExit{Code: r.code, Signal: int(r.signal)}, r.err
		},
		Kill: e.kill,
	}
}

// killLimit bounds how long a process may take to die. Only one that waits for a
// dead disk takes longer; it goes with the task.
const killLimit = 10 * time.Second

// killSession ends what is left of a command.
func killSession(ctx context.Context, leader process.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killLimit)
	defer cancel()
	_ = process.KillSession(ctx, leader)
}

func (e *entered) close() {
	for _, c := range e.ours {
		_ = c.Close() // some are closed already
	}
}

// discard ends a command that nobody visits.
func (e *entered) discard() {
	e.kill()
	<-e.ended
	e.close()
}

// stdio are the two ends of what a command reads and writes.
type stdio struct {
	entered
	theirs [3]*os.File
}

// pipes makes pipes for a command without a terminal.
func pipes(user *User, input bool) (*stdio, error) {
	s := &stdio{}
	for i := range s.theirs {
		if i == 0 && !input {
			continue // the command's is the null device
		}
		r, w, err := os.Pipe()
		if err != nil {
			s.abandon()
			return nil, fmt.Errorf("make pipe: %w", err)
		}
		near, far := r, w
		if i == 0 {
			near, far = w, r
		}
		s.theirs[i], s.ours = far, append(s.ours, near)
		switch i {
		case 0:
			s.input = near
		case 1:
			s.output = near
		default:
			s.errors = near
		}
		if user != nil {
			// It may want to open /dev/stdout.
			if err := far.Chown(user.UID, -1); err != nil {
				s.abandon()
				return nil, fmt.Errorf("give pipe to user: %w", err)
			}
		}
	}
	return s, nil
}

// visitOn is the command's side of a terminal.
func (s *stdio) visitOn(t terminal, input bool) {
	s.output, s.resize, s.ours = t, t.resize, append(s.ours, t)
	if input {
		s.input = typed{t}
	}
}

// sent closes the far ends, which the command has now.
func (s *stdio) sent() {
	for i, f := range s.theirs {
		if f != nil && (i == 0 || f != s.theirs[i-1]) {
			_ = f.Close() // it has been handed on
		}
	}
	s.theirs = [3]*os.File{}
}

func (s *stdio) abandon() {
	s.sent()
	s.close()
}

// follow runs start on a thread of its own, for the kernel ties the command's
// life to the thread that started it, and then waits for the command there.
func (s *stdio) follow(ctx context.Context, start func() (pid int, wait func() (ending, error), err error)) error {
	started, ended := make(chan error, 1), make(chan result, 1)
	s.ended = ended
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		pid, wait, err := start()
		if err == nil {
			// Until it is waited for, the number is its own.
			s.id, err = process.Of(pid)
		}
		started <- err
		if wait != nil {
			e, err := wait()
			ended <- result{e, err}
		}
	}()
	err := <-started
	s.kill = func() { killSession(ctx, s.id) }
	s.sent()
	if err != nil {
		s.close()
	}
	return err
}

// environmentOf is the task's, with the kind of the terminal.
func environmentOf(spec Spec, req *api.ExecRequest) []string {
	var env []string
	for _, kv := range spec.Env {
		if req.Terminal == nil || !strings.HasPrefix(kv, "TERM=") {
			env = append(env, kv)
		}
	}
	if req.Terminal == nil {
		return env
	}
	term := req.Term
	if term == "" {
		term = "xterm"
	}
	return append(env, "TERM="+term)
}

// enter implements task.
func (d direct) enter(ctx context.Context, spec Spec, req *api.ExecRequest) (*entered, error) {
	var s *stdio
	var err error
	if req.Terminal == nil {
		s, err = pipes(spec.User, req.Input)
	} else {
		var master, command *os.File
		if master, command, err = openTerminal(spec.User); err == nil {
			s = &stdio{theirs: [3]*os.File{command, command, command}}
			s.visitOn(terminal{master}, req.Input)
			if err = s.resize(*req.Terminal); err != nil {
				s.abandon()
			}
		}
	}
	if err != nil {
		return nil, err
	}
	err = s.follow(ctx, func() (int, func() (ending, error), error) {
		cmd, err := enterDirect(spec, req.Command, environmentOf(spec, req), s.theirs, req.Terminal != nil)
		if err != nil {
			return 0, nil, err
		}
		return cmd.Process.Pid, func() (ending, error) { return waitFor(cmd.Wait, func() *os.ProcessState { return cmd.ProcessState }) }, nil
	})
	return &s.entered, err
}

// waitFor is how a process ended that is waited for so.
func waitFor(wait func() error, state func() *os.ProcessState) (ending, error) {
	err := wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return ending{}, fmt.Errorf("wait for process: %w", err)
	}
	return endingOf(state()), nil
}

// cannotRun says which command, and what is in its way.
func cannotRun(command, why string) error {
	why = strings.TrimSpace(strings.TrimPrefix(why, "exec: "))
	return &api.Error{Code: api.CodeInvalid, Message: "the command cannot be run", Fields: []api.Field{{
		Path: "command", Message: fmt.Sprintf("%q: %s", command, why),
		Mend: "the task's user must be able to find and execute the program, where the task runs",
	}}}
}
