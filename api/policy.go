package api

import (
	"time"
)

// Update says how a group's allocations are exchanged for those of a newer
// revision. Services and system jobs have one; allocations of batch jobs are
// exchanged at once.
type Update struct {
	// MaxParallel is how many places may be without a healthy allocation
	// because of the update; DefaultUpdate's if 0.
	MaxParallel int `json:"max_parallel,omitempty"`
	// MinHealthyTime is how long an allocation must have run, with none of its
	// tasks started again, to be healthy.
	MinHealthyTime Duration `json:"min_healthy_time,omitempty"`
	// HealthyDeadline is how long a place may take to become healthy before the
	// update has failed there.
	HealthyDeadline Duration `json:"healthy_deadline,omitempty"`
	// AutoRevert goes back to the last revision that was healthy everywhere when
	// the update fails. Without it no more allocations are exchanged until what
	// has failed is healthy.
	AutoRevert bool `json:"auto_revert,omitempty"`
}

// DefaultUpdate is what holds where a job says nothing else.
func DefaultUpdate() Update {
	return Update{MaxParallel: 1, MinHealthyTime: Duration(10 * time.Second), HealthyDeadline: Duration(5 * time.Minute)}
}

// Migrate says how a group's allocations leave a node that is drained. Services
// have one.
type Migrate struct {
	// MaxParallel is how many places of the group may be without a healthy
	// allocation because of drains, of all nodes; DefaultMigrate's if 0.
	MaxParallel int `json:"max_parallel,omitempty"`
	// MinHealthyTime is how long an allocation must have run, with none of its
	// tasks started again, to be healthy.
	MinHealthyTime Duration `json:"min_healthy_time,omitempty"`
	// HealthyDeadline is how long a place may take to become healthy before the
	// drain says that it holds up the others.
	HealthyDeadline Duration `json:"healthy_deadline,omitempty"`
}

// DefaultMigrate is what holds where a job says nothing else.
func DefaultMigrate() Migrate {
	return Migrate{MaxParallel: 1, MinHealthyTime: Duration(10 * time.Second), HealthyDeadline: Duration(5 * time.Minute)}
}

// MigrateOf is how a group's allocations leave a node.
func (s *JobSpec) MigrateOf(g *TaskGroup) Migrate {
	m := DefaultMigrate()
	for _, over := range []*Migrate{s.Migrate, g.Migrate} {
		if over == nil {
			continue
		}
		set(&m.MaxParallel, over.MaxParallel)
		set(&m.MinHealthyTime, over.MinHealthyTime)
		set(&m.HealthyDeadline, over.HealthyDeadline)
	}
	return m
}

func (m *Migrate) validate(p *Problems, path string, t JobType) {
	if m == nil {
		return
	}
	if t != JobService {
		p.Addf(path, "remove it", "makes no sense in a %s job: its allocations do not move to other nodes one by one", t)
		return
	}
	full := (&JobSpec{Migrate: m}).MigrateOf(&TaskGroup{})
	validatePace(p, path, pace(*m), pace(full))
}

// pace is what an update and a migration have in common.
type pace struct {
	MaxParallel                     int
	MinHealthyTime, HealthyDeadline Duration
}

// validatePace reports what is wrong with what was said, and with what it makes
// together with the defaults.
func validatePace(p *Problems, path string, said, full pace) {
	if said.MaxParallel < 0 {
		p.Add(path+".max_parallel", "is negative", "give a number from 1")
	}
	positive(p, path+".min_healthy_time", said.MinHealthyTime)
	positive(p, path+".healthy_deadline", said.HealthyDeadline)
	if full.HealthyDeadline > 0 && full.MinHealthyTime >= full.HealthyDeadline {
		p.Addf(path+".healthy_deadline", "make it longer than min_healthy_time", "is %s, and min_healthy_time is %s",
			time.Duration(full.HealthyDeadline), time.Duration(full.MinHealthyTime))
	}
}

// Reschedule says when a place in a group gets another allocation after one has
// failed.
type Reschedule struct {
	// Attempts in Interval, then nothing until the interval is over; a batch
	// gives up. Any number if Unlimited.
	Attempts int      `json:"attempts,omitempty"`
	Interval Duration `json:"interval,omitempty"`
	// Delay before the first attempt; the function makes those of the next.
	Delay         Duration      `json:"delay,omitempty"`
	DelayFunction DelayFunction `json:"delay_function,omitempty"`
	MaxDelay      Duration      `json:"max_delay,omitempty"`
	Unlimited     bool          `json:"unlimited,omitempty"`
}

