package provisioner

import (
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// roomFor finds what the volume's plugin said of its room for such volumes.
func roomFor(v state.View, vol *api.Volume) func(api.Topology) *api.Room {
	return func(t api.Topology) *api.Room {
		return v.Room(vol.Spec.PluginID, api.NewRoomID(t, vol.Spec.Parameters))
	}
}

// noRoom is what the plugin says of its room where a volume could not be made
// for want of it.
func noRoom(v state.View, now time.Time, vol *api.Volume) string {
	op := v.Operation(vol.Status.Operation)
	if op == nil || op.Status.Code != "RESOURCE_EXHAUSTED" || op.Request.Create == nil || op.Request.Create.TopologyRequest == nil {
		return ""
	}
	var short []string
	for _, t := range op.Request.Create.TopologyRequest.Required {
		if why := fit.Short(roomFor(v, vol)(t), op.Request.Create.CapacityMin, now); why != "" {
			short = append(short, why)
		}
	}
	slices.Sort(short)
	if len(short) > 8 {
		short = append(short[:8], "and so on")
	}
	return strings.Join(append([]string{""}, short...), "; ")
}
