package simulation_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/test/cluster"
)

// off is an operator's word.
var off = api.FenceRequest{By: "ada", Reason: "the rack is off"}

// holder is the node that has pg, and the allocation that uses it.
func holder(c *cluster.Cluster) (*cluster.Node, *api.Attachment) {
	vol, _, err := c.Client.Volume(context.Background(), api.DefaultNamespace, "pg", client.Query{})
	if err != nil || len(vol.Attachments) != 1 {
		c.TB.Fatalf("volume pg is held by %d: %v", len(vol.Attachments), err)
	}
	a := vol.Attachments[0]
	return c.Nodes[slices.IndexFunc(c.Nodes, func(n *cluster.Node) bool { return n.ID() == a.NodeID })], a
}

// read reads a row.
func read[T any](c *cluster.Cluster) func(T, uint64, error) T {
	return func(row T, _ uint64, err error) T {
		c.TB.Helper()
		if err != nil {
			c.TB.Fatal(err)
		}
		return row
	}
}

// silent waits until the servers call a node down, and until a call that its
// agent may have had could have no effect any more.
func silent(c *cluster.Cluster, id api.NodeID) {
	for range 600 {
		time.Sleep(time.Second)
		if info, _, err := c.Client.Node(context.Background(), id, client.Query{}); err == nil && info.Status.State == api.NodeDown {
			return
		}
	}
	c.TB.Fatalf("node %s is not down", id)
}

// Anchors 1.1, 1.3 and 1.4: "claims stay after reboot", "new alloc pending for
// ever", "takes up to 5 minutes". The word of the operator is the trigger: no
// timer has to come round, and the next user has the volume within seconds.
func TestPain3ReplacementOfALostNodeDoesNotPendForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := running(t, 2)
		defer c.Close()
		n, old := holder(c)
		id := old.NodeID
		switchOff(n)
		silent(c, id)
		began := time.Now()
		cluster.Must[api.NodeInfo](c)(c.Client.FenceNode(context.Background(), id, off))
		c.AwaitJob("db", api.JobRunning, time.Minute)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the replacement ran after %s", took)
		}
		other, held := holder(c)
		if other == n || held.AllocID == old.AllocID {
			t.Errorf("the volume is still held by %s on node %s", held.AllocID.Short(), held.NodeID)
		}
		passedOver(c, old)
		lost := read[api.AllocationInfo](c)(c.Client.Allocation(context.Background(), string(old.AllocID), client.Query{}))
		if lost.Status.State != api.AllocLost {
			t.Errorf("the allocation is %s", lost.Status.State)
		}
	})
}

// switchOff ends a machine, with all that runs and is mounted on it.
func switchOff(n *cluster.Node) {
	n.Cut()
	n.Reboot()
	n.Mend()
}

// passedOver checks that an attachment went all its way without its node, and
// says on what evidence.
func passedOver(c *cluster.Cluster, a *api.Attachment) {
	c.TB.Helper()
	got := read[*api.Attachment](c)(c.Client.Attachment(context.Background(), a.AllocID, a.Name, client.Query{}))
	if got.Status.State != api.Freed {
		c.TB.Errorf("the attachment is %s", got.Status.State)
	}
	for _, s := range got.Status.Steps {
		switch {
		case s.State != api.NodeDetached && s.Evidence != nil:
			c.TB.Errorf("step %s has evidence %s", s.State, s.Evidence)
		case s.State == api.NodeDetached && (!s.Skipped || s.Evidence == nil || s.Evidence.By != "ada" || s.Evidence.Kind != api.EvidenceOperator):
			c.TB.Errorf("step %+v is not passed over on the operator's word", s)
		case s.State == api.ControllerDetached && s.Skipped:
			c.TB.Error("the provider was not asked to detach")
		}
	}
}

// Anchors 1.2: "all volumes unusable when nodes vanish", and 1.6: "missing
// external node ID: unknown node". The node's row goes right after the fence;
// the volume is detached all the same, by the name that the provider knows.
func TestPain2NodeThatVanishedLeavesNoAttachmentStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := running(t, 2)
		defer c.Close()
		ctx := context.Background()
		n, old := holder(c)
		id := old.NodeID
		switchOff(n)
		silent(c, id)
		if err := c.Client.ForgetNode(ctx, id, 0); api.CodeOf(err) != api.CodeInUse || !strings.Contains(err.Error(), "berth node fence "+string(id)) {
			t.Errorf("forget: %v", err)
		}
		cluster.Must[api.NodeInfo](c)(c.Client.FenceNode(ctx, id, off))
		if err := c.Client.ForgetNode(ctx, id, 0); err != nil {
			t.Fatal(err)
		}
		c.AwaitJob("db", api.JobRunning, time.Minute)
		passedOver(c, old)
		if _, _, err := c.Client.Node(ctx, id, client.Query{}); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("the node is still there: %v", err)
		}
		// It comes back in the same boot, and undoes what it ran before it gets anything.
		n.Start()
		undone(c, id, 2)
		c.AwaitRest(2 * time.Minute)
		c.Validate()
	})
}

// undone waits until a node that came back says that nothing is left of what
// it ran before.
func undone(c *cluster.Cluster, id api.NodeID, epoch uint64) {
	c.TB.Helper()
	for range 600 {
		time.Sleep(time.Second)
		info, _, err := c.Client.Node(context.Background(), id, client.Query{})
		if err == nil && info.Takes() && info.Status.Epoch == epoch && info.Status.Fence == nil {
			return
		}
	}
	c.TB.Fatalf("node %s has not undone what it ran", id)
}

