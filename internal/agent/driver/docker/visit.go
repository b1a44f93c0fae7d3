package docker

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/process"
	"github.com/berth-dev/berth/internal/agent/driver/visit"
)

// markVisit is in the environment of what people run in containers. The engine
// ends no command that it has started, so its processes are found by it.
const markVisit = "BERTH_VISIT="

// noDetach is what nobody types. The engine lets go of a terminal at a sequence
// of keys, and holds the first of them back: for its own, each Ctrl-P.
const noDetach = "ctrl-^,ctrl-_,ctrl-^,ctrl-_,ctrl-^,ctrl-_"

// visits are the commands that people run in containers.
type visits struct {
	mu    sync.Mutex      // guards below
	going map[string]bool // by the engine's names of them
	// stuck are those that were killed and did not end: they count until they have.
	stuck map[string]func()
	open  map[string]int // by containers
}

// begin lets one more into a container, until done is called.
func (v *visits) begin(container string) (done func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if open := v.open[container]; open >= visit.MaxPerTask {
		return nil, visit.TooMany(open)
	}
	v.open[container]++
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.open[container]--; v.open[container] == 0 {
			delete(v.open, container)
		}
	}, nil
}

// Visit implements driver.Host.
func (d *Driver) Visit(ctx context.Context, id string, req *api.ExecRequest, visitor driver.VisitConn) error {
	v, err := d.enter(ctx, id, req)
	if err != nil {
		visitor.Close()
		return err
	}
	defer v.close()
	err = visit.Serve(ctx, visitor, v.command())
	if c, found := d.find(context.WithoutCancel(ctx), id); found == nil && (c == nil || !c.lives()) {
		return api.Errorf(api.CodeConflict, "the task has ended")
	}
	return err
}

// visited is a command that runs in a container.
type visited struct {
	*Driver
	req *api.ExecRequest
	// container is where it runs.
	container string
	done      func() // lets another one in
	stuck     bool   // it was killed, and did not end
	exec      string // the engine's name of it
	mark      string
	record    string // the file that remembers it
	conn      client.ExecAttachResult
	out       *io.PipeReader
	errs      *io.PipeReader
	id        process.ID // zero if it cannot be seen from here
	// among lists the processes that can be the command's.
	among func() ([]int, error)
	// bounded is a context that outlives the visitor's.
	bounded func(limit time.Duration) (context.Context, context.CancelFunc)
}

// enter starts a command in a container. It is recorded before, so that another
// agent finds it.
func (d *Driver) enter(ctx context.Context, id string, req *api.ExecRequest) (*visited, error) {
	c, err := d.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if c == nil || !c.lives() {
		return nil, api.Errorf(api.CodeConflict, "task %s does not run", id)
	}
	done, err := d.visits.begin(c.ID)
	if err != nil {
		return nil, err
	}
	v := &visited{Driver: d, req: req, container: c.ID, done: done, mark: markVisit + rand.Text(), among: members(c.State.Pid, c.ID)}
	v.bounded = func(limit time.Duration) (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(ctx), limit)
	}
	if err := v.begin(ctx); err != nil {
		done()
		return nil, err
	}
	v.split()
	return v, nil
}

// begin has the engine run the command.
func (v *visited) begin(ctx context.Context) (err error) {
	req, d := v.req, v.Driver
	opts := client.ExecCreateOptions{
		Cmd: req.Command, Env: []string{v.mark}, AttachStdin: req.Input, AttachStdout: true, AttachStderr: req.Terminal == nil,
	}
	if req.Terminal != nil {
		term := req.Term
		if term == "" {
			term = "xterm"
		}
		opts.TTY, opts.DetachKeys, opts.ConsoleSize = true, noDetach, consoleSize(req.Terminal)
		opts.Env = append(opts.Env, "TERM="+term)
	}
	asked, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	made, err := d.engine().ExecCreate(asked, v.container, opts)
	if err != nil {
		return d.cannotRun(req, err)
	}
	v.exec = made.ID
	if err := v.remember(); err != nil {
		v.forget()
		return err
	}
	if v.conn, err = d.engine().ExecAttach(asked, v.exec, client.ExecAttachOptions{TTY: opts.TTY, ConsoleSize: opts.ConsoleSize}); err != nil {
		v.kill()
		v.forget()
		return d.cannotRun(req, err)
	}
	if err := v.find(asked); err != nil {
		v.conn.Close()
		v.kill()
		v.forget()
		return err
	}
	if req.Terminal != nil {
		_ = v.resize(*req.Terminal) // engines before API 1.42 begin with none; it may have ended
	}
	return nil
}

