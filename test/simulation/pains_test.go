package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/allocrunner/hook"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/controller/dispatcher"
	"github.com/berth-dev/berth/test/cluster"
)

// The pains are those of peers' users, by the numbers of docs/design/0035-what-hurt-elsewhere.md.
// Each test does what hurt, and fails if it hurts here. Those of lost nodes are
// in fence_test.go.

// pain runs a cluster in virtual time, and wants it whole and at rest in the
// end.
func pain(t *testing.T, cfg cluster.Config, hurt func(t *testing.T, p *patient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if cfg.Agents == 0 {
			cfg.Agents = 1
		}
		p := &patient{Cluster: cluster.Start(t, cfg), t: t}
		defer p.Close()
		p.AwaitRest(limit)
		hurt(t, p)
		p.AwaitRest(patience)
		p.Validate()
	})
}

// patient is a cluster that something is done to.
type patient struct {
	*cluster.Cluster
	t *testing.T
}

// pass lets time pass.
func (p *patient) pass(d time.Duration) { time.Sleep(d) }

// use makes a volume, and a job that runs with it.
func (p *patient) use(vol api.VolumeID, job api.JobID) {
	p.t.Helper()
	p.make(vol)
	p.apply(job, cluster.JobSpec(1, vol))
	p.AwaitJob(job, api.JobRunning, limit)
}

func (p *patient) make(vol api.VolumeID) {
	p.t.Helper()
	cluster.Must[api.VolumeInfo](p.Cluster)(p.Client.ApplyVolume(context.Background(), api.DefaultNamespace, vol, cluster.VolumeSpec(), 0))
}

func (p *patient) apply(job api.JobID, spec api.JobSpec) {
	p.t.Helper()
	cluster.Must[api.JobInfo](p.Cluster)(p.Client.ApplyJob(context.Background(), api.DefaultNamespace, job, spec, 0))
}

func (p *patient) stop(job api.JobID) {
	p.t.Helper()
	cluster.Must[api.JobInfo](p.Cluster)(p.Client.StopJob(context.Background(), api.DefaultNamespace, job, 0))
}

func (p *patient) volume(id api.VolumeID) api.VolumeInfo {
	p.t.Helper()
	return read[api.VolumeInfo](p.Cluster)(p.Client.Volume(context.Background(), api.DefaultNamespace, id, client.Query{}))
}

// fails has calls of a method answered with a code; times 0 is until released.
func (p *patient) fails(method, code string, times int) *csitest.Fault {
	return p.Backend.Script(csitest.Rule{Method: method, Times: times, Do: csitest.Fail(code, "so says the provider")})
}

// called counts the calls of a method.
func (p *patient) called(method string) (n int) {
	for _, c := range p.Backend.Calls() {
		if c.Method == method {
			n++
		}
	}
	return n
}

// entries is how far the log is.
func (p *patient) entries() uint64 {
	p.t.Helper()
	_, at, err := p.Client.Volumes(context.Background(), client.Query{})
	if err != nil {
		p.t.Fatal(err)
	}
	return at
}

// within fails if more time has passed.
func (p *patient) within(most time.Duration, began time.Time, what string) {
	p.t.Helper()
	if took := time.Since(began); took > most {
		p.t.Errorf("%s took %s, and is to take %s at most", what, took, most)
	}
}

// Claims that stay after a reboot and after garbage collection: the volume is
// free, and the next job has it.
func TestPain1RebootAndGarbageCollectionLeaveNoHoldBehind(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(_ *testing.T, p *patient) {
		p.use("pg", "db")
		p.Nodes[0].Reboot()
		p.Nodes[0].Start()
		p.AwaitJob("db", api.JobRunning, limit)
		p.stop("db")
		p.AwaitJob("db", api.JobStopped, 5*time.Minute) // its plugin comes back first
		p.AwaitFree("pg", limit)
		cluster.Must[api.Collected](p.Cluster)(p.Client.CollectGarbage(context.Background()))
		p.apply("next", cluster.JobSpec(1, "pg"))
		p.AwaitJob("next", api.JobRunning, 30*time.Second)
	})
}

// Minutes until a claim is collected: here the end of the allocation is what
// frees the volume, also if it ended by itself, and nothing waits for a timer.
func TestPain4ReleaseWaitsForNoTimer(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(_ *testing.T, p *patient) {
		p.use("pg", "db")
		p.apply("next", cluster.JobSpec(1, "pg"))
		began := time.Now()
		p.stop("db")
		p.AwaitJob("next", api.JobRunning, limit)
		p.within(5*time.Second, began, "to give the volume to the next job")
		p.make("log")
		once := cluster.JobSpec(1, "log")
		once.Type = api.JobBatch
		once.Groups[0].Tasks[0].Config = map[string]any{"run": "7s"}
		p.apply("once", once)
		p.AwaitJob("once", api.JobComplete, limit)
		began = time.Now()
		p.AwaitFree("log", limit)
		p.within(5*time.Second, began, "to free the volume of a job that ended by itself")
	})
}

