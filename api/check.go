package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// ServiceCheck asks, on the node of an allocation, whether it offers a service.
type ServiceCheck struct {
	// Name tells it from the others of its service.
	Name string    `json:"name"`
	Type CheckType `json:"type"`
	// Port is as in the service, whose it is if this is empty.
	Port string `json:"port,omitempty"`
	// Interval lies between the beginnings of two probes, DefaultCheckInterval if
	// 0; Timeout is how long one may take, DefaultCheckTimeout if 0. It is not
	// longer than the interval, or MaxCheckTimeout where that is longer.
	Interval Duration `json:"interval,omitempty"`
	Timeout  Duration `json:"timeout,omitempty"`
	// Of http: Protocol is http if empty, Method GET, Path /.
	Protocol      string              `json:"protocol,omitempty"`
	Method        string              `json:"method,omitempty"`
	Path          string              `json:"path,omitempty"`
	Header        map[string][]string `json:"header,omitempty"`
	Body          string              `json:"body,omitempty"`
	TLSSkipVerify bool                `json:"tls_skip_verify,omitempty"`
	TLSServerName string              `json:"tls_server_name,omitempty"`
	// Of script: what is run in Task.
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Task is where a script runs, and what Restart is about; the service's if it
	// is empty.
	Task string `json:"task,omitempty"`
	// InitialStatus is how the check is before its first probe, pending if empty.
	InitialStatus CheckState `json:"initial_status,omitempty"`
	// SuccessBeforePassing and FailuresBeforeCritical are how many probes in a row
	// turn it, 1 if 0.
	SuccessBeforePassing   int `json:"success_before_passing,omitempty"`
	FailuresBeforeCritical int `json:"failures_before_critical,omitempty"`
	// OnUpdate says whether health waits for it.
	OnUpdate OnUpdate `json:"on_update,omitempty"`
	// Restart is the service's if it is nil.
	Restart *CheckRestart `json:"check_restart,omitempty"`
}

// CheckRestart has tasks started again by their restart policy when a check
// fails.
type CheckRestart struct {
	// Limit is how many failures in a row it takes; 0 never does.
	Limit int `json:"limit,omitempty"`
	// Grace is how long after its start a task's failures are not counted,
	// DefaultCheckGrace if 0.
	Grace Duration `json:"grace,omitempty"`
	// IgnoreWarnings takes warnings for no failure: a script's exit status 1, and
	// the HTTP status 429.
	IgnoreWarnings bool `json:"ignore_warnings,omitempty"`
}

// What holds for a check that says nothing else.
const (
	DefaultCheckInterval = 10 * time.Second
	DefaultCheckTimeout  = 5 * time.Second
	DefaultCheckGrace    = time.Second
)

// CheckType is how a check asks.
type CheckType string

// The types of checks.
const (
	// CheckTCP: the port takes a connection.
	CheckTCP CheckType = "tcp"
	// CheckHTTP: the answer's status is from 200 to 299. Redirects are not followed.
	CheckHTTP CheckType = "http"
	// CheckScript: a command in the task exits with 0.
	CheckScript CheckType = "script"
)

// CheckTypes lists all types, for validation and documentation.
func CheckTypes() []CheckType { return []CheckType{CheckTCP, CheckHTTP, CheckScript} }

// CheckState is how a check is.
type CheckState string

// The states of checks.
const (
	// CheckPending: nothing is known yet, or its task does not run.
	CheckPending  CheckState = "pending"
	CheckPassing  CheckState = "passing"
	CheckCritical CheckState = "critical"
)

// CheckStates lists all states, for validation and documentation.
func CheckStates() []CheckState { return []CheckState{CheckPending, CheckPassing, CheckCritical} }

// OnUpdate says what a check is to updates.
type OnUpdate string

// The ways.
const (
	// OnUpdateRequire: an allocation is healthy only if it passes. It holds for a
	// check that says nothing.
	OnUpdateRequire OnUpdate = "require_healthy"
	// OnUpdateIgnore: how it is changes nothing.
	OnUpdateIgnore OnUpdate = "ignore"
)

// OnUpdates lists all ways, for validation and documentation.
func OnUpdates() []OnUpdate { return []OnUpdate{OnUpdateRequire, OnUpdateIgnore} }

// CheckStatus is the agent's word on one check of an allocation.
type CheckStatus struct {
	Service string     `json:"service"`
	Name    string     `json:"name"`
	Status  CheckState `json:"status"`
	// Since is when that began.
	Since time.Time `json:"since,omitzero"`
	// Output is what the probe said that brought it there, in one line.
	Output string `json:"output,omitempty"`
}

