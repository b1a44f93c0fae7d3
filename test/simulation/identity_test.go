package simulation_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/agent/localdb"
	"github.com/berth-dev/berth/test/cluster"
)

// provider is the kind of driver that most tests use.
var provider = csitest.Options{Attach: true, Stage: true}

// running starts a cluster with a job that uses a volume.
func running(t *testing.T, agents int) *cluster.Cluster {
	t.Helper()
	return runningOn(t, agents, provider)
}

func runningOn(t *testing.T, agents int, options csitest.Options) *cluster.Cluster {
	t.Helper()
	c := cluster.Start(t, cluster.Config{Agents: agents, Provider: options})
	ctx := context.Background()
	cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, api.DefaultNamespace, "pg", cluster.VolumeSpec(), 0))
	cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "db", cluster.JobSpec(1, "pg"), 0))
	c.AwaitJob("db", api.JobRunning, limit)
	return c
}

// calls counts the calls with an effect so far.
func calls(c *cluster.Cluster) int {
	return strings.Count(csitest.Sequence(c.Backend.Calls()), "\n")
}

// TestRestart shows that nothing is mounted, started or called again when
// servers and agents are, and that nobody notices.
func TestRestart(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]func(*cluster.Cluster){
		"Agent": func(c *cluster.Cluster) {
			c.Nodes[0].Kill()
			c.Nodes[0].Start()
		},
		"Server": func(c *cluster.Cluster) {
			c.StopServer()
			c.StartServer()
		},
		"Both": func(c *cluster.Cluster) {
			c.StopServer()
			c.Nodes[0].Kill()
			c.Nodes[0].Start()
			time.Sleep(time.Hour)
			c.StartServer()
		},
		"AgentWithoutServer": func(c *cluster.Cluster) {
			c.StopServer()
			for range 5 {
				c.Nodes[0].Kill()
				c.Nodes[0].Start()
				time.Sleep(time.Minute)
			}
			c.StartServer()
		},
		"Driver": func(c *cluster.Cluster) {
			c.Nodes[0].RestartDriver()
			time.Sleep(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := running(t, 1)
				defer c.Close()
				before := calls(c)
				restart(c)
				time.Sleep(time.Minute)
				c.AwaitJob("db", api.JobRunning, limit)
				if got := c.Nodes[0].Machine().Tasks.Running(); got != 1 {
					t.Errorf("%d tasks run, want the one that ran before", got)
				}
				if after := calls(c); after != before {
					t.Errorf("calls were made again:\n%s", csitest.Sequence(c.Backend.Calls()))
				}
				c.Validate()
			})
		})
	}
}

// TestReboot shows that a node that was rebooted mounts again what it had, and
// starts its tasks anew.
func TestReboot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := running(t, 1)
		defer c.Close()
		c.Nodes[0].Reboot()
		c.Nodes[0].Start()
		time.Sleep(time.Minute)
		c.AwaitJob("db", api.JobRunning, limit)
		if got := c.Nodes[0].Machine().Tasks.Running(); got != 1 {
			t.Errorf("%d tasks run after the reboot, want 1", got)
		}
		c.Validate()
	})
}

// TestReportTwice sends again what was applied already, with other contents, and
// what is of an epoch that has ended.
func TestReportTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := running(t, 1)
		defer c.Close()
		n := c.Nodes[0]
		time.Sleep(time.Minute)
		secret, rep := memory(t, n)
		speak := c.Client.Agent(secret.ID, secret.Secret)
		before := c.AwaitJob("db", api.JobRunning, limit)

		// A report that says that the task ended, with the sequence of one
		// that was applied: it is late, and changes nothing.
		rep.Facts = api.Facts{Allocations: []api.AllocFact{{
			ID: before.Allocations[0].ID, Status: api.AllocStatus{State: api.AllocFailed},
		}}}
		if _, err := speak.Report(context.Background(), *rep); err != nil {
			t.Fatalf("repeat a report: %v", err)
		}
		after := c.AwaitJob("db", api.JobRunning, limit)
		if after.Allocations[0].Version != before.Allocations[0].Version {
			t.Errorf("a report that was applied was applied again")
		}
		// The same of an epoch that has ended is refused.
		rep.Epoch--
		if _, err := speak.Report(context.Background(), *rep); api.CodeOf(err) != api.CodeStaleSession {
			t.Errorf("report of an ended epoch: got %v, want stale_session", err)
		}
		c.Validate()
	})
}