func consoleSize(t *api.TerminalSize) client.ConsoleSize {
	return client.ConsoleSize{Height: uint(t.Rows), Width: uint(t.Columns)}
}

// cannotRun is why the engine runs no command.
func (d *Driver) cannotRun(req *api.ExecRequest, err error) error {
	switch {
	case unreachable(err):
		return d.problem(err)
	case errdefs.IsConflict(err), errdefs.IsNotFound(err):
		return api.Errorf(api.CodeConflict, "the docker engine says: %s", plain(err))
	}
	return &api.Error{Code: api.CodeInvalid, Message: "the command cannot be run", Fields: []api.Field{{
		Path: "command", Message: fmt.Sprintf("%q: the docker engine says: %s", req.Command[0], plain(err)),
		Mend: "the image must have the program, and the task's user must be able to execute it",
	}}}
}

// find finds the command's process. A command that cannot be started has ended
// with a status of its own by then, and that of an engine in another pid
// namespace is not seen.
func (v *visited) find(ctx context.Context) error {
	for {
		is, err := v.look(ctx, v.exec)
		switch {
		case err != nil:
			return v.problem(err)
		case is.ExitCode != nil && !is.Running:
			return nil // it has ended already
		case is.Pid != 0:
			id, err := process.Of(is.Pid)
			if err == nil && (marked(is.Pid, v.mark) || contained(is.Pid, v.container)) {
				v.id = id
				return v.rememberProcess()
			}
		}
		if !sleep(ctx, lookAgain) {
			v.log.Warn("the process of a command in a container is not seen from here: it cannot be signalled", "pid", is.Pid)
			return nil
		}
	}
}

// look asks the engine how a command is. Its client would not tell whether one
// has ended or has not begun.
func (d *Driver) look(ctx context.Context, exec string) (is container.ExecInspectResponse, err error) {
	asks := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.cfg.Endpoint)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/exec/"+exec+"/json", nil)
	if err != nil {
		return is, err
	}
	resp, err := asks.Do(req)
	if err != nil {
		return is, errors.Join(errdefs.ErrUnavailable, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	switch resp.StatusCode {
	case http.StatusOK:
		err = json.NewDecoder(resp.Body).Decode(&is)
	case http.StatusNotFound:
		err = errdefs.ErrNotFound
	default:
		err = fmt.Errorf("it answers %s", resp.Status)
	}
	return is, err
}

// lookAgain is between two looks at what comes in a moment.
const lookAgain = 5 * time.Millisecond

// marked reports whether a process has a mark in its environment.
func marked(pid int, mark string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && bytes.Contains(append([]byte{0}, b...), []byte("\x00"+mark+"\x00"))
}

// contained reports whether a process is in a container: that is so as well for
// one that has given its environment up, as su does.
// One that has ended, and that nobody has heard of yet, is in none.
func contained(pid int, container string) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	b, err := os.ReadFile(dir + "/cgroup")
	if err != nil || !bytes.Contains(b, []byte(container)) {
		return false
	}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return false
	}
	rest := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	return len(rest) > 0 && !bytes.ContainsAny(rest[0][:1], "ZX")
}

// split takes what the command writes apart.
func (v *visited) split() {
	var out, errs *io.PipeWriter
	v.out, out = io.Pipe()
	if v.req.Terminal == nil {
		v.errs, errs = io.Pipe()
	}
	go func() { // it ends with the connection, and with who reads
		var err error
		if v.req.Terminal != nil {
			_, err = io.Copy(out, patient{v.conn})
		} else {
			_, err = stdcopy.StdCopy(out, errs, patient{v.conn})
			_ = errs.CloseWithError(err) // never fails; nil is the end
		}
		_ = out.CloseWithError(err) // as above
	}()
}