// A tight loop over a node that is not there any more: what cannot be detached
// from it is tried with pauses that grow, a new leader does not begin anew, and
// the name that the provider knows is kept.
func TestPain6DetachFromANodeThatIsGoneIsNoTightLoop(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Agents: 2, Provider: provider}, func(t *testing.T, p *patient) {
		p.use("pg", "db")
		n, old := holder(p.Cluster)
		id, name := old.NodeID, n.Name
		switchOff(n)
		n.Kill()
		silent(p.Cluster, id)
		fault := p.fails("ControllerUnpublishVolume", "INTERNAL", 0)
		cluster.Must[api.NodeInfo](p.Cluster)(p.Client.FenceNode(context.Background(), id, off))
		if err := p.Client.ForgetNode(context.Background(), id, 0); err != nil {
			t.Fatal(err)
		}
		p.pass(5 * time.Minute)
		p.StopServer()
		p.StartServer()
		p.pass(25 * time.Minute)
		if tried := p.called("ControllerUnpublishVolume"); tried < 5 || tried > 40 {
			t.Errorf("in half an hour it was tried %d times", tried)
		}
		pub := p.volume("pg").Publications
		if len(pub) != 1 || pub[0].Status.ExternalNodeID != name {
			t.Errorf("the provider's name of the node is lost: %+v", pub)
		}
		fault.Release()
		p.AwaitJob("db", api.JobRunning, patience)
		n.Start()
	})
}

// An endless loop of errors while a plugin is gone: nothing is written and
// nothing called while it is away, explain says so, and its coming back is the
// trigger.
func TestPain7PluginThatIsGoneIsWaitedForInSilence(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		p.use("pg", "db")
		p.Nodes[0].StopDriver()
		p.stop("db")
		p.pass(2 * time.Minute)
		began, wrote := p.called("ControllerUnpublishVolume"), p.entries()
		p.pass(30 * time.Minute)
		if n, wrote := p.called("ControllerUnpublishVolume")-began, p.entries()-wrote; n > 0 || wrote > 40 {
			t.Errorf("in half an hour without the plugin there were %d calls and %d entries of the log", n, wrote)
		}
		if waits := p.volume("pg").Waits; len(waits) == 0 || !strings.Contains(fmt.Sprint(waits), "plugin") {
			t.Errorf("explain does not say that the plugin is gone: %+v", waits)
		}
		p.Nodes[0].StartDriver()
		p.AwaitFree("pg", 2*time.Minute)
	})
}

// A claim that stays after an attach that failed: the job is stopped while the
// provider still refuses, and the volume is free at once.
func TestPain8FailedAttachLeavesNoHold(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(_ *testing.T, p *patient) {
		p.make("pg")
		fault := p.fails("ControllerPublishVolume", "INTERNAL", 0)
		p.apply("db", cluster.JobSpec(1, "pg"))
		p.pass(time.Minute)
		p.stop("db")
		p.AwaitJob("db", api.JobStopped, limit)
		p.AwaitFree("pg", limit)
		fault.Release()
		p.apply("next", cluster.JobSpec(1, "pg"))
		p.AwaitJob("next", api.JobRunning, limit)
	})
}

// Attachments that pick the same device when they are made at once: a plugin
// that takes one call at a time gets one at a time, and all of them.
func TestPain9PluginThatTakesOneCallGetsOneCall(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider, Calls: dispatcher.Calls{Max: 1, MaxSlow: new(0)}}, func(t *testing.T, p *patient) {
		slow := p.Backend.Script(csitest.Rule{Method: "ControllerPublishVolume", Do: csitest.Delay(2 * time.Second)})
		for i := range 5 {
			vol := api.VolumeID(fmt.Sprintf("v%d", i))
			p.make(vol)
			p.apply(api.JobID(vol), cluster.JobSpec(1, vol))
		}
		most := 0
		for range 200 {
			p.pass(100 * time.Millisecond)
			most = max(most, slow.Waiting())
		}
		if most != 1 || slow.Fired() != 5 {
			t.Errorf("of %d calls, %d were under way at once", slow.Fired(), most)
		}
	})
}

