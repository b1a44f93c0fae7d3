package hook_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/dynamicplugins"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/internal/agent/mount"
)

// node is what a plugin's hooks see of their node.
type node struct {
	mu       sync.Mutex // guards below
	registry map[dynamicplugins.Key]dynamicplugins.Plugin
	times    int // of registrations
	health   api.InstanceStatus
	changed  chan struct{}
	shared   map[string]bool
	drained  []dynamicplugins.Key
}

func newNode() *node {
	return &node{registry: map[dynamicplugins.Key]dynamicplugins.Plugin{}, changed: make(chan struct{}), shared: map[string]bool{}}
}

func (n *node) Register(p dynamicplugins.Plugin) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.registry[p.Key()] = p
	n.times++
}

func (n *node) Deregister(k dynamicplugins.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.registry, k)
}

func (n *node) Instance(dynamicplugins.Key) (api.InstanceStatus, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.health, n.changed
}

func (n *node) Drained(_ context.Context, k dynamicplugins.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drained = append(n.drained, k)
}

func (n *node) Share(dir string) error   { n.shared[dir] = true; return nil }
func (n *node) Unshare(dir string) error { delete(n.shared, dir); return nil }

// turn changes the health of all instances.
func (n *node) turn(healthy bool, reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.health = api.InstanceStatus{Healthy: healthy, Reason: reason}
	close(n.changed)
	n.changed = make(chan struct{})
}

// pluginRig is the hooks of an allocation whose task is a plugin.
type pluginRig struct {
	t       *testing.T
	dir     string
	driver  *fake
	node    *node
	sockets *hook.Sockets
	tasks   *hook.Tasks
	plugins *hook.Plugins
	step    *allocrunner.Step
}

const pluginID api.PluginID = "disk"

func pluginAssignment() api.AllocAssignment {
	a := assignment()
	attempts, delay := 5, api.Duration(time.Second)
	a.JobType = api.JobSystem
	a.Group.Restart = &api.RestartPolicy{Attempts: &attempts, Delay: &delay}
	a.Group.Tasks[0].CSIPlugin = &api.CSIPlugin{ID: pluginID, Type: api.InstanceNode}
	return a
}

func newPluginRig(t *testing.T, mounts bool) *pluginRig {
	t.Helper()
	r := &pluginRig{t: t, dir: t.TempDir(), driver: newFake(), node: newNode()}
	r.driver.onHost = !mounts
	r.sockets = hook.NewSockets(hook.PluginConfig{
		Sockets: filepath.Join(r.dir, "sock"), Sharer: r.node, Drivers: map[string]driver.Driver{"fake": r.driver.as()},
		BaseDir: func(id api.PluginID) string { return filepath.Join(r.dir, "csi", string(id)) },
	})
	r.plugins = hook.NewPlugins(r.sockets, r.node, r.node)
	r.tasks, r.step = tasks(r.driver, pluginAssignment())
	r.plugins.Serve(r.tasks)
	return r
}

// up calls the hooks in the runner's order.
func (r *pluginRig) up() {
	r.t.Helper()
	for _, h := range []allocrunner.Hook{r.sockets, r.tasks, r.plugins} {
		if err := h.Up(r.t.Context(), r.step); err != nil {
			r.t.Fatalf("%s: %v", h.Name(), err)
		}
	}
}

func (r *pluginRig) down() {
	r.t.Helper()
	for _, h := range []allocrunner.Hook{r.plugins, r.tasks, r.sockets} {
		if err := h.Down(r.t.Context(), r.step); err != nil {
			r.t.Fatalf("%s: %v", h.Name(), err)
		}
	}
}

// watch waits for news of the plugins' hook, for at most d.
func (r *pluginRig) watch(d time.Duration) (news bool) {
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	defer cancel()
	if _, err := r.plugins.Watch(ctx, r.step); err != nil {
		r.t.Fatal(err)
	}
	return ctx.Err() == nil
}

func TestPluginFindsItsDirectories(t *testing.T) {
	t.Parallel()
	for name, mounts := range map[string]bool{"Isolated": true, "OnTheHost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPluginRig(t, mounts)
			r.up()
			spec := r.driver.specs[id("pg")]
			place, _ := r.step.Plugin("pg")
			base := filepath.Join(r.dir, "csi", "disk")
			endpoint, dir := "unix:///csi/csi.sock", "/local/csi"
			want := []driver.Mount{
				{Source: place.HostSocketDir, Destination: "/csi", Trusted: true},
				{Source: base, Destination: "/local/csi", Trusted: true, Propagation: driver.PropagationBidirectional},
			}
			p := r.node.registry[dynamicplugins.Key{ID: pluginID, AllocID: allocID, Type: api.InstanceNode}]
			if !mounts {
				endpoint, dir, want = "unix://"+place.HostSocket(), base, nil
			}
			if spec.Env["CSI_ENDPOINT"] != endpoint || spec.Env["BERTH_CSI_DIR"] != dir {
				t.Errorf("environment: %v", spec.Env)
			}
			if diff := cmp.Diff(want, spec.Mounts); diff != "" {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
			if mounts != (p.HostDir == base && p.Dir == "/local/csi") || r.node.shared[base] != mounts {
				t.Errorf("registered %+v, shared %v", p, r.node.shared)
			}
			r.down()
			if len(r.node.registry) > 0 || len(r.node.shared) > 0 || len(r.node.drained) != 1 {
				t.Errorf("left: %+v", r.node)
			}
			if left, err := os.ReadDir(filepath.Join(r.dir, "sock")); err != nil || len(left) > 0 {
				t.Errorf("sockets left: %v, %v", left, err)
			}
			if _, err := os.Stat(base); err != nil {
				t.Errorf("the plugin's directory is gone: %v", err)
			}
		})
	}
}

