package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/api/client"
	"github.com/berth-dev/berth/internal/agent/csi/csitest"
	"github.com/berth-dev/berth/test/cluster"
)

// more is what every other seed does beside: volumes that change, snapshots,
// families, detachments by hand, and nodes that are fenced and forgotten.
type more struct {
	*world
	options csitest.Options
	size    map[string]int64
	iops    map[string]int
	known   map[*cluster.Node]api.NodeID
}

// moreKinds is how many kinds of steps there are.
const moreKinds = 10

// family is the volume of which each place of a group has its own.
const family = "f"

func newMore(w *world, o *csitest.Options) *more {
	r := w.rand
	o.Expand, o.NodeExpand, o.Offline, o.Modify = r.IntN(3) > 0, r.IntN(2) > 0, r.IntN(3) == 0, r.IntN(2) > 0
	o.Largest = 4 << 20
	o.Snapshot, o.SnapshotWork, o.SnapshotsDepend = true, r.IntN(3), r.IntN(2) > 0
	o.GetVolume = r.IntN(2) > 0
	for i := range 3 {
		w.names = append(w.names, fmt.Sprintf("%s[%d]", family, i))
	}
	return &more{world: w, options: *o, size: map[string]int64{}, iops: map[string]int{}, known: map[*cluster.Node]api.NodeID{}}
}

// meet notes the ids of the nodes whose agents run.
func (m *more) meet() {
	for _, n := range m.Nodes {
		if id := n.ID(); id != "" {
			m.known[n] = id
		}
	}
}

// shape is what was wished for a volume so far.
func (m *more) shape(spec *api.VolumeSpec, name string) {
	if m == nil {
		return
	}
	spec.CapacityMin = max(spec.CapacityMin, m.size[name])
	if n := m.iops[name]; n > 0 {
		spec.MutableParameters = map[string]string{"iops": strconv.Itoa(n)}
	}
}

// step does one thing.
func (m *more) step(ctx context.Context, kind int, name string, node *cluster.Node) {
	ns, vol := api.DefaultNamespace, api.VolumeID(name)
	snap := api.SnapshotID(fmt.Sprintf("s%d", m.rand.IntN(3)))
	switch kind {
	case 0, 1:
		m.size[name] = min(m.options.Largest<<1, max(m.size[name], 1<<20)<<1) // the last is refused
		_, _ = m.Client.ApplyVolume(ctx, ns, vol, m.volume(name), 0)
	case 2:
		if m.options.Modify {
			m.iops[name]++
			_, _ = m.Client.ApplyVolume(ctx, ns, vol, m.volume(name), 0)
		}
	case 3, 4:
		_, _ = m.Client.CreateSnapshot(ctx, ns, snap, api.SnapshotCreation{VolumeID: vol})
	case 5:
		_ = m.Client.DeleteSnapshot(ctx, ns, snap, 0)
	case 6:
		_, _ = m.Client.DetachVolume(ctx, ns, vol, api.DetachRequest{Stop: m.rand.IntN(2) == 0})
	case 7:
		m.fence(ctx, node)
	case 8:
		_ = m.Client.ForgetNode(ctx, m.known[node], 0)
	case 9:
		_, _ = m.Client.ApplyVolume(ctx, ns, family+"[0]", cluster.VolumeSpec(), 0)
		job := cluster.JobSpec(1+m.rand.IntN(3), family)
		job.Groups[0].Volumes[0].PerAlloc = true
		_, _ = m.Client.ApplyJob(ctx, ns, "job-"+family, job, 0)
	}
}

// fence switches a machine off, and says so. It stays off until it is started.
func (m *more) fence(ctx context.Context, n *cluster.Node) {
	switchOff(n)
	n.Kill()
	_, err := m.Client.FenceNode(ctx, m.known[n], api.FenceRequest{Reason: "it is off", Force: true})
	m.t.Logf("%s: fence %s: %v", time.Now().Format(time.TimeOnly), n.Name, err)
}

// fault makes the next calls of the kinds go wrong that only these seeds make.
// A snapshot that is made and refused for good is one that nobody can know of,
// and one of which the provider says that it is gone stays.
func (m *more) fault() {
	open := []string{"CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
	closed := []string{"INVALID_ARGUMENT", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNAUTHENTICATED"}
	methods := []string{"ControllerExpandVolume", "NodeExpandVolume", "ControllerModifyVolume", "CreateSnapshot", "DeleteSnapshot"}
	method := methods[m.rand.IntN(len(methods))]
	every := slices.Concat(open, closed)
	code, after := every[m.rand.IntN(len(every))], open[m.rand.IntN(len(open))]
	actions := []csitest.Action{
		csitest.Fail(code, "scripted"), csitest.FailAfter(after, "scripted"), csitest.Hang(), csitest.HangAfter(),
		csitest.Drop(), csitest.DropAfter(), csitest.Delay(10 * time.Second),
	}
	rule := csitest.Rule{Method: method, Times: 1 + m.rand.IntN(3), Do: actions[m.rand.IntN(len(actions))]}
	m.t.Logf("%s: %+v", time.Now().Format(time.TimeOnly), rule)
	m.faults = append(m.faults, m.Backend.Script(rule))
}

// settle ends what only these seeds have.
func (m *more) settle(ctx context.Context) {
	if m == nil {
		return
	}
	ns := api.DefaultNamespace
	if _, err := m.Client.StopJob(ctx, ns, "job-"+family, 0); err != nil && api.CodeOf(err) != api.CodeNotFound {
		m.t.Errorf("stop the job of the family: %v", err)
	}
	snapshots, _, err := m.Client.Snapshots(ctx, client.Query{})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, s := range snapshots {
		if err := m.Client.DeleteSnapshot(ctx, ns, s.ID, 0); err != nil && api.CodeOf(err) != api.CodeNotFound {
			m.t.Errorf("delete snapshot %s: %v", s.ID, err)
		}
	}
	m.await("snapshots deleted", func() (left []string) {
		all, _, err := m.Client.Snapshots(ctx, client.Query{})
		if err != nil {
			return []string{err.Error()}
		}
		for _, s := range all {
			left = append(left, fmt.Sprintf("snapshot %s is %s: %s", s.ID, s.Status.State, s.Status.Reason))
		}
		for _, s := range m.Backend.SnapshotsMade() {
			left = append(left, fmt.Sprintf("the provider has %+v", s))
		}
		return left
	})
}
