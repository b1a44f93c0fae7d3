package command

import (
	"maps"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// change takes over a changed spec of a volume that is there: what can be
// changed becomes a wish, and what cannot is refused, all of it at once.
func (c *ApplyVolume) change(tx *state.Tx, old, next *api.Volume) error {
	var p api.Problems
	immutable(&p, &old.Spec, &c.Spec)
	c.resize(tx, &p, old, next)
	c.modify(tx, &p, old, next)
	if err := p.Err("the volume"); err != nil {
		return err
	}
	next.Spec = c.Spec
	if s := next.Status; s.Expansion == nil && s.Capacity > 0 && s.NodeExpansion > s.Capacity {
		// The nodes were to expand it, and did not yet.
		growOnNodes(tx, next, 0)
	}
	return nil
}

// resize makes a larger capacity_min a wish. A wish that has not come true can
// be made smaller, or taken back, to the size that was there before it; a volume
// that has its size never shrinks.
func (c *ApplyVolume) resize(tx *state.Tx, p *api.Problems, old, next *api.Volume) {
	has, want, limit := old.Status.Capacity, c.Spec.CapacityMin, c.Spec.CapacityMax
	from := old.Spec.CapacityMin
	if e := old.Status.Expansion; e != nil {
		from = e.From
	}
	if want < from {
		p.Addf("capacity_min", "put the old value back, or make a new volume and copy the data",
			"is %s, and the volume was made for %s: volumes grow, and do not shrink", fit.Size(want), fit.Size(from))
		return
	}
	if limit > 0 && limit < has && limit != old.Spec.CapacityMax {
		p.Addf("capacity_max", "give at least that, or remove it",
			"is %s, and the volume has %s: volumes grow, and do not shrink", fit.Size(limit), fit.Size(has))
		return
	}
	switch {
	case want == old.Spec.CapacityMin && limit == old.Spec.CapacityMax:
	case want == from, want <= has:
		next.Status.Expansion = nil
	default:
		if why := pluginOf(tx.View, old).CannotExpand(); why != "" {
			p.Add("capacity_min", "cannot be raised: "+why, "put the old value back, or make a new volume")
			return
		}
		next.Status.Expansion = &api.Expansion{From: from, Since: tx.Now(), Offline: old.Status.Expansion != nil && old.Status.Expansion.Offline}
	}
}

// modify makes changed mutable parameters a wish. The plugin keeps what it was
// told once: only what it has not taken can be taken back.
func (c *ApplyVolume) modify(tx *state.Tx, p *api.Problems, old, next *api.Volume) {
	has, want := old.Status.MutableParameters, c.Spec.MutableParameters
	kept := true
	for _, k := range slices.Sorted(maps.Keys(has)) {
		if _, there := want[k]; !there {
			p.Addf("mutable_parameters", "give it a value", "does not have %s any more, and the plugin keeps the value %q that it was given", k, has[k])
			kept = false
		}
	}
	if !kept || maps.Equal(old.Spec.MutableParameters, want) {
		return
	}
	next.Status.Modification = wanted(tx, want, has)
	if next.Status.Modification == nil {
		return
	}
	if why := pluginOf(tx.View, old).CannotModify(); why != "" {
		p.Add("mutable_parameters", "cannot be changed: "+why, "put the old values back")
	}
}

// again tries anew what was refused.
func again(tx *state.Tx, next *api.Volume) {
	if e := next.Status.Expansion; e != nil && e.Refused != "" {
		tried := *e
		tried.Refused, tried.Since = "", tx.Now()
		next.Status.Expansion = &tried
	}
	if m := next.Status.Modification; m != nil && m.Refused != "" {
		next.Status.Modification = &api.Modification{Since: tx.Now()}
	}
}

// refused reports whether a change of the volume was refused for good.
func refused(vol *api.Volume) bool {
	e, m := vol.Status.Expansion, vol.Status.Modification
	return e != nil && e.Refused != "" || m != nil && m.Refused != ""
}
