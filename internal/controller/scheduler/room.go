package scheduler

import (
	"fmt"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// promise is what a plan has placed for a plugin in one topology.
type promise struct {
	plugin api.PluginID
	room   api.RoomID
}

// roomFor is what a plugin said of its room for a volume near a node, or nil. The
// rows of a plugin are read once in a pass, and looked for once for each request
// and node.
func (f *fleet) roomFor(w wanted, node api.NodeID) *api.Room {
	plugin := w.volume.Spec.PluginID
	byID, known := f.told[plugin]
	if !known {
		byID = map[api.RoomID]*api.Room{}
		for r := range f.v.PluginRooms(plugin) {
			byID[r.ID] = r
		}
		f.told[plugin] = byID
	}
	if len(byID) == 0 {
		return nil
	}
	return once(f.rooms, w.request, node, func() *api.Room {
		i := f.instance(plugin, node)
		if i == nil || len(i.Topology) == 0 {
			return nil
		}
		return byID[api.NewRoomID(i.Topology, w.volume.Spec.Parameters)]
	})
}

// refused is a create that was refused near a node for want of room, and keeps
// the volume from there, or nil.
func (f *fleet) refused(w wanted, node api.NodeID, now time.Time) *api.Operation {
	plugin := w.volume.Spec.PluginID
	all := f.refusals[plugin]
	if all == nil {
		all = fit.NewRefusals(f.v.Exhausted(plugin, ""), now)
		f.refusals[plugin] = all
	}
	return once(f.unmade, w.request, node, func() *api.Operation {
		i := f.instance(plugin, node)
		if i == nil || len(i.Topology) == 0 {
			return nil
		}
		return all.Of(w.volume.Spec.CapacityMin, w.volume.Spec.Parameters, i.Topology)
	})
}

// once finds what is the same for each place of a request on a node.
func once[T any](known map[*api.VolumeRequest]map[api.NodeID]T, r *api.VolumeRequest, node api.NodeID, find func() T) T {
	byNode := known[r]
	if byNode == nil {
		byNode = map[api.NodeID]T{}
		known[r] = byNode
	}
	found, ok := byNode[node]
	if !ok {
		found = find()
		byNode[node] = found
	}
	return found
}

// made is how many bytes the volumes need that are to be made near a node, by
// what they need them of.
func (f *fleet) made(requests []wanted, node api.NodeID) map[*api.Room]int64 {
	var all map[*api.Room]int64
	for _, w := range requests {
		if w.volume.Owner == "" || w.volume.Spec.CapacityMin == 0 {
			continue
		}
		if r := f.roomFor(w, node); r != nil {
			if all == nil {
				all = map[*api.Room]int64{}
			}
			all[r] += w.volume.Spec.CapacityMin
		}
	}
	return all
}

// short says that there is certainly no room for the volumes that are to be made
// near a node, by their plugin's word, or "". It counts until the word is old.
func (p *pass) short(node *api.Node, requests []wanted) string {
	for _, w := range requests {
		if w.volume.Owner == "" {
			continue
		}
		if reason := p.shortOf(p.nodes().roomFor(w, node.ID), w.volume.Spec.CapacityMin); reason != "" {
			return reason
		}
	}
	sums := p.nodes().made(requests, node.ID)
	for _, w := range requests {
		// What a volume may have at most says nothing of several.
		if r := p.nodes().roomFor(w, node.ID); r != nil && r.Maximum == 0 {
			if reason := p.shortOf(r, sums[r]); reason != "" {
				return reason
			}
		}
	}
	return ""
}

// unmade says that a plugin has refused to make such a volume near the node for
// want of room, not long ago, or "". The reason names no node and no volume: many
// nodes may have it.
func (p *pass) unmade(node *api.Node, requests []wanted) string {
	for _, w := range requests {
		if w.volume.Owner == "" {
			continue
		}
		if op := p.nodes().refused(w, node.ID, p.now); op != nil {
			until, _ := fit.NoRoom(op, p.now)
			p.wake(until)
			return fmt.Sprintf("plugin %s has refused to make such a volume there: %s", op.PluginID, op.Status.Message)
		}
	}
	return ""
}

func (p *pass) shortOf(r *api.Room, size int64) string {
	reason := fit.ShortThere(r, size, p.now)
	if reason != "" {
		p.wake(fit.RoomUntil(r))
	}
	return reason
}

// tight is 1 if there may be no room near a node beside the volumes that are
// being made for it, or that this plan has placed there, and else 0. Nobody is
// turned down for it: what becomes of those is not known.
func (p *pass) tight(node *api.Node, requests []wanted) int {
	for r, size := range p.nodes().made(requests, node.ID) {
		size += p.fleet.promised[promise{r.PluginID, r.ID}]
		for pub := range p.v.Quiet().NodePublications(node.ID, r.PluginID) {
			vol := p.v.Quiet().Volume(pub.Namespace, pub.VolumeID)
			if vol != nil && vol.Owner != "" && vol.Status.State == api.VolumeCreating {
				size += vol.Spec.CapacityMin
			}
		}
		if r.Maximum == 0 && fit.ShortThere(r, size, p.now) != "" {
			return 1
		}
	}
	return 0
}

// promise notes the volumes that are to be made for a placement of this plan.
func (f *fleet) promise(requests []wanted, node api.NodeID) {
	for r, size := range f.made(requests, node) {
		f.promised[promise{r.PluginID, r.ID}] += size
	}
}