// memory reads what an agent that is at rest has in its local database, from a
// copy: the agent has the file open.
func memory(t *testing.T, n *cluster.Node) (localdb.Node, *api.Report) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(n.Dir(), "agent.db"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "agent.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := localdb.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	node, err := db.Node(n.Name)
	if err != nil {
		t.Fatal(err)
	}
	rep, err := db.Report()
	if err != nil || rep == nil {
		t.Fatalf("last report: %v, %v", rep, err)
	}
	return node, rep
}

// TestTwoAgentsWithOneIdentity starts a copy of a node's agent beside it, on
// another machine. It is refused, and runs nothing of what it remembers.
func TestTwoAgentsWithOneIdentity(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		options csitest.Options
		// old: the copy is of the time before the last session.
		old bool
	}{
		"Attach": {provider, true}, "Stage": {csitest.Options{Stage: true}, true}, "Plain": {csitest.Options{}, true},
		"FreshAttach": {provider, false}, "FreshPlain": {csitest.Options{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := runningOn(t, 1, tc.options)
				defer c.Close()
				original := c.Nodes[0]
				copied, err := os.ReadFile(filepath.Join(original.Dir(), "agent.db"))
				if err != nil {
					t.Fatal(err)
				}
				if tc.old {
					original.Kill()
					original.Start()
				}
				time.Sleep(time.Minute)
				twin := c.Twin(original, copied)
				twin.Start()
				time.Sleep(time.Hour)
				if err := twin.Agent().Link().Problem; api.CodeOf(err) != api.CodeIdentityInUse {
					t.Errorf("the copy's link: %v, want identity_in_use", err)
				}
				if got := twin.Machine().Tasks.Running(); got != 0 {
					t.Errorf("the copy runs %d tasks of its own memory", got)
				}
				if l := original.Agent().Link(); !l.Registered {
					t.Errorf("the original lost its session to the copy: %v", l.Problem)
				}
				c.AwaitJob("db", api.JobRunning, limit)
				if node, _, err := c.Client.Node(context.Background(), original.ID(), client.Query{}); err != nil || node.Status.Epoch != 1 {
					t.Errorf("node %+v, %v; want it in epoch 1", node.Node, err)
				}
				for _, v := range c.Backend.Violations() {
					t.Errorf("the provider saw: %s", v)
				}
			})
		})
	}
}

// TestMemoryLost starts an agent whose local database was put back to an older
// one, while the other is not heard of any more: a new epoch begins, and what
// the node ran is undone before anything is started.
func TestMemoryLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster.Start(t, cluster.Config{Agents: 1, Provider: provider})
		defer c.Close()
		n := c.Nodes[0]
		time.Sleep(time.Minute)
		n.Kill()
		old, err := os.ReadFile(filepath.Join(n.Dir(), "agent.db"))
		if err != nil {
			t.Fatal(err)
		}
		n.Start()
		time.Sleep(time.Minute)
		ctx := context.Background()
		cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, api.DefaultNamespace, "pg", cluster.VolumeSpec(), 0))
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "db", cluster.JobSpec(1, "pg"), 0))
		before := c.AwaitJob("db", api.JobRunning, limit)
		n.Kill()
		if err := os.WriteFile(filepath.Join(n.Dir(), "agent.db"), old, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		n.Start()
		time.Sleep(time.Minute)
		after := c.AwaitJob("db", api.JobRunning, time.Minute)
		node, _, err := c.Client.Node(ctx, n.ID(), client.Query{})
		if err != nil || node.Status.Epoch != 2 {
			t.Errorf("node %+v, %v; want it in epoch 2", node.Node, err)
		}
		for _, a := range after.Allocations {
			if a.ID == before.Allocations[0].ID && a.Status.State != api.AllocFailed {
				t.Errorf("the allocation of the lost memory is %s, want failed", a.Status.State)
			}
		}
		c.Validate()
	})
}