// MaxCheckOutput bounds what is kept of a probe's output, in bytes.
const MaxCheckOutput = 512

// MaxCheckTimeout bounds how long one probe may take of a check whose interval is
// not longer.
const MaxCheckTimeout = 30 * time.Second

// MaxChecks bounds the checks of a group.
const MaxChecks = 64

// CheckKey names a check among those of its group.
func CheckKey(service, name string) string { return service + "\x00" + name }

// RestartOf is when tasks are started again because of a check of the service,
// or nil.
func (s *Service) RestartOf(c *ServiceCheck) *CheckRestart {
	r := c.Restart
	if r == nil {
		r = s.CheckRestart
	}
	if r == nil || r.Limit == 0 {
		return nil
	}
	full := *r
	if full.Grace == 0 {
		full.Grace = Duration(DefaultCheckGrace)
	}
	return &full
}

// TaskOf is the task that a check of the service belongs to, or "" for all main
// tasks. A script without one belongs to the group's only main task.
func (g *TaskGroup) TaskOf(s *Service, c *ServiceCheck) string {
	switch {
	case c.Task != "":
		return c.Task
	case s.Task != "":
		return s.Task
	case c.Type != CheckScript:
		return ""
	}
	only := ""
	for i := range g.Tasks {
		if t := &g.Tasks[i]; t.Main() && only == "" {
			only = t.Name
		} else if t.Main() {
			return ""
		}
	}
	return only
}

// PortOf is the port that a check of the service is about.
func (s *Service) PortOf(c *ServiceCheck) string {
	if c.Port != "" {
		return c.Port
	}
	return s.Port
}

// Asked is a check of a service of the group with what it has of that: its port,
// its task, and when tasks are started again for it. What was learnt of one says
// nothing of another.
func (g *TaskGroup) Asked(s *Service, c *ServiceCheck) ServiceCheck {
	full := *c
	full.Task, full.Restart = g.TaskOf(s, c), s.RestartOf(c)
	if c.Type != CheckScript {
		full.Port = s.PortOf(c)
	}
	return full
}

// Required reports whether the health of an allocation of the group may wait
// for checks.
func (g *TaskGroup) Required() bool {
	for i := range g.Services {
		if slices.ContainsFunc(g.Services[i].Checks, func(c ServiceCheck) bool { return c.OnUpdate != OnUpdateIgnore }) {
			return true
		}
	}
	return false
}

func (g *TaskGroup) validateChecks(p *Problems, at string, s *Service, ports map[string]bool) {
	if s.Task != "" {
		g.validateCheckTask(p, at+".task", s.Task)
	}
	s.CheckRestart.validate(p, at+".check_restart")
	seen := map[string]bool{}
	for i := range s.Checks {
		c := &s.Checks[i]
		path := fmt.Sprintf("%s.check[%d]", at, i)
		if seen[c.Name] {
			p.Addf(path+".name", "give each a name of its own", "is %q, as that of another check of the service", c.Name)
		}
		seen[c.Name] = true
		c.validate(p, path)
		if c.Task != "" {
			g.validateCheckTask(p, path+".task", c.Task)
		}
		if c.Type == CheckScript {
			if g.TaskOf(s, c) == "" && len(g.Tasks) > 0 {
				p.Add(path+".task", "is missing, and the group has several tasks", "say in which the command runs")
			}
			continue
		}
		validatePort(p, path+".port", c.Port, ports)
		if s.PortOf(c) == "" {
			p.Add(path+".port", "is missing, and the service has none", `add port = "..." here or in the service`)
		}
	}
}

func (g *TaskGroup) validateCheckTask(p *Problems, at, name string) {
	for i := range g.Tasks {
		switch t := &g.Tasks[i]; {
		case t.Name != name:
			continue
		case !t.Main() && !t.Sidecar():
			p.Addf(at, "use a main task or a sidecar", "is %q, which runs to its end", name)
		}
		return
	}
	p.Addf(at, "correct the name", "is %q, and the group has no such task", name)
}

// Bounds of checks.
const (
	minCheckInterval = time.Second
	maxCheckName     = 128
	maxCheckBody     = 16 << 10
)

