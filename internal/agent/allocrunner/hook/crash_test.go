package hook_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// machine is a node on which the runner and this package's hook run an
// allocation: what its driver runs, its local database, and what the servers
// hear survive the agents, each of which may be killed in any moment.
type machine struct {
	t *testing.T
	// ends says how a run of a task ends, a second after its start; nil if it
	// runs on until it is stopped.
	ends func(task string, run int) *driver.Status
	// stopped is how a run ends that is stopped.
	stopped driver.Status
	mu      sync.Mutex // guards below
	record  *localdb.Allocation
	runs    map[string]driver.Status
	over    map[string]chan struct{}
	starts  []string // of tasks, as "pg/1"
	journal []string
	said    api.AllocStatus
}

// mortal is one agent's life: after its death nothing that it does has effect.
type mortal struct {
	m      *machine
	die    context.CancelFunc
	moment int
	dieAt  int
	dead   bool
}

var errDead = errors.New("this agent is dead")

// step does something, unless the agent dies before it, or after.
func (l *mortal) step(name string, do func() error) error {
	l.m.mu.Lock()
	if l.pass(); l.dead {
		l.m.mu.Unlock()
		return errDead
	}
	l.m.journal = append(l.m.journal, name)
	err := do()
	l.pass()
	dead := l.dead
	l.m.mu.Unlock()
	if dead {
		return errDead
	}
	return err
}

// pass is a moment; the caller holds the machine's mu.
func (l *mortal) pass() {
	if l.moment++; l.moment == l.dieAt {
		l.dead = true
		l.die()
	}
}

func (*mortal) Name() string                             { return "fake" }
func (*mortal) Fingerprint(context.Context) api.Driver   { return api.Driver{Healthy: true} }
func (*mortal) Check(api.Task) error                     { return nil }
func (l *mortal) ForgetAllocation(api.AllocID, []string) {}
func (l *mortal) DeleteAllocation(api.AllocID) error     { return nil }
func (l *mortal) remove(context.Context, string) error   { return os.ErrNotExist }
func (l *mortal) Destroy(_ context.Context, id string) error {
	return l.step("destroy "+short(id), func() error { return l.m.destroy(id) })
}
func (l *mortal) Start(_ context.Context, s driver.Spec) error {
	return l.step("start "+short(s.ID), func() error { return l.m.start(s.ID) })
}

func short(id string) string { return strings.TrimPrefix(id, string(allocID)+"/") }

func (l *mortal) Stop(_ context.Context, id, _ string, _ time.Duration) error {
	return l.step("stop "+short(id), func() error {
		l.m.end(id, l.m.stopped)
		return nil
	})
}

func (l *mortal) Status(_ context.Context, id string) (driver.Status, error) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.dead {
		return driver.Status{}, errDead
	}
	if s, known := l.m.runs[id]; known {
		return s, nil
	}
	return driver.Status{State: driver.StateUnknown}, nil
}

func (l *mortal) Wait(ctx context.Context, id string) (driver.Status, error) {
	l.m.mu.Lock()
	over, known := l.m.over[id]
	l.m.mu.Unlock()
	if !known {
		return driver.Status{}, api.Errorf(api.CodeNotFound, "no task %s", id)
	}
	select {
	case <-over:
		return l.Status(ctx, id)
	case <-ctx.Done():
		return driver.Status{}, ctx.Err()
	}
}

func (l *mortal) PutAllocation(a *localdb.Allocation) error {
	return l.step("record "+string(a.Phase), func() error {
		saved := *a
		l.m.record = &saved
		return nil
	})
}

func (l *mortal) SetAllocation(f api.AllocFact) {
	_ = l.step("say "+string(f.Status.State), func() error {
		l.m.said = f.Status
		return nil
	})
}

