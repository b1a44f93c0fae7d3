package hook_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a task driver in memory.
type fake struct {
	mountsVolumes bool
	onHost        bool
	stopping      func()           // is called when a run that runs is stopped
	slow          time.Duration    // how long a stop takes
	fail          map[string]error // by call: "check pg"

	mu           sync.Mutex // guards below
	fingerprints int
	calls        []string
	specs        map[string]driver.Spec
	tasks        map[string]driver.Status
	ended        map[string]chan struct{}
}

func newFake() *fake {
	return &fake{
		mountsVolumes: true, fail: map[string]error{},
		specs: map[string]driver.Spec{}, tasks: map[string]driver.Status{}, ended: map[string]chan struct{}{},
	}
}

// note records a call and answers its error.
func (f *fake) note(call, id string) error {
	_, name, _ := strings.Cut(id, "/")
	f.calls = append(f.calls, call+" "+name)
	return f.fail[call+" "+name]
}

func (*fake) Name() string { return "fake" }

// onHost is the fake whose tasks see the host's directories.
type onHost struct{ *fake }

func (onHost) Root(dir string) string { return dir }

// as is the fake as the hooks know it.
func (f *fake) as() driver.Driver {
	if f.onHost {
		return onHost{f}
	}
	return f
}

func (f *fake) Fingerprint(context.Context) api.Driver {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fingerprints++
	return api.Driver{Healthy: true, MountsVolumes: f.mountsVolumes}
}

func (f *fake) Check(task api.Task) error { return f.fail["check "+task.Name] }

func (f *fake) Start(_ context.Context, spec driver.Spec) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.note("start", spec.ID); err != nil {
		return err
	}
	if _, known := f.tasks[spec.ID]; !known {
		f.specs[spec.ID] = spec
		f.tasks[spec.ID] = driver.Status{State: driver.StateRunning, PID: 7}
		f.ended[spec.ID] = make(chan struct{})
	}
	return nil
}

func (f *fake) Status(_ context.Context, id string) (driver.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, name, _ := strings.Cut(id, "/")
	if err := f.fail["look "+name]; err != nil {
		f.calls = append(f.calls, "look "+name)
		return driver.Status{}, err
	}
	if status, known := f.tasks[id]; known {
		return status, nil
	}
	return driver.Status{State: driver.StateUnknown}, nil
}

func (f *fake) Wait(ctx context.Context, id string) (driver.Status, error) {
	f.mu.Lock()
	ended, known := f.ended[id]
	f.mu.Unlock()
	if !known {
		return driver.Status{}, api.Errorf(api.CodeNotFound, "no task %s", id)
	}
	select {
	case <-ended:
		return f.Status(ctx, id)
	case <-ctx.Done():
		return driver.Status{}, ctx.Err()
	}
}

func (f *fake) Stop(_ context.Context, id, signal string, timeout time.Duration) error {
	f.mu.Lock()
	err := f.note(fmt.Sprintf("stop(%s,%s)", signal, timeout), id)
	if f.stopping != nil && f.tasks[id].State == driver.StateRunning {
		f.stopping()
	}
	f.mu.Unlock()
	if f.slow > 0 {
		time.Sleep(f.slow)
	}
	if err == nil {
		f.end(id, driver.Status{Signal: 2})
	}
	return err
}

func (f *fake) Destroy(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.note("destroy", id); err != nil {
		return err
	}
	delete(f.tasks, id)
	return nil
}

func (f *fake) end(id string, how driver.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, known := f.tasks[id]; known && old.State == driver.StateRunning {
		how.State, how.PID = driver.StateEnded, old.PID
		f.tasks[id] = how
		close(f.ended[id])
	}
}

func id(task string) string { return string(allocID) + "/" + task }

