package httpapi

import (
	"fmt"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
	"github.com/berth-dev/berth/internal/state"
)

// A plugin without SINGLE_NODE_MULTI_WRITER makes one of several writers on a
// node. That is no fault of what is applied: the plugin may get it with its next
// version. It is said nevertheless, before somebody waits for a place.

// volumeWarnings say what a volume's plugin makes of its access modes.
func volumeWarnings(v state.View, vol *api.Volume) (warnings []api.Field) {
	for i, c := range vol.Spec.Capabilities {
		if c.AccessMode != api.SingleNodeMultiWriter {
			continue
		}
		if message := oneAtATime(v, vol.Spec.PluginID); message != "" {
			warnings = append(warnings, api.Field{Path: fmt.Sprintf("capabilities[%d].access_mode", i), Message: message, Mend: elseShare})
		}
	}
	return warnings
}

// jobWarnings say the same of the volumes that a job requests.
func jobWarnings(v state.View, job *api.Job) (warnings []api.Field) {
	for i := range job.Spec.Groups {
		g := &job.Spec.Groups[i]
		for _, r := range g.Attached() {
			if r.AccessMode != api.SingleNodeMultiWriter {
				continue
			}
			plugin := api.PluginID("")
			if r.Ephemeral != nil {
				plugin = r.Ephemeral.PluginID
			} else if vol := v.Volume(job.Namespace, r.VolumeFor(0)); vol != nil {
				plugin = vol.Spec.PluginID
			}
			if message := oneAtATime(v, plugin); message != "" {
				warnings = append(warnings, api.Field{Path: fmt.Sprintf("group[%q].volume[%q].access_mode", g.Name, r.Name), Message: message, Mend: elseShare})
			}
		}
	}
	return warnings
}

const elseShare = "use a mode for many nodes, if the volume has one, or mount one volume block in several tasks of a group"

// oneAtATime says that the plugin is known to publish a volume once on a node,
// or "".
func oneAtATime(v state.View, id api.PluginID) string {
	plugin := fit.NewPlugin(id, collect(v.Instances(id)))
	if !plugin.Known() || plugin.NodeCan(api.CapSingleNodeMultiWrite) {
		return ""
	}
	return fmt.Sprintf("is %s, and plugin %s lacks %s: one allocation at a time gets the volume, and others wait for it",
		api.SingleNodeMultiWriter, id, api.CapSingleNodeMultiWrite)
}
