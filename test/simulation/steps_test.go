package simulation_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/test/cluster"
)

// manySteps is more than the entries that a life writes.
const manySteps = 200

// TestLeaderDiesBetweenAnyTwoSteps carries a volume through its whole life, and
// lets the leader die with one entry of its log: with the first, with the
// second, and so on to the last. Whichever it is, the next leader goes on from
// there: the driver hears of each call once, and nothing is left behind.
func TestLeaderDiesBetweenAnyTwoSteps(t *testing.T) {
	t.Parallel()
	eachStep(t, func(t *testing.T, o csitest.Options, step int) (died bool) {
		want, _ := lifeOf(t, o, nil, nil)
		got, died := lifeOf(t, o, doom(step), restartServer)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("calls (-without a death +with one):\n%s", diff)
		}
		return died
	})
}

// overlap is for how long a leader does not know that it is none any more: ten
// times as long as raft leaves it in doubt.
const overlap = 5 * time.Second

// TestTwoLeadersInARow carries a volume through its whole life. With the first
// entry of the log, with the second, and so on, another server takes over, and
// the leader goes on for a while with its controllers, and with the agents that
// are connected to it. Nothing that it decides comes to be: the driver hears of
// each call once, and nothing is left behind.
func TestTwoLeadersInARow(t *testing.T) {
	t.Parallel()
	var steps, vain atomic.Int64
	t.Cleanup(func() {
		if !t.Failed() && (steps.Load() < 10 || vain.Load() < steps.Load()/2) {
			t.Errorf("after %d steps a leader was deposed, and went on deciding after %d of them", steps.Load(), vain.Load())
		}
	})
	eachStep(t, func(t *testing.T, o csitest.Options, step int) (deposed bool) {
		want, _ := lifeOf(t, o, nil, nil)
		got, deposed := lifeOf(t, o, written(step), func(c *cluster.Cluster) {
			learn := c.Depose()
			(&patient{Cluster: c, t: t}).pass(overlap)
			steps.Add(1)
			if learn() > 0 {
				vain.Add(1)
			}
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("calls (-with one leader +with two):\n%s", diff)
		}
		return deposed
	})
}

// TestAgentDiesBetweenAnyTwoSteps is the same with the agent, and with the agent
// and the leader. What the agent was about may be called again, in an order that
// the specification allows; what is left at the end is the same.
func TestAgentDiesBetweenAnyTwoSteps(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		when func(step int) moment
		dies func(*cluster.Cluster)
	}{
		"Alone": {written, restartAgent},
		"WithTheLeader": {doom, func(c *cluster.Cluster) {
			restartServer(c)
			restartAgent(c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachStep(t, func(t *testing.T, o csitest.Options, step int) (died bool) {
				_, died = lifeOf(t, o, tc.when(step), tc.dies)
				return died
			})
		})
	}
}

// moment arms a cluster, and answers a channel that is closed when it has come.
type moment func(*cluster.Cluster) <-chan struct{}

func doom(step int) moment {
	return func(c *cluster.Cluster) <-chan struct{} { return c.Doom(step) }
}

func written(step int) moment {
	return func(c *cluster.Cluster) <-chan struct{} { return c.Written(step) }
}

func restartServer(c *cluster.Cluster) {
	c.StopServer()
	c.StartServer()
}

func restartAgent(c *cluster.Cluster) {
	c.Nodes[0].Kill()
	c.Nodes[0].Start()
}

// eachStep calls live with step 1, 2, and so on, as long as somebody dies.
func eachStep(t *testing.T, live func(t *testing.T, o csitest.Options, step int) (died bool)) {
	t.Helper()
	for name, o := range map[string]csitest.Options{
		"AttachAndStage": {Attach: true, Stage: true, Topology: true},
		"PublishOnly":    {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for step := 1; ; step++ {
				died := false
				t.Run(strconv.Itoa(step), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { died = live(t, o, step) })
				})
				if !died || t.Failed() {
					return
				}
				if step == manySteps {
					t.Fatalf("a life has more than %d steps", manySteps)
				}
			}
		})
	}
}

// lifeOf carries a volume through its life on a cluster, and calls dies at some
// moment of it, if that is not nil. It answers the calls that the driver had,
// and whether the moment came.
func lifeOf(t *testing.T, o csitest.Options, when moment, dies func(*cluster.Cluster)) (calls string, died bool) {
	t.Helper()
	c := cluster.Start(t, cluster.Config{Agents: 1, Provider: o})
	defer c.Close()
	c.AwaitRest(time.Minute)
	over, end := context.WithCancel(context.Background())
	fate := make(chan bool, 1)
	var comes <-chan struct{}
	if when != nil {
		comes = when(c)
	}
	go func() {
		select {
		case <-comes:
			dies(c)
			fate <- true
		case <-over.Done():
			fate <- false
		}
	}()
	persist(t, c)
	c.AwaitRest(10 * time.Minute)
	end()
	died = <-fate
	c.AwaitRest(10 * time.Minute)
	c.Validate()
	if left := c.Backend.Volumes(); len(left) > 0 {
		t.Errorf("the provider still has volumes: %+v", left)
	}
	return named(c.Backend.Calls(), "pg"), died
}

// persist does what a user does who does not give up: a volume, a job that uses
// it, and the end of both.
func persist(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx, ns := context.Background(), api.DefaultNamespace
	insist(t, func() error {
		_, err := c.Client.ApplyVolume(ctx, ns, "pg", cluster.VolumeSpec(), 0)
		return err
	})
	insist(t, func() error {
		_, err := c.Client.ApplyJob(ctx, ns, "db", cluster.JobSpec(1, "pg"), 0)
		return err
	})
	c.AwaitJob("db", api.JobRunning, 10*time.Minute)
	insist(t, func() error {
		_, err := c.Client.StopJob(ctx, ns, "db", 0)
		return err
	})
	c.AwaitJob("db", api.JobStopped, 10*time.Minute)
	c.AwaitFree("pg", 10*time.Minute)
	insist(t, func() error {
		err := c.Client.DeleteVolume(ctx, ns, "pg", 0)
		if api.CodeOf(err) == api.CodeNotFound {
			return nil // it was deleted, and the answer was lost
		}
		return err
	})
	c.AwaitVolume("pg", "", 10*time.Minute)
}

// insist repeats a write until it is done: an answer that was lost says nothing.
func insist(t *testing.T, write func() error) {
	t.Helper()
	var err error
	for range 100 {
		if err = write(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("a write is never done: %v", err)
}