// The same order for a provider that attaches to each of its machines one volume
// after the other: each machine gets one call at a time, and all get theirs at
// once, from one controller instance.
func TestPain9MachineThatTakesOneAttachAtATimeGetsOne(t *testing.T) {
	t.Parallel()
	const machines, each = 2, 3
	pain(t, cluster.Config{Agents: machines, Split: true, Provider: provider, Calls: dispatcher.Calls{MaxPerTarget: 1}}, func(t *testing.T, p *patient) {
		p.Nodes[0].StartController()
		var slow []*csitest.Fault
		for i, n := range p.Nodes {
			slow = append(slow, p.Backend.Script(csitest.Rule{Method: "ControllerPublishVolume", Node: n.Name, Do: csitest.Delay(2 * time.Second)}))
			var vols []api.VolumeID
			for j := range each {
				vols = append(vols, api.VolumeID(fmt.Sprintf("v%d-%d", i, j)))
				p.make(vols[j])
			}
			job := cluster.JobSpec(1, vols...)
			job.Constraints = []api.Constraint{{Attribute: "${node.unique.id}", Value: string(n.ID())}}
			p.apply(api.JobID(n.ID()), job)
		}
		most, together := make([]int, machines), 0
		for range 200 {
			p.pass(100 * time.Millisecond)
			now := 0
			for i, f := range slow {
				most[i] = max(most[i], f.Waiting())
				now += f.Waiting()
			}
			together = max(together, now)
		}
		for i, f := range slow {
			if most[i] != 1 || f.Fired() != each {
				t.Errorf("of %d calls for machine %d, %d were under way at once", f.Fired(), i, most[i])
			}
		}
		if together != machines {
			t.Errorf("%d calls were under way at once for %d machines", together, machines)
		}
	})
}

// A server that is locked while the provider works on it: the detach is
// repeated, with no operator, and nobody has the volume before.
func TestPain10LockedServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Agents: 2, Provider: provider}, func(t *testing.T, p *patient) {
		p.use("pg", "db")
		for _, code := range []string{"FAILED_PRECONDITION", "ABORTED"} {
			fault := p.fails("ControllerUnpublishVolume", code, 0)
			p.stop("db")
			p.pass(5 * time.Minute)
			if v := p.volume("pg"); len(v.Attachments) != 1 || len(v.Waits) == 0 {
				t.Errorf("%s: the volume is held by %d, and waits for %v", code, len(v.Attachments), v.Waits)
			}
			fault.Release()
			p.AwaitFree("pg", 10*time.Minute)
			p.apply("db", cluster.JobSpec(1, "pg"))
			p.AwaitJob("db", api.JobRunning, limit)
		}
	})
}

// A plugin that ends before its volumes are unmounted: the provider is not asked
// to detach before the node has let go.
func TestPain11PluginThatEndsFirstDoesNotLeaveAVolumeAttached(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		p.use("pg", "db")
		fault := p.fails("NodeUnpublishVolume", "INTERNAL", 3)
		p.stop("db")
		p.Nodes[0].StopDriver()
		p.pass(5 * time.Minute)
		if n := p.called("ControllerUnpublishVolume"); n > 0 {
			t.Error("the provider was asked to detach while the node had it mounted")
		}
		p.Nodes[0].StartDriver()
		p.AwaitFree("pg", patience)
		fault.Release()
		if have := p.Backend.Volumes()[0]; len(have.Attached)+len(have.Published)+len(have.Staged) > 0 {
			t.Errorf("the provider has %+v", have)
		}
	})
}

// Agents that restart: jobs with volumes run on, and nothing is mounted anew.
func TestPain12AgentRestartFailsNoAllocation(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		p.use("pg", "db")
		p.AwaitRest(limit)
		_, before := holder(p.Cluster)
		made := calls(p.Cluster)
		for range 3 {
			p.Nodes[0].Kill()
			p.Nodes[0].Start()
			p.AwaitRest(limit)
		}
		if _, after := holder(p.Cluster); after.AllocID != before.AllocID || calls(p.Cluster) != made {
			t.Errorf("allocation %s is now %s, after %d calls", before.AllocID.Short(), after.AllocID.Short(), calls(p.Cluster)-made)
		}
	})
}

