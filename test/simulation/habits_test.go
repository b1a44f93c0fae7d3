package simulation_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/internal/controller/collector"
	"github.com/berth-dev/berth/internal/controller/dispatcher"
	"github.com/berth-dev/berth/test/cluster"
)

// What peers do and nobody complains of, yet: by the sections of
// docs/design/0035-what-hurt-elsewhere.md.

// 1.1: each change of a claim rewrites the volume with all its claims.
func TestHabit1_1VolumeIsNotWrittenByItsUsers(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		p.make("pg")
		before := p.AwaitVolume("pg", api.VolumeReady, limit).Version
		for range 3 {
			p.apply("db", cluster.JobSpec(1, "pg"))
			p.AwaitJob("db", api.JobRunning, limit)
			p.stop("db")
			p.AwaitFree("pg", limit)
		}
		if after := p.volume("pg").Version; after != before {
			t.Errorf("three attachments wrote the volume's row %d times", after-before)
		}
	})
}

// 1.2: a writer is let in beside a reader on another node, and an access mode
// that the volume was not made for is not noticed.
func TestHabit1_2AccessModesAreKept(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Agents: 2, Provider: provider}, func(t *testing.T, p *patient) {
		p.make("pg")
		reader := cluster.JobSpec(1, "pg")
		reader.Groups[0].Volumes[0].ReadOnly, reader.Groups[0].Tasks[0].VolumeMounts[0].ReadOnly = true, true
		p.apply("reader", reader)
		p.AwaitJob("reader", api.JobRunning, limit)
		many := cluster.JobSpec(1, "pg")
		many.Groups[0].Volumes[0].AccessMode = api.MultiNodeMultiWriter
		for id, refused := range map[api.JobID]struct {
			spec   api.JobSpec
			reason string
		}{"writer": {cluster.JobSpec(1, "pg"), "allows one allocation"}, "many": {many, "multi-node-multi-writer"}} {
			p.apply(id, refused.spec)
			p.pass(30 * time.Second)
			j := read[api.JobInfo](p.Cluster)(p.Client.Job(context.Background(), api.DefaultNamespace, id, client.Query{}))
			if len(j.Allocations) > 0 || len(j.Waits) == 0 || !strings.Contains(j.Waits[0].Reason, refused.reason) {
				t.Errorf("job %s has %d allocations, and waits for %+v", id, len(j.Allocations), j.Waits)
			}
			p.stop(id)
		}
	})
}

// 1.3: a watcher for each volume, woken by every change of any.
func TestHabit1_3IdleVolumesWriteNothing(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider, Calls: dispatcher.Calls{}}, func(t *testing.T, p *patient) {
		for i := range 50 {
			p.make(api.VolumeID(fmt.Sprintf("idle%d", i)))
		}
		p.use("pg", "db")
		p.AwaitRest(limit)
		p.pass(time.Minute)
		made, before := calls(p.Cluster), p.entries()
		p.pass(30 * time.Minute)
		if n, wrote := calls(p.Cluster)-made, p.entries()-before; n > 0 || wrote > 0 {
			t.Errorf("half an hour in which nothing happened cost %d calls and %d writes of volumes", n, wrote)
		}
	})
}

// 1.4: an unmount that fails is told to the servers as done, and tried again in
// memory only.
func TestHabit1_4UnmountThatFailsIsNotCalledDone(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Agents: 2, Provider: provider}, func(t *testing.T, p *patient) {
		p.use("pg", "db")
		n, _ := holder(p.Cluster)
		fault := p.fails("NodeUnpublishVolume", "INTERNAL", 0)
		p.stop("db")
		p.apply("next", cluster.JobSpec(1, "pg"))
		p.pass(time.Minute)
		n.Kill()
		n.Start()
		p.pass(time.Minute)
		if tried := p.called("ControllerUnpublishVolume"); tried > 0 {
			t.Error("the provider was asked to detach what is still mounted")
		}
		if waits := fmt.Sprint(p.volume("pg").Waits); !strings.Contains(waits, "INTERNAL") {
			t.Errorf("explain does not show what the plugin says: %s", waits)
		}
		fault.Release()
		p.AwaitJob("next", api.JobRunning, patience)
	})
}