// TestEmptiedServer shows that servers which have lost everything cannot talk
// an agent into ending what it runs.
func TestEmptiedServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := running(t, 1)
		defer c.Close()
		n := c.Nodes[0]
		var saved bytes.Buffer
		if err := c.Client.SaveState(context.Background(), &saved); err != nil {
			t.Fatal(err)
		}
		c.StopServer()
		c.EmptyServer()
		c.StartServer()
		time.Sleep(time.Hour)
		if got := n.Machine().Tasks.Running(); got != 1 {
			t.Fatalf("%d tasks run, want the one that ran before", got)
		}
		if err := n.Agent().Link().Problem; api.CodeOf(err) != api.CodeWrongCluster {
			t.Errorf("the agent's link: %v, want wrong_cluster", err)
		}
		// A backup brings the cluster back, and the agent with it.
		rec, err := c.Client.RestoreState(context.Background(), &saved)
		if err != nil || !rec.Generation.Recovering {
			t.Fatalf("restore: %+v, %v", rec, err)
		}
		confirm(t, c)
		c.AwaitJob("db", api.JobRunning, limit)
		c.Validate()
	})
}

// confirm waits until all nodes have reported, and confirms the generation.
func confirm(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	rec := cluster.Await(c, "all nodes reported", time.Minute,
		func(ctx context.Context, _ client.Query) (api.Recovery, uint64, error) {
			time.Sleep(time.Second)
			rec, err := c.Client.Recovery(ctx)
			return rec, 0, err
		},
		func(rec api.Recovery, err error) bool { return err == nil && len(rec.Missing) == 0 })
	if _, err := c.Client.ConfirmRecovery(context.Background(), rec.Generation.Number, false); err != nil {
		t.Fatal(err)
	}
}

// TestOldBackup restores a state in which a job did not run yet, and one in
// which it ran that has ended since. Until the operator confirms, the nodes
// change nothing.
func TestOldBackup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		c := running(t, 2)
		defer c.Close()
		var saved bytes.Buffer
		if err := c.Client.SaveState(ctx, &saved); err != nil {
			t.Fatal(err)
		}
		// What the backup does not know: db has ended, and another job runs.
		cluster.Must[api.JobInfo](c)(c.Client.StopJob(ctx, api.DefaultNamespace, "db", 0))
		c.AwaitJob("db", api.JobStopped, limit)
		c.AwaitFree("pg", limit)
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "new", cluster.JobSpec(1, "pg"), 0))
		c.AwaitJob("new", api.JobRunning, limit)
		tasks := func() int { return c.Nodes[0].Machine().Tasks.Running() + c.Nodes[1].Machine().Tasks.Running() }
		before := calls(c)

		if _, err := c.Client.RestoreState(ctx, &saved); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := tasks(); got != 1 {
			t.Errorf("%d tasks run while the cluster recovers, want the one that ran before", got)
		}
		if calls(c) != before {
			t.Errorf("a recovering cluster made calls:\n%s", csitest.Sequence(c.Backend.Calls()))
		}
		if _, err := c.Client.StopJob(ctx, api.DefaultNamespace, "db", 0); api.CodeOf(err) != api.CodeRecovering {
			t.Errorf("stop a job of a recovering cluster: %v, want recovering", err)
		}
		confirm(t, c)
		// Now the backup is the truth: db is to run, and new is not known.
		time.Sleep(10 * time.Minute)
		c.AwaitJob("db", api.JobRunning, time.Minute)
		if got := tasks(); got != 1 {
			t.Errorf("%d tasks run after the recovery, want the one of db", got)
		}
		for _, v := range c.Backend.Violations() {
			t.Errorf("the provider saw: %s", v)
		}
	})
}

// TestRestoreWhileAVolumeHasMoved restores a state in which a job did not run
// yet, or ran elsewhere. Whatever the kind of driver, and however long tasks
// take to end: no two machines use the volume at once.
func TestRestoreWhileAVolumeHasMoved(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]csitest.Options{"Attach": provider, "Stage": {Stage: true}, "Plain": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { restoreMoved(t, options) })
		})
	}
}

