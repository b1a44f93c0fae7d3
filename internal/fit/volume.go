package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/api"
)

// Request says why the volume of that id cannot serve a group's request for it,
// now or ever, or "" if it can.
func Request(vol *api.Volume, id api.VolumeID, req *api.VolumeRequest) string {
	if vol == nil {
		return fmt.Sprintf("volume %s does not exist", id)
	}
	if vol.Desired == api.Absent {
		return fmt.Sprintf("volume %s is being deleted", vol.ID)
	}
	if vol.Owner != "" {
		return fmt.Sprintf("volume %s was made for allocation %s, and goes with it", vol.ID, vol.Owner.Short())
	}
	want := api.Capability{AccessMode: req.AccessMode, AttachmentMode: req.AttachmentMode}
	if !slices.Contains(vol.Spec.Capabilities, want) {
		return fmt.Sprintf("volume %s has no capability %s with %s", vol.ID, req.AccessMode, req.AttachmentMode)
	}
	switch vol.Status.State {
	case api.VolumeReady:
		return ""
	case api.VolumeCreating:
		return fmt.Sprintf("volume %s is being created", vol.ID)
	case api.VolumeFailed:
		return fmt.Sprintf("volume %s could not be created: %s", vol.ID, vol.Status.Reason)
	case api.VolumeDeleting:
		return fmt.Sprintf("volume %s is being deleted", vol.ID)
	}
	return fmt.Sprintf("volume %s is %s", vol.ID, vol.Status.State)
}

// Reachable reports whether a node in the given topology can reach a volume
// with these accessible topologies: one of them must lie in the node's. A
// volume without any can be reached from everywhere (CSI spec, Volume).
func Reachable(accessible []api.Topology, node api.Topology) bool {
	if len(accessible) == 0 {
		return true
	}
	return slices.ContainsFunc(accessible, func(t api.Topology) bool { return within(t, node) })
}

// within reports whether every segment of t is the node's too.
func within(t, node api.Topology) bool {
	for k, v := range t {
		if !has(node, k, v) {
			return false
		}
	}
	return true
}

// has reports whether a topology has a segment. Keys compare without regard to
// case (CSI spec, Topology); where one is there twice, either will do, so that
// the order of the map does not matter.
func has(t api.Topology, key, value string) bool {
	if v, ok := t[key]; ok && v == value {
		return true
	}
	for k, v := range t {
		if v == value && strings.EqualFold(k, key) {
			return true
		}
	}
	return false
}

// Overlay is a volume's mount options with a request's laid over them: the
// file system type if set, the flags replaced whole. It never changes its
// arguments, and is nil if both are.
func Overlay(volume, request *api.MountOptions) *api.MountOptions {
	if request == nil {
		return volume
	}
	if volume == nil {
		return request
	}
	merged := *volume
	if request.FSType != "" {
		merged.FSType = request.FSType
	}
	if request.MountFlags != nil {
		merged.MountFlags = request.MountFlags
	}
	return &merged
}
