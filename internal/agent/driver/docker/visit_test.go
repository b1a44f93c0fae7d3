package docker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/docker"
	"github.com/berth-dev/berth/internal/frame"
)

// visitor is a person's side of a command in a container.
type visitor struct {
	w    *world
	say  *frame.Writer
	hang func()
	done <-chan error

	mu        sync.Mutex // guards below
	out, errs bytes.Buffer
	exit      *api.ExecExit
}

func (w *world) visit(d *docker.Driver, spec driver.Spec, req api.ExecRequest) *visitor {
	w.Helper()
	toTask, fromUs := io.Pipe()
	toUs, fromTask := io.Pipe()
	v := &visitor{w: w, say: frame.NewWriter(fromUs)}
	ctx, cancel := context.WithCancel(context.Background())
	v.hang = func() { cancel(); _ = fromUs.Close() }
	w.Cleanup(v.hang)
	done, heard := make(chan error, 1), make(chan struct{})
	v.done = done
	go func() { defer close(heard); v.listen(frame.NewReader(toUs)) }()
	go func() {
		err := d.Visit(ctx, spec.ID, &req, driver.VisitConn{
			In: frame.NewReader(toTask), Out: frame.NewWriter(fromTask),
			Close: func() { _ = toTask.CloseWithError(io.ErrClosedPipe) },
		})
		_ = fromTask.Close()
		<-heard
		done <- err
	}()
	return v
}

func (v *visitor) listen(r *frame.Reader) {
	for {
		kind, payload, err := r.Next()
		if err != nil {
			return
		}
		v.mu.Lock()
		switch kind { //nolint:exhaustive // the others are of no interest here
		case frame.Data:
			v.out.Write(payload)
		case frame.Errors:
			v.errs.Write(payload)
		case frame.Exit:
			v.exit = &api.ExecExit{}
			if err := json.Unmarshal(payload, v.exit); err != nil {
				v.w.Error(err)
			}
		}
		v.mu.Unlock()
	}
}

func (v *visitor) put(kind frame.Kind, payload string) {
	v.w.Helper()
	if err := v.say.Put(kind, []byte(payload)); err != nil {
		v.w.Error(err)
	}
}

func (v *visitor) shows(what string) func() error {
	return func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		if strings.Contains(v.out.String(), what) {
			return nil
		}
		return fmt.Errorf("it shows %q, not %q", v.out.String(), what)
	}
}

func (v *visitor) end() (out, errs string, exit api.ExecExit) {
	v.w.Helper()
	if err := <-v.done; err != nil {
		v.w.Fatalf("the visit: %v", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.exit == nil {
		v.w.Fatal("the end was not told")
	}
	return v.out.String(), v.errs.String(), *v.exit
}

// running counts the processes of the machine whose command line has a word.
func running(word string) int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is one
	n := 0
	for _, f := range files {
		if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte("\x00"+word+"\x00")) {
			n++
		}
	}
	return n
}

func gone(word string) func() error {
	return func() error {
		if n := running(word); n > 0 {
			return fmt.Errorf("%d processes of %s run", n, word)
		}
		return nil
	}
}

