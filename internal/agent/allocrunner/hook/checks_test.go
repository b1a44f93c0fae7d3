package hook_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/probe"
	"github.com/berth-dev/berth/internal/frame"
)

// hosting is the fake as a driver that runs commands in its tasks.
type hosting struct {
	*fake

	mu     sync.Mutex // guards below
	exits  int
	dead   bool
	visits []string
}

func (h *hosting) Status(ctx context.Context, id string) (driver.Status, error) {
	s, err := h.fake.Status(ctx, id)
	if s.State == driver.StateRunning {
		s.Started = time.Unix(int64(100+strings.Count(id, "/")), 0) // each run has a time of its own
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		s.State = driver.StateEnded
	}
	return s, err
}

func (h *hosting) Visit(_ context.Context, id string, req *api.ExecRequest, visitor driver.VisitConn) error {
	h.mu.Lock()
	exit := api.ExecExit{Code: h.exits}
	_, run, _ := strings.Cut(id, "/")
	h.visits = append(h.visits, run+": "+strings.Join(req.Command, " "))
	h.mu.Unlock()
	defer visitor.Close()
	if err := visitor.Out.Put(frame.Errors, []byte("I say\n")); err != nil {
		return err
	}
	b, err := json.Marshal(exit)
	if err != nil {
		return err
	}
	return visitor.Out.Put(frame.Exit, b)
}

func (h *hosting) exit(code int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.exits = code
}

func (h *hosting) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dead, h.exits = true, 1
}

// checked runs a test with the hooks of tasks and of checks, in virtual time.
func checked(t *testing.T, change func(a *api.AllocAssignment), f func(d *hosting, s *allocrunner.Step, up func(), down func())) {
	t.Helper()
	watched(t, "fd00::5", change, func(_ *hook.Checks, d *hosting, s *allocrunner.Step, up func(), down func()) { f(d, s, up, down) })
}

