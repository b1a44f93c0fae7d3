package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs2"
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

// Controllers are those that keep the limits.
func (l Limits) Controllers() []string {
	var all []string
	if l.MemoryBytes > 0 {
		all = append(all, "memory")
	}
	if l.CPUShares > 0 {
		all = append(all, "cpu")
	}
	return all
}

// Lacking makes the group for these limits, and answers the controllers that it
// needs for them and cannot have: the machine may have switched them off, or not
// handed them on to where Berth runs. A group that lacks one is removed again.
func (g *Group) Lacking(l Limits) (lacking []string, err error) {
	if l == (Limits{}) {
		return nil, nil
	}
	has, err := g.controllers(l)
	if err != nil {
		return nil, fmt.Errorf("look which controllers cgroup %s has: %w", g.name, err)
	}
	lacking = slices.DeleteFunc(l.Controllers(), has)
	if len(lacking) > 0 {
		err = g.RemoveEmpty()
	}
	return lacking, err
}

// controllers tells which controllers the group has. In the first generation each
// is a hierarchy of its own; in the second, the groups above hand them down.
func (g *Group) controllers(l Limits) (has func(name string) bool, err error) {
	m, unified := g.manager.(*fs2.Manager)
	if !unified {
		paths := g.manager.GetPaths()
		return func(name string) bool { return paths[name] != "" }, nil
	}
	dir := m.Path("")
	if cgroups.IsCgroup2UnifiedMode() && strings.HasPrefix(dir, fs2.UnifiedMountpoint+"/") {
		if err := fs2.CreateCgroupPath(dir, &cgroups.Cgroup{Resources: l.Resources()}); err != nil {
			return nil, err
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	names := strings.Fields(string(b))
	return func(name string) bool { return slices.Contains(names, name) }, nil
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
