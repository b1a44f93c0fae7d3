package httpapi

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
	"github.com/berth-dev/berth/internal/state"
)

func nodes() listing[*api.Node] {
	return listing[*api.Node]{modified: state.View.NodesIndex, rows: byID(state.Nodes())}
}

func (h *Handler) getNode(r *request) (any, error) {
	id := api.NodeID(r.PathValue("id"))
	pace := time.Duration(0)
	if n := h.Log.View().Node(id); n != nil && n.Spec.Drain != nil {
		pace = drainPace
	}
	return h.blockPaced(r, pace, func(v state.View) (any, uint64, error) {
		n := v.Node(id)
		if n == nil {
			return nil, 0, noSuch("node", string(id), "")
		}
		q := v.Quiet()
		if n.Spec.Drain == nil {
			return h.nodeInfo(v, n), max(q.NodesIndex(), q.InstancesIndex(), q.AllocationsIndex(), q.PublicationsIndex()), nil
		}
		// Why a drain waits may rest on nearly anything: whole tables are watched,
		// instead of all that is read for it.
		return h.nodeInfo(q, n), max(v.JobsIndex(), v.AllocationsIndex(), explanation(v)), nil
	})
}

// drainPace is how often who watches a drain is told of it: what it waits for is
// asked of each job of the node.
const drainPace = 250 * time.Millisecond

func (h *Handler) nodeInfo(v state.View, n *api.Node) api.NodeInfo {
	return api.NodeInfo{
		Node: n, Instances: collect(v.NodeInstances(n.ID)), Allocations: collect(v.NodeAllocations(n.ID)),
		Publications: collect(v.NodePublications(n.ID, "")), Waits: h.Explain.Node(v, n),
	}
}

// writeNode proposes a change of a node, and answers how the node is then.
func (h *Handler) writeNode(r *request, id api.NodeID, c command.Command) (any, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if _, err := h.propose(r, c); err != nil {
		return nil, err
	}
	v := h.Log.View()
	n := v.Node(id)
	if n == nil {
		return nil, noSuch("node", string(id), "")
	}
	return h.nodeInfo(v, n), nil
}

// drainNode has a node emptied.
func (h *Handler) drainNode(r *request) (any, error) {
	var ask api.DrainRequest
	if err := r.decode(&ask); err != nil {
		return nil, err
	}
	if err := ask.Validate(); err != nil {
		return nil, err
	}
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	by, err := r.user()
	if err != nil {
		return nil, err
	}
	id := api.NodeID(r.PathValue("id"))
	drain := &command.DrainNode{
		NodeID: id, Within: ask.Deadline, Unbounded: ask.NoDeadline, IgnoreSystem: ask.IgnoreSystem, By: cmp.Or(ask.By, by), Reason: ask.Reason, Version: version,
	}
	if ask.Deadline == 0 && !ask.Force && !ask.NoDeadline {
		drain.Within, drain.KeepDeadline = api.DefaultDrain, true
	}
	return h.writeNode(r, id, drain)
}

// stopDrain calls a drain off.
func (h *Handler) stopDrain(r *request) (any, error) {
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	keep, err := r.flag("ineligible")
	if err != nil {
		return nil, err
	}
	by, err := r.user()
	if err != nil {
		return nil, err
	}
	id := api.NodeID(r.PathValue("id"))
	return h.writeNode(r, id, &command.StopDrain{NodeID: id, KeepIneligible: keep, Version: version, By: by})
}

// setEligibility says whether a node gets new allocations.
func (h *Handler) setEligibility(r *request) (any, error) {
	var ask api.EligibilityRequest
	if err := r.decode(&ask); err != nil {
		return nil, err
	}
	if err := ask.Validate(); err != nil {
		return nil, err
	}
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	by, err := r.user()
	if err != nil {
		return nil, err
	}
	id := api.NodeID(r.PathValue("id"))
	return h.writeNode(r, id, &command.SetEligibility{NodeID: id, Eligible: *ask.Eligible, Version: version, By: by})
}

// fenceNode takes an operator's word that a node can write to nothing any more.
// The answer says what is left of it: all that it ran is lost.
func (h *Handler) fenceNode(r *request) (any, error) {
	var ask api.FenceRequest
	if err := r.decode(&ask); err != nil {
		return nil, err
	}
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	id := api.NodeID(r.PathValue("id"))
	fence := &command.FenceNode{
		NodeID: id, Force: ask.Force,
		Evidence: api.Evidence{Kind: api.EvidenceOperator, By: ask.By, Reason: ask.Reason},
	}
	return h.writeNode(r, id, fence)
}

// forgetNode removes a node that is gone.
func (h *Handler) forgetNode(r *request) (any, error) {
	version, err := r.number("version")
	if err != nil {
		return nil, err
	}
	if err := h.notRecovering(); err != nil {
		return nil, err
	}
	forget := &command.ForgetNode{NodeID: api.NodeID(r.PathValue("id")), Version: version}
	if err := forget.Validate(); err != nil {
		return nil, noSuch("node", r.PathValue("id"), "")
	}
	_, err = h.propose(r, forget)
	return nil, err
}

func instances() listing[*api.Instance] {
	return listing[*api.Instance]{modified: state.View.InstancesIndex, rows: byID(state.Instances())}
}

// plugins are listed without their instances, which each says something about.
func plugins() listing[*api.Plugin] {
	return listing[*api.Plugin]{modified: state.View.InstancesIndex, rows: func(v state.View, s scope) iter.Seq2[state.Key, *api.Plugin] {
		return func(yield func(state.Key, *api.Plugin) bool) {
			table, lower := state.Instances(), state.Key(s.prefix)
			if bytes.Compare(lower, s.from) < 0 {
				lower = s.from
			}
			for {
				id, found := firstPart(v, table, lower)
				if !found || !strings.HasPrefix(id, s.prefix) {
					return
				}
				p := plugin(api.PluginID(id), collect(v.Instances(api.PluginID(id))))
				p.Instances = nil
				if !yield(state.Parts(id), p) {
					return
				}
				lower = after(id)
			}
		}
	}}
}

func (h *Handler) getPlugin(r *request) (any, error) {
	id := api.PluginID(r.PathValue("id"))
	return h.block(r, func(v state.View) (any, uint64, error) {
		instances := collect(v.Instances(id))
		if id == "" || len(instances) == 0 {
			return nil, 0, noSuch("plugin", string(id), "")
		}
		return plugin(id, instances), v.Quiet().InstancesIndex(), nil
	})
}

// plugin computes a plugin from its instances.
func plugin(id api.PluginID, instances []*api.Instance) *api.Plugin {
	p := &api.Plugin{ID: id, Instances: instances}
	for _, i := range instances {
		if i.Driver != "" {
			p.Driver = i.Driver
		}
		if i.VendorVersion != "" && !slices.Contains(p.VendorVersions, i.VendorVersion) {
			p.VendorVersions = append(p.VendorVersions, i.VendorVersion)
		}
		if i.ServesController() {
			p.ControllersExpected++
			p.ControllersHealthy += one(i.Healthy)
		}
		if i.ServesNode() {
			p.NodesExpected++
			p.NodesHealthy += one(i.Healthy)
		}
	}
	return p
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
