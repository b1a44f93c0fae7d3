package simulation_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
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
const defaultSeeds = 250

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
	stopped bool            // the server
	died    <-chan struct{} // the server dies with one of its next entries
	limited bool            // a node takes so many volumes
	split   bool            // the controller service is on one node
	home    int             // its node
	names   []string
	more    *more // what every other seed does beside; nil in the others
}

const (
	steps   = 60
	volumes = 4
)

func chaos(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, seed))
	w := &world{t: t, rand: r, limited: r.IntN(2) == 0, split: r.IntN(3) == 0}
	limit := int64(0)
	if w.limited {
		limit = 3
	}
	o := csitest.Options{
		Attach: r.IntN(4) > 0, Stage: r.IntN(4) > 0, Topology: r.IntN(2) > 0, PublishReadonly: r.IntN(2) > 0, Seed: seed,
		MultiWriter: seed%4 < 2, // without it single-node-multi-writer is for one at a time
	}
	for range volumes {
		w.names = append(w.names, fmt.Sprintf("v%d", len(w.names)+1))
	}
	if seed%2 == 0 {
		w.more = newMore(w, &o)
	}
	w.Cluster = cluster.Start(t, cluster.Config{Agents: 3, MaxVolumes: limit, Split: w.split, Provider: o})
	defer w.Close()
	w.settleController()
	for range steps {
		w.step()
		w.pause()
	}
	w.heal()
	w.settle()
}

// pause lets time pass: hardly any, so that one thing happens in the middle of
// another, or so much that everything can come to an end. If the server dies
// meanwhile, another one takes over.
func (w *world) pause() {
	longest := []time.Duration{20 * time.Millisecond, time.Second, 10 * time.Second, 40 * time.Second}[w.rand.IntN(4)]
	select {
	case <-w.died:
		w.died = nil
		w.StopServer()
		time.Sleep(time.Duration(w.rand.Int64N(int64(longest))))
		w.StartServer()
	case <-time.After(time.Duration(w.rand.Int64N(int64(longest)))):
	}
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
	kinds := 21
	if w.more != nil {
		w.more.meet()
		kinds += moreKinds
	}
	switch kind := w.rand.IntN(kinds); kind {
	default:
		w.more.step(ctx, kind-21, name, node)
	case 0, 1, 2:
		_, _ = w.Client.ApplyVolume(ctx, ns, vol, w.volume(name), 0)
	case 3, 4, 5, 6:
		_, _ = w.Client.ApplyJob(ctx, ns, job, w.job(name), 0)
	case 7:
		_, _ = w.Client.StopJob(ctx, ns, job, 0)
	case 8:
		_ = w.Client.DeleteVolume(ctx, ns, vol, 0)
	case 9:
		node.Kill()
	case 10, 11:
		node.Start()
	case 12, 13:
		w.fault()
	case 14:
		node.Reboot()
	case 15:
		if w.rand.IntN(2) == 0 {
			node.Cut()
		} else {
			node.Mend()
		}
	case 16:
		w.server()
	case 17:
		w.doom()
	case 18:
		w.plugin(node)
	case 19:
		w.move()
	case 20:
		w.drain(ctx, node.ID())
	}
}

// shared reports whether a volume is for several nodes at once.
func shared(name string) bool { return name == "v3" }

func (w *world) volume(name string) api.VolumeSpec {
	spec := cluster.VolumeSpec()
	w.more.shape(&spec, name)
	if shared(name) {
		for _, mode := range []api.AccessMode{api.MultiNodeMultiWriter, api.MultiNodeReaderOnly, api.SingleNodeMultiWriter} {
			spec.Capabilities = append(spec.Capabilities, api.Capability{AccessMode: mode, AttachmentMode: api.FileSystem})
		}
	}
	return spec
}

