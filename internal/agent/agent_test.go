package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/mount/mounttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scratch is a directory with a short path, as agents need one.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// world is a node with a server.
type world struct {
	t      *testing.T
	dir    string
	server *server
	tasks  *tasks
	config agent.Config
}

func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: dir, server: newServer(), tasks: newTasks()}
		cl, stop := w.server.start(t)
		defer stop()
		w.config = agent.Config{
			DataDir: dir, Name: "n1", Version: "test", Servers: cl,
			Drivers: []driver.Driver{w.tasks}, Table: mounttest.New(), BootID: "boot",
		}
		f(w)
	})
}

// start runs an agent; the function that it returns ends it.
func (w *world) start() (*agent.Agent, func()) {
	w.t.Helper()
	a, err := agent.New(w.config, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	after(time.Second)
	return a, func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}
}

func (w *world) wantTasks(when string, running, started int) {
	w.t.Helper()
	if r, s := w.tasks.counts(); r != running || s != started {
		w.t.Errorf("%s: %d tasks run and %d were started, want %d and %d", when, r, s, running, started)
	}
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestConfigSaysAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := agent.New(agent.Config{
		DataDir: "/tmp/" + strings.Repeat("d", 80), Name: "-" + strings.Repeat("n", 54), BootID: "boot",
	}, slog.New(slog.DiscardHandler))
	if api.CodeOf(err) != api.CodeInvalid {
		t.Fatalf("New: %v", err)
	}
	want := `the agent's configuration has 3 problems
  name begins with "-"; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit
  name is 55 characters long: the node's id is the name and 9 more, and CSI allows 63; choose one of at most 54 characters
  data_dir is 85 bytes long, and CSI drivers need paths below it of no more than 128: it may have 70; choose a shorter path`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestLongestNameMakesAnIDThatDriversTake(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.config.Name = strings.Repeat("n", 54)
		a, err := agent.New(w.config, slog.New(slog.DiscardHandler))
		if err != nil {
			w.t.Fatal(err)
		}
		if n := len(a.NodeID()); n != 63 {
			w.t.Errorf("the id has %d characters", n)
		}
		if err := a.Close(); err != nil {
			w.t.Error(err)
		}
	})
}

// The host's name is not of the agent's choosing: one that is too long is cut.
// Names belong to a thread's namespace, and this thread ends with the test.
func TestLongHostNameIsCut(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	type answer struct {
		id  api.NodeID
		err error
	}
	answers := make(chan answer)
	go func() {
		runtime.LockOSThread()
		err := errors.Join(unix.Unshare(unix.CLONE_NEWUTS), unix.Sethostname([]byte(strings.Repeat("h", 60)+".lan")))
		if err != nil {
			answers <- answer{err: err}
			return
		}
		a, err := agent.New(agent.Config{DataDir: dir, BootID: "boot", Servers: &client.Client{}}, slog.New(slog.DiscardHandler))
		if err != nil {
			answers <- answer{err: err}
			return
		}
		answers <- answer{a.NodeID(), a.Close()}
	}()
	got := <-answers
	if got.err != nil || len(got.id) != 63 || !strings.HasPrefix(string(got.id), strings.Repeat("h", 54)+"-") {
		t.Errorf("the node is %q, %v", got.id, got.err)
	}
}

func TestNextAgentAdoptsWhatRuns(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.server.place("a")
		first, stop := w.start()
		w.wantTasks("first agent", 1, 1)
		if !first.Link().Registered || w.server.state("a") != api.AllocRunning {
			w.t.Errorf("link %+v, allocation %q", first.Link(), w.server.state("a"))
		}
		stop()
		w.wantTasks("no agent", 1, 1)
		second, stop := w.start()
		w.wantTasks("second agent", 1, 1)
		if first.NodeID() != second.NodeID() {
			w.t.Errorf("the node was %s and is %s", first.NodeID(), second.NodeID())
		}
		w.server.change(func(a *api.Assignments) { a.Allocations = nil })
		after(time.Second)
		w.wantTasks("forgotten", 0, 1)
		stop()
	})
}

