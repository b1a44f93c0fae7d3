package hook

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/allocrunner"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/visit"
	"github.com/berth-dev/berth/internal/agent/probe"
)

// Checks has the checks of an allocation's services made while their tasks run.
type Checks struct {
	tasks  *Tasks
	prober *probe.Prober

	mu    sync.Mutex // guards below
	known map[api.AllocID]*checked
}

// checked is an allocation whose checks are made. It is told what becomes of them.
type checked struct {
	hook *Checks
	step *allocrunner.Step
	id   api.AllocID
	news chan struct{} // capacity 1: Up is to look
	turn chan struct{} // capacity 1: how they are is to be recorded

	mu       sync.Mutex // guards below, and the order of what is said
	recorded []api.CheckStatus
	// tasks are, by check, those that are started again for it.
	tasks map[string]concerned
}

// concerned are the runs of tasks that a check is about, and since when all of
// them run.
type concerned struct {
	runs  map[string]int
	since time.Time
}

// NewChecks returns the hook. It goes behind that of tasks, whose drivers and
// environments scripts need.
func NewChecks(tasks *Tasks, prober *probe.Prober) *Checks {
	return &Checks{tasks: tasks, prober: prober, known: map[api.AllocID]*checked{}}
}

// Name implements allocrunner.Hook.
func (*Checks) Name() string { return "checks" }

// Up implements allocrunner.Hook.
func (h *Checks) Up(_ context.Context, s *allocrunner.Step) error {
	a := s.Assignment()
	if a.Group == nil {
		return nil
	}
	h.mu.Lock()
	c, restored := h.known[a.ID], false
	if c == nil && !slices.ContainsFunc(a.Group.Services, func(s api.Service) bool { return len(s.Checks) > 0 }) {
		h.mu.Unlock()
		s.SetChecks(nil)
		return nil
	}
	if c == nil {
		c = &checked{hook: h, step: s, id: a.ID, news: make(chan struct{}, 1), turn: make(chan struct{}, 1), recorded: s.Checks()}
		h.known[a.ID], restored = c, true
	}
	h.mu.Unlock()
	checks := h.checks(s, &a, c, restored)
	h.prober.Set(a.ID, checks, c)
	c.say()
	return c.record() // the next agent is to know, so that what passes goes on passing
}

// record writes how the checks are, if that is news.
func (c *checked) record() error {
	now := c.step.Checks()
	c.mu.Lock()
	stale := !slices.Equal(c.recorded, now)
	c.recorded = now
	c.mu.Unlock()
	if !stale {
		return nil
	}
	return c.step.Record()
}

// checks are those that are to be made now.
func (h *Checks) checks(s *allocrunner.Step, a *api.AllocAssignment, c *checked, restored bool) []probe.Check {
	tasks := s.Tasks()
	of := map[string]concerned{}
	var all []probe.Check
	for i := range a.Group.Services {
		service := &a.Group.Services[i]
		for j := range service.Checks {
			spec := &service.Checks[j]
			check := probe.Check{Service: service.Name, Spec: *spec, Of: a.Group.Asked(service, spec), Restart: service.RestartOf(spec)}
			if restored {
				for _, was := range s.Checks() {
					if was.Service == service.Name && was.Name == spec.Name {
						check.Was = &was
					}
				}
			}
			name := a.Group.TaskOf(service, spec)
			runs, since := running(a.Group, name, tasks)
			check.Since = since
			of[api.CheckKey(service.Name, spec.Name)] = concerned{runs, since}
			check.Lives = h.lives(a, runs)
			h.aim(s, a, service, name, &check)
			all = append(all, check)
		}
	}
	c.mu.Lock()
	c.tasks = of
	c.mu.Unlock()
	return all
}

// lives answers whether the drivers still have all of these runs. Who cannot say
// keeps no failure from counting.
func (h *Checks) lives(a *api.AllocAssignment, runs map[string]int) func(context.Context) bool {
	ids := map[string]driver.Driver{}
	for i := range a.Group.Tasks {
		t := &a.Group.Tasks[i]
		if run, ok := runs[t.Name]; ok {
			ids[runID(a, t.Name, run)] = h.tasks.drivers[t.Driver]
		}
	}
	return func(ctx context.Context) bool {
		for id, d := range ids {
			if d == nil {
				continue
			}
			if s, err := d.Status(ctx, id); err == nil && s.State == driver.StateEnded {
				return false
			}
		}
		return true
	}
}

// running are the runs of a task, or of all main tasks, and since when all of them
// run; zero if one does not.
func running(group *api.TaskGroup, name string, tasks map[string]api.TaskStatus) (runs map[string]int, since time.Time) {
	runs = map[string]int{}
	all := true
	for i := range group.Tasks {
		t := &group.Tasks[i]
		if name == "" && !t.Main() || name != "" && t.Name != name {
			continue
		}
		is := tasks[t.Name]
		runs[t.Name] = is.Restarts
		all = all && is.State == api.TaskRunning
		if is.Started.After(since) {
			since = is.Started
		}
	}
	switch {
	case !all || len(runs) == 0:
		return runs, time.Time{}
	case since.IsZero():
		return runs, time.Unix(0, 0) // the driver does not say
	}
	return runs, since
}

