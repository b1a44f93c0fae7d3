package api

import (
	"fmt"
	"net/netip"
	"slices"
)

// Port is one port that every allocation of a group gets on its node. Tasks
// have the node's network, so it is the port that they listen on.
type Port struct {
	// Name is its label; tasks find the number as BERTH_PORT_<name>.
	Name string `json:"name"`
	// Static is the number; 0 has one chosen that nothing of Berth's uses there.
	Static int `json:"static,omitempty"`
	// To is what a task listens on that has a network of its own, 0 for the number
	// on the node.
	To int `json:"to,omitempty"`
}

// Service is a name under which a group's allocations can be found.
type Service struct {
	Name string `json:"name"`
	// Port is one of the group's ports, by its name, or the number of one that the
	// tasks listen on without asking; empty if the service has none.
	Port string   `json:"port"`
	Tags []string `json:"tags,omitempty"`
	// Task is the one that its checks belong to, if they say nothing else; empty
	// for all main tasks.
	Task   string         `json:"task,omitempty"`
	Checks []ServiceCheck `json:"checks,omitempty"`
	// CheckRestart is that of all checks that have none.
	CheckRestart *CheckRestart `json:"check_restart,omitempty"`
}

// AllocatedPort is a port of one allocation.
type AllocatedPort struct {
	Name   string `json:"name"`
	Number int    `json:"number"`
}

// ServiceInstance is one allocation that offers a service.
type ServiceInstance struct {
	Namespace NamespaceID `json:"namespace"`
	Service   string      `json:"service"`
	JobID     JobID       `json:"job_id"`
	AllocID   AllocID     `json:"alloc_id"`
	NodeID    NodeID      `json:"node_id"`
	// Address and Port are where it listens.
	Address string   `json:"address"`
	Port    int      `json:"port"`
	Tags    []string `json:"tags,omitempty"`
	// Healthy: the allocation runs, its node is in contact, and all of the
	// service's checks pass.
	Healthy bool `json:"healthy"`
	// Status is passing if it is healthy; critical if a check is, or the node is
	// not in contact; else pending.
	Status CheckState    `json:"status"`
	Checks []CheckStatus `json:"checks,omitempty"`
}

// ServiceInfo is a service with the allocations that offer it.
type ServiceInfo struct {
	Namespace NamespaceID       `json:"namespace"`
	Name      string            `json:"name"`
	Instances []ServiceInstance `json:"instances"`
	// Unhealthy is how many allocations offer it beside those that are listed.
	Unhealthy int `json:"unhealthy,omitempty"`
}

// Dynamic ports are chosen from these, both included: above what services have
// by name, and below what Linux gives to outgoing connections.
const (
	FirstDynamicPort = 20_000
	LastDynamicPort  = 32_000
)

// Resources are what a task may use.
type Resources struct {
	// CPU is its share of the node's processors, in MHz: what it can count on
	// when others want more too. 0 counts nothing.
	CPU int `json:"cpu,omitempty"`
	// MemoryMB is how much memory is kept for it on the node, in MiB, and what it
	// may use at most where MemoryMaxMB says nothing else. 0 counts and limits
	// nothing.
	MemoryMB    int `json:"memory,omitempty"`
	MemoryMaxMB int `json:"memory_max,omitempty"`
}

// Limit is how many bytes of memory a task may use at most, 0 for no limit.
func (r *Resources) Limit() int64 {
	if r == nil {
		return 0
	}
	return int64(max(r.MemoryMB, r.MemoryMaxMB)) << 20
}

// Resources are what an allocation of the group takes of its node.
func (g *TaskGroup) Resources() Resources {
	var sum Resources
	for i := range g.Tasks {
		if r := g.Tasks[i].Resources; r != nil {
			sum.CPU += r.CPU
			sum.MemoryMB += r.MemoryMB
		}
	}
	return sum
}

// Port is the number of the allocation's port of that name, the number that the
// name itself is, or 0.
func (a *Allocation) Port(name string) int {
	for _, p := range a.Ports {
		if p.Name == name {
			return p.Number
		}
	}
	n, _ := wholeNumber(name)
	return n
}

