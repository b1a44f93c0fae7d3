package scheduler

import "github.com/berth-dev/berth/api"

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
		case !node.Places(group):
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