// start, end and destroy are what happens on the machine; the caller holds mu.
func (m *machine) start(id string) error {
	if _, known := m.runs[id]; known {
		return nil
	}
	task, number, _ := strings.Cut(short(id), "/")
	run := 0
	_, _ = fmt.Sscan(number, &run)
	for other, s := range m.runs {
		if name, _, _ := strings.Cut(short(other), "/"); name == task && s.State == driver.StateRunning {
			m.t.Errorf("%s is started beside %s", short(id), short(other))
		}
	}
	m.starts = append(m.starts, short(id))
	m.runs[id] = driver.Status{State: driver.StateRunning, PID: len(m.starts)}
	m.over[id] = make(chan struct{})
	if how := m.ends(task, run); how != nil {
		time.AfterFunc(time.Second, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.end(id, *how)
		})
	}
	return nil
}

func (m *machine) end(id string, how driver.Status) {
	if old, known := m.runs[id]; known && old.State == driver.StateRunning {
		how.State, how.PID, how.Ended = driver.StateEnded, old.PID, time.Now()
		m.runs[id] = how
		close(m.over[id])
	}
}

func (m *machine) destroy(id string) error {
	if m.runs[id].State == driver.StateRunning {
		m.end(id, driver.Status{Signal: 9})
	}
	delete(m.runs, id)
	return nil
}

// story is an allocation whose life is told from its start to its end.
type story struct {
	assignment func() api.AllocAssignment
	ends       func(task string, run int) *driver.Status
	// wishes are what the servers want from some time on.
	wishes map[time.Duration]func(*api.Allocation)
	// before are hooks before that of tasks.
	before []allocrunner.Hook
	// stopped is how a run ends that is stopped; nil is by the signal.
	stopped *driver.Status
	// starts are all starts of tasks, in order, and end how it ended.
	starts string
	state  api.AllocState
	check  func(t *testing.T, s api.AllocStatus)
}

// tell lets the story happen, with the agent killed in each of the given
// moments, and reports whether each of the kills happened.
func (st story) tell(t *testing.T, kills ...int) (all bool) {
	t.Helper()
	m := &machine{t: t, ends: st.ends, stopped: driver.Status{Signal: 2}, runs: map[string]driver.Status{}, over: map[string]chan struct{}{}}
	if st.stopped != nil {
		m.stopped = *st.stopped
	}
	wanted := st.assignment()
	var runner *allocrunner.Runner
	var timers []*time.Timer
	defer func() {
		for _, timer := range timers {
			timer.Stop()
		}
	}()
	for at, wish := range st.wishes {
		timers = append(timers, time.AfterFunc(at, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			alloc := *wanted.Allocation
			wish(&alloc)
			wanted.Allocation = &alloc
			runner.Update(wanted)
		}))
	}
	died := 0
	for run := 0; ; run++ {
		ctx, cancel := context.WithCancel(t.Context())
		life := &mortal{m: m, die: cancel}
		if run < len(kills) {
			life.dieAt = kills[run]
		}
		m.mu.Lock()
		record := localdb.Allocation{Assignment: wanted}
		if m.record != nil {
			record = *m.record
		}
		node := func() *api.Node { return &api.Node{ID: "db-1-9f31c2aa", Name: "db-1"} }
		tasks := hook.NewTasks(map[string]driver.Driver{"fake": life}, node)
		runner = allocrunner.New(allocrunner.Config{
			Dir: "/alloc", Hooks: append(slices.Clip(st.before), hook.NewPoststop(tasks, nil), tasks),
			Memory: life, Facts: life, Remove: life.remove,
		}, record, slog.New(slog.DiscardHandler))
		runner.Update(wanted)
		living := runner
		m.mu.Unlock()
		ended := make(chan error, 1)
		go func() { ended <- living.Run(ctx) }()
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Minute):
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		m.journal = append(m.journal, "-")
		if !life.dead {
			break
		}
		died++
	}
	if got := strings.Join(m.starts, ", "); got != st.starts || m.said.State != st.state || len(m.runs) > 0 {
		t.Errorf("killed in %v: the starts are %s, want %s; the servers hear %s, want %s; %d runs are left: %s",
			kills, got, st.starts, m.said.State, st.state, len(m.runs), strings.Join(m.journal, ", "))
	}
	if st.check != nil {
		st.check(t, m.said)
	}
	if t.Failed() {
		t.Fatalf("killed in %v: %s", kills, strings.Join(m.journal, ", "))
	}
	return died == len(kills)
}