// PortTo is the port that a task of the group listens on in a network of its
// own, 0 for the one on the node.
func (g *TaskGroup) PortTo(name string) int {
	for _, p := range g.Ports {
		if p.Name == name {
			return p.To
		}
	}
	return 0
}

func (g *TaskGroup) validateNetwork(p *Problems, path string) {
	names, numbers := map[string]bool{}, map[int]string{}
	for _, port := range g.Ports {
		at := fmt.Sprintf("%s.network.port[%q]", path, port.Name)
		p.Name(at, port.Name)
		if names[port.Name] {
			p.Add(at, "is there twice", "rename one")
		}
		names[port.Name] = true
		if port.To < 0 || port.To > 65535 {
			p.Addf(at+".to", "give a number from 1 to 65535", "is %d", port.To)
		}
		switch other, taken := numbers[port.Static]; {
		case port.Static == 0:
			continue
		case port.Static < 0 || port.Static > 65535:
			p.Addf(at+".static", "give a number from 1 to 65535, or leave it out to have one chosen", "is %d", port.Static)
		case taken:
			p.Addf(at+".static", "choose another", "is %d, as that of port %q", port.Static, other)
		}
		numbers[port.Static] = port.Name
	}
	seen, checks := map[string]bool{}, 0
	for i, s := range g.Services {
		at := fmt.Sprintf("%s.service[%d]", path, i)
		p.Name(at+".name", s.Name)
		if seen[s.Name] {
			p.Addf(at+".name", "rename one", "is %q, as that of another service of the group", s.Name)
		}
		seen[s.Name] = true
		validatePort(p, at+".port", s.Port, names)
		if slices.Contains(s.Tags, "") {
			p.Add(at+".tags", "has an empty one", "remove it")
		}
		checks += len(s.Checks)
		g.validateChecks(p, at, &g.Services[i], names)
	}
	if checks > MaxChecks {
		p.Addf(path+".service", "divide the group, or ask less", "has %d checks together, and a group may have %d", checks, MaxChecks)
	}
}

// validatePort checks what names one of a group's ports, or is a number.
func validatePort(p *Problems, at, port string, names map[string]bool) {
	n, number := wholeNumber(port)
	switch {
	case port == "" || names[port]:
	case !number:
		p.Addf(at, `add network { port "..." {} } to the group, or correct the name`, "is %q, and the group has no such port", port)
	case n < 1 || n > 65535:
		p.Addf(at, "give a number from 1 to 65535, or the name of one of the group's ports", "is %s", port)
	}
}

func (r *Resources) validate(p *Problems, path string) {
	if r == nil {
		return
	}
	if r.CPU < 0 {
		p.Add(path+".cpu", "is negative", "give MHz such as 500")
	}
	// MiB. With less not even the start of a process fits.
	const minMemory, maxMemory = 10, 1 << 30
	if r.MemoryMB != 0 && r.MemoryMB < minMemory || r.MemoryMB > maxMemory {
		p.Addf(path+".memory", "give MiB such as 256, at least 10", "is %d", r.MemoryMB)
	}
	if r.MemoryMaxMB < 0 || r.MemoryMaxMB > maxMemory {
		p.Addf(path+".memory_max", "give MiB such as 256", "is %d", r.MemoryMaxMB)
	}
	if 0 < r.MemoryMaxMB && r.MemoryMaxMB < r.MemoryMB {
		p.Addf(path+".memory_max", "make it at least memory", "is %d, and memory is %d", r.MemoryMaxMB, r.MemoryMB)
	}
	if r.MemoryMaxMB > 0 && r.MemoryMB == 0 {
		p.Add(path+".memory", "is missing", "say how much is kept for the task")
	}
}

// Validate reports every problem of what an agent says of its machine.
func (f *Profile) Validate() error {
	var p Problems
	if f.Address != "" {
		if _, err := netip.ParseAddr(f.Address); err != nil {
			p.Addf("profile.address", "give an IP address", "is %q", f.Address)
		}
	}
	if f.CPU < 0 || f.MemoryMB < 0 {
		p.Add("profile", "has negative resources", "give 0 for what is not known")
	}
	return p.Err("the node's profile")
}
