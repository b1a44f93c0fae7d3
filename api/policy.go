package api

import (
	"fmt"
	"time"
)

// Update says how a group's allocations are exchanged for those of a newer
// revision. Services and system jobs have one; allocations of batch jobs are
// exchanged at once.
type Update struct {
	// MaxParallel is how many places may be without a healthy allocation
	// because of the update; DefaultUpdate's if 0.
	MaxParallel int `json:"max_parallel,omitempty"`
	// HealthCheck says what makes an allocation healthy; "" leaves it to whether the
	// group has checks.
	HealthCheck HealthCheck `json:"health_check,omitempty"`
	// MinHealthyTime is how long an allocation must have run, with none of its
	// tasks started again and all checks passing, to be healthy.
	MinHealthyTime Duration `json:"min_healthy_time,omitempty"`
	// HealthyDeadline is how long a place may take to become healthy before the
	// update has failed there.
	HealthyDeadline Duration `json:"healthy_deadline,omitempty"`
	// AutoRevert goes back to the last revision that was healthy everywhere when
	// the update fails. Without it no more allocations are exchanged until what
	// has failed is healthy.
	AutoRevert bool `json:"auto_revert,omitempty"`
	// Order says which of two allocations of a place goes first; "" leaves it to
	// what the group holds.
	Order UpdateOrder `json:"order,omitempty"`
	// Canary is in how many places a newer revision is tried first. Nothing is
	// stopped until it is promoted.
	Canary int `json:"canary,omitempty"`
	// AutoPromote promotes it when all canaries of the job are healthy.
	AutoPromote bool `json:"auto_promote,omitempty"`
}

// Promotion says that a revision that is being tried is to take the place of
// the one before it.
type Promotion struct {
	// Revision is the job's newest; 0 stands for it.
	Revision uint64 `json:"revision,omitempty"`
	// Version is the one that the job must have; 0 for any.
	Version uint64 `json:"version,omitempty"`
}

// HealthCheck says what makes an allocation healthy.
type HealthCheck string

// The ways.
const (
	// HealthChecks: its tasks run and its checks pass. A group without checks is
	// healthy when its tasks run.
	HealthChecks HealthCheck = "checks"
	// HealthTaskStates: its tasks run.
	HealthTaskStates HealthCheck = "task_states"
)

// HealthCheckWays lists all ways, for validation and documentation.
func HealthCheckWays() []HealthCheck { return []HealthCheck{HealthChecks, HealthTaskStates} }

// of is what a way means for a group.
func (h HealthCheck) of(g *TaskGroup) HealthCheck {
	if h != HealthTaskStates && g.Required() {
		return HealthChecks
	}
	return HealthTaskStates
}

// UpdateOrder says whether the older allocation of a place is stopped before the
// newer one is started.
type UpdateOrder string

// The update orders.
const (
	// StopFirst: it is. The two never run at once.
	StopFirst UpdateOrder = "stop-first"
	// StartFirst: it is stopped when the newer one is healthy. Where no node has
	// room for both, it is stopped first all the same.
	StartFirst UpdateOrder = "start-first"
)

// UpdateOrders lists all orders, for validation and documentation.
func UpdateOrders() []UpdateOrder { return []UpdateOrder{StartFirst, StopFirst} }

// StopsFirst says why the older allocation of a place of the group is stopped
// before the newer one is started, or "": then it is stopped when the newer one
// is healthy.
func (s *JobSpec) StopsFirst(g *TaskGroup) string {
	order := s.UpdateOf(g).Order
	if reason := s.alone(g); reason != "" {
		return reason
	}
	switch {
	case order == StopFirst:
		return "update.order is stop-first"
	case order == StartFirst, g.ServesPlugins():
		return ""
	}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		switch {
		case t.Driver == "raw_exec":
			return fmt.Sprintf("task %q runs directly on the host, and nobody knows what it holds there", t.Name)
		case t.Config["volumes"] != nil || t.Config["mounts"] != nil || t.Config["mount"] != nil:
			return fmt.Sprintf("task %q mounts directories of the host, and nobody knows what it holds there", t.Name)
		}
	}
	return ""
}