// useless finds the first run of a task to be of no use, each time that it looks.
type useless struct{}

func (useless) Name() string                                  { return "useless" }
func (useless) Down(context.Context, *allocrunner.Step) error { return nil }
func (useless) Up(_ context.Context, s *allocrunner.Step) error {
	if is := s.Tasks()["pg"]; is.State == api.TaskRunning && is.Restarts == 0 {
		s.SetFailing("pg", 0, "it is of no use")
	}
	return nil
}

func exits(code int) *driver.Status { return &driver.Status{ExitCode: code} }

// policy is an assignment of one task with a restart policy.
func policy(of api.JobType, mode api.RestartMode, attempts int) func() api.AllocAssignment {
	return func() api.AllocAssignment {
		a := assignment()
		a.JobType = of
		interval := api.Duration(2 * time.Minute)
		a.Group.Restart = &api.RestartPolicy{Attempts: &attempts, Interval: &interval, Mode: mode}
		return a
	}
}

// around is an assignment of a main task with others around it.
func around() api.AllocAssignment {
	a := policy(api.JobBatch, api.RestartFail, 1)()
	a.Group.Tasks = []api.Task{
		{Name: "after", Driver: "fake", Lifecycle: &api.Lifecycle{Hook: api.HookPoststart}},
		{Name: "pg", Driver: "fake"},
		{Name: "init", Driver: "fake", Lifecycle: &api.Lifecycle{Hook: api.HookPrestart}},
		{Name: "proxy", Driver: "fake", Lifecycle: &api.Lifecycle{Hook: api.HookPrestart, Sidecar: true}},
	}
	return a
}

// withPoststop adds a task that cleans up.
func withPoststop(of func() api.AllocAssignment) func() api.AllocAssignment {
	return func() api.AllocAssignment {
		a := of()
		a.Group.Tasks = append(a.Group.Tasks, api.Task{
			Name: "clean", Driver: "fake", KillTimeout: api.Duration(20 * time.Second), Lifecycle: &api.Lifecycle{Hook: api.HookPoststop},
		})
		return a
	}
}