func (v *visited) command() visit.Command {
	c := visit.Command{Output: engineOutput{v.out, v.conn.Conn}, Signal: v.signal, Wait: v.wait, Kill: v.kill}
	if v.errs != nil {
		c.Errors = engineOutput{v.errs, v.conn.Conn}
	}
	if v.req.Input {
		c.Input = engineInput{v}
	}
	if v.req.Terminal != nil {
		c.Resize = v.resize
	}
	return c
}

// engineOutput is what the command writes, to one of two.
type engineOutput struct {
	*io.PipeReader
	conn net.Conn
}

// SetReadDeadline implements visit.Output, for both of them.
func (o engineOutput) SetReadDeadline(t time.Time) error { return o.conn.SetReadDeadline(t) }

// lastOutput is how long what a command has left behind may be silent.
const lastOutput = 2 * time.Second

// patient reads what comes from the engine. It ends where nothing came until a
// limit that was set: the engine ends it only when nobody in the container could
// write any more. A limit that passed while nobody read is none.
type patient struct{ client.ExecAttachResult }

// Read implements io.Reader.
func (p patient) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		_ = p.Conn.SetReadDeadline(time.Now().Add(lastOutput)) // never fails
		n, err = p.Reader.Read(b)
	}
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}

// engineInput is what the command reads.
type engineInput struct{ *visited }

// Write implements io.Writer.
func (i engineInput) Write(b []byte) (int, error) { return i.conn.Conn.Write(b) }

// SetWriteDeadline implements visit.Input.
func (i engineInput) SetWriteDeadline(t time.Time) error { return i.conn.Conn.SetWriteDeadline(t) }

// Close implements io.Closer. A terminal has no end, but a key that means it.
func (i engineInput) Close() error {
	if i.req.Terminal != nil {
		const endOfTransmission = 4
		_, err := i.conn.Conn.Write([]byte{endOfTransmission})
		return err
	}
	return i.conn.CloseWrite()
}

func (v *visited) resize(size api.TerminalSize) error {
	ctx, cancel := v.bounded(answerLimit)
	defer cancel()
	_, err := v.engine().ExecResize(ctx, v.exec, client.ExecResizeOptions{Height: uint(size.Rows), Width: uint(size.Columns)})
	return err
}

func (v *visited) signal(name string) error {
	if v.id == (process.ID{}) {
		return os.ErrProcessDone
	}
	return v.id.Signal(unix.SignalNum(name))
}

// wait asks the engine until the command has ended, or ctx has.
func (v *visited) wait(ctx context.Context) (api.ExecExit, error) {
	for pause := lookAgain; ; pause = min(2*pause, 250*time.Millisecond) {
		asked, cancel := context.WithTimeout(ctx, answerLimit)
		is, err := v.look(asked, v.exec)
		cancel()
		switch {
		case err != nil && ctx.Err() != nil:
			v.stuck = true
			return api.ExecExit{}, context.Cause(ctx)
		case err != nil:
			// The container is gone, or the engine: its command has no visitor any more.
			return api.ExecExit{}, v.problem(err)
		case !is.Running && is.ExitCode != nil:
			return api.ExecExit{Code: *is.ExitCode}, nil
		}
		sleep(ctx, pause)
	}
}

// killLimit bounds how long processes may take to die.
const killLimit = 10 * time.Second

// kill ends all that bears the mark, and all of the command's session.
func (v *visited) kill() {
	ctx, cancel := v.bounded(killLimit)
	defer cancel()
	killCommand(ctx, v.mark, v.id, v.among)
}

// killCommand ends a command. What has changed its environment is in its session,
// and what began a session of its own bears the mark.
func killCommand(ctx context.Context, mark string, leader process.ID, among func() ([]int, error)) {
	// What does not die, goes with the container.
	_ = killAll(ctx, among, func(pid int) bool { return marked(pid, mark) })
	_ = process.KillSessionAmong(ctx, leader, among)
}

// killContained kills what is in a container until nothing is, or ctx ends.
func killContained(ctx context.Context, container string) error {
	return killAll(ctx, process.All, func(pid int) bool { return contained(pid, container) })
}

