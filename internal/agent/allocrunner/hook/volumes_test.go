package hook_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// mounter does what its script says for each volume.
type mounter struct {
	script func(ctx context.Context, call string) error
	gone   map[string]bool
	served map[string]bool
	ill    *api.Problem

	mu      sync.Mutex // guards below, and gone in a test that watches
	calls   []string
	late    map[api.VolumeID]*api.Problem
	changed chan struct{} // closed when late changes
}

func (m *mounter) call(ctx context.Context, call string) error {
	m.mu.Lock()
	m.calls = append(m.calls, call)
	m.mu.Unlock()
	return m.script(ctx, call)
}

func (m *mounter) Mount(ctx context.Context, a *api.AttachmentAssignment) (string, error) {
	return "/mnt/" + a.Attachment.Name, m.call(ctx, "mount "+a.Attachment.Name)
}

func (m *mounter) Unmount(ctx context.Context, a *api.AttachmentAssignment) error {
	return m.call(ctx, "unmount "+a.Attachment.Name)
}

// Give says once how far it is.
func (m *mounter) Give(ctx context.Context, a *api.AttachmentAssignment, say func(string)) error {
	say("half of it")
	return m.call(ctx, "give "+a.Attachment.Name)
}

func (m *mounter) Mounted(a *api.AttachmentAssignment) (string, error) {
	if m.gone[a.Attachment.Name] {
		return "", nil
	}
	return "/target/" + a.Attachment.Name, nil
}

func (m *mounter) Ill(api.PluginID) *api.Problem { return m.ill }

func (m *mounter) Late(a *api.AttachmentAssignment) (*api.Problem, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.late[a.Attachment.VolumeID], m.changed
}

// setLate says which call for a volume is not answered.
func (m *mounter) setLate(vol api.VolumeID, p *api.Problem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = map[api.VolumeID]*api.Problem{vol: p}
	close(m.changed)
	m.changed = nil
}

func (m *mounter) Gone(a *api.AttachmentAssignment) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone[a.Attachment.Name], nil
}

func (m *mounter) Served(a *api.AttachmentAssignment) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.served[a.Attachment.Name] && !m.gone[a.Attachment.Name], nil
}

func (m *mounter) sorted() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(m.calls)), ", ")
}

// said are the facts by attachment.
type said struct {
	mu    sync.Mutex // guards facts
	facts map[string]api.AttachmentFact
}

func (s *said) RepeatAttachment(f api.AttachmentFact) { s.SetAttachment(f) }

func (s *said) SetAttachment(f api.AttachmentFact) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts[f.Name] = f
}

// volumes is the hook with a step for volumes in these states.
func volumes(states map[string]api.AttachmentState, script func(context.Context, string) error) (*hook.Volumes, *mounter, *said, *allocrunner.Step) {
	m, facts := &mounter{script: script}, &said{facts: map[string]api.AttachmentFact{}}
	a := assignment()
	for _, name := range []string{"a", "b", "c"} {
		if state, there := states[name]; there {
			a.Group.Volumes = append(a.Group.Volumes, api.VolumeRequest{Name: name})
			a.Attachments = append(a.Attachments, api.AttachmentAssignment{Attachment: api.Attachment{
				AllocID: a.ID, Name: name, PluginID: pluginID, VolumeID: api.VolumeID("vol-" + name), Status: api.AttachmentStatus{State: state},
			}})
		}
	}
	return hook.NewVolumes(m, facts, nil), m, facts, allocrunner.NewStep("/alloc", a)
}

func works(context.Context, string) error { return nil }

// coded is an error as the volume mounter makes it.
type coded struct{}

func (coded) Error() string                         { return "NodeStageVolume: INTERNAL: no" }
func (coded) Problem() (step, code, message string) { return "NodeStageVolume", "INTERNAL", "no" }

func TestVolumesAreMountedAndHandedOn(t *testing.T) {
	t.Parallel()
	h, _, facts, s := volumes(map[string]api.AttachmentState{"a": api.ControllerPublished, "b": api.NodePublished}, works)
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "/mnt/a", "b": "/mnt/b"}, s.Mounts()); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	want := api.AttachmentFact{AllocID: allocID, Name: "a", State: api.NodePublished, TargetPath: "/mnt/a"}
	if diff := cmp.Diff(want, facts.facts["a"]); diff != "" {
		t.Errorf("fact (-want +got):\n%s", diff)
	}
}

