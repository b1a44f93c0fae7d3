package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/test/cluster"
)

// defaultSeeds is how many seeds a plain run takes; BERTH_SIM_SEEDS sets
// another number, BERTH_SIM_FIRST the first of them.
const defaultSeeds = 100

// TestChaos runs clusters whose users, machines and plugins do what a seeded
// random source says, heals them, and checks what must be true of every
// cluster at rest.
func TestChaos(t *testing.T) {
	seeds, first := number(t, "BERTH_SIM_SEEDS", defaultSeeds), number(t, "BERTH_SIM_FIRST", 1)
	if testing.Short() {
		seeds = min(seeds, 10)
	}
	var failed atomic.Int64
	t.Run("seeds", func(t *testing.T) {
		for seed := first; seed < first+seeds; seed++ {
			t.Run(strconv.Itoa(seed), func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() {
					if t.Failed() {
						failed.Add(1)
					}
				})
				synctest.Test(t, func(t *testing.T) { chaos(t, uint64(seed)) })
			})
		}
	})
	fmt.Printf("seeds %d failed %d\n", seeds, failed.Load())
}

func number(t *testing.T, name string, fallback int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return fallback
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q, not a number of seeds", name, s)
	}
	return n
}

// world is one run of one seed.
type world struct {
	*cluster.Cluster
	t       *testing.T
	rand    *rand.Rand
	faults  []*csitest.Fault
	stopped bool // the server
	names   []string
}

const (
	steps   = 60
	volumes = 4
)

func chaos(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, seed))
	w := &world{t: t, rand: r}
	w.Cluster = cluster.Start(t, cluster.Config{
		Agents: 3, MaxVolumes: 3,
		Provider: csitest.Options{Attach: r.IntN(4) > 0, Stage: r.IntN(4) > 0, Topology: r.IntN(2) > 0, Seed: seed},
	})
	defer w.Close()
	for range volumes {
		w.names = append(w.names, fmt.Sprintf("v%d", len(w.names)+1))
	}
	for range steps {
		w.step()
		time.Sleep(time.Duration(r.IntN(20_000)) * time.Millisecond)
	}
	w.heal()
	w.settle()
}

// step does one thing.
func (w *world) step() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	name := w.names[w.rand.IntN(volumes)]
	vol, job := api.VolumeID(name), api.JobID("job-"+name)
	node := w.Nodes[w.rand.IntN(len(w.Nodes))]
	ns := api.DefaultNamespace
	// Users get errors while things are broken; what they see is not the
	// subject here.
	switch w.rand.IntN(16) {
	case 0, 1, 2:
		_, _ = w.Client.ApplyVolume(ctx, ns, vol, cluster.VolumeSpec(), 0)
	case 3, 4, 5, 6:
		_, _ = w.Client.ApplyJob(ctx, ns, job, w.job(vol), 0)
	case 7:
		_, _ = w.Client.StopJob(ctx, ns, job, 0)
	case 8:
		_ = w.Client.DeleteVolume(ctx, ns, vol, 0)
	case 9:
		node.Kill()
	case 10, 11:
		node.Start()
	case 12:
		w.fault()
	case 13:
		node.Reboot()
	case 14:
		if w.rand.IntN(2) == 0 {
			node.Cut()
		} else {
			node.Mend()
		}
	case 15:
		w.server()
	}
}

// job is a service that runs on, ends well, or fails, or a batch job.
func (w *world) job(vol api.VolumeID) api.JobSpec {
	spec := cluster.JobSpec(1, vol)
	task := &spec.Groups[0].Tasks[0]
	switch w.rand.IntN(4) {
	case 0:
		task.Config = map[string]any{"run": "7s", "exit": 1}
	case 1:
		spec.Type = api.JobBatch
		task.Config = map[string]any{"run": "11s"}
	}
	return spec
}

// server stops the server, or starts it.
func (w *world) server() {
	if w.stopped {
		w.StartServer()
	} else {
		w.StopServer()
	}
	w.stopped = !w.stopped
}

// fault makes the next calls of some kind go wrong.
func (w *world) fault() {
	methods := []string{
		"CreateVolume", "DeleteVolume", "ControllerPublishVolume", "ControllerUnpublishVolume",
		"NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume", "Probe", "NodeGetInfo",
	}
	codes := []string{"INTERNAL", "UNAVAILABLE", "ABORTED", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "UNKNOWN", "DEADLINE_EXCEEDED"}
	method := methods[w.rand.IntN(len(methods))]
	code := codes[w.rand.IntN(len(codes))]
	actions := []csitest.Action{
		csitest.Fail(code, "scripted"), csitest.FailAfter(code, "scripted"), csitest.Hang(), csitest.HangAfter(),
		csitest.Drop(), csitest.DropAfter(), csitest.Delay(10 * time.Second),
	}
	w.faults = append(w.faults, w.Backend.Script(csitest.Rule{
		Method: method, Times: 1 + w.rand.IntN(3), Do: actions[w.rand.IntN(len(actions))],
	}))
}

// heal ends all that is broken.
func (w *world) heal() {
	for _, f := range w.faults {
		f.Release()
	}
	if w.stopped {
		w.server()
	}
	for _, n := range w.Nodes {
		n.Mend()
		n.Start()
	}
	// Longer than the longest backoff and the longest call.
	time.Sleep(30 * time.Minute)
}

// settle ends everything as a user would, and checks that nothing is left.
func (w *world) settle() {
	ctx := context.Background()
	ns := api.DefaultNamespace
	w.Validate()
	for _, name := range w.names {
		if _, err := w.Client.StopJob(ctx, ns, api.JobID("job-"+name), 0); err != nil && api.CodeOf(err) != api.CodeNotFound {
			w.t.Errorf("stop job of %s: %v", name, err)
		}
	}
	time.Sleep(10 * time.Minute)
	for _, name := range w.names {
		if err := w.Client.DeleteVolume(ctx, ns, api.VolumeID(name), 0); err != nil && api.CodeOf(err) != api.CodeNotFound {
			w.t.Errorf("delete %s: %v", name, err)
		}
	}
	time.Sleep(10 * time.Minute)
	status, err := w.Client.Status(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(status.Waits) > 0 {
		w.t.Errorf("something still waits: %+v", status.Waits)
	}
	if left, _, err := w.Client.Volumes(ctx, client.Query{}); err != nil || len(left) > 0 {
		w.t.Errorf("the state still has volumes: %v, %v", left, err)
	}
	if left := w.Backend.Volumes(); len(left) > 0 {
		w.t.Errorf("the provider still has volumes: %+v", left)
	}
	w.Validate()
}