// Who uses a staged volume is remembered over restarts: the first of two that
// stops does not unstage the other's.
func TestPain13FirstOfTwoToStopLeavesTheOthersVolume(t *testing.T) {
	t.Parallel()
	o := provider
	o.MultiWriter = true
	pain(t, cluster.Config{Provider: o}, func(t *testing.T, p *patient) {
		ctx, ns := context.Background(), api.DefaultNamespace
		spec := cluster.VolumeSpec()
		spec.Capabilities = []api.Capability{{AccessMode: api.SingleNodeMultiWriter, AttachmentMode: api.FileSystem}}
		cluster.Must[api.VolumeInfo](p.Cluster)(p.Client.ApplyVolume(ctx, ns, "shared", spec, 0))
		for _, id := range []api.JobID{"first", "second"} {
			job := cluster.JobSpec(1, "shared")
			job.Groups[0].Volumes[0].AccessMode = api.SingleNodeMultiWriter
			p.apply(id, job)
			p.AwaitJob(id, api.JobRunning, limit)
		}
		p.Nodes[0].Kill()
		p.Nodes[0].Start()
		p.AwaitRest(limit)
		p.stop("first")
		p.AwaitJob("first", api.JobStopped, limit)
		p.AwaitRest(limit)
		if have := p.Backend.Volumes()[0]; len(have.Staged) != 1 || len(have.Published) != 1 || p.called("NodeUnstageVolume") > 0 {
			t.Errorf("the other's volume: %+v", have)
		}
	})
}

// Stage and unstage that race: a job that is stopped and started again in the
// middle never runs beside its volume. The test driver refuses to start a task
// whose volume is not mounted, which would fail its allocation.
func TestPain14NoTaskRunsWithoutItsVolume(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		p.use("pg", "db")
		p.Backend.Script(csitest.Rule{Method: "NodeUnstageVolume", Do: csitest.Delay(3 * time.Second)})
		p.Backend.Script(csitest.Rule{Method: "NodeStageVolume", Do: csitest.Delay(2 * time.Second)})
		for i := range 12 {
			p.stop("db")
			p.pass(time.Duration(i) * 700 * time.Millisecond)
			p.apply("db", cluster.JobSpec(1, "pg"))
			p.pass(time.Duration(i%4) * 900 * time.Millisecond)
		}
		job := p.AwaitJob("db", api.JobRunning, limit)
		for _, a := range job.Allocations {
			if a.Status.State == api.AllocFailed {
				t.Errorf("allocation %s failed: %s", a.ID.Short(), a.Status.Why())
			}
		}
	})
}

// The same volume id in two namespaces: two volumes, two paths.
func TestPain15NamespacesDoNotShareAStagingPath(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		ctx := context.Background()
		// The names collide where they are only put together: "ab"+"c", "a"+"bc".
		for ns, vol := range map[api.NamespaceID]api.VolumeID{"ab": "c", "a": "bc", "x": "c"} {
			cluster.Must[api.VolumeInfo](p.Cluster)(p.Client.ApplyVolume(ctx, ns, vol, cluster.VolumeSpec(), 0))
			cluster.Must[api.JobInfo](p.Cluster)(p.Client.ApplyJob(ctx, ns, "db", cluster.JobSpec(1, vol), 0))
		}
		for _, ns := range []api.NamespaceID{"ab", "a", "x"} {
			cluster.Await(p.Cluster, "job of "+string(ns), limit, func(ctx context.Context, q client.Query) (api.JobInfo, uint64, error) {
				return p.Client.Job(ctx, ns, "db", q)
			}, func(j api.JobInfo, err error) bool { return err == nil && j.State == api.JobRunning })
		}
		paths := map[string]bool{}
		for _, c := range p.Backend.Calls() {
			if c.Method == "NodeStageVolume" {
				_, rest, _ := strings.Cut(string(c.Request), `"staging_target_path":"`)
				path, _, _ := strings.Cut(rest, `"`)
				paths[path] = true
			}
		}
		if have := p.Backend.Volumes(); len(have) != 3 || len(paths) != 3 {
			t.Errorf("%d volumes are staged at %v", len(have), paths)
		}
	})
}

// Who reads changes nothing: after every list and a stream of events, the plugin
// still gets the secrets, also of the detach and the delete.
func TestPain16ReadingTakesNoSecretAway(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		ctx, ns := context.Background(), api.DefaultNamespace
		spec := cluster.VolumeSpec()
		spec.Secrets = map[string]string{"password": "swordfish"}
		cluster.Must[api.VolumeInfo](p.Cluster)(p.Client.ApplyVolume(ctx, ns, "pg", spec, 0))
		watching, end := context.WithCancel(ctx)
		seen := make(chan string, 1)
		go func() {
			text := ""
			for frame, err := range p.Client.Events(watching, client.EventQuery{}) {
				text += fmt.Sprintf("%+v %v", frame, err)
			}
			seen <- text
		}()
		p.apply("db", cluster.JobSpec(1, "pg"))
		p.AwaitJob("db", api.JobRunning, limit)
		for range 3 {
			_ = p.volume("pg")
			read[[]*api.Volume](p.Cluster)(p.Client.Volumes(ctx, client.Query{}))
		}
		p.stop("db")
		p.AwaitFree("pg", limit)
		if err := p.Client.DeleteVolume(ctx, ns, "pg", 0); err != nil {
			t.Fatal(err)
		}
		p.AwaitVolume("pg", "", limit)
		end()
		if text := <-seen; strings.Contains(text, "swordfish") || !strings.Contains(text, "pg") {
			t.Errorf("the events: %s", text)
		}
		got := map[string]bool{}
		for _, c := range p.Backend.Calls() {
			got[c.Method] = got[c.Method] || strings.Contains(string(c.Request), "swordfish")
		}
		for _, method := range []string{"CreateVolume", "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume", "ControllerUnpublishVolume", "DeleteVolume"} {
			if !got[method] {
				t.Errorf("%s had no secrets", method)
			}
		}
	})
}