func restoreMoved(t *testing.T, options csitest.Options) {
	t.Helper()
	ctx := context.Background()
	c := cluster.Start(t, cluster.Config{Agents: 2, Provider: options})
	defer c.Close()
	for _, n := range c.Nodes {
		n.Machine().Tasks.StopTakes(5 * time.Second)
	}
	cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, api.DefaultNamespace, "pg", cluster.VolumeSpec(), 0))
	cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "db", cluster.JobSpec(1, "pg"), 0))
	before := c.AwaitJob("db", api.JobRunning, limit)
	var saved bytes.Buffer
	if err := c.Client.SaveState(ctx, &saved); err != nil {
		t.Fatal(err)
	}
	// The job moves to the other node, and the agents are restarted there.
	cluster.Must[api.JobInfo](c)(c.Client.StopJob(ctx, api.DefaultNamespace, "db", 0))
	c.AwaitJob("db", api.JobStopped, limit)
	c.AwaitFree("pg", limit)
	from := c.Nodes[0]
	if before.Allocations[0].NodeID != from.ID() {
		from = c.Nodes[1]
	}
	from.Cut()
	time.Sleep(time.Minute)
	cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "db", cluster.JobSpec(1, "pg"), 0))
	c.AwaitJob("db", api.JobRunning, limit)
	from.Mend()
	for range 2 {
		for _, n := range c.Nodes {
			n.Kill()
			n.Start()
		}
		time.Sleep(time.Minute)
	}
	tasks := func() int { return c.Nodes[0].Machine().Tasks.Running() + c.Nodes[1].Machine().Tasks.Running() }
	if _, err := c.Client.RestoreState(ctx, &saved); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Hour)
	if got := tasks(); got != 1 {
		t.Errorf("%d tasks run while the cluster recovers, want the one that ran before", got)
	}
	for _, n := range c.Nodes {
		if node, _, err := c.Client.Node(ctx, n.ID(), client.Query{}); err != nil || node.Status.Epoch != 1 {
			t.Errorf("node %s is in epoch %d (%v): the restored servers took its agent for one without a memory", n.Name, node.Status.Epoch, err)
		}
	}
	confirm(t, c)
	time.Sleep(10 * time.Minute)
	c.AwaitJob("db", api.JobRunning, time.Minute)
	if got := tasks(); got != 1 {
		t.Errorf("%d tasks run after the recovery, want 1", got)
	}
	for _, v := range c.Backend.Violations() {
		t.Errorf("the provider saw: %s", v)
	}
}

// TestRestoreOfAStateWithoutTheHolder restores a state in which a job waited for
// a node that runs now: nothing in the state holds its volume, and to place the
// job at once would be to let two write to it.
func TestRestoreOfAStateWithoutTheHolder(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]csitest.Options{"Attach": provider, "Stage": {Stage: true}, "Plain": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				c := cluster.Start(t, cluster.Config{Agents: 2, Provider: options})
				defer c.Close()
				cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, api.DefaultNamespace, "pg", cluster.VolumeSpec(), 0))
				c.AwaitVolume("pg", api.VolumeReady, limit)
				for _, n := range c.Nodes {
					n.Machine().Tasks.StopTakes(5 * time.Second)
					n.Kill()
				}
				time.Sleep(time.Minute)
				cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "db", cluster.JobSpec(1, "pg"), 0))
				var saved bytes.Buffer
				if err := c.Client.SaveState(ctx, &saved); err != nil {
					t.Fatal(err)
				}
				for _, n := range c.Nodes {
					n.Start()
				}
				c.AwaitJob("db", api.JobRunning, limit)
				if _, err := c.Client.RestoreState(ctx, &saved); err != nil {
					t.Fatal(err)
				}
				confirm(t, c)
				time.Sleep(10 * time.Minute)
				tasks := c.Nodes[0].Machine().Tasks.Running() + c.Nodes[1].Machine().Tasks.Running()
				if options.Attach && tasks == 0 {
					// The job was placed on the other node. That the provider has the
					// volume attached to the first is in no state any more: the job
					// waits, and says so.
					status, err := c.Client.Status(ctx)
					if err != nil || !strings.Contains(fmt.Sprint(status.Waits), "the volume is attached to n") {
						t.Errorf("%d tasks run; the cluster waits for %v (%v)", tasks, status.Waits, err)
					}
				} else {
					c.AwaitJob("db", api.JobRunning, time.Minute)
					if tasks != 1 {
						t.Errorf("%d tasks run after the recovery, want 1", tasks)
					}
				}
				for _, v := range c.Backend.Violations() {
					if !options.Attach || !strings.Contains(v, "ControllerPublishVolume") {
						t.Errorf("the provider saw: %s", v)
					}
				}
			})
		})
	}
}