// What servers want that were put back to a backup may be long out of date.
func TestRecoveringServersChangeNothingUntilTheyAreConfirmed(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.server.place("a")
		_, stop := w.start()
		defer stop()
		w.server.change(func(a *api.Assignments) {
			a.Generation, a.Allocations = api.Generation{Number: 2, Recovering: true, Reason: "restored"}, nil
		})
		w.server.place("b")
		after(time.Minute)
		w.wantTasks("recovering", 1, 1)
		w.server.change(func(a *api.Assignments) { a.Generation.Recovering = false })
		after(time.Second)
		w.wantTasks("confirmed", 1, 2)
		if got := w.server.state("b"); got != api.AllocRunning {
			w.t.Errorf("b, which was placed before, is %q", got)
		}
	})
}

// Servers that were put back count operations from an older number on: what has
// the id of one that was executed may be another.
func TestOperationWithAKnownIDIsExecutedInANewGeneration(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		operation := func(plugin api.PluginID) []*api.Operation {
			return []*api.Operation{{ID: "delete/default/pg@101", Kind: api.OperationDelete, PluginID: plugin, Status: api.OperationStatus{
				State: api.OperationAssigned, Attempt: 1, Assigned: time.Now(), Deadline: time.Now().Add(time.Minute),
			}}}
		}
		w.server.change(func(a *api.Assignments) { a.Operations = operation("old") })
		_, stop := w.start()
		defer stop()
		if message := w.server.outcome().Message; !strings.Contains(message, "plugin old ") {
			w.t.Fatalf("outcome: %q", message)
		}
		w.server.change(func(a *api.Assignments) { a.Generation.Number, a.Operations = 2, operation("new") })
		after(time.Minute)
		if message := w.server.outcome().Message; !strings.Contains(message, "plugin new ") {
			w.t.Errorf("outcome: %q", message)
		}
	})
}

func TestDestroyEndsInBoundedTimeAndTakesNothingOn(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.server.place("a")
		w.server.place("b")
		w.tasks.stuck["b/t"] = true
		a, stop := w.start()
		defer stop()
		ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
		defer cancel()
		if err := a.Destroy(ctx); err == nil || err.Error() != "end all allocations in time: one is left: allocation b (tasks: stop task t: it is in state D)" {
			w.t.Errorf("Destroy: %v", err)
		}
		w.wantTasks("after Destroy", 1, 2)
		w.server.place("c")
		after(time.Minute)
		w.wantTasks("more is assigned", 1, 2)
	})
}

func TestDestroyEndsEverything(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.server.place("a")
		w.server.place("b")
		a, stop := w.start()
		defer stop()
		if err := a.Destroy(w.t.Context()); err != nil {
			w.t.Errorf("Destroy: %v", err)
		}
		w.wantTasks("after Destroy", 0, 2)
	})
}

// A runner that rests hears that its allocation is forgotten.
func TestDoneAllocationGoesWhenItIsForgotten(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		w.server.place("a")
		_, stop := w.start()
		defer stop()
		w.server.change(func(a *api.Assignments) {
			wanted := *a.Allocations[0].Allocation
			wanted.Desired = api.DesireStop
			a.Allocations[0].Allocation = &wanted
			w.server.changed["a"] = a.Index
		})
		after(time.Second)
		w.wantTasks("stopped", 0, 1)
		dir := filepath.Join(w.dir, "alloc", "a")
		if _, err := os.Stat(dir); err != nil || w.server.state("a") != api.AllocComplete {
			t.Errorf("a is %s, and its logs are kept: %v", w.server.state("a"), err)
		}
		w.server.change(func(a *api.Assignments) { a.Allocations = nil })
		after(time.Second)
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("its directory is there: %v", err)
		}
	})
}