// Counts of plugins that drift: they are computed from the instances, whatever
// came and went.
func TestPain17PluginCountsDoNotDrift(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Agents: 3, Provider: provider}, func(_ *testing.T, p *patient) {
		for i := range 30 {
			n := p.Nodes[i%3]
			switch i % 5 {
			case 0:
				n.RestartDriver()
			case 1:
				n.Kill()
			case 2:
				n.Start()
			case 3:
				n.Reboot()
				n.Start()
			case 4:
				n.StopDriver()
				p.pass(time.Minute)
				n.StartDriver()
			}
		}
		for _, n := range p.Nodes {
			n.Start()
		}
		cluster.Await(p.Cluster, "three healthy instances", patience, func(ctx context.Context, q client.Query) (*api.Plugin, uint64, error) {
			return p.Client.Plugin(ctx, cluster.PluginID, q)
		}, func(plugin *api.Plugin, err error) bool {
			return err == nil && plugin.NodesHealthy == 3 && plugin.NodesExpected == 3 && plugin.ControllersHealthy == 3 && plugin.ControllersExpected == 3
		})
	})
}

// A plugin that is not well after a reboot, or whose probe fails for a while, is
// asked again until it is.
func TestPain18PluginIsHealthyAgainByItself(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(_ *testing.T, p *patient) {
		p.use("pg", "db")
		healthy := func(want int) {
			cluster.Await(p.Cluster, fmt.Sprintf("%d healthy", want), 10*time.Minute, func(ctx context.Context, q client.Query) (*api.Plugin, uint64, error) {
				return p.Client.Plugin(ctx, cluster.PluginID, q)
			}, func(plugin *api.Plugin, err error) bool { return err == nil && plugin.NodesHealthy == want })
		}
		fault := p.fails("Probe", "FAILED_PRECONDITION", 0)
		p.Nodes[0].Reboot()
		p.Nodes[0].Start()
		healthy(0)
		p.pass(20 * time.Minute)
		fault.Release()
		healthy(1)
		p.AwaitJob("db", api.JobRunning, limit)
	})
}

// "Volume in use" by allocations that are not there any more: what has ended
// keeps nothing, before and after it is collected.
func TestPain21VolumeOfEndedAllocationsIsDeleted(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		ctx, ns := context.Background(), api.DefaultNamespace
		for i, collect := range []bool{false, true} {
			vol := api.VolumeID(fmt.Sprintf("v%d", i))
			p.use(vol, "db")
			if err := p.Client.DeleteVolume(ctx, ns, vol, 0); api.CodeOf(err) != api.CodeInUse || !strings.Contains(err.Error(), "job db on node") {
				t.Errorf("delete of a volume in use: %v", err)
			}
			if n := p.called("DeleteVolume"); n != i {
				t.Errorf("the plugin had %d deletes before anything let go", n)
			}
			p.stop("db")
			p.AwaitFree(vol, limit)
			if collect {
				cluster.Must[api.Collected](p.Cluster)(p.Client.CollectGarbage(ctx))
			}
			if err := p.Client.DeleteVolume(ctx, ns, vol, 0); err != nil {
				t.Fatal(err)
			}
			p.AwaitVolume(vol, "", limit)
		}
	})
}

