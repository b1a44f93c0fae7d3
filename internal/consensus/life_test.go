package consensus_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

// life makes up what may happen in a cluster: random commands that mostly fit
// the state, in forms that are the same only after they have been in the log,
// such as an empty map for none.
type life struct{ rnd *rand.Rand }

// plan is one to three commands. Some do not fit.
func (l life) plan(v state.View, now time.Time) command.Plan {
	var p command.Plan
	for range 1 + l.rnd.IntN(10)/4 {
		if c := l.command(v, now); c != nil {
			p = append(p, c)
		}
	}
	return p
}

func (l life) command(v state.View, now time.Time) command.Command {
	switch l.rnd.IntN(16) {
	case 0:
		return l.registration(v)
	case 1, 2, 3:
		return l.report(v, now)
	case 4:
		return &command.ApplyVolume{
			Namespace: api.DefaultNamespace, ID: l.volumeID(), UID: fmt.Sprint(l.rnd.Uint64()), Spec: l.volumeSpec(),
		}
	case 5:
		return l.open(v)
	case 6:
		return l.assign(v)
	case 7:
		if l.rnd.IntN(3) > 0 {
			return l.place(v)
		}
		return &command.DeleteVolume{Namespace: api.DefaultNamespace, ID: l.volumeID()}
	case 8, 9:
		return l.job(v)
	case 10, 11:
		return l.place(v)
	case 12:
		return l.advance(v)
	case 13:
		return l.forget(v)
	case 14:
		return l.collect(v, now)
	default:
		return l.end(v)
	}
}

func (l life) volumeID() api.VolumeID { return volume(l.rnd.Int64N(3)).ID }

func (l life) nodeID() api.NodeID { return register(l.rnd.IntN(3)).NodeID }

func (l life) jobID() api.JobID { return api.JobID(fmt.Sprintf("job-%d", l.rnd.IntN(4))) }

// maybe is one of several.
func maybe[T any](l life, all ...T) T { return all[l.rnd.IntN(len(all))] }

// some is one of what a query yields, or nil.
func some[T any](l life, all iter.Seq[*T]) *T {
	list := slices.Collect(all)
	if len(list) == 0 {
		return nil
	}
	return maybe(l, list...)
}

func (l life) texts() map[string]string {
	return maybe(l, nil, map[string]string{}, map[string]string{"key": "value"})
}

func (l life) volumeSpec() api.VolumeSpec {
	return api.VolumeSpec{
		Name:            maybe(l, "", "data"),
		PluginID:        "local",
		CapacityMin:     maybe[int64](l, 0, 1<<30),
		Capabilities:    []api.Capability{{AccessMode: api.MultiNodeMultiWriter, AttachmentMode: api.FileSystem}},
		MountOptions:    maybe(l, nil, &api.MountOptions{}, &api.MountOptions{MountFlags: []string{}}, &api.MountOptions{FSType: "ext4"}),
		Parameters:      l.texts(),
		TopologyRequest: maybe(l, nil, &api.TopologyRequest{}, &api.TopologyRequest{Required: []api.Topology{}}),
	}
}

func (l life) registration(v state.View) command.Command {
	n := l.rnd.IntN(3)
	c := register(n)
	c.Session = fmt.Sprint(l.rnd.Uint64())
	c.Drivers = maybe(l, nil, map[string]api.Driver{}, map[string]api.Driver{"exec": {Healthy: true}})
	if id := v.Identity(c.NodeID); id != nil && l.rnd.IntN(8) > 0 {
		c.Known = []string{id.Session}
	}
	return c
}

// report is what an agent may say about its node.
func (l life) report(v state.View, now time.Time) command.Command {
	node := l.nodeID()
	id := v.Identity(node)
	if id == nil {
		return l.registration(v)
	}
	r := api.Report{NodeID: node, Session: id.Session, Epoch: id.Epoch, Sequence: id.Sequence + uint64(l.rnd.IntN(4))}
	r.Sequence = max(1, r.Sequence)
	r.Facts.Undone = maybe(l, 0, id.Epoch)
	r.Facts.Instances = []api.InstanceFact{{PluginID: "local", InstanceStatus: api.InstanceStatus{
		Type: api.InstanceMonolith, Healthy: l.rnd.IntN(4) > 0, Driver: "driver",
		PluginCapabilities: []string{api.CapControllerService},
		NodeCapabilities:   maybe(l, nil, []string{}),
		Topology:           maybe(l, nil, api.Topology{}),
	}}}
	for op := range v.NodeOperations(node) {
		r.Facts.Operations = append(r.Facts.Operations, api.OperationFact{
			ID: op.ID, Attempt: op.Status.Attempt, Code: maybe(l, "OK", "OK", "OK", "UNAVAILABLE", "INVALID_ARGUMENT"), Message: "so",
			Result: api.OperationResult{ExternalID: string(op.VolumeID), Context: l.texts(), PublishContext: l.texts()},
		})
	}
	// Times as an agent's process has them, not as JSON has them.
	problem := &api.Problem{Step: "step", Message: "so", Since: time.Now()}
	for a := range v.NodeAllocations(node) {
		status := api.AllocStatus{
			State:   maybe(l, api.AllocPending, api.AllocRunning, api.AllocRunning, api.AllocComplete, api.AllocFailed),
			Problem: maybe(l, nil, problem),
			Tasks:   maybe(l, nil, map[string]api.TaskStatus{}, map[string]api.TaskStatus{"task": {State: api.TaskRunning, Started: now.Local()}}),
		}
		r.Facts.Allocations = append(r.Facts.Allocations, api.AllocFact{ID: a.ID, Status: status})
		for at := range v.AllocAttachments(a.ID) {
			r.Facts.Attachments = append(r.Facts.Attachments, api.AttachmentFact{
				AllocID: a.ID, Name: at.Name, State: maybe(l, "", api.NodePublished, api.NodeDetached), Problem: maybe(l, nil, problem),
			})
			r.Facts.Publications = append(r.Facts.Publications, api.PublicationFact{
				Namespace: at.Namespace, VolumeID: at.VolumeID, Staged: at.Wanted(),
			})
		}
	}
	return &command.ReportFacts{Report: r}
}

