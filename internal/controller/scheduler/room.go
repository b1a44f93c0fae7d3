package scheduler

import (
	"fmt"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// promise is what a plan has placed for a plugin in one topology.
type promise struct {
	plugin api.PluginID
	room   api.RoomID
}

// roomFor is what a plugin said of its room for a volume near a node, or nil. The
// rows of a plugin are read once in a pass.
func (f *fleet) roomFor(vol *api.Volume, node api.NodeID) *api.Room {
	plugin := vol.Spec.PluginID
	i := f.instance(plugin, node)
	if i == nil || len(i.Topology) == 0 {
		return nil
	}
	byID := f.rooms[plugin]
	if byID == nil {
		byID = map[api.RoomID]*api.Room{}
		for r := range f.v.PluginRooms(plugin) {
			byID[r.ID] = r
		}
		f.rooms[plugin] = byID
	}
	if len(byID) == 0 {
		return nil
	}
	return byID[api.NewRoomID(i.Topology, vol.Spec.Parameters)]
}

// made is how many bytes the volumes need that are to be made near a node, by
// what they need them of.
func (f *fleet) made(requests []wanted, node api.NodeID) map[*api.Room]int64 {
	var all map[*api.Room]int64
	for _, w := range requests {
		if w.volume.Owner == "" || w.volume.Spec.CapacityMin == 0 {
			continue
		}
		if r := f.roomFor(w.volume, node); r != nil {
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
		if reason := p.shortOf(p.nodes().roomFor(w.volume, node.ID), w.volume.Spec.CapacityMin); reason != "" {
			return reason
		}
	}
	sums := p.nodes().made(requests, node.ID)
	for _, w := range requests {
		// What a volume may have at most says nothing of several.
		if r := p.nodes().roomFor(w.volume, node.ID); r != nil && r.Maximum == 0 {
			if reason := p.shortOf(r, sums[r]); reason != "" {
				return reason
			}
		}
	}
	return ""
}

// unmade says that a plugin has refused to make such a volume near the node for
// want of room, not long ago, or "".
func (p *pass) unmade(node *api.Node, requests []wanted) string {
	for _, w := range requests {
		i := p.fleet.instance(w.volume.Spec.PluginID, node.ID)
		if w.volume.Owner == "" || i == nil || len(i.Topology) == 0 {
			continue
		}
		r := &api.CreateRequest{CapacityMin: w.volume.Spec.CapacityMin, Parameters: w.volume.Spec.Parameters}
		for op := range p.v.Exhausted(w.volume.Spec.PluginID, "") {
			if fit.Unmade(op, r, i.Topology, p.now) {
				until, _ := fit.NoRoom(op, p.now)
				p.wake(until)
				return fmt.Sprintf("plugin %s could not make volume %s near node %s: %s", op.PluginID, op.VolumeID, node.ID, op.Status.Message)
			}
		}
	}
	return ""
}

func (p *pass) shortOf(r *api.Room, size int64) string {
	reason := fit.Short(r, size, p.now)
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
		if r.Maximum == 0 && fit.Short(r, size, p.now) != "" {
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