// Volumes of a group are made by hand, and missing when it grows.
func TestPain22ScaleUpMakesItsVolumes(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Agents: 2, Provider: provider}, func(t *testing.T, p *patient) {
		ctx, ns := context.Background(), api.DefaultNamespace
		p.make("pg[0]")
		job := cluster.JobSpec(1, "pg")
		job.Groups[0].Volumes[0].PerAlloc = true
		p.apply("db", job)
		p.AwaitJob("db", api.JobRunning, limit)
		job.Groups[0].Count = 3
		p.apply("db", job)
		p.AwaitJob("db", api.JobRunning, limit)
		for i := range 3 {
			v := p.AwaitVolume(api.VolumeID(fmt.Sprintf("pg[%d]", i)), api.VolumeReady, limit)
			if len(v.Attachments) != 1 {
				t.Errorf("volume %s is held by %d", v.ID, len(v.Attachments))
			}
		}
		job.Groups[0].Count = 1
		p.apply("db", job)
		p.AwaitFree("pg[2]", limit)
		if vol, _, err := p.Client.Volume(ctx, ns, "pg[2]", client.Query{}); err != nil || vol.Desired != api.Present {
			t.Errorf("scaling down took the volume: %v", err)
		}
	})
}

// How much room there is, and how full a volume is.
func TestPain23RoomAndUsageAreTold(t *testing.T) {
	t.Parallel()
	o := provider
	o.Capacity = 10 << 20
	pain(t, cluster.Config{Provider: o}, func(t *testing.T, p *patient) {
		p.use("pg", "db")
		room := cluster.Must[[]api.PlaceCapacity](p.Cluster)(p.Client.PluginCapacity(context.Background(), cluster.PluginID))
		if len(room) != 1 || room[0].Available != 9<<20 || room[0].Problem != "" {
			t.Errorf("capacity: %+v", room)
		}
		usage := cluster.Must[[]api.VolumeUsage](p.Cluster)(p.Client.VolumeUsage(context.Background(), api.DefaultNamespace, "pg"))
		if len(usage) != 1 || usage[0].Unknown != "" {
			t.Errorf("usage: %+v", usage)
		}
	})
}

// Secrets in plain text in the servers' state.
func TestPain24StateHasNoSecretInPlainText(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		spec := cluster.VolumeSpec()
		spec.Secrets = map[string]string{"password": "swordfish"}
		cluster.Must[api.VolumeInfo](p.Cluster)(p.Client.ApplyVolume(context.Background(), api.DefaultNamespace, "pg", spec, 0))
		p.AwaitVolume("pg", api.VolumeReady, limit)
		var saved strings.Builder
		if err := p.Client.SaveState(context.Background(), &saved); err != nil {
			t.Fatal(err)
		}
		if text := saved.String(); strings.Contains(text, "swordfish") {
			t.Error("the saved state has the secret")
		}
	})
}

// An update whose new allocation waits for the old one's volume for ever: it
// follows the old one, and what could never start is refused at once.
func TestPain26UpdateOfASingleNodeVolumeGoesOn(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Agents: 2, Provider: provider}, func(t *testing.T, p *patient) {
		p.use("pg", "db")
		job := cluster.JobSpec(1, "pg")
		job.Groups[0].Tasks[0].Env = map[string]string{"VERSION": "2"}
		p.apply("db", job)
		cluster.Await(p.Cluster, "the update", limit, func(ctx context.Context, q client.Query) (api.JobInfo, uint64, error) {
			return p.Client.Job(ctx, api.DefaultNamespace, "db", q)
		}, func(j api.JobInfo, err error) bool {
			return err == nil && j.State == api.JobRunning && slices.ContainsFunc(j.Allocations, func(a *api.Allocation) bool { return a.Revision == 2 && !a.Terminal() })
		})
		_, err := p.Client.ApplyJob(context.Background(), api.DefaultNamespace, "two", cluster.JobSpec(2, "pg"), 0)
		if api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), "pg") {
			t.Errorf("two allocations with one volume of single-node-writer: %v", err)
		}
	})
}

// One disk under two names, of which deleting one destroys the other's data.
func TestPain28ExternalVolumeIsRegisteredOnce(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		ctx := context.Background()
		p.Backend.Add("disk-1", nil)
		spec := api.VolumeSpec{PluginID: cluster.PluginID, ExternalID: "disk-1", Capabilities: cluster.VolumeSpec().Capabilities}
		cluster.Must[api.VolumeInfo](p.Cluster)(p.Client.ApplyVolume(ctx, "a", "disk", spec, 0))
		for _, ns := range []api.NamespaceID{"a", "b"} {
			if _, err := p.Client.ApplyVolume(ctx, ns, "twice", spec, 0); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "volume disk of namespace a") {
				t.Errorf("registered again in namespace %s: %v", ns, err)
			}
		}
	})
}