// An allocation whose volume a plugin hangs over is told so while it hangs, on its
// way up and down: the call, since when; and once.
func TestVolumesSayWhichCallHangs(t *testing.T) {
	t.Parallel()
	for direction, call := range map[string]string{"Up": "mount a", "Down": "unmount a"} {
		t.Run(direction, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				answer := make(chan struct{})
				h, m, facts, s := volumes(map[string]api.AttachmentState{"a": api.ControllerPublished, "b": api.NodePublished},
					func(_ context.Context, is string) error {
						if is == call {
							<-answer
						}
						return nil
					})
				step := h.Up
				if direction == "Down" {
					step = h.Down
				}
				ended := make(chan error, 1)
				go func() { ended <- step(t.Context(), s) }()
				synctest.Wait()
				late := &api.Problem{Step: "NodeStageVolume", Message: "plugin disk has not answered since 04:10:11 UTC", Since: time.Now()}
				for range 2 {
					m.setLate("vol-a", late)
					synctest.Wait()
					if diff := cmp.Diff(late, s.Late()); diff != "" {
						t.Errorf("the step's (-want +got):\n%s", diff)
					}
				}
				want := api.AttachmentFact{AllocID: allocID, Name: "a", Problem: late}
				if diff := cmp.Diff(want, facts.facts["a"]); diff != "" {
					t.Errorf("fact (-want +got):\n%s", diff)
				}
				if f := facts.facts["b"]; f.Problem != nil {
					t.Errorf("the other volume's: %+v", f)
				}
				m.setLate("vol-a", nil)
				close(answer)
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if f := facts.facts["a"]; s.Late() != nil || f.Problem != nil || f.State == "" {
					t.Errorf("when it has answered: %+v, fact %+v", s.Late(), f)
				}
				var said []string
				for _, e := range s.Events() {
					said = append(said, e.Message)
				}
				if diff := cmp.Diff([]string{"NodeStageVolume: " + late.Message, "NodeStageVolume is not waited for any more"}, said); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The consumers of a plugin that is not healthy are told, once each time that it
// turns, and what is mounted goes on.
func TestConsumersAreToldOfAnIllPlugin(t *testing.T) {
	t.Parallel()
	h, m, facts, s := volumes(map[string]api.AttachmentState{"a": api.NodePublished, "b": api.NodePublished}, works)
	said := func() (said []string) {
		for range 2 {
			if err := h.Up(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range s.Events() {
			said = append(said, e.Task+e.Message)
		}
		return said
	}
	want := []string(nil)
	for _, ill := range []*api.Problem{nil, {Step: api.StepPlugin, Message: "plugin is not healthy on this node: it hangs"}, nil} {
		m.ill = ill
		switch {
		case ill != nil:
			want = append(want, ill.Message)
		case want != nil:
			want = append(want, "plugin disk is healthy again")
		}
		if diff := cmp.Diff(want, said()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(ill, s.Ill()); diff != "" {
			t.Errorf("the step's (-want +got):\n%s", diff)
		}
		for _, name := range []string{"a", "b"} {
			want := api.AttachmentFact{AllocID: allocID, Name: name, State: api.NodePublished, TargetPath: "/mnt/" + name, Problem: ill}
			if diff := cmp.Diff(want, facts.facts[name]); diff != "" {
				t.Errorf("fact (-want +got):\n%s", diff)
			}
		}
	}
}

func TestVolumesWaitForTheServers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		states map[string]api.AttachmentState
		more   int // volumes that the group asks for beyond those
		want   string
		calls  string
	}{
		"NotAttached": {map[string]api.AttachmentState{"a": api.Claimed, "b": api.ControllerPublished}, 0, "vol-a is not attached", "mount b"},
		"Ended":       {map[string]api.AttachmentState{"a": api.Unpublishing}, 0, "hold on volume vol-a has ended", ""},
		"Missing":     {map[string]api.AttachmentState{"a": api.ControllerPublished}, 1, "not sent all", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, m, _, s := volumes(tc.states, works)
			group := s.Assignment().Group
			group.Volumes = append(group.Volumes, make([]api.VolumeRequest, tc.more)...)
			err := h.Up(t.Context(), s)
			var waiting *allocrunner.Waiting
			if !errors.As(err, &waiting) || !strings.Contains(waiting.Reason, tc.want) {
				t.Errorf("Up: %v, want to wait: %q", err, tc.want)
			}
			if got := m.sorted(); got != tc.calls {
				t.Errorf("calls %q, want %q", got, tc.calls)
			}
		})
	}
}

func TestVolumeThatFailsIsNotHiddenByOneThatWaits(t *testing.T) {
	t.Parallel()
	for _, failing := range []string{"a", "c"} {
		states := map[string]api.AttachmentState{"a": api.Claimed, "b": api.Claimed, "c": api.Claimed}
		states[failing] = api.ControllerPublished
		h, _, facts, s := volumes(states, func(context.Context, string) error { return coded{} })
		var waiting *allocrunner.Waiting
		if err := h.Up(t.Context(), s); err == nil || errors.As(err, &waiting) {
			t.Errorf("%s fails, and Up answers %v", failing, err)
		}
		want := &api.Problem{Step: "NodeStageVolume", Code: "INTERNAL", Message: "no"}
		if diff := cmp.Diff(want, facts.facts[failing].Problem); diff != "" {
			t.Errorf("problem (-want +got):\n%s", diff)
		}
	}
}

func TestStuckVolumeKeepsNoOther(t *testing.T) {
	t.Parallel()
	for way, work := range map[string]func(*hook.Volumes, context.Context, *allocrunner.Step) error{
		"Up": (*hook.Volumes).Up, "Down": (*hook.Volumes).Down,
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				states := map[string]api.AttachmentState{"a": api.NodePublished, "b": api.NodePublished, "c": api.NodePublished}
				h, m, facts, s := volumes(states, func(ctx context.Context, call string) error {
					if strings.HasSuffix(call, "mount a") {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- work(h, ctx, s) }()
				synctest.Wait()
				if n := strings.Count(m.sorted(), "mount"); n != 3 {
					t.Errorf("%d volumes were worked on: %s", n, m.sorted())
				}
				facts.mu.Lock()
				if len(facts.facts) != 2 {
					t.Errorf("said: %+v, want b and c", facts.facts)
				}
				facts.mu.Unlock()
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", way, err)
				}
				if f, there := facts.facts["a"]; there {
					t.Errorf("the end of the agent is said as a problem: %+v", f.Problem)
				}
			})
		})
	}
}

