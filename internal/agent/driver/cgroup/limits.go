package cgroup

import (
	"fmt"

	"github.com/opencontainers/cgroups"
)

// Limits are what the processes of a group may use together. 0 limits nothing.
type Limits struct {
	// MemoryBytes is the most memory that they may use.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// CPUShares is their part of the processors when others want more too, beside
	// 1,024 of a group that says nothing.
	CPUShares uint64 `json:"cpu_shares,omitempty"`
}

// Resources are the limits in the form of both generations of cgroups.
func (l Limits) Resources() *cgroups.Resources {
	r := &cgroups.Resources{Memory: l.MemoryBytes}
	if l.CPUShares > 0 {
		const smallest = 2 // the kernel's
		r.CpuShares = max(l.CPUShares, smallest)
		r.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(r.CpuShares)
	}
	return r
}

// Limit limits a group that is there. Devices stay as they are.
func (g *Group) Limit(l Limits) error {
	if l == (Limits{}) {
		return nil
	}
	r := l.Resources()
	r.SkipDevices = true
	if err := g.manager.Set(r); err != nil {
		return fmt.Errorf("limit cgroup %s: %w", g.name, err)
	}
	return nil
}
