package api

import (
	"fmt"
	"time"
)

// RestartPolicy says what happens on its node to a task that ends and should
// not have: a task of a batch that fails, one of a service that ends at all.
// What is nil, or "", is the default of the job's type.
type RestartPolicy struct {
	// Attempts is how often a task is started again within Interval.
	Attempts *int      `json:"attempts,omitempty"`
	Interval *Duration `json:"interval,omitempty"`
	// Delay lies between an end and the next start.
	Delay *Duration `json:"delay,omitempty"`
	// Mode says what comes when the attempts are used up.
	Mode RestartMode `json:"mode,omitempty"`
}

// RestartMode is what happens to a task whose attempts are used up.
type RestartMode string

// The restart modes.
const (
	// RestartFail ends the allocation as failed; the servers replace it.
	RestartFail RestartMode = "fail"
	// RestartDelay waits until the interval is over, and begins another.
	RestartDelay RestartMode = "delay"
)

// RestartModes lists all modes, for validation and documentation.
func RestartModes() []RestartMode { return []RestartMode{RestartFail, RestartDelay} }

// Restarts is a restart policy with its defaults filled in.
type Restarts struct {
	Attempts        int
	Interval, Delay time.Duration
	Mode            RestartMode
	// Success: a task is started again also if it has succeeded.
	Success bool
}

// Restarts is the policy that holds for a task of the group, in a job of that
// type: the task's where it says something, else the group's, else the default.
func (g *TaskGroup) Restarts(t *Task, of JobType) Restarts {
	r := Restarts{Attempts: 2, Interval: 30 * time.Minute, Delay: 15 * time.Second, Mode: RestartFail, Success: !of.Ends()}
	if of.Ends() {
		r.Attempts, r.Interval = 3, 24*time.Hour
	}
	if !t.Main() {
		r.Success = t.Sidecar()
	}
	for _, p := range []*RestartPolicy{g.Restart, t.Restart} {
		r.overlay(p)
	}
	if t.Hook() == HookPoststop {
		r.Mode = RestartFail // the volumes wait for its end
	}
	return r
}

func (r *Restarts) overlay(p *RestartPolicy) {
	if p == nil {
		return
	}
	if p.Attempts != nil {
		r.Attempts = *p.Attempts
	}
	if p.Interval != nil {
		r.Interval = time.Duration(*p.Interval)
	}
	if p.Delay != nil {
		r.Delay = time.Duration(*p.Delay)
	}
	if p.Mode != "" {
		r.Mode = p.Mode
	}
}

// minInterval is the shortest interval: attempts are counted in the disk's
// time, not the processor's.
const minInterval = 5 * time.Second

func (p *RestartPolicy) validate(all *Problems, at string) {
	if p == nil {
		return
	}
	if p.Mode != "" {
		oneOf(all, at+".mode", p.Mode, RestartModes()...)
	}
	if p.Attempts != nil && *p.Attempts < 0 {
		all.Add(at+".attempts", "is negative", "use 0 or more")
	}
	if p.Interval != nil && time.Duration(*p.Interval) < minInterval {
		all.Addf(at+".interval", "give "+minInterval.String()+" or more", "is %s", *p.Interval)
	}
	if p.Delay != nil && *p.Delay < 0 {
		all.Add(at+".delay", "is negative", `give a duration such as "15s"`)
	}
}

// validateRestarts reports policies whose parts do not go together.
func (g *TaskGroup) validateRestarts(p *Problems, path string, of JobType) {
	g.Restart.validate(p, path+".restart")
	check := func(at string, r Restarts) {
		switch {
		case r.Attempts < 0 || r.Interval < minInterval || r.Delay < 0:
		case r.Attempts == 0 && r.Mode == RestartDelay:
			p.Add(at+".attempts", "is 0, and mode delay starts the task again when the interval is over", `use 1 or more, or mode = "fail"`)
		case r.Delay > 0 && int64(r.Attempts) > int64(r.Interval/r.Delay):
			p.Addf(at+".interval", "choose a longer interval, a shorter delay, or fewer attempts",
				"is %s, which is too short for %d attempts with a delay of %s", r.Interval, r.Attempts, r.Delay)
		}
	}
	if g.Restart != nil {
		check(path+".restart", g.Restarts(&Task{}, of))
	}
	for i := range g.Tasks {
		if t := &g.Tasks[i]; t.Restart != nil {
			at := fmt.Sprintf("%s.task[%q].restart", path, t.Name)
			t.Restart.validate(p, at)
			check(at, g.Restarts(t, of))
		}
	}
}