func TestVolumesAreUnmountedWhateverTheirState(t *testing.T) {
	t.Parallel()
	h, m, facts, s := volumes(map[string]api.AttachmentState{"a": api.Claimed, "b": api.Unpublishing, "c": api.NodePublished},
		func(_ context.Context, call string) error {
			if call == "unmount b" {
				return coded{}
			}
			return nil
		})
	if err := h.Down(t.Context(), s); err == nil {
		t.Error("Down answers nil, and b is still mounted")
	}
	if got, want := m.sorted(), "unmount a, unmount b, unmount c"; got != want {
		t.Errorf("calls %q, want %q", got, want)
	}
	for name, want := range map[string]api.AttachmentState{"a": api.NodeDetached, "b": "", "c": api.NodeDetached} {
		if got := facts.facts[name].State; got != want {
			t.Errorf("%s is said to be %q, want %q", name, got, want)
		}
	}
}

// A task whose volume went with the process of its driver looked at a dead mount
// for ever. It is ended, by its policy, before the volume is mounted again.
func TestTasksOfAVolumeThatIsGoneAreStartedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		onHost bool
		// recorded is what an agent that was restarted knows of pg, running runs.
		recorded *api.TaskStatus
		running  []string
		restarts int
	}{
		"Known":                 {restarts: 1},
		"KilledBeforeTheRecord": {recorded: &api.TaskStatus{}, running: []string{"pg"}, restarts: 1},
		"RestartedOnce":         {recorded: &api.TaskStatus{State: api.TaskPending, Restarts: 1}, running: []string{"pg/1"}, restarts: 2},
		// It was to be started again, by a user's wish, before it had ended.
		"AskedToRestart": {recorded: &api.TaskStatus{State: api.TaskPending, Restarts: 1}, running: []string{"pg"}, restarts: 1},
		"OnHost":         {onHost: true, restarts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFake()
			d.onHost = tc.onHost
			a := assignment()
			attempts, delay := 3, api.Duration(0)
			a.JobType = api.JobService
			a.Group.Restart = &api.RestartPolicy{Attempts: &attempts, Delay: &delay}
			if !tc.onHost { // such tasks find volumes where the host has them
				a.Group.Tasks[0].VolumeMounts = []api.VolumeMount{{Volume: "a", Destination: "/a"}}
			}
			a.Group.Tasks = append(a.Group.Tasks, api.Task{Name: "other", Driver: "other"})
			a.Group.Volumes = []api.VolumeRequest{{Name: "a"}}
			a.Attachments = []api.AttachmentAssignment{{Attachment: api.Attachment{
				AllocID: a.ID, Name: "a", VolumeID: "vol-a", PluginID: "fuse", Status: api.AttachmentStatus{State: api.NodePublished},
			}}}
			other := newFake()
			runner := hook.NewTasks(map[string]driver.Driver{"fake": d.as(), "other": other}, func() *api.Node { return &api.Node{} })
			s := allocrunner.NewStep("/alloc", a)
			m := &mounter{script: works, gone: map[string]bool{}}
			h := hook.NewVolumes(m, &said{facts: map[string]api.AttachmentFact{}}, runner)
			up := func() {
				t.Helper()
				for _, one := range []allocrunner.Hook{h, runner} {
					if err := one.Up(t.Context(), s); err != nil {
						t.Fatal(err)
					}
				}
			}
			if tc.recorded == nil {
				up()
			} else {
				for _, run := range tc.running {
					if err := d.Start(t.Context(), driver.Spec{ID: id(run)}); err != nil {
						t.Fatal(err)
					}
				}
				if tc.recorded.State != "" {
					s.SetTask("pg", *tc.recorded)
				}
			}
			m.gone["a"] = true
			m.script = func(_ context.Context, call string) error {
				for run, is := range d.tasks {
					if is.State == driver.StateRunning {
						t.Errorf("%s while %s runs", call, run)
					}
				}
				return nil
			}
			up()
			is := s.Tasks()["pg"]
			if is.Restarts != tc.restarts || is.State != api.TaskRunning && is.Next.IsZero() {
				t.Errorf("task: %+v, want %d restarts", is, tc.restarts)
			}
			reason := "its volume vol-a ended with the process of plugin fuse, and is mounted again"
			if asked := name == "AskedToRestart"; !asked && is.Last.Reason != reason {
				t.Errorf("it ended because %q, want %q", is.Last.Reason, reason)
			}
			if other := s.Tasks()["other"]; other.State != api.TaskRunning || other.Restarts != 0 {
				t.Errorf("a task that has no volume: %+v", other)
			}
		})
	}
}

