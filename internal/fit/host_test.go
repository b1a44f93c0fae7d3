package fit_test

import (
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

// TestHostVolumes: a group runs where its host volumes are, and where it may
// write to them if it wants to.
func TestHostVolumes(t *testing.T) {
	t.Parallel()
	node := &api.Node{ID: "n1", Status: api.NodeStatus{Profile: api.Profile{HostVolumes: map[string]api.HostVolume{"data": {}, "certs": {ReadOnly: true}}}}}
	for name, tc := range map[string]struct {
		request api.VolumeRequest
		want    string
	}{
		"There":        {api.VolumeRequest{Name: "v", Type: api.VolumeTypeHost, Source: "data"}, ""},
		"ReadOnlyToo":  {api.VolumeRequest{Name: "v", Type: api.VolumeTypeHost, Source: "certs", ReadOnly: true}, ""},
		"ReadOnlyHere": {api.VolumeRequest{Name: "v", Type: api.VolumeTypeHost, Source: "certs"}, `host volume certs on node n1 is read only, and volume "v" is not`},
		"NotThere":     {api.VolumeRequest{Name: "v", Type: api.VolumeTypeHost, Source: "logs"}, "node n1 has no host volume logs"},
		"OfAPlugin":    {api.VolumeRequest{Name: "v", Type: api.VolumeTypeCSI, Source: "logs"}, ""},
	} {
		if got := fit.HostVolumes(node, &api.TaskGroup{Volumes: []api.VolumeRequest{tc.request}}); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
