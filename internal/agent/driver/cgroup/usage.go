package cgroup

import (
	"fmt"
	"math"
	"time"

	"github.com/opencontainers/cgroups"
)

// Usage is what the processes of a group use together.
type Usage struct {
	// CPU is the time that they have had of processors.
	CPU time.Duration
	// MemoryBytes is the memory that they hold, without files that the kernel can
	// forget at once, and MemoryLimitBytes the most that they may; 0 is no limit.
	MemoryBytes, MemoryLimitBytes int64
	Processes                     int
}

// Usage measures the group.
func (g *Group) Usage() (Usage, error) {
	// Nothing else is asked for: each controller is more files to read, and one that
	// cannot be read would take the others along.
	stats, err := g.manager.Stats(&cgroups.StatsOptions{Controllers: cgroups.CPU | cgroups.Memory})
	if err != nil {
		return Usage{}, fmt.Errorf("measure cgroup %s: %w", g.name, err)
	}
	pids, err := g.pids()
	if err != nil {
		return Usage{}, err
	}
	memory := &stats.MemoryStats
	return Usage{
		CPU:              time.Duration(min(stats.CpuStats.CpuUsage.TotalUsage, math.MaxInt64)),
		MemoryBytes:      bytes(memory.Usage.Usage) - bytes(inactive(memory)),
		MemoryLimitBytes: limited(memory.Usage.Limit), Processes: len(pids),
	}, nil
}

// inactive is the memory of files that nobody has used for a while.
func inactive(m *cgroups.MemoryStats) uint64 {
	for _, name := range []string{"total_inactive_file", "inactive_file"} { // v1, v2
		if n, ok := m.Stats[name]; ok {
			return min(n, m.Usage.Usage)
		}
	}
	return 0
}

func bytes(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// limited is a limit, or 0 where the kernel writes a number that no machine has.
func limited(n uint64) int64 {
	const most = 1 << 60
	if n > most {
		return 0
	}
	return bytes(n)
}
