package fit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
)

// Mismatch says in what a volume that a plugin made, or found under its name,
// is not what it was asked for, or "" if it is. Only what the plugin says is
// compared: a capacity of 0 is not known, and a volume without topologies can
// be reached from everywhere (CSI spec, CreateVolume, Volume).
func Mismatch(r *api.CreateRequest, got *api.OperationResult) string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	switch {
	case got.Capacity == 0:
	case got.Capacity < r.CapacityMin:
		add("it has %d bytes, less than capacity_min (%d)", got.Capacity, r.CapacityMin)
	case r.CapacityMax > 0 && got.Capacity > r.CapacityMax:
		add("it has %d bytes, more than capacity_max (%d)", got.Capacity, r.CapacityMax)
	}
	if r.SnapshotID != "" && r.SnapshotID != got.SnapshotID || r.CloneID != "" && r.CloneID != got.CloneID {
		add("it began %s, not %s", content(got.SnapshotID, got.CloneID), content(r.SnapshotID, r.CloneID))
	}
	if t := r.TopologyRequest; t != nil && len(t.Required) > 0 && len(got.AccessibleTopology) > 0 && !overlap(t.Required, got.AccessibleTopology) {
		add("it can be reached from none of the topologies that are required")
	}
	if len(all) == 0 {
		return ""
	}
	return "the plugin answered with a volume that is not as asked for: " + strings.Join(all, "; ") +
		". Change the spec to fit and apply it, or delete the volume and create it anew"
}

func content(snapshot, clone string) string {
	switch {
	case snapshot != "":
		return fmt.Sprintf("as snapshot %q", snapshot)
	case clone != "":
		return fmt.Sprintf("as a copy of volume %q", clone)
	}
	return "empty"
}

// overlap reports whether one of the topologies that a volume has lies in one
// that is required, or the reverse: a plugin may say more or less than it was
// asked.
func overlap(required, accessible []api.Topology) bool {
	return slices.ContainsFunc(required, func(r api.Topology) bool {
		return slices.ContainsFunc(accessible, func(a api.Topology) bool { return within(a, r) || within(r, a) })
	})
}

// Elsewhere is a create's topologies with the next one preferred, after a
// refusal for want of room where it was tried: nil if there is no other. The
// order is that of the request: what it prefers, then what it requires.
func Elsewhere(t *api.TopologyRequest) *api.TopologyRequest {
	if t == nil || len(t.Required) < 2 {
		return nil
	}
	order := slices.Clone(t.Preferred)
	for _, r := range t.Required {
		if !slices.ContainsFunc(order, func(o api.Topology) bool { return within(o, r) && within(r, o) }) {
			order = append(order, r)
		}
	}
	return &api.TopologyRequest{Required: t.Required, Preferred: append(order[1:], order[0])}
}

// avoidFull is how long a node is avoided that had no room for a volume, where
// nothing says before that it has again.
const avoidFull = 5 * time.Minute

// NoRoom reports whether a publish that was refused for want of room keeps
// other volumes from its node, and until when: zero for as long as it waits.
func NoRoom(op *api.Operation, now time.Time) (until time.Time, full bool) {
	switch op.Status.State {
	case api.OperationWaiting:
		return until, true
	case api.OperationCancelled:
		until = op.Status.Ended.Add(avoidFull)
		return until, until.After(now)
	case api.OperationAssigned, api.OperationSucceeded, api.OperationFailed:
	}
	return until, false
}
