package fit_test

import (
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// TestDriver: a task without volumes runs with every driver.
func TestDriver(t *testing.T) {
	t.Parallel()
	group := &api.TaskGroup{Volumes: []api.VolumeRequest{{Name: "files", AttachmentMode: api.FileSystem}, {Name: "disk", AttachmentMode: api.BlockDevice}}}
	for _, tc := range []struct {
		driver api.Driver
		mounts string
		want   string
	}{
		{api.Driver{}, "", ""},
		{api.Driver{}, "files", "cannot mount volumes"},
		{api.Driver{}, "disk", "cannot mount volumes"},
		{api.Driver{MountsVolumes: true}, "disk", ""},
		{api.Driver{MountsVolumes: true, NoBlockDevices: true}, "files", ""},
		{api.Driver{MountsVolumes: true, NoBlockDevices: true}, "disk", "cannot mount block devices"},
	} {
		task := &api.Task{}
		if tc.mounts != "" {
			task.VolumeMounts = []api.VolumeMount{{Volume: tc.mounts, Destination: "/data"}}
		}
		if got := fit.Driver(tc.driver, group, task); got != tc.want {
			t.Errorf("%+v with %q: got %q, want %q", tc.driver, tc.mounts, got, tc.want)
		}
	}
}