func killAll(ctx context.Context, among func() ([]int, error), is func(pid int) bool) error {
	for {
		left := 0
		pids, err := among()
		if err != nil {
			return fmt.Errorf("list processes: %w", err)
		}
		for _, pid := range pids {
			if pid == os.Getpid() || !is(pid) {
				continue
			}
			id, err := process.Of(pid)
			if err != nil || !is(pid) { // the number may be another's by now
				continue
			}
			left++
			_ = id.Signal(syscall.SIGKILL) // it may have ended
		}
		if left == 0 {
			return nil
		}
		if !sleep(ctx, 4*lookAgain) {
			return fmt.Errorf("wait for %d processes of a container to die: %w", left, ctx.Err())
		}
	}
}

// close lets go of a command that has ended. One that is stuck is left to
// endStrays, as if an earlier agent had left it.
func (v *visited) close() {
	v.conn.Close()
	_ = v.out.Close() // never fails
	if v.errs != nil {
		_ = v.errs.Close() // as above
	}
	if !v.stuck {
		v.forget()
		v.done()
		return
	}
	v.log.Warn("a command in a container was killed and does not end", "container", v.container, "exec", v.exec)
	v.visits.mu.Lock()
	defer v.visits.mu.Unlock()
	v.visits.stuck[v.exec] = v.done
	delete(v.visits.going, v.exec)
}

// remember writes down a command that is about to run.
func (v *visited) remember() error {
	dir := filepath.Join(v.cfg.StateDir, "visits")
	v.record = filepath.Join(dir, v.exec)
	v.visits.mu.Lock()
	v.visits.going[v.exec] = true
	v.visits.mu.Unlock()
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(v.record, []byte(v.mark), 0o600)
	}
	if err != nil {
		return fmt.Errorf("record a command: %w", err)
	}
	return nil
}

// rememberProcess adds the command's process to what is written down.
func (v *visited) rememberProcess() error {
	b, err := json.Marshal(v.id)
	if err != nil {
		return fmt.Errorf("record a command: %w", err)
	}
	f, err := os.OpenFile(v.record, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.Write(append([]byte("\n"), b...))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("record a command: %w", err)
	}
	return nil
}

func (v *visited) forget() {
	_ = os.Remove(v.record) // what is left, is looked at again
	v.visits.mu.Lock()
	defer v.visits.mu.Unlock()
	delete(v.visits.going, v.exec)
}

// strayLimit bounds how long what was left may take to die: it is killed again.
const strayLimit = 2 * time.Second

// endStrays ends the commands that an earlier agent left running, and those that
// were stuck.
func (d *Driver) endStrays(ctx context.Context) {
	files, _ := filepath.Glob(filepath.Join(d.cfg.StateDir, "visits", "*")) // the pattern is one
	for _, file := range files {
		exec := filepath.Base(file)
		d.visits.mu.Lock()
		mine := d.visits.going[exec]
		d.visits.mu.Unlock()
		record, err := os.ReadFile(file)
		if mine || err != nil {
			continue
		}
		asked, cancel := context.WithTimeout(ctx, answerLimit)
		is, err := d.look(asked, exec)
		if err != nil && !errdefs.IsNotFound(err) {
			cancel()
			continue // the engine may know it later
		}
		d.log.Info("ending a command that an agent left in a container", "exec", exec, "runs", is.Running)
		mark, written, _ := bytes.Cut(record, []byte("\n"))
		if bytes.HasPrefix(mark, []byte(markVisit)) {
			var leader process.ID
			_ = json.Unmarshal(written, &leader) // the agent may have ended before
			dying, stop := context.WithTimeout(ctx, strayLimit)
			killCommand(dying, string(mark), leader, process.All)
			stop()
		}
		cancel()
		if is.Running || os.Remove(file) != nil { // what stays, is looked at again
			continue
		}
		d.visits.mu.Lock()
		done := d.visits.stuck[exec]
		delete(d.visits.stuck, exec)
		d.visits.mu.Unlock()
		if done != nil {
			done()
		}
	}
}
