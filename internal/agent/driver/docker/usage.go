package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// Usage implements driver.Measurer.
func (d *Driver) Usage(ctx context.Context, id string) (driver.Usage, error) {
	c, err := d.find(ctx, id)
	if err != nil {
		return driver.Usage{}, err
	}
	if c == nil || !c.lives() {
		return driver.Usage{}, api.Errorf(api.CodeNotFound, "task %s does not run", id)
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	answer, err := d.engine().ContainerStats(ctx, c.ID, client.ContainerStatsOptions{})
	if err != nil {
		return driver.Usage{}, fmt.Errorf("measure task %s: %w", id, d.problem(err))
	}
	defer func() { _ = answer.Body.Close() }() // it was only read
	var s container.StatsResponse
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil {
		return driver.Usage{}, fmt.Errorf("measure task %s: %w", id, err)
	}
	memory := s.MemoryStats.Usage
	for _, name := range []string{"total_inactive_file", "inactive_file"} { // cgroup v1, v2
		if n, ok := s.MemoryStats.Stats[name]; ok {
			memory -= min(n, memory)
			break
		}
	}
	u := driver.Usage{
		CPU:         time.Duration(min(s.CPUStats.CPUUsage.TotalUsage, math.MaxInt64)),
		MemoryBytes: int64(min(memory, math.MaxInt64)),
		Processes:   int(min(s.PidsStats.Current, math.MaxInt32)),
	}
	if c.HostConfig != nil {
		u.MemoryLimitBytes = c.HostConfig.Memory // the engine's own figure is the machine's memory where there is no limit
	}
	return u, nil
}