// An older run's socket kept drivers from listening that do not take it over.
func TestStaleSocketIsRemovedBeforeAStart(t *testing.T) {
	t.Parallel()
	r := newPluginRig(t, false)
	if err := r.sockets.Up(t.Context(), r.step); err != nil {
		t.Fatal(err)
	}
	place, _ := r.step.Plugin("pg")
	if err := os.WriteFile(place.HostSocket(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.up()
	if _, err := os.Stat(place.HostSocket()); err == nil {
		t.Error("the old socket is there")
	}
}

// A plugin counts when it is healthy, and is started again by its policy if it
// stays without health, at its start and later.
func TestPluginWithoutHealthIsStartedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newPluginRig(t, false)
		r.node.turn(false, "it is still starting")
		r.up()
		if !r.step.Starting() || !strings.Contains(r.step.Awaited(), "plugin disk is not healthy: it is still starting") {
			t.Errorf("starting %t, awaited %q", r.step.Starting(), r.step.Awaited())
		}
		if r.watch(29 * time.Second) {
			t.Error("news before health_timeout")
		}
		if !r.watch(2 * time.Second) {
			t.Fatal("no news after health_timeout")
		}
		r.up()
		is := r.step.Tasks()["pg"]
		if is.State != api.TaskPending || is.Restarts != 1 || !strings.Contains(is.Last.Reason, "did not become healthy within 30s: it is still starting") {
			t.Errorf("task: %+v", is)
		}
		time.Sleep(2 * time.Second)
		r.up()
		r.node.turn(true, "")
		r.watch(time.Second)
		r.up()
		if is := r.step.Tasks()["pg"]; r.step.Starting() || is.State != api.TaskRunning {
			t.Errorf("healthy: starting %t, task %+v", r.step.Starting(), is)
		}
		if r.watch(time.Hour) {
			t.Error("news of a plugin that is healthy")
		}
		r.node.turn(false, "connection refused")
		r.watch(time.Second)
		r.up()
		if !r.watch(31 * time.Second) {
			t.Fatal("no news of one that stays without health")
		}
		r.up()
		if is := r.step.Tasks()["pg"]; is.Restarts != 2 || !strings.Contains(is.Last.Reason, "was not healthy for 30s: connection refused") {
			t.Errorf("task: %+v", is)
		}
		r.down()
	})
}

// Each run of the task is another instance, newer than the one before.
func TestPluginIsRegisteredForEachRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newPluginRig(t, false)
		r.node.turn(true, "")
		r.up()
		r.up()
		if r.node.times != 1 {
			t.Errorf("registered %d times", r.node.times)
		}
		r.driver.end(id("pg"), driver.Status{Signal: 9})
		r.up()
		key := dynamicplugins.Key{ID: pluginID, AllocID: allocID, Type: api.InstanceNode}
		if _, err := r.node.registry[key].Dial(t.Context()); err == nil || err.Error() != "its task pg has ended, and waits to be started again" {
			t.Errorf("dial: %v", err)
		}
		time.Sleep(2 * time.Second)
		r.up()
		if r.node.times != 3 {
			t.Errorf("registered %d times, want once for each run and once between", r.node.times)
		}
	})
}