func stories() map[string]story {
	restarts := func(want int) func(*testing.T, api.AllocStatus) {
		return func(t *testing.T, s api.AllocStatus) {
			t.Helper()
			if got := s.Tasks["pg"]; got.Restarts != want {
				t.Errorf("the task was restarted %d times, want %d: %+v", got.Restarts, want, got)
			}
		}
	}
	return map[string]story{
		"FailsUntilItsRestartsAreUsedUp": {
			assignment: policy(api.JobService, api.RestartFail, 2),
			ends:       func(string, int) *driver.Status { return exits(3) },
			starts:     "pg, pg/1, pg/2", state: api.AllocFailed,
			check: func(t *testing.T, s api.AllocStatus) {
				t.Helper()
				restarts(2)(t, s)
				if got, want := s.Why(), "task pg exited with status 3, after 2 restarts"; got != want {
					t.Errorf("it failed because %q, want %q", got, want)
				}
			},
		},
		"BatchSucceedsAtLast": {
			assignment: policy(api.JobBatch, api.RestartFail, 2),
			ends:       func(_ string, run int) *driver.Status { return exits(max(0, 1-run)) },
			starts:     "pg, pg/1", state: api.AllocComplete, check: restarts(1),
		},
		"BatchThatSucceedsIsNotRestarted": {
			assignment: policy(api.JobBatch, api.RestartFail, 2),
			ends:       func(string, int) *driver.Status { return exits(0) },
			starts:     "pg", state: api.AllocComplete, check: restarts(0),
		},
		"ServiceShouldNotEnd": {
			assignment: policy(api.JobService, api.RestartFail, 1),
			ends:       func(string, int) *driver.Status { return exits(0) },
			starts:     "pg, pg/1", state: api.AllocFailed, check: restarts(1),
		},
		"NoRestarts": {
			assignment: policy(api.JobService, api.RestartFail, 0),
			ends:       func(string, int) *driver.Status { return exits(1) },
			starts:     "pg", state: api.AllocFailed, check: restarts(0),
		},
		"WaitsForTheNextInterval": {
			assignment: policy(api.JobBatch, api.RestartDelay, 1),
			ends:       func(_ string, run int) *driver.Status { return exits(max(0, 2-run)) },
			starts:     "pg, pg/1, pg/2", state: api.AllocComplete, check: restarts(2),
		},
		"RestartedByAUser": {
			assignment: policy(api.JobBatch, api.RestartFail, 0),
			ends: func(_ string, run int) *driver.Status {
				if run < 2 {
					return nil
				}
				return exits(0)
			},
			wishes: map[time.Duration]func(*api.Allocation){
				5 * time.Second:  func(a *api.Allocation) { a.Asked = map[string]int{api.AllTasks: 1} },
				15 * time.Second: func(a *api.Allocation) { a.Asked, a.AskedBy = map[string]int{api.AllTasks: 1, "pg": 1}, "alice" },
			},
			starts: "pg, pg/1, pg/2", state: api.AllocComplete,
			check: func(t *testing.T, s api.AllocStatus) {
				t.Helper()
				restarts(2)(t, s)
				if got := s.Tasks["pg"]; got.Asked != 2 || got.Attempts != 0 || got.Last.Signal != 2 || got.Last.Reason != "restarted by alice" {
					t.Errorf("the task is %+v", got)
				}
			},
		},
		"RestartedByAUserWhileItWaits": {
			assignment: policy(api.JobBatch, api.RestartFail, 1),
			ends:       func(_ string, run int) *driver.Status { return exits(1 - run) },
			wishes: map[time.Duration]func(*api.Allocation){
				5 * time.Second: func(a *api.Allocation) { a.Asked = map[string]int{"pg": 1} },
			},
			starts: "pg, pg/1", state: api.AllocComplete,
			check: func(t *testing.T, s api.AllocStatus) {
				t.Helper()
				restarts(1)(t, s)
				if got := s.Tasks["pg"]; got.Ended.Sub(got.Last.Ended) > 6*time.Second {
					t.Errorf("it waited on: %+v", got)
				}
			},
		},
		"AskedForBeforeItsStart": {
			assignment: func() api.AllocAssignment {
				a := policy(api.JobBatch, api.RestartFail, 0)()
				a.Allocation.Asked = map[string]int{api.AllTasks: 3}
				return a
			},
			ends:   func(string, int) *driver.Status { return exits(0) },
			starts: "pg", state: api.AllocComplete, check: restarts(0),
		},
		"AroundTheMainTask": {
			assignment: around,
			ends: func(task string, run int) *driver.Status {
				switch {
				case task == "proxy":
					return nil
				case task == "init":
					return exits(1 - run)
				}
				return exits(0)
			},
			starts: "init, proxy, init/1, pg, after", state: api.AllocComplete,
		},
		"PrestartFails": {
			assignment: around,
			ends: func(task string, _ int) *driver.Status {
				if task == "proxy" {
					return nil
				}
				return exits(7)
			},
			starts: "init, proxy, init/1", state: api.AllocFailed,
		},
		"LeaderEnds": {
			assignment: func() api.AllocAssignment {
				a := policy(api.JobBatch, api.RestartFail, 1)()
				a.Group.Tasks = []api.Task{{Name: "follower", Driver: "fake"}, {Name: "pg", Driver: "fake", Leader: true}}
				return a
			},
			ends: func(task string, _ int) *driver.Status {
				if task == "follower" {
					return nil
				}
				return exits(0)
			},
			starts: "follower, pg", state: api.AllocComplete,
		},
		// Its command takes the stop for a wish, and exits with 0.
		"OfNoUse": {
			assignment: policy(api.JobBatch, api.RestartFail, 1),
			ends: func(_ string, run int) *driver.Status {
				if run == 0 {
					return nil
				}
				return exits(0)
			},
			before: []allocrunner.Hook{useless{}}, stopped: exits(0),
			starts: "pg, pg/1", state: api.AllocComplete,
			check: func(t *testing.T, s api.AllocStatus) {
				t.Helper()
				restarts(1)(t, s)
				if got := s.Tasks["pg"]; got.Last.Reason != "it is of no use" || got.Reason != "" {
					t.Errorf("the task is %+v", got)
				}
			},
		},
		"PoststopAfterSuccess": {
			assignment: withPoststop(around),
			ends: func(task string, run int) *driver.Status {
				switch {
				case task == "proxy":
					return nil
				case task == "init", task == "clean":
					return exits(1 - run)
				}
				return exits(0)
			},
			starts: "init, proxy, init/1, pg, after, clean, clean/1", state: api.AllocComplete,
		},
		"PoststopAfterAFailure": {
			assignment: withPoststop(policy(api.JobService, api.RestartFail, 0)),
			ends:       func(task string, _ int) *driver.Status { return exits(len(task) - 1) },
			starts:     "pg, clean", state: api.AllocFailed,
			check: func(t *testing.T, s api.AllocStatus) {
				t.Helper()
				if got, want := s.Why(), "task pg exited with status 1"; got != want {
					t.Errorf("it failed because %q, want %q", got, want)
				}
			},
		},
		"PoststopAfterAStop": {
			assignment: withPoststop(policy(api.JobService, api.RestartFail, 1)),
			ends: func(task string, _ int) *driver.Status {
				if task == "pg" {
					return nil
				}
				return exits(0)
			},
			wishes: map[time.Duration]func(*api.Allocation){
				5 * time.Second: func(a *api.Allocation) { a.Desired = api.DesireStop },
			},
			starts: "pg, clean", state: api.AllocComplete,
		},
		"PoststopThatDoesNotEnd": {
			assignment: withPoststop(policy(api.JobBatch, api.RestartFail, 3)),
			ends: func(task string, _ int) *driver.Status {
				if task == "pg" {
					return exits(0)
				}
				return nil
			},
			starts: "pg, clean", state: api.AllocComplete,
			check: func(t *testing.T, s api.AllocStatus) {
				t.Helper()
				if got := s.Tasks["clean"]; got.Signal != 2 || !strings.Contains(got.Reason, "had not ended after 20s") {
					t.Errorf("the task is %+v", got)
				}
			},
		},
		"StoppedWhileItWaits": {
			assignment: policy(api.JobService, api.RestartFail, 1),
			ends:       func(string, int) *driver.Status { return exits(4) },
			wishes: map[time.Duration]func(*api.Allocation){
				5 * time.Second: func(a *api.Allocation) { a.Desired = api.DesireStop },
			},
			starts: "pg", state: api.AllocComplete,
		},
	}
}

// TestKilledInEveryMomentNoRunIsLostOrDoubled kills the agent before and after
// every call of the driver, every record and every word to the servers, and the
// next agent in every moment of its recovery. The tasks are started exactly as
// often, and the end is the same, as if nobody had been killed.
func TestKilledInEveryMomentNoRunIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	for name, st := range stories() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := 0
			synctest.Test(t, func(t *testing.T) {
				st.tell(t)
				step := 1
				if testing.Short() {
					step = 7
				}
				for first := 1; st.tell(t, first); first++ {
					for second := 1; st.tell(t, first, second); second += step {
						runs++
					}
				}
			})
			if runs < 50 && !testing.Short() {
				t.Errorf("%d runs with two kills, want more", runs)
			}
			t.Logf("%d runs with two kills", runs)
		})
	}
}