// testVisit: a command finds what the task finds, reads and writes to the end,
// has a terminal where it wants one, and ends with its visitor, and an agent that
// was killed.
func testVisit(w *world) {
	d, kill := w.agent()
	spec := w.spec("visit/main", "exec sleep 100000")
	spec.Task.User = "app"
	w.start(d, spec)
	defer func() { w.destroy(d, spec) }()

	v := w.visit(d, spec, api.ExecRequest{Command: []string{"sh", "-c", "echo $COLOUR $(id -u); echo oops >&2; exit 7"}})
	if out, errs, exit := v.end(); out != "blue 1000\n" || errs != "oops\n" || exit.Code != 7 {
		w.Errorf("it wrote %q and %q, and ended with %+v", out, errs, exit)
	}
	v = w.visit(d, spec, api.ExecRequest{Command: []string{"wc", "-c"}, Input: true})
	v.put(frame.Input, strings.Repeat("x", 60000))
	v.put(frame.InputEnd, "")
	if out, _, _ := v.end(); strings.TrimSpace(out) != "60000" {
		w.Errorf("it counted %q", out)
	}
	v = w.visit(d, spec, api.ExecRequest{Command: []string{"true"}})
	if _, _, exit := v.end(); exit.Code != 0 {
		w.Errorf("it ended with %+v", exit)
	}
	v = w.visit(d, spec, api.ExecRequest{Command: []string{"no-such-program"}})
	if err := <-v.done; err == nil && (v.exit == nil || v.exit.Code/2 != 63) || err != nil && !strings.Contains(err.Error(), "no-such-program") {
		w.Errorf("of a command that is nowhere: %v, %+v", err, v.exit)
	}

	v = w.visit(d, spec, api.ExecRequest{Command: []string{"sh"}, Input: true, Terminal: &api.TerminalSize{Rows: 31, Columns: 97}, Term: "vt100"})
	v.put(frame.Input, "stty size; echo =$TERM=\n")
	w.eventually("the shell has a terminal", v.shows("=vt100="))
	// This engine is too old to begin with a size: it is given one as soon as the
	// command runs.
	w.eventually("it has its size", func() error {
		v.put(frame.Input, "stty size\n")
		return v.shows("31 97")()
	})
	v.put(frame.Resize, `{"rows":20,"columns":60}`)
	w.eventually("the new size arrives", func() error {
		v.put(frame.Input, "stty size\n")
		return v.shows("20 60")()
	})
	v.put(frame.Input, "sleep 77001\n")
	w.eventually("it sleeps", func() error {
		if running("77001") == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	v.put(frame.Input, "\x10\x03")
	w.eventually("the key is heard", gone("77001"))
	v.put(frame.Input, "\nexit 3\n")
	if _, _, exit := v.end(); exit.Code != 3 {
		w.Errorf("it ended with %+v", exit)
	}

	v = w.visit(d, spec, api.ExecRequest{Command: []string{"sleep", "77002"}})
	w.eventually("it runs", func() error {
		if running("77002") == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	v.put(frame.Signal, "SIGTERM")
	if _, _, exit := v.end(); exit.Status() != 143 {
		w.Errorf("it ended with %+v", exit)
	}

	stubborn := func(word string) *visitor {
		v := w.visit(d, spec, api.ExecRequest{Command: []string{"sh", "-c", "trap '' HUP; sleep " + word + " & setsid sleep " + word + " & echo on; wait"}})
		w.eventually("it runs", v.shows("on\n"))
		w.eventually("all of it", func() error {
			if n := running(word); n != 2 {
				return fmt.Errorf("%d run", n)
			}
			return nil
		})
		return v
	}
	v = stubborn("77003")
	v.hang()
	if err := <-v.done; err == nil {
		w.Error("nobody was told that the visitor left")
	}
	w.eventually("nothing is left", gone("77003"))
	if left, _ := filepath.Glob(filepath.Join(w.config.StateDir, "visits", "*")); len(left) > 0 {
		w.Errorf("%q is left", left)
	}

	// An agent that is killed ends nothing. The next one finds what it left.
	v = stubborn("77004")
	kill()
	strays, err := filepath.Glob(filepath.Join(w.config.StateDir, "visits", "*"))
	if err != nil || len(strays) != 1 {
		w.Fatalf("recorded are %q (%v)", strays, err)
	}
	next, _ := w.agent()
	w.eventually("nothing is left", gone("77004"))
	if err := <-v.done; err != nil {
		w.Logf("the visitor was told %v", err)
	}
	v = w.visit(next, spec, api.ExecRequest{Command: []string{"sh", "-c", "echo on; sleep 77005"}})
	w.eventually("it runs", v.shows("on\n"))
	if err := next.Stop(w.Context(), spec.ID, "SIGKILL", 0); err != nil {
		w.Fatal(err)
	}
	// The engine may tell that the command was killed before it tells why.
	if err := <-v.done; api.CodeOf(err) != api.CodeConflict && (err != nil || v.exit == nil || v.exit.Code != 137) {
		w.Errorf("the task has ended, and the visitor is told %v, %+v", err, v.exit)
	}
	if err := <-w.visit(next, spec, api.ExecRequest{Command: []string{"true"}}).done; api.CodeOf(err) != api.CodeConflict {
		w.Errorf("of a task that has ended: %v", err)
	}
}
