package fit

import (
	"slices"

	"github.com/berth-dev/berth/api"
)

// Driver says what a task of a group wants that its driver cannot do with
// volumes, or "".
func Driver(d api.Driver, group *api.TaskGroup, task *api.Task) string {
	block := func(m api.VolumeMount) bool {
		return slices.ContainsFunc(group.Volumes, func(r api.VolumeRequest) bool {
			return r.Name == m.Volume && r.AttachmentMode == api.BlockDevice
		})
	}
	switch {
	case len(task.VolumeMounts) == 0:
	case !d.MountsVolumes:
		return "cannot mount volumes"
	case d.NoBlockDevices && slices.ContainsFunc(task.VolumeMounts, block):
		return "cannot mount block devices"
	}
	return ""
}
