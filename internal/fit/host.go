package fit

import (
	"fmt"

	"github.com/berth-dev/berth/api"
)

// HostVolumes says which host volume a group asks for and the node does not
// have, or not so, or "".
func HostVolumes(node *api.Node, group *api.TaskGroup) string {
	for i := range group.Volumes {
		r := &group.Volumes[i]
		if !r.Host() {
			continue
		}
		has, there := node.Status.Profile.HostVolumes[string(r.Source)]
		switch {
		case !there:
			return fmt.Sprintf("node %s has no host volume %s", node.ID, r.Source)
		case has.ReadOnly && !r.ReadOnly:
			return fmt.Sprintf("host volume %s on node %s is read only, and volume %q is not", r.Source, node.ID, r.Name)
		}
	}
	return ""
}