// Placed where the volume cannot be reached.
func TestPain29AllocationIsWhereItsVolumeIs(t *testing.T) {
	t.Parallel()
	o := provider
	o.Topology = true
	pain(t, cluster.Config{Agents: 3, Provider: o}, func(t *testing.T, p *patient) {
		for i := range 6 {
			p.use(api.VolumeID(fmt.Sprintf("v%d", i)), api.JobID(fmt.Sprintf("j%d", i)))
		}
		for i := range 6 {
			v := p.volume(api.VolumeID(fmt.Sprintf("v%d", i)))
			at := p.Nodes[slices.IndexFunc(p.Nodes, func(n *cluster.Node) bool { return n.ID() == v.Attachments[0].NodeID })]
			if len(v.Status.AccessibleTopology) != 1 || v.Status.AccessibleTopology[0]["test.berth.dev/node"] != at.Name {
				t.Errorf("volume %s is in %v, and used on %s", v.ID, v.Status.AccessibleTopology, at.Name)
			}
		}
	})
}

// Single use that is looked at only when a job is submitted: two jobs that come
// at once do not both get the volume.
func TestPain30TwoJobsDoNotShareASingleNodeVolume(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Agents: 2, Provider: provider}, func(t *testing.T, p *patient) {
		p.make("pg")
		p.AwaitVolume("pg", api.VolumeReady, limit)
		for i := range 5 {
			go func() {
				_, _ = p.Client.ApplyJob(context.Background(), api.DefaultNamespace, api.JobID(fmt.Sprintf("j%d", i)), cluster.JobSpec(1, "pg"), 0)
			}()
		}
		p.pass(2 * time.Minute)
		running := 0
		for i := range 5 {
			j := read[api.JobInfo](p.Cluster)(p.Client.Job(context.Background(), api.DefaultNamespace, api.JobID(fmt.Sprintf("j%d", i)), client.Query{}))
			switch {
			case j.State == api.JobRunning:
				running++
			case len(j.Allocations) > 0 || len(j.Waits) == 0 || !strings.Contains(j.Waits[0].Reason, "pg"):
				t.Errorf("job %s has %d allocations, and waits for %v", j.ID, len(j.Allocations), j.Waits)
			}
		}
		if running != 1 {
			t.Errorf("%d jobs run with the volume", running)
		}
	})
}

// Namespaces that reach into each other: a volume of another one cannot be used.
func TestPain31NamespacesDoNotReachIntoEachOther(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		ctx := context.Background()
		cluster.Must[api.VolumeInfo](p.Cluster)(p.Client.ApplyVolume(ctx, "theirs", "pg", cluster.VolumeSpec(), 0))
		p.apply("db", cluster.JobSpec(1, "pg"))
		p.pass(time.Minute)
		j := read[api.JobInfo](p.Cluster)(p.Client.Job(ctx, api.DefaultNamespace, "db", client.Query{}))
		if len(j.Allocations) > 0 {
			t.Error("the job has a volume of another namespace")
		}
		if _, err := p.Client.DetachVolume(ctx, api.DefaultNamespace, "pg", api.DetachRequest{}); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("detach from another namespace: %v", err)
		}
		if err := p.Client.DeleteVolume(ctx, api.DefaultNamespace, "pg", 0); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("delete from another namespace: %v", err)
		}
		p.stop("db")
	})
}

// Years without a resize: a volume grows while it is in use.
func TestPain32VolumeGrowsInUse(t *testing.T) {
	t.Parallel()
	o := provider
	o.Expand, o.NodeExpand = true, true
	pain(t, cluster.Config{Provider: o}, func(t *testing.T, p *patient) {
		p.use("pg", "db")
		_, before := holder(p.Cluster)
		spec := cluster.VolumeSpec()
		spec.CapacityMin = larger
		cluster.Must[api.VolumeInfo](p.Cluster)(p.Client.ApplyVolume(context.Background(), api.DefaultNamespace, "pg", spec, 0))
		v := awaitChanged(p.Cluster)
		if _, after := holder(p.Cluster); after.AllocID != before.AllocID || v.Status.Capacity != larger {
			t.Errorf("the volume has %d bytes, and is used by %s instead of %s", v.Status.Capacity, after.AllocID.Short(), before.AllocID.Short())
		}
	})
}

