package fit

import (
	"fmt"
	"iter"

	"github.com/berth-dev/berth/api"
)

// VolumeLimit is how many volumes of a plugin a node takes, by the word of the
// plugin's instance there (CSI spec, NodeGetInfoResponse.max_volumes_per_node);
// 0 is no limit. It counts only where volumes take a place on the node: where
// they are attached, or staged. A plugin whose controller nobody has seen may
// attach.
func VolumeLimit(i *api.Instance, plugin func() Plugin) int64 {
	if i == nil || i.MaxVolumes <= 0 {
		return 0
	}
	if i.Stages() {
		return i.MaxVolumes
	}
	if p := plugin(); p.Attaches() || p.ControllerMissing() {
		return i.MaxVolumes
	}
	return 0
}

// VolumeRoom says why a node has no room for more attachments of a plugin, or
// "". It counts volumes and not attachments: those that are published to the
// node, also if they are on their way out, and those of the attachments that
// are to come there.
func VolumeRoom(node api.NodeID, plugin api.PluginID, limit int64, published iter.Seq[*api.Publication], more []*api.Attachment) string {
	type name struct {
		ns  api.NamespaceID
		vol api.VolumeID
	}
	used := map[name]bool{}
	for p := range published {
		used[name{p.Namespace, p.VolumeID}] = true
	}
	for _, a := range more {
		if a.NodeID == node && a.PluginID == plugin {
			used[name{a.Namespace, a.VolumeID}] = true
		}
	}
	if int64(len(used)) > limit {
		return fmt.Sprintf("node %s has room for %d volumes of plugin %s", node, limit, plugin)
	}
	return ""
}
