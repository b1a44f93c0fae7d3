package fit

import (
	"fmt"

	"github.com/berth-dev/berth/api"
)

// Usage is what the allocations of one node take of it. What has ended takes
// nothing.
type Usage struct {
	// Allocations is how many they are.
	Allocations int

	ports     map[int]*api.Allocation
	resources api.Resources
}

// NewUsage is the usage of a node that runs nothing.
func NewUsage() *Usage { return &Usage{ports: map[int]*api.Allocation{}} }

// Add adds what an allocation takes.
func (u *Usage) Add(a *api.Allocation) {
	if a.Terminal() {
		return
	}
	u.Allocations++
	for _, p := range a.Ports {
		u.ports[p.Number] = a
	}
	u.resources.CPU += a.Resources.CPU
	u.resources.MemoryMB += a.Resources.MemoryMB
}

// Port says why an allocation cannot have a number for a port, or "".
func (u *Usage) Port(node *api.Node, p api.Port, number int) string {
	switch other := u.ports[number]; {
	case p.Static != 0 && number != p.Static:
		return fmt.Sprintf("port %s is to be %d, and not %d", p.Name, p.Static, number)
	case p.Static == 0 && (number < api.FirstDynamicPort || number > api.LastDynamicPort):
		return fmt.Sprintf("port %s is to be chosen from %d to %d, and is %d", p.Name, api.FirstDynamicPort, api.LastDynamicPort, number)
	case other != nil:
		return fmt.Sprintf("port %d of node %s is allocation %s's, of job %s", number, node.ID, other.ID.Short(), other.JobID)
	}
	return ""
}

// Ports chooses the numbers of a group's ports, the dynamic ones from a place
// that differs with the name of who gets them: a port that was just left is
// not taken at once by another. The reason says why there is none.
func (u *Usage) Ports(node *api.Node, ports []api.Port, name string) (numbers []int, reason string) {
	chosen := map[int]bool{}
	for _, p := range ports {
		chosen[p.Static] = true
	}
	for i, p := range ports {
		number := p.Static
		if number == 0 {
			number = u.free(fmt.Sprintf("%s/%d", name, i), chosen)
			chosen[number] = true
		}
		if number == 0 {
			return nil, fmt.Sprintf("node %s has no free port from %d to %d", node.ID, api.FirstDynamicPort, api.LastDynamicPort)
		}
		if reason := u.Port(node, p, number); reason != "" {
			return nil, reason
		}
		numbers = append(numbers, number)
	}
	return numbers, ""
}

// free is a dynamic port that nobody has, or 0.
func (u *Usage) free(name string, chosen map[int]bool) int {
	const room = api.LastDynamicPort - api.FirstDynamicPort + 1
	first := int(spread(name) % room)
	for i := range room {
		if number := api.FirstDynamicPort + (first+i)%room; u.ports[number] == nil && !chosen[number] {
			return number
		}
	}
	return 0
}

// Resources says why a node has no room for so much, or "". A node that does
// not say what it has takes everything.
func (u *Usage) Resources(node *api.Node, want api.Resources) string {
	has := &node.Status.Profile
	if free := has.MemoryMB - u.resources.MemoryMB; has.MemoryMB > 0 && want.MemoryMB > free {
		return fmt.Sprintf("node %s has %d MiB of memory left, of %d, and %d are asked for", node.ID, max(free, 0), has.MemoryMB, want.MemoryMB)
	}
	if free := has.CPU - u.resources.CPU; has.CPU > 0 && want.CPU > free {
		return fmt.Sprintf("node %s has %d MHz left, of %d, and %d are asked for", node.ID, max(free, 0), has.CPU, want.CPU)
	}
	return ""
}
