package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

// TestAgesAndSizes are short, and exact where that is possible.
func TestAgesAndSizes(t *testing.T) {
	t.Parallel()
	const month = 30 * 24 * time.Hour
	var volumes []*api.Volume
	var want []string
	for _, tc := range []struct {
		id       api.VolumeID
		ago      time.Duration
		capacity int64
		line     string
	}{
		{"none", 0, 0, "none creating disk - 0s"},
		{"future", -time.Hour, 1, "future creating disk 1B 0s"},
		{"hour", 5*time.Hour + 4*time.Minute + 30*time.Second, 1024, "hour creating disk 1KiB 5h4m"},
		{"day", 47*time.Hour + 30*time.Second, 1536, "day creating disk 1.5KiB 47h0m"},
		{"month", month, 1_000_000_000, "month creating disk 953.7MiB 30d"},
		{"huge", month, 1 << 62, "huge creating disk 4EiB 30d"},
	} {
		volumes = append(volumes, &api.Volume{
			Meta: api.Meta{CreateTime: time.Now().Add(-tc.ago)}, ID: tc.id, Spec: api.VolumeSpec{PluginID: "disk"},
			Status: api.VolumeStatus{State: api.VolumeCreating, Capacity: tc.capacity},
		})
		want = append(want, tc.line)
	}
	f := newFake(t, map[string]any{"GET /v1/volumes": volumes})
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(run(t, f.URL, "volume", "list").stdout), "\n")[1:] {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
