package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// ownDisks is the job's file with Berth's own driver, for several nodes of one
// machine: each keeps its volumes in its instance's own directory.
func (j asJob) ownDisks(b *host.Berth) string {
	return strings.ReplaceAll(j.file("exec "+b.Binary()+" plugin local --node-id $BERTH_NODE_ID --root $BERTH_CSI_DIR/volumes"), `"mock"`, `"disk"`)
}

// TestPluginJob_FollowsNodes lets a node join a cluster whose plugin is a system
// job: the plugin comes to it by itself, and an allocation there gets a volume of
// it.
func TestPluginJob_FollowsNodes(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{Args: []string{"--name", "one"}})
	b.Apply(asJob{"raw_exec", "disk", "monolith"}.ownDisks(b))
	b.Run("node", "eligibility", "--disable", "one")
	// It waits until the new node has the plugin.
	b.Apply(strings.NewReplacer(`"local"`, `"disk"`, "count = 2", "count = 1").Replace(ephemeralJob), "--detach")
	b.Join("two", "driver \"raw_exec\" {\n  enabled = true\n}\n")
	b.Eventually("the plugin is healthy on both nodes", limit, func() error {
		var p api.Plugin
		b.JSON(&p, "plugin", "status", "disk")
		on := map[string]bool{}
		for _, i := range p.Instances {
			name, _, _ := strings.Cut(string(i.NodeID), "-")
			on[name] = i.Healthy && i.AllocID != ""
		}
		if len(p.Instances) != 2 || !on["one"] || !on["two"] {
			return fmt.Errorf("plugin: %+v", p)
		}
		return nil
	})
	runningTask(t, b, "db", "writer")
	at := target(t, b, allocation(t, b, "two-").ID)
	b.Eventually("the job there has written", limit, func() error { return holds(filepath.Join(at, "file"), 1) })
	b.Run("job", "stop", "db")
	b.Eventually("its volume is gone", limit, func() error {
		if left := owned(t, b, -1); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
	b.Run("job", "stop", "disk")
}

// TestDrain_PluginGoesLast drains a node whose plugin is a job, until a deadline:
// what uses volumes there and has nowhere to go is stopped then, its volume is
// detached, and only after that the plugin is stopped. Both come back, on what
// was written.
func TestDrain_PluginGoesLast(t *testing.T) {
	t.Parallel()
	b := host.Start(t, host.Options{})
	b.Apply(asJob{"raw_exec", "disk", "monolith"}.local(t, b))
	b.Apply(diskVolume)
	b.Apply(jobFile)
	var nodes []api.Node
	b.JSON(&nodes, "node", "list")
	node := string(nodes[0].ID)
	runningTask(t, b, "db", "writer")

	if out := b.Run("node", "drain", node, "--deadline", "2s"); !strings.Contains(out, "is drained") {
		t.Errorf("the drain said\n%s", out)
	}
	var all []*api.Allocation
	b.JSON(&all, "alloc", "list")
	ended := map[string]*api.Allocation{}
	for _, a := range all {
		if ended[string(a.JobID)] = a; !a.Terminal() {
			t.Errorf("allocation %+v is left on the drained node", a)
		}
	}
	writer, plugin := ended["db"], ended["disk"]
	if writer == nil || plugin == nil || len(all) != 2 {
		t.Fatalf("allocations: %+v", all)
	}
	// The consumer ends when its volumes are unmounted, which nobody but the plugin
	// can do; the plugin's task is stopped after that.
	if task := plugin.Status.Tasks["driver"]; writer.Status.State == api.AllocFailed || task.Ended.Before(writer.Status.Ended) {
		t.Errorf("the consumer is %s and ended at %s, the plugin's task at %s", writer.Status.State, writer.Status.Ended, task.Ended)
	}
	var info api.NodeInfo
	b.JSON(&info, "node", "status", node)
	if len(info.Publications) > 0 || info.Status.Drained == nil || !info.Status.Drained.Complete {
		t.Errorf("the drained node: %+v, with %v", info.Status.Drained, info.Publications)
	}

	b.Run("node", "eligibility", "--enable", node)
	runningTask(t, b, "disk", "driver")
	runningTask(t, b, "db", "writer")
	at := mountedAt(t, b)
	b.Eventually("the consumer writes again, on what it had written", limit, func() error {
		return holds(filepath.Join(at, "file"), 2)
	})
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
	b.Run("job", "stop", "disk")
}
