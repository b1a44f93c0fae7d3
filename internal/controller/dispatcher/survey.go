package dispatcher

import (
	"fmt"
	"slices"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// survey is what one look at a plugin shows: who can make its calls, and which
// are under way.
type survey struct {
	v      state.View
	now    time.Time
	plugin fit.Plugin
	bounds bounds

	calls   []*api.Operation // under way, by id
	total   count
	nodes   map[api.NodeID]count
	targets map[api.NodeID]count // nodes that volumes are attached to and detached from
	volumes map[volume]int
	taken   map[volume]*api.Operation // the last that is assigned in this pass
	ready   map[api.NodeID]bool       // nodes that instances run on, and whether they are ready
	leaving map[api.NodeID]bool       // those of them that are to get nothing new, if there are others
}

type volume struct {
	ns api.NamespaceID
	id api.VolumeID
}

func volumeOf(op *api.Operation) volume { return volume{op.Namespace, op.VolumeID} }

func (c Controller) survey(v state.View, now time.Time, plugin api.PluginID) *survey {
	instances := slices.Collect(v.Instances(plugin))
	s := &survey{
		v: v, now: now, bounds: c.limits.of(plugin), plugin: fit.NewPlugin(plugin, instances),
		nodes: map[api.NodeID]count{}, targets: map[api.NodeID]count{}, volumes: map[volume]int{}, taken: map[volume]*api.Operation{}, ready: map[api.NodeID]bool{}, leaving: map[api.NodeID]bool{},
	}
	for _, i := range instances {
		if _, seen := s.ready[i.NodeID]; seen {
			continue
		}
		n := v.Node(i.NodeID)
		s.ready[i.NodeID] = n != nil && n.Takes()
		s.leaving[i.NodeID] = n != nil && !n.Eligible()
	}
	for op := range v.Calls(plugin) {
		s.calls = append(s.calls, op)
		s.note(op, op.Status.Executor, s.slow(op))
	}
	return s
}

// slowFrom is when a call gives its slot back.
func (s *survey) slowFrom(op *api.Operation) time.Time { return op.Status.Assigned.Add(s.bounds.slow) }

func (s *survey) slow(op *api.Operation) bool { return !s.slowFrom(op).After(s.now) }

func (s *survey) note(op *api.Operation, node api.NodeID, slow bool) {
	s.total = s.total.and(slow)
	s.nodes[node] = s.nodes[node].and(slow)
	if target := target(op); target != "" {
		s.targets[target] = s.targets[target].and(slow)
	}
	if !slow {
		s.volumes[volumeOf(op)]++
	}
}

// target is the node that an operation's call attaches a volume to or detaches
// one from, if it does.
func target(op *api.Operation) api.NodeID {
	if op.Kind == api.OperationPublish || op.Kind == api.OperationUnpublish {
		return op.NodeID
	}
	return ""
}

// take notes a call that is assigned now.
func (s *survey) take(op *api.Operation, node api.NodeID) {
	s.note(op, node, false)
	if op.Kind != api.OperationDeleteSnapshot {
		s.taken[volumeOf(op)] = op
	}
}

// blocked says which other call for the same volume is in the way of an
// operation's: one that is under way, or one that is assigned in this pass.
func (s *survey) blocked(op *api.Operation) string {
	if op.Kind == api.OperationDeleteSnapshot {
		return "" // it is for no volume
	}
	if other := s.taken[volumeOf(op)]; other != nil && (alone(op) || alone(other)) {
		return fmt.Sprintf("waits for operation %s", other.ID)
	}
	if command.Blocked(s.v.Quiet(), op) == "" {
		return ""
	}
	return command.Blocked(s.v, op) // once more, to be woken by its end
}

// alone reports whether an operation's call is made while there is no other for
// its volume.
func alone(op *api.Operation) bool { return op.Kind.Subject() != api.SubjectPublication }

// full reports whether the plugin gets no more calls now.
func (s *survey) full() bool { return s.total.taken(s.bounds.overdue) >= s.bounds.max }

func (s *survey) nodeFull(id api.NodeID) bool {
	return s.nodes[id].taken(s.bounds.nodeOverdue) >= s.bounds.node
}

// targetFull reports whether as many volumes as may be are being attached to the
// operation's node, and detached from it.
func (s *survey) targetFull(op *api.Operation) bool {
	node := target(op)
	return node != "" && s.targets[node].taken(s.bounds.targetOverdue) >= s.bounds.target
}

// anyNode reports whether an agent can make another call.
func (s *survey) anyNode() bool {
	for id, ready := range s.ready {
		if ready && !s.nodeFull(id) {
			return true
		}
	}
	return false
}

// place chooses the node whose agent makes the call of an operation, or says
// why none can now.
func (s *survey) place(op *api.Operation) (api.NodeID, string) {
	nodes, reason := s.executors(op)
	if len(nodes) == 0 {
		return "", reason
	}
	if reason := s.blocked(op); reason != "" {
		return "", reason
	}
	if s.volumes[volumeOf(op)] >= s.bounds.volume && s.bounds.max > 1 {
		return "", fmt.Sprintf("waits for its turn: volume %s has %s under way, half of those that plugin %s gets at once (max_calls = %d)",
			op.VolumeID, calls(s.volumes[volumeOf(op)]), op.PluginID, s.bounds.max)
	}
	if s.targetFull(op) {
		return "", s.targetReason(op.NodeID)
	}
	free := slices.DeleteFunc(slices.Clone(nodes), s.nodeFull)
	if len(free) == 0 {
		return "", s.nodeReason(nodes)
	}
	// A machine that is to be taken down should not have calls under way.
	if stay := slices.DeleteFunc(slices.Clone(free), func(id api.NodeID) bool { return s.leaving[id] }); len(stay) > 0 {
		free = stay
	}
	return free[fit.Choose(op.Name, len(free))], ""
}

// executors are the nodes whose agents can make the call. A call to the node's
// own plugin only that node can make.
func (s *survey) executors(op *api.Operation) ([]api.NodeID, string) {
	if nodes := s.makers(op); len(nodes) > 0 {
		return nodes, ""
	}
	if op.Kind != api.OperationNodeExpand {
		nodes, reason := s.plugin.Executors(s.near(op), op.NodeID, func(id api.NodeID) bool { return s.ready[id] })
		if op.Kind == api.OperationSnapshot && len(nodes) > 0 && !s.knows(nodes, s.near(op)) {
			return nil, fmt.Sprintf("no node from which volume %s can be reached has a healthy controller instance of plugin %s that is ready", op.VolumeID, op.PluginID)
		}
		return nodes, reason
	}
	i := fit.NodeInstance(slices.Collect(s.v.NodePlugin(op.NodeID, op.PluginID)))
	switch {
	case i == nil:
		return nil, fmt.Sprintf("node %s does not run plugin %s", op.NodeID, op.PluginID)
	case !s.ready[op.NodeID]:
		return nil, fmt.Sprintf("node %s is down", op.NodeID)
	case !i.Healthy:
		return nil, fmt.Sprintf("plugin %s on node %s is not healthy: %s", op.PluginID, op.NodeID, i.Reason)
	}
	return []api.NodeID{op.NodeID}, ""
}

// makers are the nodes by whose controllers a volume is made where it is wanted
// first, if there are controllers that serve what is near them. While nobody
// knows whether an attempt had an effect, it is repeated where it was made: the
// others would make the volume once more.
func (s *survey) makers(op *api.Operation) []api.NodeID {
	r := op.Request.Create
	if r == nil {
		return nil
	}
	var order []api.Topology
	if op.Status.Uncertain {
		order = append(order, s.plugin.TopologyOf(op.Status.Executor))
	}
	if r.TopologyRequest != nil {
		order = append(order, r.TopologyRequest.Preferred...)
	}
	for _, t := range order {
		if nodes := s.plugin.Near(t, func(id api.NodeID) bool { return s.ready[id] }); len(nodes) > 0 {
			return nodes
		}
	}
	return nil
}

// knows reports whether the controllers on some nodes know the volumes of a
// place. Where controllers run on the nodes that reach the place, others may
// not, and their NOT_FOUND would be an end.
func (s *survey) knows(nodes []api.NodeID, near []api.Topology) bool {
	local := false
	for i := range s.v.Instances(s.plugin.ID) {
		if len(near) == 0 || !i.ServesController() || !i.ServesNode() || !fit.Reachable(near, i.Topology) {
			continue
		}
		if slices.Contains(nodes, i.NodeID) {
			return true
		}
		local = true
	}
	return !local
}

// near is where the operation's volume is, or is to be.
func (s *survey) near(op *api.Operation) []api.Topology {
	if r := op.Request.Create; r != nil && r.TopologyRequest != nil {
		return r.TopologyRequest.Required
	}
	if op.SnapshotID != "" {
		if snap := s.v.Quiet().Snapshot(op.Namespace, op.SnapshotID); snap != nil {
			return snap.Status.AccessibleTopology
		}
	}
	if vol := s.v.Quiet().Volume(op.Namespace, op.VolumeID); vol != nil {
		return vol.Status.AccessibleTopology
	}
	return nil
}

// nextSlot is when the next of the calls under way gives its slot back, if it
// has not ended by then; zero if none is to.
func (s *survey) nextSlot() (next time.Time) {
	for _, op := range s.calls {
		if from := s.slowFrom(op); from.After(s.now) && (next.IsZero() || from.Before(next)) {
			next = from
		}
	}
	return next
}

// longest is the call among some that has been under way for longest, or nil.
func (s *survey) longest(of func(*api.Operation) bool) (first *api.Operation) {
	for _, op := range s.calls {
		if of(op) && (first == nil || op.Status.Assigned.Before(first.Status.Assigned)) {
			first = op
		}
	}
	return first
}

func (s *survey) fullReason() string {
	return fmt.Sprintf("waits for its turn: plugin %s gets %s at once (max_calls = %d)%s",
		s.plugin.ID, calls(s.bounds.max), s.bounds.max, holder(s.longest(func(*api.Operation) bool { return true })))
}

func (s *survey) nodeReason(nodes []api.NodeID) string {
	who := "the nodes that can make it make"
	if len(nodes) == 1 {
		who = "node " + string(nodes[0]) + ", which is to make it, makes"
	}
	return fmt.Sprintf("waits for its turn: %s %s to plugin %s at once (max_calls_per_node = %d)%s", who, calls(s.bounds.node), s.plugin.ID, s.bounds.node,
		holder(s.longest(func(op *api.Operation) bool { return slices.Contains(nodes, op.Status.Executor) })))
}

func (s *survey) targetReason(node api.NodeID) string {
	return fmt.Sprintf("waits for its turn: plugin %s gets %s at once to attach to node %s or detach from it (max_calls_per_target = %d)%s",
		s.plugin.ID, calls(s.bounds.target), node, s.bounds.target, holder(s.longest(func(op *api.Operation) bool { return target(op) == node })))
}

func calls(n int) string {
	if n == 1 {
		return "one call"
	}
	return fmt.Sprintf("%d calls", n)
}

// holder says who has had a slot for longest.
func holder(op *api.Operation) string {
	if op == nil {
		return ""
	}
	return fmt.Sprintf("; operation %s on node %s has been under way since %s, until %s at the latest", op.ID, op.Status.Executor,
		op.Status.Assigned.UTC().Format(time.RFC3339), op.Status.Deadline.UTC().Format(time.RFC3339))
}