// tasks is the hook with a step of an assignment.
func tasks(d *fake, a api.AllocAssignment) (*hook.Tasks, *allocrunner.Step) {
	drivers := map[string]driver.Driver{}
	if d != nil {
		drivers["fake"] = d.as()
	}
	node := &api.Node{ID: "db-1-9f31c2aa", Name: "db-1", Status: api.NodeStatus{Profile: api.Profile{
		Class: "fast", Address: "fd00::5", Meta: map[string]string{"rack": "r1"}, Attributes: map[string]string{"cpu.arch": "amd64"},
	}}}
	return hook.NewTasks(drivers, func() *api.Node { return node }), allocrunner.NewStep("/alloc", a)
}

func TestTaskIsStartedAndAdopted(t *testing.T) {
	t.Parallel()
	d := newFake()
	h, s := tasks(d, assignment())
	for range 2 {
		if err := h.Up(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]api.TaskStatus{"pg": {State: api.TaskRunning, PID: 7, Dir: "/alloc/pg"}}
	if diff := cmp.Diff(want, s.Tasks()); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
	d.end(id("pg"), driver.Status{ExitCode: 3})
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := s.Tasks()["pg"]; got.State != api.TaskEnded || got.ExitCode != 3 {
		t.Errorf("a task that ended is %+v", got)
	}
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if len(d.specs) != 1 {
		t.Errorf("a task that ended was started again: %v", d.calls)
	}
}

func TestTaskThatCanNeverRunIsFatal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(d *fake, a *api.AllocAssignment)
		fatal   bool
		want    string
	}{
		"UnknownDriver": {func(_ *fake, a *api.AllocAssignment) { a.Group.Tasks[0].Driver = "docker" }, true, "has no driver docker"},
		"CannotMount": {func(d *fake, a *api.AllocAssignment) {
			d.mountsVolumes = false
			a.Group.Tasks[0].VolumeMounts = []api.VolumeMount{{Volume: "data", Destination: "/data"}}
		}, true, `use driver "exec"`},
		"Refused": {func(d *fake, _ *api.AllocAssignment) { d.fail["check pg"] = errors.New("no command") }, true, "no command"},
		"StartInvalid": {func(d *fake, _ *api.AllocAssignment) {
			d.fail["start pg"] = api.Errorf(api.CodeInvalid, "no such file")
		}, true, "no such file"},
		"StartFails": {func(d *fake, _ *api.AllocAssignment) { d.fail["start pg"] = errors.New("no memory") }, false, "no memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, a := newFake(), assignment()
			tc.prepare(d, &a)
			h, s := tasks(d, a)
			err := h.Up(t.Context(), s)
			var fatal *allocrunner.Fatal
			if errors.As(err, &fatal) != tc.fatal || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Up: %v, want %q, fatal %v", err, tc.want, tc.fatal)
			}
			if len(s.Tasks()) > 0 {
				t.Errorf("tasks are %+v", s.Tasks())
			}
		})
	}
}

// The user that a task runs as is deleted from the machine, a later release
// checks more, a fingerprint fails for a moment: what runs goes on running.
func TestTaskThatRunsIsNotCheckedAgain(t *testing.T) {
	t.Parallel()
	d, a := newFake(), assignment()
	a.Group.Tasks[0].VolumeMounts = []api.VolumeMount{{Volume: "data", Destination: "/data"}}
	h, s := tasks(d, a)
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	d.fail["check pg"], d.mountsVolumes = errors.New("no such user"), false
	if err := h.Up(t.Context(), s); err != nil {
		t.Errorf("Up of a task that runs: %v", err)
	}
}

func TestTaskWhoseDriverIsGoneIsNotForgotten(t *testing.T) {
	t.Parallel()
	h, s := tasks(nil, assignment())
	if err := h.Down(t.Context(), s); err != nil {
		t.Errorf("Down of a task that was never started: %v", err)
	}
	s.SetTask("pg", api.TaskStatus{State: api.TaskRunning})
	var fatal *allocrunner.Fatal
	if err := h.Up(t.Context(), s); err == nil || errors.As(err, &fatal) {
		t.Errorf("Up: %v, want an error that is tried again", err)
	}
	if err := h.Down(t.Context(), s); err == nil {
		t.Error("Down says that the task has ended")
	}
}

