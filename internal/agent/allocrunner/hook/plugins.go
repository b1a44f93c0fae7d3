package hook

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/dynamicplugins"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// PluginRegistry is where instances are made known on the node.
type PluginRegistry interface {
	Register(p dynamicplugins.Plugin)
	Deregister(k dynamicplugins.Key)
}

// PluginHealth tells how registered instances are, and lets their calls end.
type PluginHealth interface {
	Instance(k dynamicplugins.Key) (s api.InstanceStatus, changed <-chan struct{})
	Drained(ctx context.Context, k dynamicplugins.Key)
}

// Plugins registers tasks that are CSI plugins, watches their health, and has
// one that stays without it started again.
type Plugins struct {
	sockets  *Sockets
	registry PluginRegistry
	health   PluginHealth

	mu    sync.Mutex // guards below
	known map[dynamicplugins.Key]*supervised
}

// supervised is an instance that is registered.
type supervised struct {
	run     int
	running bool
	started time.Time
	// ill is since when it has not been healthy; zero if it is.
	ill time.Time
	// served: it was healthy in this run.
	served bool
}

// NewPlugins returns the hook. It goes behind those of sockets and of tasks.
func NewPlugins(sockets *Sockets, registry PluginRegistry, health PluginHealth) *Plugins {
	return &Plugins{sockets: sockets, registry: registry, health: health, known: map[dynamicplugins.Key]*supervised{}}
}

// Name implements allocrunner.Hook.
func (*Plugins) Name() string { return "plugins" }

// plugins are the tasks of a group that are CSI plugins.
func plugins(group *api.TaskGroup) iter.Seq[*api.Task] {
	return func(yield func(*api.Task) bool) {
		if group == nil {
			return
		}
		for i := range group.Tasks {
			if t := &group.Tasks[i]; t.CSIPlugin != nil && !yield(t) {
				return
			}
		}
	}
}

func instanceKey(a *api.AllocAssignment, task *api.Task) dynamicplugins.Key {
	return dynamicplugins.Key{ID: task.CSIPlugin.ID, AllocID: a.ID, Type: task.CSIPlugin.Type}
}

// Restore registers the instances of an allocation that an earlier agent ran,
// before anybody asks for them: their tasks still run, and volumes need them.
// Which run that is, its driver knows best: the record may be older.
func (g *Plugins) Restore(ctx context.Context, record *localdb.Allocation) {
	a := &record.Assignment
	if record.Phase != localdb.PhaseUp {
		return
	}
	for task := range plugins(a.Group) {
		is, known := record.Status.Tasks[task.Name]
		d := g.sockets.cfg.Drivers[task.Driver]
		if is.State == api.TaskEnded || d == nil {
			continue
		}
		status, err := d.Status(ctx, runID(a, task.Name, is.Restarts))
		switch {
		case err == nil && status.State != driver.StateUnknown:
			is = seen(is, status, is.Dir)
		case !known:
			continue
		}
		g.register(a, task, is, g.sockets.place(a.ID, task))
	}
}

// Up implements allocrunner.Hook.
func (g *Plugins) Up(_ context.Context, s *allocrunner.Step) error {
	a, tasks := s.Assignment(), s.Tasks()
	awaited := ""
	for task := range plugins(a.Group) {
		place, ok := s.Plugin(task.Name)
		if !ok {
			continue
		}
		g.register(&a, task, tasks[task.Name], place)
		if reason := g.look(&a, task); reason != "" && awaited == "" {
			awaited = fmt.Sprintf("plugin %s is not healthy: %s", task.CSIPlugin.ID, reason)
		}
	}
	s.SetAwaited(awaited)
	return nil
}

// register makes an instance known. One whose task was started again, or does
// not run any more, is another: it is looked at afresh.
func (g *Plugins) register(a *api.AllocAssignment, task *api.Task, is api.TaskStatus, place allocrunner.PluginPlace) {
	key, running := instanceKey(a, task), is.State == api.TaskRunning
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.known[key]
	if was != nil && was.run == is.Restarts && was.running == running && was.started.Equal(is.Started) {
		return
	}
	g.known[key] = &supervised{run: is.Restarts, running: running, started: is.Started, ill: time.Now()}
	p := dynamicplugins.Plugin{
		ID: key.ID, Type: key.Type, AllocID: key.AllocID, AllowUnmounted: task.CSIPlugin.AllowUnmounted,
		Since: is.Started, Dial: csi.SocketDialer(place.HostSocket()),
	}
	if place.Mounted {
		p.HostDir, p.Dir = place.HostBaseDir, place.BaseDir
	}
	if !running {
		p.Dial = absent(task.Name, is)
	}
	g.registry.Register(p)
}

// absent is how a driver is reached whose task does not run.
func absent(task string, is api.TaskStatus) csi.Dialer {
	reason := "has not started yet"
	switch {
	case is.State == api.TaskEnded:
		reason = "has ended"
	case is.Restarts > 0:
		reason = "has ended, and waits to be started again"
	}
	return func(context.Context) (net.Conn, error) { return nil, fmt.Errorf("its task %s %s", task, reason) }
}