func (c *ServiceCheck) validate(p *Problems, path string) {
	if c.Name == "" || len(c.Name) > maxCheckName || strings.ContainsFunc(c.Name, unicode.IsControl) {
		p.Addf(path+".name", fmt.Sprintf("give a name of at most %d bytes", maxCheckName), "is %q", c.Name)
	}
	if c.Type == "" {
		p.Add(path+".type", "is missing", `add type = "tcp", "http" or "script"`)
	} else {
		oneOf(p, path+".type", c.Type, CheckTypes()...)
	}
	if c.Interval != 0 && time.Duration(c.Interval) < minCheckInterval {
		p.Addf(path+".interval", `give a duration such as "10s", at least "1s"`, "is %s", time.Duration(c.Interval))
	}
	if c.Timeout < 0 || time.Duration(c.Timeout) > max(MaxCheckTimeout, time.Duration(c.Interval)) {
		p.Addf(path+".timeout", `give a duration such as "2s", at most "30s" or the interval`, "is %s", time.Duration(c.Timeout))
	}
	if c.InitialStatus != "" {
		oneOf(p, path+".initial_status", c.InitialStatus, CheckStates()...)
	}
	if c.OnUpdate != "" {
		oneOf(p, path+".on_update", c.OnUpdate, OnUpdates()...)
	}
	if c.SuccessBeforePassing < 0 {
		p.Add(path+".success_before_passing", "is negative", "give a number from 1")
	}
	if c.FailuresBeforeCritical < 0 {
		p.Add(path+".failures_before_critical", "is negative", "give a number from 1")
	}
	c.Restart.validate(p, path+".check_restart")
	c.validateHTTP(p, path)
	c.validateScript(p, path)
}

func (c *ServiceCheck) validateHTTP(p *Problems, path string) {
	others := map[string]bool{
		"protocol": c.Protocol != "", "method": c.Method != "", "path": c.Path != "", "header": len(c.Header) > 0, "body": c.Body != "",
		"tls_skip_verify": c.TLSSkipVerify, "tls_server_name": c.TLSServerName != "",
	}
	if c.Type != CheckHTTP {
		for _, name := range slices.Sorted(maps.Keys(others)) {
			if others[name] && c.Type != "" {
				p.Addf(path+"."+name, "remove it", "makes no sense in a %s check", c.Type)
			}
		}
		return
	}
	if c.Protocol != "" {
		oneOf(p, path+".protocol", c.Protocol, "http", "https")
	}
	if c.Method != "" && strings.ContainsFunc(c.Method, func(r rune) bool { return r < 'A' || r > 'Z' }) {
		p.Addf(path+".method", `give a method such as "GET"`, "is %q", c.Method)
	}
	if c.Path != "" && (!strings.HasPrefix(c.Path, "/") || strings.ContainsFunc(c.Path, func(r rune) bool { return r <= ' ' || r == 0x7f })) {
		p.Addf(path+".path", `give a path such as "/health"`, "is %q", c.Path)
	}
	if len(c.Body) > maxCheckBody {
		p.Addf(path+".body", "shorten it", "is %d bytes long, and may have %d", len(c.Body), maxCheckBody)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Header)) {
		values := c.Header[name]
		if !token(name) || slices.ContainsFunc(values, func(v string) bool { return strings.ContainsAny(v, "\r\n\x00") }) {
			p.Addf(path+".header", "write Name = [\"value\"], without line breaks", "has %q, which is no header of HTTP", name)
		}
	}
}

// token reports whether a header may be called so (RFC 9110, 5.6.2).
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
	})
}

func (c *ServiceCheck) validateScript(p *Problems, path string) {
	if c.Type != CheckScript {
		if c.Type != "" && (c.Command != "" || len(c.Args) > 0) {
			p.Addf(path+".command", `remove it, or use type = "script"`, "makes no sense in a %s check", c.Type)
		}
		return
	}
	if c.Port != "" {
		p.Add(path+".port", "makes no sense in a script check", "remove it; the script knows where to look")
	}
	if c.Command == "" {
		p.Add(path+".command", "is missing", `add command = "/bin/...", a program of the task`)
		return
	}
	request := ExecRequest{Command: append([]string{c.Command}, c.Args...)}
	if err := request.Validate(); err != nil {
		p.Addf(path+".command", "shorten it, and put nothing but text in it", "cannot be run: %v", err)
	}
}

func (r *CheckRestart) validate(p *Problems, path string) {
	if r == nil {
		return
	}
	if r.Limit < 0 {
		p.Add(path+".limit", "is negative", "give a number from 1, or 0 for never")
	}
	positive(p, path+".grace", r.Grace)
}