// A restarted agent knows the instances that run before anybody asks, whatever
// run of theirs it is, and does not wait for a driver's fingerprint for that.
func TestRestoredPluginIsRegisteredAtOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		recorded api.TaskStatus
		running  string
		times    int
	}{
		"NeverRan":        {},
		"NoneRecordedYet": {api.TaskStatus{}, "pg", 1},
		"Runs":            {api.TaskStatus{State: api.TaskRunning}, "pg", 1},
		"StartedAgain":    {api.TaskStatus{State: api.TaskRunning, Restarts: 1}, "pg/1", 1},
		"NotRecordedYet":  {api.TaskStatus{State: api.TaskPending, Restarts: 1}, "pg/1", 1},
		"IsToStartAgain":  {api.TaskStatus{State: api.TaskPending, Restarts: 2, Next: time.Now().Add(time.Hour)}, "", 1},
		"EndedAltogether": {api.TaskStatus{State: api.TaskEnded, ExitCode: 1}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPluginRig(t, false)
			record := &localdb.Allocation{Phase: localdb.PhaseUp, Assignment: pluginAssignment()}
			if tc.recorded.State != "" {
				record.Status.Tasks = map[string]api.TaskStatus{"pg": tc.recorded}
				r.step.SetTask("pg", tc.recorded)
			}
			if tc.running != "" {
				if err := r.driver.Start(t.Context(), driver.Spec{ID: id(tc.running)}); err != nil {
					t.Fatal(err)
				}
			}
			r.plugins.Restore(t.Context(), record)
			if r.node.times != tc.times || r.driver.fingerprints != 0 {
				t.Errorf("registered %d times, want %d, after %d fingerprints of the driver", r.node.times, tc.times, r.driver.fingerprints)
			}
			if tc.times == 1 {
				r.up()
				if r.node.times != 1 {
					t.Errorf("registered %d times, want once: its first Up changes it", r.node.times)
				}
			}
			record.Phase = localdb.PhaseDown
			other := newPluginRig(t, false)
			other.plugins.Restore(t.Context(), record)
			if other.node.times != 0 {
				t.Error("an instance was registered that is on its way down")
			}
		})
	}
}

// What runs is recorded also after a restart: the next agent is to know it.
func TestStartedAgainIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, a := newFake(), pluginAssignment()
		a.Group.Tasks[0].CSIPlugin = nil
		h, _ := tasks(d, a)
		m := &records{}
		r := allocrunner.New(allocrunner.Config{Dir: t.TempDir(), Hooks: []allocrunner.Hook{h}, Memory: m, Facts: m}, localdb.Allocation{Assignment: a}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		synctest.Wait()
		d.end(id("pg"), driver.Status{ExitCode: 1})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if is := m.last.Status.Tasks["pg"]; is.State != api.TaskRunning || is.Restarts != 1 {
			t.Errorf("recorded is %+v, want the second run", is)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// records is a database of one allocation.
type records struct {
	last localdb.Allocation
	said api.AllocFact
}

func (r *records) PutAllocation(a *localdb.Allocation) error { r.last = *a; return nil }
func (*records) DeleteAllocation(api.AllocID) error          { return nil }
func (r *records) SetAllocation(f api.AllocFact)             { r.said = f }
func (*records) ForgetAllocation(api.AllocID, []string)      {}

// A plugin that is not due yet, and whose driver is not here, had its runner spin.
func TestPluginThatIsNotKnownIsNoNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newPluginRig(t, false)
		began := time.Now()
		if r.watch(time.Minute) || time.Since(began) < time.Minute {
			t.Errorf("news after %s of an instance that nobody registered", time.Since(began))
		}
	})
}

// A plugin that is started again, by a user or for its health, took calls until
// its process ended. It is withdrawn first, and registered again after. It never
// vanishes: it is there, and not healthy.
func TestPluginIsWithdrawnBeforeItIsStopped(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ask  func(r *pluginRig)
		want string
	}{
		"ByAUser": {func(r *pluginRig) { r.step.Assignment().Allocation.Asked = map[string]int{"pg": 1} }, "its task pg is being stopped: it is to be started again"},
		"Ill":     {func(r *pluginRig) { r.step.SetFailing("pg", 0, "it is ill") }, "its task pg is being stopped: it is ill"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newPluginRig(t, false)
				r.up()
				var withdrawn []string
				r.driver.stopping = func() {
					for _, p := range r.node.registry {
						withdrawn = append(withdrawn, p.Withdrawn)
					}
				}
				tc.ask(r)
				for range 2 {
					r.up()
					time.Sleep(2 * time.Second)
				}
				if len(withdrawn) == 0 || withdrawn[0] != tc.want || len(r.node.drained) == 0 {
					t.Errorf("when its process is stopped the instances are withdrawn because of %q, and %d were drained", withdrawn, len(r.node.drained))
				}
				if is := r.step.Tasks()["pg"]; is.Restarts != 1 || is.State != api.TaskRunning || len(r.node.registry) != 1 {
					t.Errorf("afterwards the task is %+v, and %d instances are registered", is, len(r.node.registry))
				}
				for _, p := range r.node.registry {
					if p.Withdrawn != "" {
						t.Errorf("afterwards it is withdrawn still: %s", p.Withdrawn)
					}
				}
			})
		})
	}
}

// What is mounted in a directory of a plugin's socket is out of reach of its
// removal.
func TestRemovalOfASocketCrossesNoMount(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("this test mounts: run it as root")
	}
	r := newPluginRig(t, false)
	r.up()
	place, _ := r.step.Plugin("pg")
	dir := filepath.Join(place.HostSocketDir, "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // if the test has failed
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var mounted *mount.MountedError
	if err := r.sockets.Down(t.Context(), r.step); !errors.As(err, &mounted) {
		t.Errorf("Down: %v, want a %T", err, mounted)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.sockets.Down(t.Context(), r.step); err != nil {
		t.Errorf("Down when nothing is mounted: %v", err)
	}
}