// alone says why two allocations of a place of the group cannot run at once, or
// "".
func (s *JobSpec) alone(g *TaskGroup) string {
	if s.Type.Ends() {
		return fmt.Sprintf("allocations of a %s job are exchanged at once", s.Type)
	}
	if s.Type.Everywhere() && !g.ServesPlugins() {
		return fmt.Sprintf("a %s job has one allocation on each node", s.Type)
	}
	for i := range g.Tasks {
		if c := g.Tasks[i].CSIPlugin; c != nil && c.Exclusive {
			return fmt.Sprintf("plugin %s is exclusive", c.ID)
		}
	}
	for i := range g.Volumes {
		if r := &g.Volumes[i]; !r.shared() || g.ServesPlugins() {
			return fmt.Sprintf("volume %q is for one allocation at a time", r.Name)
		}
	}
	for _, port := range g.Ports {
		if port.Static != 0 {
			return fmt.Sprintf("port %q is static", port.Name)
		}
	}
	return ""
}

// shared reports whether two allocations of one place may have what the request
// is for, on any nodes. A directory of a node has no access mode: who writes to
// it is taken for alone.
func (r *VolumeRequest) shared() bool {
	switch {
	case r.Ephemeral != nil:
		return true // each has its own
	case r.Host(), r.AccessMode == MultiNodeSingleWriter:
		return r.ReadOnly
	}
	return r.AccessMode == MultiNodeMultiWriter || r.AccessMode == MultiNodeReaderOnly
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
	// HealthCheck says what makes an allocation healthy; "" leaves it to whether the
	// group has checks.
	HealthCheck HealthCheck `json:"health_check,omitempty"`
	// MinHealthyTime is how long an allocation must have run, with none of its
	// tasks started again and all checks passing, to be healthy.
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
		set(&m.HealthCheck, over.HealthCheck)
		set(&m.MinHealthyTime, over.MinHealthyTime)
		set(&m.HealthyDeadline, over.HealthyDeadline)
	}
	m.HealthCheck = m.HealthCheck.of(g)
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
	if m.HealthCheck != "" {
		oneOf(p, path+".health_check", m.HealthCheck, HealthCheckWays()...)
	}
	validatePace(p, path, m.pace(), full.pace())
}

func (m *Migrate) pace() pace {
	return pace{MaxParallel: m.MaxParallel, MinHealthyTime: m.MinHealthyTime, HealthyDeadline: m.HealthyDeadline}
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
		set(&u.HealthCheck, over.HealthCheck)
		set(&u.MinHealthyTime, over.MinHealthyTime)
		set(&u.HealthyDeadline, over.HealthyDeadline)
		u.AutoRevert = u.AutoRevert || over.AutoRevert
		set(&u.Order, over.Order)
		set(&u.Canary, over.Canary)
		u.AutoPromote = u.AutoPromote || over.AutoPromote
	}
	u.HealthCheck = u.HealthCheck.of(g)
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
	if u.Canary < 0 {
		p.Add(path+".canary", "is negative", "give a number from 1, or leave it out")
	}
	if u.HealthCheck != "" {
		oneOf(p, path+".health_check", u.HealthCheck, HealthCheckWays()...)
	}
	if u.Order != "" {
		oneOf(p, path+".order", u.Order, UpdateOrders()...)
	}
}

func (u *Update) pace() pace {
	return pace{MaxParallel: u.MaxParallel, MinHealthyTime: u.MinHealthyTime, HealthyDeadline: u.HealthyDeadline}
}

// validateUpdate reports what a group asks of its update that what it holds does
// not allow.
func (s *JobSpec) validateUpdate(p *Problems, path string, g *TaskGroup) {
	if s.Type.Ends() {
		return
	}
	u, reason := s.UpdateOf(g), s.alone(g)
	switch first := s.StopsFirst(g); {
	case u.Canary > 0 && s.Type.Everywhere():
		p.Addf(path+".update.canary", "remove it, or use a service with a count",
			"is %d, and the places of a %s job are nodes, of which none is the first", u.Canary, s.Type)
	case u.Canary > 0 && first != "":
		p.Addf(path+".update.canary", "remove it", "is %d, and a canary runs beside the older allocation, which this group's cannot: %s", u.Canary, first)
	}
	if u.AutoPromote && u.Canary == 0 {
		p.Add(path+".update.auto_promote", "is true, and there are no canaries to promote", "add canary, or remove it")
	}
	if u.Order == StartFirst && reason != "" {
		p.Addf(path+".update.order", "remove it, or use stop-first", "is start-first, and two allocations of a place cannot run at once: %s", reason)
	}
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
