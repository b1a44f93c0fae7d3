package scheduler

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// others yields the group and the node of each allocation of the job that runs
// or may still run, those of this plan included.
func (p *pass) others(yield func(placement) bool) {
	for _, a := range p.live {
		if !a.Terminal() && !p.moving[a.ID] && !yield(placement{a.Group, a.Index, a.NodeID}) {
			return
		}
	}
	for _, o := range p.placed {
		if !yield(o) {
			return
		}
	}
}

// present are the others as one on a node would see them: with those that run
// until a newer one is healthy. Where each node has one, the two count as one.
func (p *pass) present(seen *api.Node) iter.Seq[placement] {
	exchanged := func(a *api.Allocation) bool {
		return p.everywhere() && p.joined[a.ID] && (a.NodeID == seen.ID || slices.Contains(p.placed, placement{a.Group, a.Index, a.NodeID}))
	}
	return func(yield func(placement) bool) {
		for _, a := range p.live {
			if !a.Terminal() && !p.moving[a.ID] && !exchanged(a) && !yield(placement{a.Group, a.Index, a.NodeID}) {
				return
			}
		}
		for _, o := range p.placed {
			if !yield(o) {
				return
			}
		}
		for _, a := range p.outgoing {
			replaced := p.everywhere() && p.after(a) != nil
			if !a.Terminal() && !p.moving[a.ID] && !replaced && !yield(placement{a.Group, a.Index, a.NodeID}) {
				return
			}
		}
	}
}

// crowded says why the job's other allocations keep one of the group from the
// node, or "".
func (p *pass) crowded(node *api.Node, group *api.TaskGroup) string {
	for _, c := range p.job.Spec.Constraints {
		if reason := p.distinct(c, node, ""); reason != "" {
			return reason
		}
	}
	for _, c := range group.Constraints {
		if reason := p.distinct(c, node, group.Name); reason != "" {
			return reason
		}
	}
	return ""
}

// distinct says why a constraint on the allocations of a group, or of the job
// if none is named, keeps another one from the node, or "".
func (p *pass) distinct(c api.Constraint, node *api.Node, group string) string {
	what, limit := "job", 1
	if group != "" {
		what = "group"
	}
	switch c.Operator {
	case api.DistinctHosts:
		if p.count(group, node, func(other *api.Node) bool { return other.ID == node.ID }) > 0 {
			return fmt.Sprintf("constraint %s: the node has an allocation of the %s", c, what)
		}
	case api.DistinctProperty:
		if n, err := strconv.Atoi(c.Value); err == nil {
			limit = n
		}
		value, _ := node.Lookup(c.Attribute)
		n := p.count(group, node, func(other *api.Node) bool {
			v, there := other.Lookup(c.Attribute)
			return there && v == value
		})
		if n >= limit {
			return fmt.Sprintf("constraint %s: %d of the %s are where it is %q", c, n, what, value)
		}
	case "", api.Equal, api.NotEqual, api.Less, api.LessOrEqual, api.Greater, api.GreaterOrEqual,
		api.Regexp, api.SetContains, api.SetContainsAny, api.IsSet, api.IsNotSet:
	}
	return ""
}

// count is how many allocations of a group, or of the job, are on such nodes, as
// one on a node would see them.
func (p *pass) count(group string, seen *api.Node, like func(*api.Node) bool) int {
	n := 0
	for o := range p.present(seen) {
		if node := p.nodes().node(o.node); node != nil && (group == "" || o.group == group) && like(node) {
			n++
		}
	}
	return n
}

// spreads are the group's, or the job's where it has none.
func (p *pass) spreads(group *api.TaskGroup) []api.Spread {
	if len(group.Spreads) > 0 {
		return group.Spreads
	}
	return p.job.Spec.Spreads
}

// shares says for each node how far the group would be over its shares there.
func (p *pass) shares(group *api.TaskGroup, spreads []api.Spread, fitting []*api.Node) map[api.NodeID]float64 {
	over := map[api.NodeID]float64{}
	for i := range spreads {
		s := &spreads[i]
		has, seen := map[string]int{}, map[string]bool{}
		for o := range p.others {
			if node := p.nodes().node(o.node); o.group == group.Name && node != nil {
				value, _ := node.Lookup(s.Attribute)
				has[value]++
			}
		}
		for _, node := range fitting {
			value, _ := node.Lookup(s.Attribute)
			seen[value] = true
		}
		values := slices.Sorted(maps.Keys(seen))
		for _, node := range fitting {
			value, _ := node.Lookup(s.Attribute)
			over[node.ID] += fit.SpreadShare(s, value, has, group.Count, values)
		}
	}
	return over
}
