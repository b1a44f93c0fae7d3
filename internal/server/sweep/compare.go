package sweep

import (
	"fmt"
	"maps"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/server/inquiry"
	"github.com/berth-dev/berth/internal/state"
)

// seen is what a plugin said at one time.
type seen struct {
	plugin api.PluginID
	// volumes are those that it told of, by its ids.
	volumes map[string]*told
	// asked are the places that listed all that they have, and failed those that
	// did not. If the plugin lists nothing, single are the volumes about which it
	// was asked one by one.
	asked, failed []inquiry.Place
	single        map[string]bool
	// nodes: it says to which nodes volumes are published.
	nodes bool
}

// told is what a plugin says of a volume.
type told struct {
	nodes     []string
	condition *api.VolumeCondition
	capacity  int64
	// origin and name are where it seems to come from.
	origin api.Origin
	name   string
}

// sees reports whether it would have been told of a volume with that id that
// can be reached from there: all places that know of such volumes were asked.
func (s *seen) sees(id string, topologies []api.Topology) bool {
	if s.single != nil {
		return s.single[id]
	}
	sees := func(p inquiry.Place) bool { return p.Sees(topologies) }
	return slices.ContainsFunc(s.asked, sees) && !slices.ContainsFunc(s.failed, sees)
}

// whole reports whether it was told of everything that the plugin has.
func (s *seen) whole() bool { return s.single == nil && len(s.asked) > 0 && len(s.failed) == 0 }

// differences are what is found, by the ids of findings.
type differences map[api.FindingID]api.Observation

func (d differences) add(o api.Observation) { d[o.ID()] = o }

// compare says where a plugin and the state differ. It is arithmetic. What is
// being changed is passed over: it may well differ, and rightly.
func compare(v state.View, s *seen) differences {
	d := differences{}
	known := map[string]bool{}
	for vol := range v.PluginVolumes(s.plugin) {
		known[vol.Status.ExternalID] = true
		if vol.Desired == api.Present && vol.Status.Operation == "" {
			compareVolume(v, s, vol, d)
		}
	}
	compareUnknown(v, s, known, d)
	return d
}

func compareVolume(v state.View, s *seen, vol *api.Volume, d differences) {
	o := api.Observation{PluginID: s.plugin, ExternalID: vol.Status.ExternalID, Namespace: vol.Namespace, VolumeID: vol.ID}
	t := s.volumes[vol.Status.ExternalID]
	if t == nil {
		if s.sees(vol.Status.ExternalID, vol.Status.AccessibleTopology) {
			o.Kind, o.Message = api.FindingVanished, "the plugin has it no more: it was deleted at the provider, or is not in reach of any of its controllers"
			d.add(o)
		}
		return
	}
	if c := t.condition; c != nil && c.Abnormal {
		o.Kind, o.Message = api.FindingAbnormal, "the plugin says: "+c.Message
		if c.Message == "" {
			o.Message = "the plugin calls it abnormal, and does not say why"
		}
		d.add(o)
	}
	if s.nodes {
		compareNodes(v, t, vol, o, d)
	}
}

// compareNodes compares where a volume is attached. A publication that has a
// row for any reason explains an attachment.
func compareNodes(v state.View, t *told, vol *api.Volume, o api.Observation, d differences) {
	explained := map[string]bool{}
	for pub := range v.VolumePublications(vol.Namespace, vol.ID) {
		node := pub.Status.ExternalNodeID
		if node == "" {
			continue
		}
		explained[node] = true
		if pub.Status.Outcome == api.OutcomePublished && pub.Status.Operation == "" && !slices.Contains(t.nodes, node) {
			o.Kind, o.ExternalNodeID, o.NodeID = api.FindingDetached, node, pub.NodeID
			o.Message = "the provider does not have it attached to the node, where it is in use: it was detached by hand, or its attachment was lost"
			d.add(o)
		}
	}
	for _, node := range t.nodes {
		if explained[node] {
			continue
		}
		o.Kind, o.ExternalNodeID, o.NodeID = api.FindingAttached, node, nodeOf(v, o.PluginID, node)
		o.Message = "the provider has it attached to a node where nothing uses it: it was attached by hand, or a detachment was lost"
		d.add(o)
	}
}

// nodeOf is the node that a plugin knows by that name, or "".
func nodeOf(v state.View, plugin api.PluginID, external string) api.NodeID {
	for i := range v.Instances(plugin) {
		if i.ExternalNodeID == external {
			return i.NodeID
		}
	}
	return ""
}

// compareUnknown finds the volumes of which something says that they are this
// cluster's, and that it does not know. That somebody else has volumes at the
// same provider is no finding.
func compareUnknown(v state.View, s *seen, known map[string]bool, d differences) {
	unknown := map[string]*told{}
	for id, t := range s.volumes {
		if !known[id] {
			unknown[id] = t
		}
	}
	for f := range v.PluginFindings(s.plugin) {
		// It stays what it was found to be, as long as the plugin has it.
		if f.Kind == api.FindingRetained && (unknown[f.ExternalID] != nil || !known[f.ExternalID] && !s.whole()) {
			d[f.ID] = f.Observation
			delete(unknown, f.ExternalID)
		}
	}
	if len(unknown) == 0 {
		return
	}
	evidence := map[string]string{}
	for op := range v.Operations() {
		if op.Kind == api.OperationDelete && op.PluginID == s.plugin && op.Request.Delete != nil {
			if op.Open() {
				delete(unknown, op.Request.Delete.ExternalID)
			}
			evidence[op.Request.Delete.ExternalID] = fmt.Sprintf("operation %s was to delete it, and ended with %s", op.ID, op.Status.Code)
		}
	}
	making := map[string]bool{}
	for vol := range v.Volumes("") {
		if vol.Spec.PluginID == s.plugin && vol.Status.ExternalID == "" {
			making[fit.CSIName(vol.UID)] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(unknown)) {
		t := unknown[id]
		why := evidence[id]
		switch {
		case making[t.name]:
			continue
		case t.origin == api.OriginOurs:
			why = "it bears the name " + t.name + ", which this cluster gave"
		case why == "":
			continue
		}
		d.add(api.Observation{Kind: api.FindingLeak, PluginID: s.plugin, ExternalID: id, Capacity: t.capacity, Nodes: t.nodes, Message: why})
	}
}

// judged reports whether a finding that is not among the differences is gone:
// the plugin told of what it is about, and nothing of that is being changed.
func judged(v state.View, s *seen, f *api.Finding) bool {
	if f.Kind.Unclaimed() {
		for range v.VolumesByExternalID(f.PluginID, f.ExternalID) {
			return true
		}
		return s.whole()
	}
	vol := v.Volume(f.Namespace, f.VolumeID)
	if vol == nil || vol.Status.ExternalID != f.ExternalID {
		return true
	}
	return vol.Status.Operation == "" && s.sees(f.ExternalID, vol.Status.AccessibleTopology)
}