func TestWatchTellsHowItEnded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pg, backup *driver.Status
		want       allocrunner.News
	}{
		"AllSucceed":    {&driver.Status{}, &driver.Status{}, allocrunner.Complete},
		"OneSucceeds":   {&driver.Status{}, nil, allocrunner.Again},
		"OneExits":      {&driver.Status{ExitCode: 1}, nil, allocrunner.Failed},
		"OneIsKilled":   {nil, &driver.Status{Signal: 9}, allocrunner.Failed},
		"OneHasAReason": {nil, &driver.Status{Reason: "out of memory"}, allocrunner.Failed},
		"NoneEnds":      {nil, nil, allocrunner.Again},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, a := newFake(), assignment()
				a.Group.Tasks = append(a.Group.Tasks, api.Task{Name: "backup", Driver: "fake"})
				h, s := tasks(d, a)
				if err := h.Up(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for task, how := range map[string]*driver.Status{"pg": tc.pg, "backup": tc.backup} {
					if how != nil {
						d.end(id(task), *how)
					}
				}
				news, err := h.Watch(ctx, s)
				for news == allocrunner.Again && err == nil {
					if err := h.Up(ctx, s); err != nil {
						t.Fatal(err)
					}
					news, err = h.Watch(ctx, s)
				}
				if news != tc.want || errors.Is(err, context.DeadlineExceeded) != (tc.want == allocrunner.Again) {
					t.Errorf("Watch: %v, %v, want %v", news, err, tc.want)
				}
			})
		})
	}
}

func TestWatchOfATaskThatIsLostIsNoEnd(t *testing.T) {
	t.Parallel()
	h, s := tasks(newFake(), assignment())
	if news, err := h.Watch(t.Context(), s); news != allocrunner.Again || api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("Watch: %v, %v", news, err)
	}
}