// job is a service that runs on, ends well, or fails, or a batch job. Of a
// volume that is for several nodes it wants several.
func (w *world) job(name string) api.JobSpec {
	spec := cluster.JobSpec(1, api.VolumeID(name))
	group := &spec.Groups[0]
	if shared(name) {
		group.Count = 1 + w.rand.IntN(3)
		group.Volumes[0].AccessMode = api.MultiNodeMultiWriter
		switch w.rand.IntN(4) {
		case 0:
			group.Volumes[0].AccessMode, group.Volumes[0].ReadOnly = api.MultiNodeReaderOnly, true
		case 1:
			group.Volumes[0].AccessMode = api.SingleNodeMultiWriter
		}
	}
	if w.more != nil && w.rand.IntN(3) == 0 {
		group.Volumes = append(group.Volumes, api.VolumeRequest{
			Name: "scratch", Type: api.VolumeTypeCSI, AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem,
			Ephemeral: &api.EphemeralVolume{PluginID: cluster.PluginID, CapacityMin: 1 << 20},
		})
	}
	if w.rand.IntN(2) == 0 { // what goes on is to go on through a change of this
		attempts := w.rand.IntN(4)
		group.Restart = &api.RestartPolicy{Attempts: &attempts}
	}
	switch w.rand.IntN(4) {
	case 0:
		group.Tasks[0].Config = map[string]any{"run": "7s", "exit": 1}
	case 1:
		spec.Type = api.JobBatch
		group.Tasks[0].Config = map[string]any{"run": "11s"}
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
	w.stopped, w.died = !w.stopped, nil
}

// doom lets the server die with one of its next entries: between any two steps
// of whatever is going on.
func (w *world) doom() {
	if !w.stopped {
		w.died = w.Doom(1 + w.rand.IntN(16))
	}
}

// plugin kills the driver of a node, which may come back at once.
func (w *world) plugin(node *cluster.Node) {
	node.StopDriver()
	if w.rand.IntN(3) > 0 {
		node.StartDriver()
	}
}

// move ends the controller service on its node, and begins it on another one.
func (w *world) move() {
	if w.split {
		w.Nodes[w.home].StopController()
		w.home = w.rand.IntN(len(w.Nodes))
		w.settleController()
	}
}

// drain empties a node, in no time, in some or in as much as it takes; or calls
// that off, or says whether the node gets anything.
func (w *world) drain(ctx context.Context, id api.NodeID) {
	switch w.rand.IntN(6) {
	case 0:
		_, _ = w.Client.DrainNode(ctx, id, api.DrainRequest{Force: true}, 0)
	case 1:
		_, _ = w.Client.DrainNode(ctx, id, api.DrainRequest{Deadline: api.Duration(20 * time.Second)}, 0)
	case 2:
		_, _ = w.Client.DrainNode(ctx, id, api.DrainRequest{NoDeadline: true, IgnoreSystem: new(w.rand.IntN(2) == 0)}, 0)
	case 3:
		_, _ = w.Client.StopDrain(ctx, id, w.rand.IntN(3) == 0, 0)
	default:
		_, _ = w.Client.SetEligibility(ctx, id, w.rand.IntN(4) > 0, 0)
	}
}

// refill ends all drains, and lets all nodes get something again.
func (w *world) refill() {
	for _, n := range w.Nodes {
		w.await("node "+string(n.ID())+" is eligible", func() []string {
			_, err := w.Client.StopDrain(context.Background(), n.ID(), false, 0)
			if err == nil || api.CodeOf(err) == api.CodeNotFound {
				_, err = w.Client.SetEligibility(context.Background(), n.ID(), true, 0)
			}
			if err != nil && api.CodeOf(err) != api.CodeNotFound {
				return []string{err.Error()}
			}
			return nil
		})
	}
}

func (w *world) settleController() {
	if w.split {
		w.Nodes[w.home].StartController()
	}
}

// fault makes the next calls of some kind go wrong.
func (w *world) fault() {
	methods := []string{
		"CreateVolume", "DeleteVolume", "ControllerPublishVolume", "ControllerUnpublishVolume",
		"NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume", "Probe", "NodeGetInfo",
	}
	if w.more != nil && w.rand.IntN(3) == 0 {
		w.more.fault()
		return
	}
	codes := []string{
		"CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
		"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
		"DATA_LOSS", "UNAUTHENTICATED",
	}
	method := methods[w.rand.IntN(len(methods))]
	code := codes[w.rand.IntN(len(codes))]
	after := code
	if method == "CreateVolume" {
		// Who makes a volume and says for good that he has not, is asked for it
		// elsewhere, and has two then.
		open := []string{"CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
		after = open[w.rand.IntN(len(open))]
	}
	actions := []csitest.Action{
		csitest.Fail(code, "scripted"), csitest.FailAfter(after, "scripted"), csitest.Hang(), csitest.HangAfter(),
		csitest.Drop(), csitest.DropAfter(), csitest.Delay(10 * time.Second),
	}
	// What the provider has attached and says it has not, takes another's place
	// on a node, and no one can know why.
	if effect := method != "Probe" && method != "NodeGetInfo"; effect && (!w.limited || strings.HasPrefix(method, "Node")) {
		actions = append(actions, csitest.Lie())
	}
	rule := csitest.Rule{Method: method, Times: 1 + w.rand.IntN(3), Do: actions[w.rand.IntN(len(actions))]}
	w.t.Logf("%s: %+v", time.Now().Format(time.TimeOnly), rule)
	w.faults = append(w.faults, w.Backend.Script(rule))
}

// heal ends all that is broken, and waits until all that was begun is done.
func (w *world) heal() {
	for _, f := range w.faults {
		f.Release()
	}
	if !w.stopped {
		w.server() // one that is to die is none that will stay
	}
	w.server()
	w.settleController()
	for _, n := range w.Nodes {
		n.Mend()
		n.StartDriver()
		n.Start()
	}
	w.refill()
	w.AwaitRest(patience)
}

// patience is longer than the longest backoff and the longest call.
const patience = 30 * time.Minute

// settle ends everything as a user would, and checks that nothing is left.
func (w *world) settle() {
	ctx := context.Background()
	ns := api.DefaultNamespace
	w.Validate()
	w.more.settle(ctx)
	for _, name := range w.names {
		if _, err := w.Client.StopJob(ctx, ns, api.JobID("job-"+name), 0); err != nil && api.CodeOf(err) != api.CodeNotFound {
			w.t.Errorf("stop job of %s: %v", name, err)
		}
	}
	w.await("jobs stopped", func() (left []string) {
		attachments, _, err := w.Client.Attachments(ctx, client.Query{})
		if err != nil {
			return []string{err.Error()}
		}
		for _, a := range attachments {
			if a.Holds() && !w.deceived(a.VolumeID) {
				left = append(left, fmt.Sprintf("volume %s is held: %s", a.VolumeID, a.Status.State))
			}
		}
		return left
	})
	for _, name := range w.names {
		if w.deceived(api.VolumeID(name)) {
			continue
		}
		if err := w.Client.DeleteVolume(ctx, ns, api.VolumeID(name), 0); err != nil && api.CodeOf(err) != api.CodeNotFound {
			w.t.Errorf("delete %s: %v", name, err)
		}
	}
	w.await("volumes deleted", func() (left []string) {
		volumes, _, err := w.Client.Volumes(ctx, client.Query{})
		if err != nil {
			return []string{err.Error()}
		}
		for _, v := range volumes {
			if !w.deceived(v.ID) {
				left = append(left, fmt.Sprintf("volume %s is %s: %s", v.ID, v.Status.State, v.Status.Reason))
			}
		}
		for _, v := range w.Backend.Volumes() {
			if !w.Backend.Deceived()[v.ID] {
				left = append(left, fmt.Sprintf("the provider has %+v", v))
			}
		}
		return left
	})
	w.await("nothing waits", func() (left []string) {
		status, err := w.Client.Status(ctx)
		if err != nil {
			return []string{err.Error()}
		}
		for _, wait := range status.Waits {
			if !slices.ContainsFunc(w.names, func(name string) bool {
				return w.deceived(api.VolumeID(name)) && strings.Contains(wait.Subject+wait.Reason, name)
			}) {
				left = append(left, fmt.Sprintf("%s waits: %s", wait.Subject, wait.Reason))
			}
		}
		return left
	})
	w.AwaitRest(patience)
	w.Validate()
}

// deceived reports whether the driver told of a volume what was not so. What
// becomes of it is between its owner and the provider.
func (w *world) deceived(id api.VolumeID) bool {
	vol, _, err := w.Client.Volume(context.Background(), api.DefaultNamespace, id, client.Query{})
	return err == nil && w.Backend.Deceived()[vol.Status.ExternalID]
}

// await waits until nothing is left of something.
func (w *world) await(what string, left func() []string) {
	w.t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Second) {
		rest := left()
		if len(rest) == 0 {
			return
		}
		if time.Since(began) > patience {
			w.t.Fatalf("%s: not within %s:\n%s", what, patience, strings.Join(rest, "\n"))
		}
	}
}
