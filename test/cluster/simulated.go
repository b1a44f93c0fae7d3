package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/mount/mounttest"
	"github.com/berth-dev/berth/internal/agent/runner/runnertest"
)

// StartAgents starts n whole agents, each with a local database, whose runners
// do nothing and say that it is done. They have no plugins. It returns when all
// are registered; they end with the test.
func (c *Cluster) StartAgents(n int) {
	c.TB.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, n)
	c.TB.Cleanup(func() {
		stop()
		for range n {
			if err := <-ended; err != nil {
				c.TB.Error(err)
			}
		}
	})
	dir := c.TB.TempDir()
	for i := range n {
		name := fmt.Sprintf("sim-%04d", i+1)
		cl, table := c.client(0), mounttest.New()
		a, err := agent.New(agent.Config{
			DataDir: filepath.Join(dir, name), Name: name, Version: "test", Servers: cl, BootID: "boot",
			Drivers: []driver.Driver{newTasks(table)}, Table: table, Runners: runnertest.New, FingerprintWait: time.Millisecond,
		}, c.cfg.Log.With("node", name))
		if err != nil {
			c.TB.Fatal(err)
		}
		go func() {
			defer cl.Close()
			ended <- a.Run(ctx)
		}()
	}
	Await(c, "the agents", time.Minute, func(ctx context.Context, _ client.Query) (api.Status, uint64, error) {
		s, err := c.Client.Status(ctx)
		return s, 0, err
	}, func(s api.Status, err error) bool { return err == nil && s.NodesReady >= n })
}