// DelayFunction says how the delay grows with failures in a row.
type DelayFunction string

// The delay functions.
const (
	DelayConstant    DelayFunction = "constant"
	DelayExponential DelayFunction = "exponential"
	DelayFibonacci   DelayFunction = "fibonacci"
)

// DelayFunctions lists all of them, for validation and documentation.
func DelayFunctions() []DelayFunction {
	return []DelayFunction{DelayConstant, DelayExponential, DelayFibonacci}
}

// DefaultReschedule is what holds for a type of job that says nothing else.
func DefaultReschedule(t JobType) Reschedule {
	r := Reschedule{
		Delay: Duration(time.Second), DelayFunction: DelayExponential, MaxDelay: Duration(5 * time.Minute), Unlimited: true,
	}
	if t.Ends() {
		r.Unlimited, r.Attempts, r.Interval = false, 2, Duration(24*time.Hour)
	}
	return r
}

// UpdateOf is how a group is updated: what it says itself, what the job says
// and the defaults, each for what is missing before it.
func (s *JobSpec) UpdateOf(g *TaskGroup) Update {
	u := DefaultUpdate()
	for _, over := range []*Update{s.Update, g.Update} {
		if over == nil {
			continue
		}
		set(&u.MaxParallel, over.MaxParallel)
		set(&u.MinHealthyTime, over.MinHealthyTime)
		set(&u.HealthyDeadline, over.HealthyDeadline)
		u.AutoRevert = u.AutoRevert || over.AutoRevert
	}
	return u
}

// RescheduleOf is when a group's places get another allocation.
func (s *JobSpec) RescheduleOf(g *TaskGroup) Reschedule {
	r := DefaultReschedule(s.Type)
	for _, over := range []*Reschedule{s.Reschedule, g.Reschedule} {
		if over == nil {
			continue
		}
		set(&r.Delay, over.Delay)
		set(&r.DelayFunction, over.DelayFunction)
		set(&r.MaxDelay, over.MaxDelay)
		set(&r.Attempts, over.Attempts)
		set(&r.Interval, over.Interval)
		r.Unlimited = over.Unlimited || r.Unlimited && over.Attempts == 0
	}
	return r
}

func set[T comparable](into *T, value T) {
	var none T
	if value != none {
		*into = value
	}
}

func (u *Update) validate(p *Problems, path string) {
	if u == nil {
		return
	}
	full := (&JobSpec{Update: u}).UpdateOf(&TaskGroup{})
	validatePace(p, path, u.pace(), full.pace())
}

func (u *Update) pace() pace {
	return pace{MaxParallel: u.MaxParallel, MinHealthyTime: u.MinHealthyTime, HealthyDeadline: u.HealthyDeadline}
}

func (r *Reschedule) validate(p *Problems, path string, t JobType) {
	if r == nil {
		return
	}
	positive(p, path+".interval", r.Interval)
	positive(p, path+".delay", r.Delay)
	positive(p, path+".max_delay", r.MaxDelay)
	if r.DelayFunction != "" {
		oneOf(p, path+".delay_function", r.DelayFunction, DelayFunctions()...)
	}
	switch {
	case r.Attempts < 0:
		p.Add(path+".attempts", "is negative", "give a number from 1, or 0 for none")
	case r.Unlimited && r.Attempts > 0:
		p.Addf(path+".attempts", "remove it, or unlimited", "is %d, and unlimited is true", r.Attempts)
	case r.Attempts > 0 && r.Interval == 0 && !t.Ends():
		p.Add(path+".interval", "is missing", "say in which time the attempts count")
	}
	if r.MaxDelay > 0 && r.Delay > r.MaxDelay {
		p.Addf(path+".max_delay", "make it at least delay", "is %s, and delay is %s", time.Duration(r.MaxDelay), time.Duration(r.Delay))
	}
}

func positive(p *Problems, at string, d Duration) {
	if d < 0 {
		p.Add(at, "is negative", `give a duration such as "30s"`)
	}
}
