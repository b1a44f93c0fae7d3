package scheduler

import (
	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/command"
)

// fillNodes places what is missing of a group that has an allocation on every
// node that fits. Nodes that never will are passed over; what keeps the others
// from it is waited for.
func (p *pass) fillNodes(group *api.TaskGroup) {
	taken := map[int]bool{}
	for _, a := range p.live {
		if a.Group == group.Name {
			taken[a.Index] = true
		}
	}
	free := 0
	for _, node := range p.nodes().nodes {
		a := p.keeper(seat{group.Name, node.ID})
		if len(p.placed) >= placementsAPlan {
			return
		}
		switch {
		case !p.takes(node, group):
			p.turnDown(group, node, away(node))
			continue
		case (a == nil || a.Terminal()) && p.lasting(node, group) != "":
			p.turnDown(group, node, p.lasting(node, group))
			continue
		case a != nil:
			p.fillSlot(place{group: group, index: a.Index, node: node}, a)
			continue
		}
		for taken[free] {
			free++
		}
		taken[free] = true
		p.fillSlot(place{group: group, index: free, node: node}, nil)
	}
}

// takes reports whether a node gets the group's new allocations. An ineligible
// one gets the plugin that its volumes need to be unmounted.
func (p *pass) takes(node *api.Node, group *api.TaskGroup) bool {
	return node.Places(group) || p.everywhere() && command.Needed(p.v, node, group)
}

// spared reports whether nothing can follow an allocation on its node, which
// gets nothing new: an outdated one goes on until the node is eligible again,
// and nobody waits for one that has left.
func (p *pass) spared(a *api.Allocation, group *api.TaskGroup) bool {
	if !p.everywhere() || p.excluded(a, group) != "" || leaves(a) && p.current(a) {
		return false
	}
	node := p.nodes().node(a.NodeID)
	return node != nil && node.Takes() && !p.takes(node, group)
}

// seat is a group's place on a node.
type seat struct {
	group string
	node  api.NodeID
}

// keeper is the one allocation that a node keeps of those that it has of one
// group, or nil: a job that runs everywhere may once have been another.
func (p *pass) keeper(at seat) *api.Allocation {
	if p.keepers == nil {
		p.keepers = map[seat]*api.Allocation{}
		for _, a := range p.live {
			at := seat{a.Group, a.NodeID}
			kept := p.keepers[at]
			if kept == nil || kept.Terminal() && !a.Terminal() {
				p.keepers[at] = a
			}
		}
	}
	return p.keepers[at]
}

// left reports whether an allocation ended on a node that is not there any
// more, or does not fit any more.
func (p *pass) left(a *api.Allocation) bool {
	group := p.job.Spec.Group(a.Group)
	node := p.nodes().node(a.NodeID)
	return node == nil || p.lasting(node, group) != ""
}