// open opens an operation on a volume that waits for one.
func (l life) open(v state.View) command.Command {
	vol := some(l, v.UnsettledVolumes())
	if vol == nil {
		return nil
	}
	c := take(vol)
	if vol.Desired == api.Absent {
		if vol.Status.ExternalID == "" {
			return &command.ForgetVolume{Namespace: vol.Namespace, ID: vol.ID, Version: vol.Version}
		}
		c.OperationKind = api.OperationDelete
		c.Request = api.OperationRequest{Delete: &api.DeleteRequest{ExternalID: vol.Status.ExternalID}}
	}
	return c
}

func (l life) assign(v state.View) command.Command {
	op := some(l, v.WaitingOperations())
	if op == nil {
		return nil
	}
	if l.rnd.IntN(4) == 0 {
		return &command.CancelOperation{ID: op.ID, Version: op.Version, Reason: "so"}
	}
	return &command.AssignOperation{ID: op.ID, Version: op.Version, Executor: l.nodeID(), Limit: api.Duration(time.Minute)}
}

func (l life) job(v state.View) command.Command {
	id := l.jobID()
	old := v.Job(api.DefaultNamespace, id)
	switch {
	case old != nil && l.rnd.IntN(20) == 0:
		return &command.StopJob{Namespace: old.Namespace, ID: id}
	case old != nil && l.rnd.IntN(3) == 0:
		return &command.SettleJob{Namespace: old.Namespace, ID: id, Version: old.Version}
	}
	c := job(id, l.rnd.IntN(3))
	group := &c.Spec.Groups[0]
	request := api.VolumeRequest{
		Name: "data", Type: api.VolumeTypeCSI, Source: l.volumeID(),
		AccessMode: api.MultiNodeMultiWriter, AttachmentMode: api.FileSystem, MountOptions: maybe(l, nil, &api.MountOptions{}),
	}
	group.Volumes = maybe(l, nil, []api.VolumeRequest{}, []api.VolumeRequest{request}, []api.VolumeRequest{request})
	group.Count = 1 + l.rnd.IntN(2)
	group.Tasks[0].Env = l.texts()
	group.Tasks[0].Config = maybe(l, nil, map[string]any{}, map[string]any{"port": 80, "args": []string{"a"}})
	return c
}

func (l life) place(v state.View) command.Command {
	j, n := some(l, v.Jobs("")), some(l, v.Nodes())
	if j == nil || n == nil {
		return nil
	}
	c := &command.PlaceAllocation{
		Namespace: j.Namespace, JobID: j.ID, JobUID: j.UID, Revision: j.Revision,
		Serial: j.Status.Serial + 1, Group: "group", Index: l.rnd.IntN(2), NodeID: n.ID, NodeEpoch: n.Status.Epoch,
	}
	for a := range v.LiveAllocations(j.UID) {
		if a.Index == c.Index {
			c.Replaces = a.ID
		}
	}
	return c
}

func (l life) advance(v state.View) command.Command {
	a := some(l, v.UnsettledAttachments())
	if a == nil {
		return nil
	}
	states := api.AttachmentStates()
	to := states[min(a.Status.State.Rank()+1+l.rnd.IntN(2), len(states)-1)]
	return &command.AdvanceAttachment{AllocID: a.AllocID, Name: a.Name, Version: a.Version, To: to, Skipped: l.rnd.IntN(2) == 0}
}

func (l life) forget(v state.View) command.Command {
	vol := some(l, v.Volumes(""))
	if vol == nil {
		return nil
	}
	for p := range v.VolumePublications(vol.Namespace, vol.ID) {
		return &command.ForgetPublication{Namespace: p.Namespace, VolumeID: p.VolumeID, NodeID: p.NodeID, Version: p.Version}
	}
	return nil
}

func (l life) collect(v state.View, now time.Time) command.Command {
	c := &command.Collect{Before: now.Add(time.Nanosecond), Allocations: []api.AllocID{}}
	for o := range v.EndedOperations() {
		c.Operations = append(c.Operations, o.ID)
	}
	if a := some(l, v.EndedAllocations()); a != nil {
		c.Allocations = append(c.Allocations, a.ID)
	}
	return c
}

// end ends something: an allocation, or a node's contact.
func (l life) end(v state.View) command.Command {
	if n := some(l, v.Nodes()); n != nil && l.rnd.IntN(2) == 0 {
		session := v.Identity(n.ID).Session
		return &command.SetNodeState{NodeID: n.ID, State: maybe(l, api.NodeReady, api.NodeReady, api.NodeDown), Session: session}
	}
	if a := some(l, v.Allocations()); a != nil {
		return &command.StopAllocation{ID: a.ID, Version: a.Version, Reason: "so"}
	}
	return nil
}