func TestTaskIsStoppedSeenAndForgotten(t *testing.T) {
	t.Parallel()
	d, a := newFake(), assignment()
	a.Group.Tasks[0].KillSignal, a.Group.Tasks[0].KillTimeout = "SIGTERM", api.Duration(time.Minute)
	h, s := tasks(d, a)
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	stop := "stop(SIGTERM,1m0s)"
	d.fail["destroy pg"] = errors.New("busy")
	if err := h.Down(t.Context(), s); err == nil {
		t.Error("Down answers nil, and the task is not cleaned up")
	}
	delete(d.fail, "destroy pg")
	for range 2 {
		if err := h.Down(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"start pg", stop + " pg", "destroy pg", stop + " pg", "destroy pg", stop + " pg", "destroy pg"}
	if diff := cmp.Diff(want, d.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if got := s.Tasks()["pg"]; got.State != api.TaskEnded || got.Signal != 2 || got.Reason != "" {
		t.Errorf("after Destroy the task is %+v", got)
	}
}

func TestTaskThatCannotBeStoppedIsNotDestroyed(t *testing.T) {
	t.Parallel()
	d, a := newFake(), assignment()
	a.Group.Tasks = append(a.Group.Tasks, api.Task{Name: "other", Driver: "fake"})
	h, s := tasks(d, a)
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	d.fail["stop(,0s) pg"] = errors.New("state D")
	if err := h.Down(t.Context(), s); err == nil {
		t.Error("Down answers nil, and a task runs")
	}
	if slices.Contains(d.calls, "destroy pg") || !slices.Contains(d.calls, "destroy other") {
		t.Errorf("calls: %v", d.calls)
	}
}

// After a reboot the driver knows nothing of a task that the record shows as
// running.
func TestTaskOfAnEarlierBootDoesNotLookAlive(t *testing.T) {
	t.Parallel()
	h, s := tasks(newFake(), assignment())
	s.SetTask("pg", api.TaskStatus{State: api.TaskRunning, PID: 9})
	if err := h.Down(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := s.Tasks()["pg"]; got.State != api.TaskEnded || got.Reason == "" {
		t.Errorf("the task is %+v", got)
	}
}

// given is what the driver is given for a task with a writer's, a reader's and
// an unmounted volume.
func given(t *testing.T, task api.Task) driver.Spec {
	t.Helper()
	d, a := newFake(), assignment()
	task.Name, task.Driver = "pg", "fake"
	a.Allocation.Ports = []api.AllocatedPort{{Name: "db", Number: 5432}}
	a.Meta, a.Group.Meta = map[string]string{"owner": "ops", "tier": "gold"}, map[string]string{"owner": "data"}
	task.VolumeMounts = []api.VolumeMount{
		{Volume: "data", Destination: "/data"},
		{Volume: "data", Destination: "/look", ReadOnly: true},
		{Volume: "ref", Destination: "/ref"},
	}
	a.Group.Tasks = []api.Task{task}
	for name, mode := range map[string]api.AccessMode{"data": api.SingleNodeWriter, "ref": api.MultiNodeReaderOnly} {
		a.Attachments = append(a.Attachments, api.AttachmentAssignment{Attachment: api.Attachment{Name: name, AccessMode: mode}})
	}
	h, s := tasks(d, a)
	for _, name := range []string{"data", "ref", "spare"} {
		s.SetMount(name, "/mnt/"+name)
	}
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return d.specs[id("pg")]
}

func TestVolumesOfATaskAreReadOnlyWhereTheyMustBe(t *testing.T) {
	t.Parallel()
	want := []driver.Mount{
		{Source: "/mnt/data", Destination: "/data"},
		{Source: "/mnt/data", Destination: "/look", ReadOnly: true},
		{Source: "/mnt/ref", Destination: "/ref", ReadOnly: true},
	}
	if diff := cmp.Diff(want, given(t, api.Task{}).Mounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

func TestEnvironmentIsExpanded(t *testing.T) {
	t.Parallel()
	task := api.Task{
		Resources: &api.Resources{CPU: 500, MemoryMB: 64, MemoryMaxMB: 128},
		Env: map[string]string{
			"HOST": "${BERTH_NODE_NAME}:${BERTH_ALLOC_INDEX}", "DATA": "${BERTH_VOLUME_ref}/x", "BOTH": "${HOST}", "WHERE": "${meta.rack} ${attr.cpu.arch} ${node.class} ${node.unique.name} ${meta.none}",
			"SHELL": "$HOME ${HOME:-x} $${BERTH_JOB_ID} ${", "BERTH_TASK_NAME": "mine",
		},
		Config: map[string]any{
			"command": "${BERTH_VOLUME_data}/run", "n": 3.0,
			"args": []any{"${HOST}", "${BOTH}", []any{"${UNKNOWN}"}, map[string]any{"k": "${BERTH_GROUP_NAME}"}},
		},
	}
	spec := given(t, task)
	wantEnv := map[string]string{
		"BERTH_ALLOC_ID": string(allocID), "BERTH_ALLOC_NAME": "db.primary[2]", "BERTH_ALLOC_INDEX": "2",
		"BERTH_GROUP_NAME": "primary", "BERTH_JOB_ID": "db", "BERTH_NAMESPACE": "prod",
		"BERTH_NODE_ID": "db-1-9f31c2aa", "BERTH_NODE_NAME": "db-1", "BERTH_TASK_NAME": "mine",
		"BERTH_VOLUME_data": "/look", "BERTH_VOLUME_ref": "/ref", "BERTH_VOLUME_spare": "/mnt/spare",
		"HOST": "db-1:2", "DATA": "/ref/x", "BOTH": "${HOST}", "WHERE": "r1 amd64 fast db-1 ${meta.none}",
		"BERTH_PORT_db": "5432", "BERTH_IP_db": "fd00::5", "BERTH_ADDR_db": "[fd00::5]:5432",
		"BERTH_CPU": "500", "BERTH_MEMORY": "128",
		"BERTH_META_owner": "data", "BERTH_META_tier": "gold",
		"SHELL": "$HOME ${HOME:-x} $db ${", "BERTH_TASK_DIR": "/local", "BERTH_SECRETS_DIR": "/secrets", "BERTH_ALLOC_DIR": "/alloc",
		// The names of published job files.
		"NOMAD_ALLOC_ID": string(allocID), "NOMAD_SHORT_ALLOC_ID": string(allocID)[:8], "NOMAD_ALLOC_NAME": "db.primary[2]", "NOMAD_ALLOC_INDEX": "2",
		"NOMAD_GROUP_NAME": "primary", "NOMAD_JOB_ID": "db", "NOMAD_JOB_NAME": "db", "NOMAD_NAMESPACE": "prod", "NOMAD_TASK_NAME": "pg",
		"NOMAD_TASK_DIR": "/local", "NOMAD_ALLOC_DIR": "/alloc", "NOMAD_SECRETS_DIR": "/secrets", "NOMAD_CPU_LIMIT": "500", "NOMAD_MEMORY_LIMIT": "128",
		"NOMAD_PORT_db": "5432", "NOMAD_IP_db": "fd00::5", "NOMAD_ADDR_db": "[fd00::5]:5432",
		"NOMAD_HOST_PORT_db": "5432", "NOMAD_HOST_IP_db": "fd00::5", "NOMAD_HOST_ADDR_db": "[fd00::5]:5432",
		"NOMAD_META_owner": "data", "NOMAD_META_tier": "gold",
	}
	if diff := cmp.Diff(wantEnv, spec.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	wantConfig := map[string]any{
		"command": "/look/run", "n": 3.0,
		"args": []any{"db-1:2", "${HOST}", []any{"${UNKNOWN}"}, map[string]any{"k": "primary"}},
	}
	if diff := cmp.Diff(wantConfig, spec.Task.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if got := task.Config["command"]; got != "${BERTH_VOLUME_data}/run" {
		t.Errorf("the assignment's own config was changed to %v", got)
	}
}

// A task whose supervisor or engine does not answer kept the others of its
// allocation unwatched, for a minute at a time: they ended, and nobody saw it.
func TestATaskThatCannotBeLookedAtKeepsNobodyUnwatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, a := newFake(), policy(api.JobService, api.RestartFail, 5)()
		a.Group.Tasks = append(a.Group.Tasks, api.Task{Name: "web", Driver: "fake"}, api.Task{Name: "proxy", Driver: "fake"})
		h, s := tasks(d, a)
		if err := h.Up(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		d.mu.Lock()
		d.fail["look pg"] = api.Errorf(api.CodeUnavailable, "the engine does not answer")
		d.fail["look proxy"], d.calls = d.fail["look pg"], nil
		d.mu.Unlock()
		err := h.Up(t.Context(), s)
		var partial *allocrunner.Partial
		if !errors.As(err, &partial) || !strings.Contains(err.Error(), "look at task pg: ") {
			t.Errorf("Up: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		time.AfterFunc(time.Minute, func() { d.end(id("web"), driver.Status{ExitCode: 1}) })
		began := time.Now()
		if news, err := h.Watch(ctx, s); news != allocrunner.Again || ctx.Err() != nil || time.Since(began) != time.Minute {
			t.Errorf("after %s Watch says %v (%v)", time.Since(began), news, err)
		}
		if len(d.calls) != 1 {
			t.Errorf("an engine that does not answer was asked %q", d.calls)
		}
	})
}

// Tasks that wait for a volume, with nobody to watch beside them, were looked at
// over and over, as fast as the machine could.
func TestNobodyToWatchIsNoNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, a := newFake(), policy(api.JobService, api.RestartFail, 5)()
		h, s := tasks(d, a)
		s.SetLacking(map[string]error{"data": &allocrunner.Waiting{Reason: "volume data is not attached to this node yet"}})
		err := h.Up(t.Context(), s)
		var partial *allocrunner.Partial
		if waits := new(allocrunner.Waiting); !errors.As(err, &partial) || !errors.As(err, &waits) {
			t.Fatalf("Up: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if news, err := h.Watch(ctx, s); news != allocrunner.Again || err != nil || ctx.Err() == nil {
			t.Errorf("Watch says %v (%v) although nothing has happened", news, err)
		}
	})
}
