package docker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/docker"
	"github.com/berth-dev/berth/internal/agent/driver/visit/visittest"
	"github.com/berth-dev/berth/internal/frame"
)

func (w *world) visit(d *docker.Driver, spec driver.Spec, req api.ExecRequest) *visittest.Visitor {
	w.Helper()
	return visittest.Begin(w, func(ctx context.Context, conn driver.VisitConn) error { return d.Visit(ctx, spec.ID, &req, conn) })
}

func shows(v *visittest.Visitor, what string) func() error {
	return func() error {
		if v.Shows(what) {
			return nil
		}
		return fmt.Errorf("it shows %q, not %q", v.Output(), what)
	}
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

// testMembers: what runs in a container is looked for there, not among all that
// runs on the machine.
func (w *world) testMembers(d *docker.Driver, spec driver.Spec) {
	w.Helper()
	v := w.visit(d, spec, api.ExecRequest{Command: []string{"sh", "-c", "setsid sleep 77009 & echo on; wait"}})
	w.eventually("it runs", shows(v, "on\n"))
	list, err := w.engine.Client.ContainerList(w.Context(), client.ContainerListOptions{Filters: make(client.Filters).Add("label", "dev.berth.agent="+w.dir)})
	if err != nil || len(list.Items) != 1 {
		w.Fatalf("the containers are %+v, %v", list.Items, err)
	}
	is, err := w.engine.Client.ContainerInspect(w.Context(), list.Items[0].ID, client.ContainerInspectOptions{})
	if err != nil {
		w.Fatal(err)
	}
	first := is.Container.State.Pid
	w.eventually("the command is found", func() error {
		// The task, the shell, and what it began.
		pids, err := docker.Members(first, is.Container.ID)
		if err != nil || len(pids) != 3 || !slices.Contains(pids, first) || slices.Contains(pids, os.Getpid()) {
			return fmt.Errorf("the container of %d has %v (%w)", first, pids, err)
		}
		return nil
	})
	// Of a container that cannot be seen from here, anything may be a process.
	if pids, err := docker.Members(first, "0000"); err != nil || !slices.Contains(pids, os.Getpid()) {
		w.Errorf("without a cgroup there are %v (%v)", pids, err)
	}
	v.Hang()
	if err := <-v.Done; err == nil {
		w.Error("nobody was told that the visitor left")
	}
	w.eventually("nothing is left", gone("77009"))
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
	w.testMembers(d, spec)

	v := w.visit(d, spec, api.ExecRequest{Command: []string{"sh", "-c", "echo $COLOUR $(id -u); echo oops >&2; exit 7"}})
	if out, errs, exit := v.End(); out != "blue 1000\n" || errs != "oops\n" || exit.Code != 7 {
		w.Errorf("it wrote %q and %q, and ended with %+v", out, errs, exit)
	}
	v = w.visit(d, spec, api.ExecRequest{Command: []string{"wc", "-c"}, Input: true})
	v.Put(frame.Input, strings.Repeat("x", 60000))
	v.Put(frame.InputEnd, "")
	if out, _, _ := v.End(); strings.TrimSpace(out) != "60000" {
		w.Errorf("it counted %q", out)
	}
	v = w.visit(d, spec, api.ExecRequest{Command: []string{"true"}})
	if _, _, exit := v.End(); exit.Code != 0 {
		w.Errorf("it ended with %+v", exit)
	}
	v = w.visit(d, spec, api.ExecRequest{Command: []string{"no-such-program"}})
	if err := <-v.Done; err == nil && (v.Exit() == nil || v.Exit().Code/2 != 63) || err != nil && !strings.Contains(err.Error(), "no-such-program") {
		w.Errorf("of a command that is nowhere: %v, %+v", err, v.Exit())
	}

	v = w.visit(d, spec, api.ExecRequest{Command: []string{"sh"}, Input: true, Terminal: &api.TerminalSize{Rows: 31, Columns: 97}, Term: "vt100"})
	v.Put(frame.Input, "stty size; echo =$TERM=\n")
	w.eventually("the shell has a terminal", shows(v, "=vt100="))
	// This engine is too old to begin with a size: it is given one as soon as the
	// command runs.
	w.eventually("it has its size", func() error {
		v.Put(frame.Input, "stty size\n")
		return shows(v, "31 97")()
	})
	v.Put(frame.Resize, `{"rows":20,"columns":60}`)
	w.eventually("the new size arrives", func() error {
		v.Put(frame.Input, "stty size\n")
		return shows(v, "20 60")()
	})
	v.Put(frame.Input, "sleep 77001\n")
	w.eventually("it sleeps", func() error {
		if running("77001") == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	v.Put(frame.Input, "\x10\x03")
	w.eventually("the key is heard", gone("77001"))
	v.Put(frame.Input, "\nexit 3\n")
	if _, _, exit := v.End(); exit.Code != 3 {
		w.Errorf("it ended with %+v", exit)
	}

	// What gives its environment up is found, and so is what it leaves behind:
	// su does so.
	v = w.visit(d, spec, api.ExecRequest{Command: []string{"env", "-i", "/bin/sh", "-c", "trap '' HUP; /bin/sleep 77006 & echo on; wait"}})
	w.eventually("it runs", shows(v, "on\n"))
	v.Put(frame.Signal, "SIGTERM")
	if _, _, exit := v.End(); exit.Status() != 143 {
		w.Errorf("it ended with %+v", exit)
	}
	w.eventually("nothing is left", gone("77006"))
	v = w.visit(d, spec, api.ExecRequest{Command: []string{"sh", "-c", "env -i setsid /bin/sleep 77007 & exit 6"}})
	if _, _, exit := v.End(); exit.Code != 6 {
		w.Errorf("somebody else holds its output, and it ended with %+v", exit)
	}

	v = w.visit(d, spec, api.ExecRequest{Command: []string{"sleep", "77002"}})
	w.eventually("it runs", func() error {
		if running("77002") == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	v.Put(frame.Signal, "SIGTERM")
	if _, _, exit := v.End(); exit.Status() != 143 {
		w.Errorf("it ended with %+v", exit)
	}

	stubborn := func(word string) *visittest.Visitor {
		v := w.visit(d, spec, api.ExecRequest{Command: []string{"sh", "-c", "trap '' HUP; sleep " + word + " & setsid sleep " + word + " & echo on; wait"}})
		w.eventually("it runs", shows(v, "on\n"))
		w.eventually("all of it", func() error {
			if n := running(word); n != 2 {
				return fmt.Errorf("%d run", n)
			}
			return nil
		})
		return v
	}
	var all []*visittest.Visitor
	for range 8 {
		v := w.visit(d, spec, api.ExecRequest{Command: []string{"sleep", "77008"}})
		<-v.Begun
		all = append(all, v)
	}
	if err := <-w.visit(d, spec, api.ExecRequest{Command: []string{"true"}}).Done; api.CodeOf(err) != api.CodeUnavailable {
		w.Errorf("one too many: %v", err)
	}
	for _, v := range all {
		v.Hang()
		if err := <-v.Done; err == nil {
			w.Error("nobody was told that the visitor left")
		}
	}

	v = stubborn("77003")
	v.Hang()
	if err := <-v.Done; err == nil {
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
	if err := <-v.Done; err != nil {
		w.Logf("the visitor was told %v", err)
	}
	v = w.visit(next, spec, api.ExecRequest{Command: []string{"sh", "-c", "echo on; sleep 77005"}})
	w.eventually("it runs", shows(v, "on\n"))
	if err := next.Stop(w.Context(), spec.ID, "SIGKILL", 0); err != nil {
		w.Fatal(err)
	}
	// The engine may tell that the command was killed before it tells why.
	if err := <-v.Done; api.CodeOf(err) != api.CodeConflict && (err != nil || v.Exit() == nil || v.Exit().Code != 137) {
		w.Errorf("the task has ended, and the visitor is told %v, %+v", err, v.Exit())
	}
	if err := <-w.visit(next, spec, api.ExecRequest{Command: []string{"true"}}).Done; api.CodeOf(err) != api.CodeConflict {
		w.Errorf("of a task that has ended: %v", err)
	}
}
