package csimanager

import (
	"context"
	"slices"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
	"github.com/berth-dev/berth/internal/agent/localdb"
)

// ControllerWith is Controller, for a call that needs a capability; an empty
// one is none.
func (m *Manager) ControllerWith(id api.PluginID, capability string) (*csi.Client, error) {
	service := "controller"
	if capability != "" {
		service += " " + capability
	}
	i, err := m.find(id, func(s *api.InstanceStatus) bool {
		return s.ServesController() && (capability == "" || s.Can(capability))
	}, service)
	if err != nil {
		return nil, err
	}
	return i.client(), nil
}

// Usage asks the plugin how full a volume is that is mounted here, at one of
// its target paths, else where it is staged. It waits for no step on the
// volume: a question changes nothing, and is not to wait behind one that hangs.
func (m *Mounter) Usage(ctx context.Context, ns api.NamespaceID, vol api.VolumeID) (api.VolumeUsage, error) {
	var none api.VolumeUsage
	s, err := m.ledger.Staging(ns, vol)
	if err != nil {
		return none, err
	}
	if s == nil || s.BootID != m.bootID {
		return none, api.Errorf(api.CodeUnavailable, "volume %s is not mounted on this node", vol)
	}
	r := csi.StatsRequest{ExternalID: s.ExternalID}
	if s.Staged {
		r.StagingPath, r.VolumePath = s.StagingPath, s.StagingPath
	}
	if i := slices.IndexFunc(s.Users, func(u localdb.User) bool { return u.Published }); i >= 0 {
		r.VolumePath = s.Users[i].TargetPath
	}
	if r.VolumePath == "" {
		return none, api.Errorf(api.CodeUnavailable, "volume %s is not mounted on this node yet, or no more", vol)
	}
	inst, err := m.manager.node(s.PluginID)
	if err != nil {
		return none, err
	}
	if status := inst.status(); !slices.Contains(status.NodeCapabilities, api.CapVolumeStats) {
		return none, api.Errorf(api.CodeUnavailable, "plugin %s does not say: it lacks the capability %s", s.PluginID, api.CapVolumeStats)
	}
	r.StagingPath, r.VolumePath = inst.sees(r.StagingPath), inst.sees(r.VolumePath)
	return inst.client().NodeStats(ctx, r)
}