// Anchors 1.5: "a single-writer on a partitioned node may run twice". A node
// that was cut off and fenced ends and unmounts all that it ran when it is
// back, and takes nothing before.
func TestPain5PartitionedNodeEndsWhatWasMovedWhenItIsBack(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		off  func(*cluster.Node) // before the word that it is
		back func(*cluster.Node)
	}{
		"SameAgent": {func(*cluster.Node) {}, func(n *cluster.Node) { n.Mend() }},
		"NextAgent": {func(*cluster.Node) {}, func(n *cluster.Node) { n.Kill(); n.Mend(); n.Start() }},
		"Rebooted":  {func(n *cluster.Node) { n.Kill(); n.Reboot() }, func(n *cluster.Node) { n.Mend(); n.Start() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := running(t, 2)
				defer c.Close()
				n, old := holder(c)
				id := old.NodeID
				n.Cut()
				silent(c, id)
				tc.off(n)
				cluster.Must[api.NodeInfo](c)(c.Client.FenceNode(context.Background(), id, off))
				tc.back(n)
				undone(c, id, 2)
				c.AwaitJob("db", api.JobRunning, 2*time.Minute)
				passedOver(c, old)
				c.AwaitRest(2 * time.Minute) // nothing is mounted that the servers do not know
				if name == "Rebooted" {
					c.Validate() // else the word was false: the provider saw a detach of what was in use
				}
			})
		})
	}
}

// A node that was fenced may know less than it has: its database was put back
// to an older one. What it says is undone, is undone by the mount table.
func TestFencedNodeUndoesWhatItHasNoRecordOf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := running(t, 2)
		defer c.Close()
		n, old := holder(c)
		id := old.NodeID
		n.Cut()
		silent(c, id)
		n.Kill()
		forget(t, n)
		before := mountedBelow(t, n)
		if len(before) == 0 {
			t.Fatal("nothing is mounted on the node")
		}
		cluster.Must[api.NodeInfo](c)(c.Client.FenceNode(context.Background(), id, off))
		n.Mend()
		n.Start()
		undone(c, id, 2)
		// The volume may be mounted there for the next already, but not still.
		for id, m := range mountedBelow(t, n) {
			if _, was := before[id]; was {
				t.Errorf("it is said to be undone, and is still mounted: %s", m)
			}
		}
		c.AwaitJob("db", api.JobRunning, 2*time.Minute)
		passedOver(c, old)
	})
}

// forget takes all allocations and stagings out of a node's local database.
func forget(t *testing.T, n *cluster.Node) {
	t.Helper()
	db, err := localdb.Open(filepath.Join(n.Dir(), "agent.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	allocations, err := db.Allocations()
	for _, a := range allocations {
		// Its tasks end with it: what is not recorded is not run.
		err = errors.Join(err, n.Machine().Tasks.Destroy(t.Context(), string(a.Assignment.ID)+"/t"), db.DeleteAllocation(a.Assignment.ID))
	}
	stagings, listed := db.Stagings()
	err = errors.Join(err, listed)
	for _, s := range stagings {
		err = errors.Join(err, db.DeleteStaging(s.Namespace, s.VolumeID))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// mountedBelow is the paths in a node's data directory at which something is
// mounted, by the mount's number, which is given once.
func mountedBelow(t *testing.T, n *cluster.Node) map[int]string {
	t.Helper()
	rows, err := n.Machine().Table.Under(n.Dir())
	if err != nil {
		t.Fatal(err)
	}
	paths := map[int]string{}
	for _, m := range rows {
		paths[m.ID] = m.Path
	}
	return paths
}

// A leader that dies, or that comes back as another, between any two of the
// entries that follow a fence forgets nothing and does nothing twice.
func TestFenceOutlivesLeadersThatDieBetweenItsSteps(t *testing.T) {
	t.Parallel()
	for step := range 8 {
		synctest.Test(t, func(t *testing.T) {
			c := running(t, 2)
			defer c.Close()
			n, old := holder(c)
			id := old.NodeID
			switchOff(n)
			silent(c, id)
			died := c.Doom(step + 1)
			_, err := c.Client.FenceNode(context.Background(), id, off)
			if err != nil && api.CodeOf(err) != api.CodeUncertain && api.CodeOf(err) != api.CodeUnavailable {
				t.Fatal(err)
			}
			select {
			case <-died:
			case <-time.After(2 * time.Minute):
			}
			c.StopServer()
			c.StartServer()
			time.Sleep(time.Minute)
			cluster.Must[api.NodeInfo](c)(c.Client.FenceNode(context.Background(), id, off))
			c.AwaitJob("db", api.JobRunning, 2*time.Minute)
			passedOver(c, old)
		})
	}
}

// Anchors 1.20: an error that "names neither volume nor alloc". What waits for
// a node that is down says what an operator can do.
func TestPain20WaitForALostNodeNamesTheRemedy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := running(t, 2)
		defer c.Close()
		n, old := holder(c)
		id := old.NodeID
		switchOff(n)
		silent(c, id)
		info := read[api.AllocationInfo](c)(c.Client.Allocation(context.Background(), string(old.AllocID), client.Query{}))
		if len(info.Waits) == 0 || !strings.Contains(info.Waits[0].Reason, "berth node fence "+string(id)) {
			t.Errorf("waits: %+v", info.Waits)
		}
	})
}