// look notes how an instance is, and says why it is not healthy, or "".
func (g *Plugins) look(a *api.AllocAssignment, task *api.Task) string {
	key := instanceKey(a, task)
	s, _ := g.health.Instance(key)
	g.mu.Lock()
	defer g.mu.Unlock()
	i := g.known[key]
	switch {
	case i == nil:
		return ""
	case s.Healthy:
		i.ill, i.served = time.Time{}, true
		return ""
	case i.ill.IsZero():
		i.ill = time.Now()
	}
	return s.Reason
}

// Watch implements allocrunner.Watcher.
func (g *Plugins) Watch(ctx context.Context, s *allocrunner.Step) (allocrunner.News, error) {
	a := s.Assignment()
	var watching sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer watching.Wait()
	defer cancel()
	news := make(chan struct{}, 1)
	for task := range plugins(a.Group) {
		watching.Go(func() {
			if g.watch(ctx, s, &a, task) {
				select {
				case news <- struct{}{}:
				default:
				}
			}
		})
	}
	select {
	case <-news:
	case <-ctx.Done():
	}
	return allocrunner.Again, nil
}

// watch waits until the health of an instance turns, its run is another, or it
// was without health for too long: then its run has failed. It reports whether
// Up has something to do.
func (g *Plugins) watch(ctx context.Context, s *allocrunner.Step, a *api.AllocAssignment, task *api.Task) bool {
	key, patience := instanceKey(a, task), task.CSIPlugin.Patience()
	for {
		status, changed := g.health.Instance(key)
		g.mu.Lock()
		i, known := supervised{}, g.known[key]
		if known != nil {
			i = *known
		}
		g.mu.Unlock()
		if known == nil { // its driver is not here: Up could not register it
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return false
			}
		}
		if is := s.Tasks()[task.Name]; i.run != is.Restarts || i.running != (is.State == api.TaskRunning) {
			return true
		}
		if status.Healthy != i.ill.IsZero() {
			return true
		}
		var late <-chan time.Time
		stop := func() bool { return false }
		if i.running && !i.ill.IsZero() {
			left := time.Until(i.ill.Add(patience))
			if left <= 0 {
				s.SetFailing(task.Name, i.run, failure(task, status, i.served))
				return true
			}
			timer := time.NewTimer(left)
			late, stop = timer.C, timer.Stop
		}
		select {
		case <-changed:
		case <-late:
		case <-ctx.Done():
		}
		stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

// failure is why a run of a plugin has failed, in words.
func failure(task *api.Task, s api.InstanceStatus, served bool) string {
	c := task.CSIPlugin
	if served {
		return fmt.Sprintf("plugin %s was not healthy for %s: %s", c.ID, c.Patience(), s.Reason)
	}
	return fmt.Sprintf("plugin %s did not become healthy within %s: %s", c.ID, c.Patience(), s.Reason)
}

// drainLimit bounds how long the calls of an instance that ends are waited for.
const drainLimit = 30 * time.Second

// Serve has instances withdrawn whose tasks this hook stops, to start them again.
func (g *Plugins) Serve(t *Tasks) {
	t.withdraw = func(ctx context.Context, a *api.AllocAssignment, task *api.Task, reason string) {
		g.mu.Lock()
		registered := g.known[instanceKey(a, task)] != nil
		g.mu.Unlock()
		if !registered {
			return // it is on its way down, and was withdrawn
		}
		bounded, cancel := context.WithTimeout(ctx, drainLimit)
		defer cancel()
		g.withdraw(bounded, a, task, reason)
	}
}

// withdraw has nobody call an instance any more, and waits for the calls on their
// way. With a reason it stays, as one that is not healthy: its task is started
// again. Without one it is gone.
func (g *Plugins) withdraw(ctx context.Context, a *api.AllocAssignment, task *api.Task, reason string) {
	key := instanceKey(a, task)
	if reason == "" {
		g.registry.Deregister(key)
	} else {
		g.registry.Register(dynamicplugins.Plugin{
			ID: key.ID, Type: key.Type, AllocID: key.AllocID, Withdrawn: reason,
			Dial: func(context.Context) (net.Conn, error) { return nil, errors.New(reason) },
		})
	}
	g.mu.Lock()
	delete(g.known, key)
	g.mu.Unlock()
	g.health.Drained(ctx, key)
}

// Down implements allocrunner.Hook. The instance takes no new calls, and those
// on their way end before its task does.
func (g *Plugins) Down(ctx context.Context, s *allocrunner.Step) error {
	a := s.Assignment()
	bounded, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for task := range plugins(a.Group) {
		g.withdraw(bounded, &a, task, "")
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(errors.New("wait for the calls of a plugin that ends"), err)
	}
	return nil
}
