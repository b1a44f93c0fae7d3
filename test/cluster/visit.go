package cluster

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/visit"
)

var _ driver.Host = (*Tasks)(nil)

// Visit implements driver.Host. A task of this driver knows the commands echo,
// cat, size, sleep and exit, and no other.
func (t *Tasks) Visit(ctx context.Context, id string, req *api.ExecRequest, visitor driver.VisitConn) error {
	if status, err := t.Status(ctx, id); err != nil || status.State != driver.StateRunning {
		visitor.Close()
		return api.Errorf(api.CodeConflict, "task %s does not run", id)
	}
	c := &command{args: req.Command[1:], ended: make(chan api.ExecExit, 1), killed: make(chan int, 4), sizes: make(chan api.TerminalSize, 1)}
	c.in, c.input = io.Pipe()
	c.output, c.out = io.Pipe()
	c.errors, c.errs = io.Pipe()
	act := map[string]func() int{"echo": c.echo, "cat": c.cat, "size": c.size, "sleep": c.sleep, "exit": c.exit}[req.Command[0]]
	if act == nil {
		visitor.Close()
		return api.Errorf(api.CodeInvalid, "the command cannot be run: %q is not known", req.Command[0])
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		e := api.ExecExit{Code: act()}
		if e.Code > 128 {
			e = api.ExecExit{Signal: e.Code - 128}
		}
		_, _, _ = c.in.Close(), c.out.Close(), c.errs.Close() // they never fail
		c.ended <- e
	})
	is := visit.Command{
		Output: pipe{c.output}, Errors: pipe{c.errors}, Signal: c.signal,
		Wait: func(context.Context) (api.ExecExit, error) { return <-c.ended, nil },
		Kill: func() { _ = c.signal("SIGKILL") },
	}
	if req.Input {
		is.Input = sink{c.input}
	}
	if req.Terminal != nil {
		is.Errors = nil
		c.sizes <- *req.Terminal
		is.Resize = func(size api.TerminalSize) error { c.sizes <- size; return nil }
	}
	return visit.Serve(ctx, visitor, is)
}

// command is one that runs in memory.
type command struct {
	args []string

	in, output, errors *io.PipeReader
	input, out, errs   *io.PipeWriter

	ended  chan api.ExecExit
	killed chan int
	sizes  chan api.TerminalSize
}

// pipe has no limits: its other end is closed with the command.
type pipe struct{ *io.PipeReader }

// SetReadDeadline implements visit.Output.
func (pipe) SetReadDeadline(time.Time) error { return nil }

// sink has no limits either.
type sink struct{ *io.PipeWriter }

// SetWriteDeadline implements visit.Input.
func (sink) SetWriteDeadline(time.Time) error { return nil }

func (c *command) echo() int {
	fmt.Fprintln(c.out, strings.Join(c.args, " "))
	return 0
}

func (c *command) cat() int {
	_, _ = io.Copy(c.out, c.in) // both are in memory
	fmt.Fprintln(c.errs, "done")
	return 0
}

func (c *command) size() int {
	size := <-c.sizes
	fmt.Fprintf(c.out, "%d %d\n", size.Rows, size.Columns)
	return 0
}

// sleep sleeps until it is killed.
func (c *command) sleep() int {
	fmt.Fprintln(c.out, "asleep")
	return 128 + <-c.killed
}

func (c *command) exit() int {
	n, _ := strconv.Atoi(c.args[0]) // else 0
	return n
}

func (c *command) signal(name string) error {
	number := map[string]int{"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGKILL": 9, "SIGTERM": 15}[name]
	select {
	case c.killed <- number:
	default:
	}
	return nil
}
