package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/mount"
)

// Validate checks what must be true of every cluster that is at rest: the
// provider saw no rule broken; the state and the provider know the same
// volumes, published to the same nodes; nothing is mounted or runs that no
// attachment or allocation accounts for; and nothing was planned in vain. What
// the driver's controller lied about is not compared: nobody could know better.
func (c *Cluster) Validate() {
	c.TB.Helper()
	for _, v := range c.Backend.Violations() {
		c.TB.Errorf("the provider saw: %s", v)
	}
	for _, p := range c.problems(context.Background()) {
		c.TB.Error(p)
	}
}

// AwaitRest waits until the cluster is at rest, as Validate wants it. It fails
// the test after limit.
func (c *Cluster) AwaitRest(limit time.Duration) {
	c.TB.Helper()
	ctx, began := context.Background(), time.Now()
	for {
		found := c.problems(ctx)
		if len(found) == 0 {
			return
		}
		if time.Since(began) > limit {
			status, _ := c.Client.Status(ctx)
			c.TB.Errorf("the cluster waits for %+v", status.Waits)
			c.TB.Fatalf("not at rest within %s:\n%s", limit, strings.Join(found, "\n"))
		}
		<-time.After(time.Second)
	}
}

// problems is what is not as it must be.
func (c *Cluster) problems(ctx context.Context) []string {
	var found []string
	note := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	status, err := c.Client.Status(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	for name, n := range status.Counters {
		bad := strings.HasSuffix(name, "conflicts") && name != "conflicts" ||
			strings.HasSuffix(name, "_useless") || strings.HasSuffix(name, "_errors") ||
			name == "plan_panics" || name == "diverged"
		if bad && n != 0 {
			note("counter %s is %d, and is zero in health", name, n)
		}
	}
	lied := c.Backend.Deceived()
	c.compareVolumes(ctx, lied, note)
	c.compareNodes(ctx, lied, note)
	return found
}

// compareVolumes compares the state with the provider.
func (c *Cluster) compareVolumes(ctx context.Context, lied map[string]bool, note func(string, ...any)) {
	volumes, _, err := c.Client.Volumes(ctx, client.Query{})
	if err != nil {
		note("list volumes: %v", err)
		return
	}
	known := map[string]*api.Volume{}
	for _, v := range volumes {
		known[v.Status.ExternalID] = v
	}
	for _, have := range c.Backend.Volumes() {
		v := known[have.ID]
		if lied[have.ID] {
			delete(known, have.ID)
			continue
		}
		if v == nil {
			note("the provider has volume %s (%s), and the state does not know it", have.ID, have.Name)
			continue
		}
		delete(known, have.ID)
		info, _, err := c.Client.Volume(ctx, v.Namespace, v.ID, client.Query{})
		if err != nil {
			note("read volume %s: %v", v.ID, err)
			continue
		}
		var attached []string
		for _, p := range info.Publications {
			if p.Status.Outcome == api.OutcomePublished {
				attached = append(attached, p.Status.ExternalNodeID)
			}
		}
		slices.Sort(attached)
		if !slices.Equal(attached, have.Attached) {
			note("volume %s is attached to %v, and the state says %v", v.ID, have.Attached, attached)
		}
		wanted := len(info.Attachments)
		if len(have.Published) != wanted {
			note("volume %s is published at %v, and %d attachments want it", v.ID, have.Published, wanted)
		}
	}
	for _, v := range known {
		if v.Status.ExternalID != "" && !lied[v.Status.ExternalID] {
			note("the state has volume %s (%s), and the provider does not", v.ID, v.Status.ExternalID)
		}
	}
}

// compareNodes compares the state with every machine.
func (c *Cluster) compareNodes(ctx context.Context, lied map[string]bool, note func(string, ...any)) {
	for _, n := range c.Nodes {
		if n.Agent() == nil {
			continue
		}
		info, _, err := c.Client.Node(ctx, n.ID(), client.Query{})
		if err != nil {
			note("read node %s: %v", n.Name, err)
			continue
		}
		running, mounts, deceived := 0, 0, 0
		for _, a := range info.Allocations {
			if a.Terminal() {
				continue
			}
			running++
			full, _, err := c.Client.Allocation(ctx, string(a.ID), client.Query{})
			if err != nil {
				note("read allocation %s: %v", a.ID.Short(), err)
			}
			mounts += len(full.Attachments)
			deceived += c.deceived(ctx, full, lied)
		}
		if deceived > 0 {
			continue
		}
		if got := n.machine.Tasks.Known(); got != running {
			note("node %s has %d tasks, and the state says %d", n.Name, got, running)
		}
		if got := targets(n.machine.Table, n.dir+"/csi"); len(got) != mounts {
			note("node %s has mounts %v, and the state says %d", n.Name, got, mounts)
		}
	}
}

// deceived counts the volumes of an allocation that the driver lied about.
func (c *Cluster) deceived(ctx context.Context, a api.AllocationInfo, lied map[string]bool) (n int) {
	for _, at := range a.Attachments {
		vol, _, err := c.Client.Volume(ctx, at.Namespace, at.VolumeID, client.Query{})
		if err == nil && lied[vol.Status.ExternalID] {
			n++
		}
	}
	return n
}

func targets(table mount.Table, dir string) []string {
	mounts, err := table.Under(dir)
	if err != nil {
		return []string{err.Error()}
	}
	paths := []string{}
	for _, m := range mounts {
		if filepath.Base(filepath.Dir(m.Path)) == "mount" {
			paths = append(paths, m.Path)
		}
	}
	return paths
}
