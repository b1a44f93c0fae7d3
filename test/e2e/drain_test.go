package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

// TestDrain empties a node of two. What writes to a volume there goes on on the
// other, on what it had written; the agent is killed in the middle of it. Then
// nothing of it is left on the first, and it gets nothing until it is let.
func TestDrain(t *testing.T) {
	t.Parallel()
	m := host.StartMock(t, "-real-mounts")
	plugin := fmt.Sprintf("plugin \"mock\" {\n socket = %q\n}\n", m.Socket)
	b := host.Start(t, host.Options{Config: plugin, Args: []string{"--name", "one"}})
	b.Join("two", plugin)
	b.Run("node", "eligibility", "--disable", "two")
	b.Apply(volumeFile)
	b.Apply(strings.Replace(jobFile, `job "db" {`, "job \"db\" {\n  migrate {\n    min_healthy_time = \"1s\"\n  }", 1))
	from := allocation(t, b, "one-")
	b.Run("node", "drain", "one", "--detach", "--reason", "new disks")
	if out := b.Run("node", "status", "one"); !strings.Contains(out, "it has nowhere to go") {
		t.Errorf("the drain waits for\n%s", out)
	}

	b.Kill() // servers and the drained node's agent
	b.Resume()
	b.Run("node", "eligibility", "--enable", "two")
	if out := b.Run("node", "drain", "one", "--reason", "new disks"); !strings.Contains(out, "is drained") {
		t.Errorf("the drain said\n%s", out)
	}
	b.Eventually("it runs on the other node", limit, func() error {
		if out := b.Run("alloc", "list"); !strings.Contains(out, "two-") || !strings.Contains(out, "running") {
			return fmt.Errorf("allocations\n%s", out)
		}
		return nil
	})
	to := allocation(t, b, "two-")
	b.Eventually("both have written", limit, func() error {
		content, err := os.ReadFile(target(t, b, to.ID) + "/file")
		if err != nil || string(content) != "started\nstarted\n" {
			return fmt.Errorf("the file is %q: %w", content, err)
		}
		return nil
	})
	var node api.NodeInfo
	b.JSON(&node, "node", "status", "one")
	if !node.Spec.Ineligible || node.Spec.Drain != nil || node.Status.Drained == nil || !node.Status.Drained.Complete ||
		len(node.Publications) != 0 || node.Status.Drained.Reason != "new disks" {
		t.Errorf("the drained node is %+v %+v with %v", node.Spec, node.Status.Drained, node.Publications)
	}
	if now := allocation(t, b, "one-"); now.ID != from.ID || !now.Terminal() {
		t.Errorf("on the drained node is %+v", now)
	}
	b.Run("job", "stop", "db")
	b.Run("volume", "delete", "pg")
}

// allocation is the newest on a node whose id begins so.
func allocation(t *testing.T, b *host.Berth, node string) *api.Allocation {
	t.Helper()
	var all []*api.Allocation
	b.JSON(&all, "alloc", "list")
	var found *api.Allocation
	for _, a := range all {
		if strings.HasPrefix(string(a.NodeID), node) && (found == nil || a.CreateIndex > found.CreateIndex) {
			found = a
		}
	}
	if found == nil {
		t.Fatalf("nothing on node %s: %+v", node, all)
	}
	return found
}

// target is where an allocation has its volume mounted.
func target(t *testing.T, b *host.Berth, id api.AllocID) string {
	t.Helper()
	var info api.AllocationInfo
	b.JSON(&info, "alloc", "status", string(id))
	if len(info.Attachments) == 0 {
		t.Fatalf("allocation %s has no volume", id)
	}
	return info.Attachments[0].Status.TargetPath
}
