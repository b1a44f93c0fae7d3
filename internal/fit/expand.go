package fit

import (
	"fmt"
	"slices"

	"github.com/berth-dev/berth/api"
)

// NodeCan reports whether the plugin's node service has a capability.
func (p Plugin) NodeCan(capability string) bool {
	return slices.ContainsFunc(p.instances, func(i *api.Instance) bool {
		return i.ServesNode() && slices.Contains(i.NodeCapabilities, capability)
	})
}

// Offline reports whether the plugin expands only volumes that are not in use
// (CSI spec, PluginCapability.VolumeExpansion). One that does not say is tried.
func (p Plugin) Offline() bool {
	says := func(kind string) bool {
		return slices.ContainsFunc(p.instances, func(i *api.Instance) bool { return slices.Contains(i.PluginCapabilities, kind) })
	}
	return says(api.CapOffline) && !says(api.CapOnline)
}

// Undecided says why nobody can know yet what the plugin's controller can do,
// or "".
func (p Plugin) Undecided() string {
	switch {
	case !p.Known():
		return p.Unknown()
	case p.ControllerMissing():
		return fmt.Sprintf("plugin %s has a controller service, and no node runs a controller instance of it", p.ID)
	}
	return ""
}

// CannotExpand says why the plugin is known to expand no volume, or "".
func (p Plugin) CannotExpand() string {
	if p.Undecided() != "" || p.Can(api.CapExpandVolume) || p.NodeCan(api.CapExpandVolume) {
		return ""
	}
	return fmt.Sprintf("plugin %s cannot expand volumes: no instance of it has the capability %s", p.ID, api.CapExpandVolume)
}

// CannotModify says why the plugin is known to change no parameters, or "".
func (p Plugin) CannotModify() string {
	if p.Undecided() != "" || p.Can(api.CapModifyVolume) {
		return ""
	}
	return fmt.Sprintf("plugin %s has no parameters that can be changed: no controller instance of it has the capability %s", p.ID, api.CapModifyVolume)
}

// Wanting reports whether there are parameters that a volume is to have and
// does not have.
func Wanting(want, has map[string]string) bool {
	for k, v := range want {
		if old, there := has[k]; !there || old != v {
			return true
		}
	}
	return false
}