// TestRestoreOfAStateBeforeTheMount restores a state in which an allocation was
// placed and its node had not answered yet. The node has said since that the
// volume is mounted, and says it again: nothing else would tell the servers.
func TestRestoreOfAStateBeforeTheMount(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]csitest.Options{"Attach": provider, "Plain": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := context.Background()
				c := cluster.Start(t, cluster.Config{Agents: 1, Provider: options})
				defer c.Close()
				cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, api.DefaultNamespace, "pg", cluster.VolumeSpec(), 0))
				c.AwaitVolume("pg", api.VolumeReady, limit)
				// The node dies within its lease: the job is placed there.
				c.Nodes[0].Kill()
				cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "db", cluster.JobSpec(1, "pg"), 0))
				time.Sleep(time.Second)
				var saved bytes.Buffer
				if err := c.Client.SaveState(ctx, &saved); err != nil {
					t.Fatal(err)
				}
				c.Nodes[0].Start()
				before := c.AwaitJob("db", api.JobRunning, limit)
				if _, err := c.Client.RestoreState(ctx, &saved); err != nil {
					t.Fatal(err)
				}
				confirm(t, c)
				time.Sleep(10 * time.Minute)
				after := c.AwaitJob("db", api.JobRunning, time.Minute)
				if len(after.Allocations) != 1 || after.Allocations[0].ID != before.Allocations[0].ID {
					t.Errorf("allocations %v, want the one that ran before", after.Allocations)
				}
				if status, err := c.Client.Status(ctx); err != nil || len(status.Waits) > 0 {
					t.Errorf("the cluster waits for %v (%v)", status.Waits, err)
				}
				c.Validate()
			})
		})
	}
}

// TestFilesPutBack replaces the servers' files by an older copy, behind
// everybody's back: the agents notice, and a new generation begins.
func TestFilesPutBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster.Start(t, cluster.Config{Agents: 1, Provider: provider})
		defer c.Close()
		time.Sleep(time.Minute)
		c.StopServer()
		old := c.CopyLog()
		c.StartServer()
		ctx := context.Background()
		cluster.Must[api.VolumeInfo](c)(c.Client.ApplyVolume(ctx, api.DefaultNamespace, "pg", cluster.VolumeSpec(), 0))
		cluster.Must[api.JobInfo](c)(c.Client.ApplyJob(ctx, api.DefaultNamespace, "db", cluster.JobSpec(1, "pg"), 0))
		c.AwaitJob("db", api.JobRunning, limit)
		c.StopServer()
		c.PutLogBack(old)
		c.StartServer()
		time.Sleep(time.Hour)
		status, err := c.Client.Status(ctx)
		if err != nil || !status.Generation.Recovering || status.Generation.Number != 2 {
			t.Fatalf("status %+v, %v; want generation 2, recovering", status.Generation, err)
		}
		if got := c.Nodes[0].Machine().Tasks.Running(); got != 1 {
			t.Errorf("%d tasks run, want the one that ran before", got)
		}
		// The older files are the truth from then on: they know of no job.
		confirm(t, c)
		time.Sleep(10 * time.Minute)
		if got := c.Nodes[0].Machine().Tasks.Running(); got != 0 {
			t.Errorf("%d tasks run that the cluster does not know", got)
		}
		if status, err := c.Client.Status(ctx); err != nil || status.Generation.Recovering || len(status.Waits) > 0 {
			t.Errorf("status %+v, %v; want the recovery over", status, err)
		}
	})
}