// A mount that ended while its plugin was well was seen at the next health check,
// up to half a minute later.
func TestMountThatEndsAloneIsSeen(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		served, goneBefore bool
		want               time.Duration // 0: not seen within the hour
	}{
		"Served":         {served: true, want: 5 * time.Second},
		"OfTheKernel":    {},
		"UpCouldNotHelp": {served: true, goneBefore: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h, m, _, s := volumes(map[string]api.AttachmentState{"a": api.ControllerPublished, "b": api.ControllerPublished}, works)
				m.served, m.gone = map[string]bool{"a": tc.served}, map[string]bool{"a": tc.goneBefore}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				time.AfterFunc(2*time.Second, func() {
					m.mu.Lock()
					defer m.mu.Unlock()
					m.gone["a"] = true
				})
				news, err := h.Watch(ctx, s)
				took := time.Since(began)
				if tc.want == 0 {
					if ctx.Err() == nil {
						t.Errorf("after %s: %v, %v; want nothing", took, news, err)
					}
				} else if news != allocrunner.Again || err != nil || took != tc.want {
					t.Errorf("after %s: %v, %v; want news after %s", took, news, err, tc.want)
				}
			})
		})
	}
}

// A volume counts as mounted, and is handed on, when it is its group's.
func TestVolumesAreGivenToTheirGroup(t *testing.T) {
	t.Parallel()
	broken := true
	h, m, facts, s := volumes(map[string]api.AttachmentState{"a": api.ControllerPublished, "b": api.ControllerPublished}, func(_ context.Context, call string) error {
		if call == "give a" && broken {
			return errors.New("the disk is read only")
		}
		return nil
	})
	a := s.Assignment()
	a.Attachments[0].Attachment.FSGroup = 4711
	if err := h.Up(t.Context(), s); err == nil {
		t.Error("a volume that could not be given to its group is up")
	}
	if got := facts.facts["a"]; got.State != "" || got.Problem == nil || got.Problem.Message != "the disk is read only" {
		t.Errorf("fact = %+v", got)
	}
	if _, there := s.Mounts()["a"]; there {
		t.Error("the volume was handed on")
	}
	broken = false
	if err := h.Up(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got := facts.facts["a"]; got.State != api.NodePublished || got.Problem != nil {
		t.Errorf("fact = %+v", got)
	}
	if got, want := m.sorted(), "give a, give a, mount a, mount a, mount b, mount b"; got != want {
		t.Errorf("calls = %s, want %s", got, want)
	}
}

// While it lasts it says how far it is, and it lasts no longer than the agent.
func TestVolumesSayHowFarTheyAre(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	h, _, facts, s := volumes(map[string]api.AttachmentState{"a": api.ControllerPublished}, func(ctx context.Context, call string) error {
		if call != "give a" {
			return nil
		}
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	a := s.Assignment()
	a.Attachments[0].Attachment.FSGroup = 4711
	if err := h.Up(ctx, s); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want %v", err, context.Canceled)
	}
	if got := facts.facts["a"]; got.State != "" || got.Problem == nil || got.Problem.Message != "half of it" {
		t.Errorf("fact = %+v", got)
	}
}

// A volume that cannot be mounted again, as its driver is away, left all tasks
// of its allocation unwatched.
func TestTasksAreWatchedWhileAVolumeCannotBeMountedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ends   []string // a minute apart
		state  api.AllocState
		starts string
	}{
		"AnotherCrashes": {[]string{"other"}, api.AllocRunning, "start leader, start pg, start other, start other/1"},
		"LeaderEnds":     {[]string{"leader"}, api.AllocComplete, "start leader, start pg, start other"},
		// What cannot be started without the volume keeps nobody from seeing an end.
		"ItsOwnCrashes": {[]string{"pg", "leader"}, api.AllocComplete, "start leader, start pg, start other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := assignment()
				attempts := 3
				a.JobType = api.JobBatch
				a.Group.Restart = &api.RestartPolicy{Attempts: &attempts}
				a.Group.Tasks = []api.Task{
					{Name: "leader", Driver: "fake", Leader: true},
					{Name: "pg", Driver: "fake", VolumeMounts: []api.VolumeMount{{Volume: "a", Destination: "/a"}}},
					{Name: "other", Driver: "fake"},
				}
				a.Group.Volumes = []api.VolumeRequest{{Name: "a", Type: api.VolumeTypeCSI}}
				a.Attachments = []api.AttachmentAssignment{{Attachment: api.Attachment{
					AllocID: a.ID, Name: "a", VolumeID: "vol-a", Status: api.AttachmentStatus{State: api.NodePublished},
				}}}
				d := newFake()
				h, _ := tasks(d, a)
				var away atomic.Bool
				m := &mounter{script: func(_ context.Context, call string) error {
					if away.Load() && call == "mount a" {
						return coded{}
					}
					return nil
				}}
				db := &records{}
				v := hook.NewVolumes(m, &said{facts: map[string]api.AttachmentFact{}}, h)
				r := allocrunner.New(allocrunner.Config{Dir: t.TempDir(), Hooks: []allocrunner.Hook{v, h}, Memory: db, Facts: db},
					localdb.Allocation{Assignment: a}, slog.New(slog.DiscardHandler))
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- r.Run(ctx) }()
				synctest.Wait()
				away.Store(true)
				time.Sleep(time.Minute)
				synctest.Wait()
				if s := db.said.Status; s.State != api.AllocRunning || s.Problem == nil || s.Problem.Step != "NodeStageVolume" {
					t.Errorf("while all run the servers hear %+v", s)
				}
				for _, task := range tc.ends {
					code := 1
					if task == "leader" {
						code = 0
					}
					d.end(id(task), driver.Status{ExitCode: code})
					time.Sleep(2 * time.Minute)
					synctest.Wait()
				}
				if got := db.said.Status.State; got != tc.state {
					t.Errorf("the servers hear %s, want %s: %+v", got, tc.state, db.said.Status)
				}
				var starts []string
				for _, call := range d.calls {
					if strings.HasPrefix(call, "start") {
						starts = append(starts, call)
					}
				}
				if got := strings.Join(starts, ", "); got != tc.starts {
					t.Errorf("starts: %s, want %s", got, tc.starts)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A volume that was to be made for the allocation and was refused for good is
// what the allocation fails by, whatever its other volumes wait for.
func TestVolumesThatAreNeverMadeAreFatal(t *testing.T) {
	t.Parallel()
	h, m, _, s := volumes(map[string]api.AttachmentState{"a": api.Claimed, "b": api.Claimed}, works)
	a := s.Assignment()
	a.Attachments[0].Refused = "INVALID_ARGUMENT: no such pool"
	err := h.Up(t.Context(), s)
	if fatal, ok := errors.AsType[*allocrunner.Fatal](err); !ok || !strings.Contains(fatal.Error(), "volume vol-a could not be created: INVALID_ARGUMENT: no such pool") {
		t.Errorf("error = %v", err)
	}
	if calls := m.sorted(); calls != "" {
		t.Errorf("calls = %s", calls)
	}
}