// Nothing can be done to storage in a page: each thing that a person does to a
// volume is one request, which says what it rests on. So two who edit the same
// form do not overwrite each other, and a form that is sent twice makes one
// volume.
func TestPain27WhatIsDoneToAVolumeIsOneRequestEach(t *testing.T) {
	t.Parallel()
	o := provider
	o.Expand = true
	pain(t, cluster.Config{Provider: o}, func(t *testing.T, p *patient) {
		ctx, ns, spec := context.Background(), api.DefaultNamespace, cluster.VolumeSpec()
		cluster.Must[api.VolumeInfo](p.Cluster)(p.Client.IfAbsent().ApplyVolume(ctx, ns, "pg", spec, 0))
		if _, err := p.Client.IfAbsent().ApplyVolume(ctx, ns, "pg", spec, 0); api.CodeOf(err) != api.CodeConflict {
			t.Errorf("created twice: %v", err)
		}
		seen := p.AwaitVolume("pg", api.VolumeReady, limit)
		spec.CapacityMin = larger
		cluster.Must[api.VolumeInfo](p.Cluster)(p.Client.ApplyVolume(ctx, ns, "pg", spec, seen.Version))
		other := cluster.VolumeSpec()
		other.Name = "another form"
		if _, err := p.Client.ApplyVolume(ctx, ns, "pg", other, seen.Version); api.CodeOf(err) != api.CodeConflict {
			t.Errorf("edited by two: %v", err)
		}
		if v := awaitChanged(p.Cluster); v.Status.Capacity != larger || v.Spec.Name != "" {
			t.Errorf("the volume has %d bytes, and is called %q", v.Status.Capacity, v.Spec.Name)
		}
		if err := p.Client.DeleteVolume(ctx, ns, "pg", 0); err != nil {
			t.Error(err)
		}
		p.pass(time.Minute)
		if left := p.Backend.Volumes(); len(left) > 0 {
			t.Errorf("the provider still has %+v", left)
		}
	})
}

// A directory of a machine that was added is never used, one that is gone is
// still there, and what was is stuck to: a node's directories are what its agent
// says now, also to a server that was started again.
func TestPain33HostVolumesAreWhatTheNodeSaysNow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pain(t, cluster.Config{Agents: 2, Provider: provider}, func(t *testing.T, p *patient) {
		ctx := context.Background()
		spec := cluster.JobSpec(1)
		spec.Groups[0].Volumes = []api.VolumeRequest{{Name: "models", Type: api.VolumeTypeHost, Source: "models", ReadOnly: true}}
		here := map[string]hook.HostVolume{"models": {Path: dir}}
		on := func(job api.JobID) api.NodeID {
			t.Helper()
			p.AwaitJob(job, api.JobRunning, limit)
			return read[api.JobInfo](p.Cluster)(p.Client.Job(ctx, api.DefaultNamespace, job, client.Query{})).Allocations[0].NodeID
		}
		p.apply("first", spec)
		p.pass(time.Minute)
		j := read[api.JobInfo](p.Cluster)(p.Client.Job(ctx, api.DefaultNamespace, "first", client.Query{}))
		if len(j.Allocations) > 0 || !strings.Contains(fmt.Sprint(j.Waits), "models") {
			t.Errorf("without the directory, the job has %d allocations and waits for %v", len(j.Allocations), j.Waits)
		}
		p.Nodes[1].Agent().Describe(api.Profile{}, here)
		if got := on("first"); got != p.Nodes[1].ID() {
			t.Errorf("the job runs on %s, and %s has the directory", got, p.Nodes[1].ID())
		}
		p.stop("first")
		p.AwaitRest(limit)
		p.Nodes[1].Agent().Describe(api.Profile{}, nil)
		p.Nodes[0].Agent().Describe(api.Profile{}, here)
		p.pass(time.Minute)
		p.StopServer()
		p.StartServer()
		p.apply("second", spec)
		if got := on("second"); got != p.Nodes[0].ID() {
			t.Errorf("the job runs on %s, and %s has the directory now", got, p.Nodes[0].ID())
		}
	})
}

// A vendor's plugin wants another orchestrator, and ends at once without it: it
// is named with its node by whatever waits for it, and keeps nothing else from
// going on.
func TestPain34PluginThatDoesNotRunHereIsNamed(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Agents: 2, Provider: provider}, func(t *testing.T, p *patient) {
		p.use("pg", "db")
		for _, n := range p.Nodes {
			n.StopDriver()
		}
		p.pass(2 * time.Minute)
		began := p.entries()
		p.make("web")
		p.apply("idle", cluster.JobSpec(1))
		p.AwaitJob("idle", api.JobRunning, limit)
		p.pass(30 * time.Minute)
		text := fmt.Sprint(p.volume("web").Waits)
		if !strings.Contains(text, "plugin provider") || !strings.Contains(text, "node n") {
			t.Errorf("a new volume waits for %s", text)
		}
		if wrote := p.entries() - began; wrote > 60 {
			t.Errorf("half an hour of waiting wrote %d entries", wrote)
		}
		for _, n := range p.Nodes {
			n.StartDriver()
		}
		p.AwaitVolume("web", api.VolumeReady, 10*time.Minute)
		p.stop("idle")
	})
}