// watched is checked with the hook itself, on a node with that address.
func watched(t *testing.T, address string, change func(a *api.AllocAssignment), f func(h *hook.Checks, d *hosting, s *allocrunner.Step, up func(), down func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, a := &hosting{fake: newFake()}, assignment()
		a.Allocation.Ports = []api.AllocatedPort{{Name: "db", Number: 5432}}
		a.Group.Services = []api.Service{{Name: "pg", Task: "pg", Checks: []api.ServiceCheck{{
			Name: "ready", Type: api.CheckScript, Command: "/bin/ready", Args: []string{"${BERTH_PORT_db}", "${BERTH_TASK_NAME}"},
			Interval: api.Duration(10 * time.Second),
		}}}}
		if change != nil {
			change(&a)
		}
		node := &api.Node{ID: "n1", Status: api.NodeStatus{Profile: api.Profile{Address: address}}}
		tasks := hook.NewTasks(map[string]driver.Driver{"fake": d}, func() *api.Node { return node })
		prober := probe.New()
		checks := hook.NewChecks(tasks, prober)
		s := allocrunner.NewStep("/alloc", a)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- prober.Run(ctx) }()
		up := func() {
			t.Helper()
			for _, h := range []allocrunner.Hook{tasks, checks} {
				if err := h.Up(t.Context(), s); err != nil {
					t.Fatal(err)
				}
			}
		}
		f(checks, d, s, up, func() {
			if err := checks.Down(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func passTime(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// states are the checks of a step in short.
func states(s *allocrunner.Step) (all []string) {
	for _, c := range s.Checks() {
		all = append(all, c.Service+"/"+c.Name+" "+string(c.Status)+" "+c.Output)
	}
	return all
}

func TestScriptIsRunInItsTask(t *testing.T) {
	t.Parallel()
	checked(t, nil, func(d *hosting, s *allocrunner.Step, up, down func()) {
		up()
		if diff := cmp.Diff([]string{"pg/ready pending "}, states(s)); diff != "" {
			t.Errorf("at first (-want +got):\n%s", diff)
		}
		passTime(time.Second)
		if diff := cmp.Diff([]string{"pg/ready passing I say"}, states(s)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		d.exit(3)
		passTime(10 * time.Second)
		if diff := cmp.Diff([]string{"pg/ready critical exit status 3: I say"}, states(s)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if want := "pg: /bin/ready 5432 pg"; d.visits[0] != want {
			t.Errorf("ran %q, want %q", d.visits[0], want)
		}
		down()
		n := len(d.visits)
		passTime(time.Minute)
		if len(d.visits) != n || len(states(s)) != 1 {
			t.Errorf("%d probes after its end, checks %q", len(d.visits)-n, states(s))
		}
	})
}

func TestTaskWhoseCheckFailsIsStartedAgainByItsPolicy(t *testing.T) {
	t.Parallel()
	checked(t, func(a *api.AllocAssignment) {
		attempts := 2
		a.Group.Services[0].CheckRestart, a.Group.Restart = &api.CheckRestart{Limit: 2}, &api.RestartPolicy{Attempts: &attempts}
	}, func(d *hosting, s *allocrunner.Step, up, _ func()) {
		up()
		d.exit(1)
		passTime(15 * time.Second)
		up() // it was woken
		task := s.Tasks()["pg"]
		if want := `check "ready" of service pg failed 2 times in a row: exit status 1: I say`; task.State != api.TaskPending || task.Restarts != 1 || task.Last.Reason != want {
			t.Errorf("the task is %+v, want it to be started again because %s", task, want)
		}
		if got := s.Events(); len(got) != 1 || got[0].Task != "pg" || !strings.Contains(got[0].Message, "failed 2 times in a row") {
			t.Errorf("events %+v", got)
		}
		if diff := cmp.Diff([]string{"pg/ready pending "}, states(s)); diff != "" {
			t.Errorf("while it does not run (-want +got):\n%s", diff)
		}
		d.exit(0)
		passTime(time.Minute)
		up()
		passTime(time.Second)
		if diff := cmp.Diff([]string{"pg/ready passing I say"}, states(s)); diff != "" {
			t.Errorf("of the next run (-want +got):\n%s", diff)
		}
		if !slices.Contains(d.visits, "pg/1: /bin/ready 5432 pg") {
			t.Errorf("visits: %q", d.visits)
		}
	})
}

func TestChecksChangeWhileTheirTasksRun(t *testing.T) {
	t.Parallel()
	checked(t, nil, func(_ *hosting, s *allocrunner.Step, up, _ func()) {
		up()
		passTime(time.Second)
		a := s.Assignment()
		a.Group.Services = append(a.Group.Services, api.Service{Name: "more", Checks: []api.ServiceCheck{{Name: "ready", Type: api.CheckScript, Task: "pg", Command: "x"}}})
		up()
		if diff := cmp.Diff([]string{"pg/ready passing I say", "more/ready pending "}, states(s)); diff != "" {
			t.Errorf("with one more (-want +got):\n%s", diff)
		}
		a.Group.Services = nil
		up()
		if got := states(s); got != nil {
			t.Errorf("without any: %q", got)
		}
	})
}

// Between a task's end and the word of its hook its checks do not fail.
func TestTaskThatEndsByItselfFailsNoCheck(t *testing.T) {
	t.Parallel()
	checked(t, nil, func(d *hosting, s *allocrunner.Step, up, _ func()) {
		up()
		passTime(time.Second)
		d.end()
		passTime(20 * time.Second)
		if diff := cmp.Diff([]string{"pg/ready passing I say"}, states(s)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A node that does not know its address, or a port, asks nobody else.
func TestWhatHasNoAddressIsNotAsked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ address, port string }{"Node": {"", "5432"}, "Port": {"fd00::5", "none"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watched(t, tc.address, func(a *api.AllocAssignment) {
				a.Group.Services[0].Port = tc.port
				a.Group.Services[0].Checks[0] = api.ServiceCheck{Name: "ready", Type: api.CheckTCP, Interval: api.Duration(time.Second)}
			}, func(_ *hook.Checks, _ *hosting, s *allocrunner.Step, up, _ func()) {
				up()
				passTime(10 * time.Second)
				want := []string{"pg/ready pending it could not be asked 3 times in a row: the node's address or the service's port is not known"}
				if diff := cmp.Diff(want, states(s)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A check that turns is recorded, and wakes no other hook for it.
func TestTurnIsOnlyRecorded(t *testing.T) {
	t.Parallel()
	watched(t, "fd00::5", nil, func(h *hook.Checks, d *hosting, s *allocrunner.Step, up, _ func()) {
		up()
		ctx, cancel := context.WithCancel(context.Background()) // of the bubble
		woken := make(chan error, 1)
		go func() {
			_, err := h.Watch(ctx, s)
			woken <- err
		}()
		passTime(time.Second)
		d.exit(1)
		passTime(10 * time.Second)
		if diff := cmp.Diff([]string{"pg/ready critical exit status 1: I say"}, states(s)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		select {
		case err := <-woken:
			t.Errorf("the hooks were called for a turn: %v", err)
		default:
		}
		cancel()
		if err := <-woken; err != nil {
			t.Error(err)
		}
	})
}
