package fit

import (
	"fmt"
	"iter"
	"maps"
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
	case got.Capacity == 0 && Asked(r).CapacityMin != r.CapacityMin:
		add("the plugin does not say how many bytes it has")
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

// maxRotations bounds how many orders of topologies are tried to find a volume.
const maxRotations = 8

// Asked is what an attempt to create asks for. It is the request, unless the
// plugin has said that a volume of the name is there and different. The name is
// the volume's alone, so an earlier attempt has made it, whatever was answered;
// the plugin tells which it is if it is asked as then (CSI spec, CreateVolume).
// What differed from attempt to attempt are the topologies. Where that is not
// it, the volume is asked for wherever it is, and where it is to be deleted, of
// whatever size.
func Asked(r *api.CreateRequest) *api.CreateRequest {
	asked := *r
	if r.Search == 0 {
		return &asked
	}
	step := r.Search
	if r.Loose {
		if step%2 == 1 {
			asked.TopologyRequest, asked.CapacityMin, asked.CapacityMax = nil, 0, 0
			return &asked
		}
		step /= 2
	}
	tried := triedTopologies(r)
	asked.TopologyRequest = tried[step%len(tried)]
	return &asked
}

// Searched reports whether a volume was asked for in all ways.
func Searched(r *api.CreateRequest) bool { return r.Search > len(triedTopologies(r)) }

// triedTopologies are those of the request, of the attempts before it, and none.
func triedTopologies(r *api.CreateRequest) []*api.TopologyRequest {
	tried := []*api.TopologyRequest{r.TopologyRequest}
	if r.TopologyRequest == nil {
		return tried
	}
	first := r.TopologyRequest
	if r.First != nil {
		first = r.First
		tried = append(tried, first)
	}
	order := first
	for range min(len(first.Required), maxRotations) {
		if order = Elsewhere(order); order == nil {
			break
		}
		tried = append(tried, order)
	}
	return append(tried, nil)
}

// Bears reports whether a volume at a provider has a name of CreateVolume in its
// id or in its context, where many drivers put it.
func Bears(v *api.ExternalVolume, name string) bool {
	if name == "" {
		return false
	}
	if strings.Contains(v.ExternalID, name) {
		return true
	}
	for _, text := range v.Context {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// avoidFull is how long a node is avoided that had no room for a volume, where
// nothing says before that it has again.
const avoidFull = 5 * time.Minute

// Refusals are the creates of a plugin that were refused for want of room and
// still keep others from there: the smallest for each topology and parameters.
type Refusals struct {
	byKeys []refusedBy
}

// refusedBy are refusals of topologies that have the same keys.
type refusedBy struct {
	keys     map[string]bool // in lower case
	smallest map[api.RoomID]*api.Operation
}

// NewRefusals reads the operations once: of those that count, the smallest stands
// for all.
func NewRefusals(exhausted iter.Seq[*api.Operation], now time.Time) *Refusals {
	all := &Refusals{}
	for op := range exhausted {
		r := op.Request.Create
		if _, full := NoRoom(op, now); !full || r == nil || r.TopologyRequest == nil || len(r.TopologyRequest.Required) != 1 {
			continue
		}
		at := r.TopologyRequest.Required[0]
		keys := make(map[string]bool, len(at))
		for k := range at {
			keys[strings.ToLower(k)] = true
		}
		i := slices.IndexFunc(all.byKeys, func(b refusedBy) bool { return maps.Equal(b.keys, keys) })
		if i < 0 {
			i = len(all.byKeys)
			all.byKeys = append(all.byKeys, refusedBy{keys, map[api.RoomID]*api.Operation{}})
		}
		smallest, id := all.byKeys[i].smallest, api.NewRoomID(at, r.Parameters)
		if other := smallest[id]; other == nil || r.CapacityMin < other.Request.Create.CapacityMin {
			smallest[id] = op
		}
	}
	return all
}

// Of is a refusal that keeps a volume of so many bytes from a topology, or nil.
func (all *Refusals) Of(size int64, parameters map[string]string, at api.Topology) *api.Operation {
	for _, b := range all.byKeys {
		segments := make(api.Topology, len(b.keys))
		for k, v := range at {
			if b.keys[strings.ToLower(k)] {
				segments[k] = v
			}
		}
		if op := b.smallest[api.NewRoomID(segments, parameters)]; op != nil && op.Request.Create.CapacityMin <= size {
			return op
		}
	}
	return nil
}

// NoRoom reports whether a create or publish that was refused for want of room keeps
// other volumes from there, and until when: zero for as long as it waits.
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