// 1.7: one call at a time for each plugin in the whole cluster, and one
// controller that is preferred whether it answers or not.
func TestHabit1_7CallsAreMadeAtOnceByWhoeverCan(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Agents: 3, Provider: provider}, func(t *testing.T, p *patient) {
		slow := p.Backend.Script(csitest.Rule{Method: "CreateVolume", Do: csitest.Delay(5 * time.Second)})
		for i := range 10 {
			p.make(api.VolumeID(fmt.Sprintf("v%d", i)))
		}
		p.pass(time.Second)
		if slow.Waiting() != 10 {
			t.Errorf("%d of 10 creates are under way", slow.Waiting())
		}
		for i := range 10 {
			p.AwaitVolume(api.VolumeID(fmt.Sprintf("v%d", i)), api.VolumeReady, time.Minute)
		}
		p.Nodes[0].StopDriver()
		p.pass(time.Minute)
		p.make("other")
		p.AwaitVolume("other", api.VolumeReady, limit)
		p.Nodes[0].StartDriver()
	})
}

// 1.7: blocking queries for one plugin that do not wake.
func TestHabit1_7BlockingQueryOfOnePluginWakes(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		ctx := context.Background()
		q := client.Query{Filters: []string{client.Where("spec.plugin_id", "==", cluster.PluginID)}, Wait: time.Minute}
		_, q.Index, _ = p.Client.Volumes(ctx, q)
		began := time.Now()
		time.AfterFunc(time.Second, func() {
			_, _ = p.Client.ApplyVolume(ctx, api.DefaultNamespace, "pg", cluster.VolumeSpec(), 0)
		})
		rows, _, err := p.Client.Volumes(ctx, q)
		if err != nil || len(rows) != 1 {
			t.Errorf("%d rows: %v", len(rows), err)
		}
		p.within(5*time.Second, began, "to hear of a volume")
		p.AwaitVolume("pg", api.VolumeReady, limit)
	})
}

// 1.8: an accessibility requirement that is empty, and breaks plugins that know
// none.
func TestHabit1_8NothingIsSentThatAPluginDoesNotKnow(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Provider: provider}, func(t *testing.T, p *patient) {
		p.make("pg")
		p.AwaitVolume("pg", api.VolumeReady, limit)
		for _, c := range p.Backend.Calls() {
			if c.Method == "CreateVolume" && strings.Contains(string(c.Request), "accessibility_requirements") {
				t.Errorf("the request has them: %s", c.Request)
			}
		}
	})
}

// 1.9: volumes of a group counted as one, so that a node gets more than it
// takes.
func TestHabit1_9VolumesOfAFamilyAreCountedEach(t *testing.T) {
	t.Parallel()
	pain(t, cluster.Config{Agents: 2, Provider: provider, MaxVolumes: 2}, func(t *testing.T, p *patient) {
		p.make("pg[0]")
		job := cluster.JobSpec(4, "pg")
		job.Groups[0].Volumes[0].PerAlloc = true
		p.apply("db", job)
		p.AwaitJob("db", api.JobRunning, limit)
		job.Groups[0].Count = 5
		p.apply("db", job)
		p.pass(time.Minute)
		j := read[api.JobInfo](p.Cluster)(p.Client.Job(context.Background(), api.DefaultNamespace, "db", client.Query{}))
		if len(j.Allocations) != 4 || len(j.Waits) == 0 || !strings.Contains(j.Waits[0].Reason, "volumes") {
			t.Errorf("the job has %d allocations, and waits for %+v", len(j.Allocations), j.Waits)
		}
	})
}

// 1.10: a threshold without effect: history stays as long as the configuration
// says, and goes then.
func TestHabit1_10HistoryIsKeptAsLongAsIsSaid(t *testing.T) {
	t.Parallel()
	keep := collector.Keep{Operations: 3 * time.Hour, Attachments: 2 * time.Hour, Allocations: 6 * time.Hour, Jobs: 12 * time.Hour}
	pain(t, cluster.Config{Provider: provider, Keep: keep}, func(t *testing.T, p *patient) {
		p.use("pg", "db")
		p.stop("db")
		p.AwaitFree("pg", limit)
		left := func() (attachments, operations, allocations int) {
			ctx := context.Background()
			return len(read[[]*api.Attachment](p.Cluster)(p.Client.Attachments(ctx, client.Query{}))),
				len(read[[]*api.Operation](p.Cluster)(p.Client.Operations(ctx, client.Query{}))),
				len(read[[]*api.Allocation](p.Cluster)(p.Client.Allocations(ctx, client.Query{})))
		}
		for _, at := range []struct {
			wait                                 time.Duration
			attachments, operations, allocations int
		}{{time.Hour, 1, 3, 1}, {90 * time.Minute, 0, 3, 1}, {time.Hour, 0, 0, 1}, {3 * time.Hour, 0, 0, 0}} {
			p.pass(at.wait)
			a, o, al := left()
			if a != at.attachments || o != at.operations || al != at.allocations {
				t.Errorf("after %s more there are %d attachments, %d operations, %d allocations; want %d, %d, %d",
					at.wait, a, o, al, at.attachments, at.operations, at.allocations)
			}
		}
	})
}