// aim says what a check asks, with what stands for names filled in.
func (h *Checks) aim(s *allocrunner.Step, a *api.AllocAssignment, service *api.Service, name string, c *probe.Check) {
	task := &api.Task{}
	for i := range a.Group.Tasks {
		if t := &a.Group.Tasks[i]; t.Name == name || name == "" && t.Main() && task.Name == "" {
			task = t
		}
	}
	place, _ := s.Plugin(task.Name)
	env := h.tasks.environment(a, task, s.Dir, s.Mounts(), place)
	if c.Spec.Type == api.CheckScript {
		for _, word := range append([]string{c.Spec.Command}, c.Spec.Args...) {
			c.Command = append(c.Command, h.tasks.expand(word, env))
		}
		run := s.Tasks()[task.Name].Restarts
		d := h.tasks.drivers[task.Driver]
		c.Run = func(ctx context.Context, command []string) probe.Answer {
			return script(ctx, d, runID(a, task.Name, run), command)
		}
		return
	}
	// What is not known yet is not asked: on the node's loopback others may answer.
	address, port := h.tasks.node().Status.Profile.Address, a.Allocation.Port(service.PortOf(&c.Spec))
	if address != "" && port != 0 {
		c.Address = net.JoinHostPort(address, strconv.Itoa(port))
	}
	c.Spec.Path = h.tasks.expand(c.Spec.Path, env)
	header := make(map[string][]string, len(c.Spec.Header))
	for name, values := range c.Spec.Header {
		for _, v := range values {
			header[name] = append(header[name], h.tasks.expand(v, env))
		}
	}
	c.Spec.Header = header
}

// maxScriptOutput is how much of what a script writes is read.
const maxScriptOutput = 4 << 10

// script runs a command in a task, and says how it ended.
func script(ctx context.Context, d driver.Driver, id string, command []string) probe.Answer {
	host, ok := d.(driver.Host)
	if !ok {
		return probe.Answer{Output: "the task's driver runs no commands in its tasks"}
	}
	output, exit, err := visit.Collect(maxScriptOutput, func(visitor visit.Conn) error {
		return host.Visit(ctx, id, &api.ExecRequest{Command: command}, visitor)
	})
	switch {
	case api.CodeOf(err) == api.CodeUnavailable && ctx.Err() == nil:
		// People run as much in the task as it is given at a time: nothing is known.
		return probe.Answer{Unasked: true, Output: err.Error()}
	case err != nil && len(output) > 0:
		return probe.Answer{Output: fmt.Sprintf("%v: %s", err, output)}
	case err != nil:
		return probe.Answer{Output: err.Error()}
	case exit.Status() == 0:
		return probe.Answer{OK: true, Output: string(output)}
	}
	said := fmt.Sprintf("exit status %d", exit.Code)
	if exit.Signal != 0 {
		said = fmt.Sprintf("ended by signal %d", exit.Signal)
	}
	if len(output) > 0 {
		said += ": " + string(output)
	}
	return probe.Answer{Warning: exit.Status() == 1, Output: said}
}

// Turned implements probe.Teller.
func (c *checked) Turned() {
	c.say()
	select {
	case c.turn <- struct{}{}:
	default:
	}
}

// say reports how the checks are, in the order in which they turned.
func (c *checked) say() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.hook.prober.Statuses(c.id); now != nil {
		c.step.SetChecks(now)
	}
}

// Failed implements probe.Teller. What follows is what the tasks' restart policies
// say, as if they had ended.
func (c *checked) Failed(check probe.Check, failures int, output string) {
	c.mu.Lock()
	of := c.tasks[api.CheckKey(check.Service, check.Spec.Name)]
	c.mu.Unlock()
	if !of.since.Equal(check.Since) {
		return // it was another run that failed
	}
	for task, run := range of.runs {
		reason := fmt.Sprintf("check %q of service %s failed %d times in a row: %s", check.Spec.Name, check.Service, failures, output)
		c.step.SetFailing(task, run, reason)
		c.step.Say(task, "it is stopped, to be started again as its restart policy says: "+reason)
	}
	c.nudge()
}

func (c *checked) nudge() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// Watch implements allocrunner.Watcher.
func (h *Checks) Watch(ctx context.Context, s *allocrunner.Step) (allocrunner.News, error) {
	h.mu.Lock()
	c := h.known[s.Assignment().ID]
	h.mu.Unlock()
	if c == nil {
		<-ctx.Done()
		return allocrunner.Again, nil
	}
	for {
		select {
		case <-c.turn:
			// It is only to be recorded: no hook has anything to do.
			if err := c.record(); err != nil {
				return allocrunner.Again, err
			}
		case <-c.news:
			return allocrunner.Again, nil
		case <-ctx.Done():
			return allocrunner.Again, nil
		}
	}
}

// Down implements allocrunner.Hook. The tasks are about to end, and nobody is to
// learn of it from their checks.
func (h *Checks) Down(_ context.Context, s *allocrunner.Step) error {
	id := s.Assignment().ID
	h.prober.Forget(id)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, id)
	return nil
}
