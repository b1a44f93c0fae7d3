package fit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/fit"
)

func TestRequestSaysWhyAVolumeWillNotDo(t *testing.T) {
	t.Parallel()
	volume := func(state api.VolumeState, reason string) *api.Volume {
		return &api.Volume{
			ID: "pg", Desired: api.Present,
			Spec:   api.VolumeSpec{Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}}},
			Status: api.VolumeStatus{State: state, Reason: reason},
		}
	}
	unwanted := volume(api.VolumeReady, "")
	unwanted.Desired = api.Absent
	for name, c := range map[string]struct {
		volume *api.Volume
		mode   api.AccessMode
		want   string
	}{
		"ready":            {volume(api.VolumeReady, ""), api.SingleNodeWriter, ""},
		"missing":          {nil, api.SingleNodeWriter, "volume pg does not exist"},
		"unwanted":         {unwanted, api.SingleNodeWriter, "volume pg is being deleted"},
		"deleting":         {volume(api.VolumeDeleting, ""), api.SingleNodeWriter, "volume pg is being deleted"},
		"creating":         {volume(api.VolumeCreating, ""), api.SingleNodeWriter, "volume pg is being created"},
		"failed":           {volume(api.VolumeFailed, "OUT_OF_RANGE: too big"), api.SingleNodeWriter, "volume pg could not be created: OUT_OF_RANGE: too big"},
		"other state":      {volume("moving", ""), api.SingleNodeWriter, "volume pg is moving"},
		"other capability": {volume(api.VolumeReady, ""), api.MultiNodeMultiWriter, "volume pg has no capability multi-node-multi-writer with file-system"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := &api.VolumeRequest{Source: "pg", AccessMode: c.mode, AttachmentMode: api.FileSystem}
			if got := fit.Request(c.volume, "pg", req); got != c.want {
				t.Errorf("reason = %q, want %q", got, c.want)
			}
		})
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	zone := func(z string) api.Topology { return api.Topology{"zone": z} }
	for name, c := range map[string]struct {
		volume []api.Topology
		node   api.Topology
		want   bool
	}{
		"volume without topology":       {nil, zone("a"), true},
		"neither has one":               {nil, nil, true},
		"same segment":                  {[]api.Topology{zone("a")}, zone("a"), true},
		"other segment":                 {[]api.Topology{zone("a")}, zone("b"), false},
		"node without topology":         {[]api.Topology{zone("a")}, nil, false},
		"one of several":                {[]api.Topology{zone("a"), zone("b")}, zone("b"), true},
		"node has more segments":        {[]api.Topology{zone("a")}, api.Topology{"zone": "a", "rack": "7"}, true},
		"node has fewer segments":       {[]api.Topology{{"zone": "a", "rack": "7"}}, zone("a"), false},
		"keys differ in case":           {[]api.Topology{{"example.com/Zone": "a"}}, api.Topology{"Example.com/zone": "a"}, true},
		"values differ in case":         {[]api.Topology{zone("a")}, zone("A"), false},
		"a topology without segments":   {[]api.Topology{{}}, nil, true},
		"a key twice in different case": {[]api.Topology{{"ZONE": "b"}}, api.Topology{"zone": "a", "Zone": "b"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 { // the order of maps must not matter
				if got := fit.Reachable(c.volume, c.node); got != c.want {
					t.Fatalf("reachable = %v, want %v", got, c.want)
				}
			}
		})
	}
}

func TestOverlay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ volume, request, want *api.MountOptions }{
		"neither":      {nil, nil, nil},
		"volume only":  {&api.MountOptions{FSType: "xfs"}, nil, &api.MountOptions{FSType: "xfs"}},
		"request only": {nil, &api.MountOptions{FSType: "xfs"}, &api.MountOptions{FSType: "xfs"}},
		"file system is replaced": {
			&api.MountOptions{FSType: "ext4", MountFlags: []string{"noatime"}}, &api.MountOptions{FSType: "xfs"},
			&api.MountOptions{FSType: "xfs", MountFlags: []string{"noatime"}},
		},
		"flags are replaced whole": {
			&api.MountOptions{FSType: "ext4", MountFlags: []string{"noatime", "nodev"}}, &api.MountOptions{MountFlags: []string{"ro"}},
			&api.MountOptions{FSType: "ext4", MountFlags: []string{"ro"}},
		},
		"flags are emptied": {
			&api.MountOptions{MountFlags: []string{"noatime"}}, &api.MountOptions{MountFlags: []string{}}, &api.MountOptions{MountFlags: []string{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := []api.MountOptions{}
			for _, o := range []*api.MountOptions{c.volume, c.request} {
				if o != nil {
					before = append(before, *o)
				}
			}
			if diff := cmp.Diff(c.want, fit.Overlay(c.volume, c.request)); diff != "" {
				t.Errorf("options differ (-want +got):\n%s", diff)
			}
			after := []api.MountOptions{}
			for _, o := range []*api.MountOptions{c.volume, c.request} {
				if o != nil {
					after = append(after, *o)
				}
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("the arguments were changed:\n%s", diff)
			}
		})
	}
}

func TestSameTakesEmptyForNone(t *testing.T) {
	t.Parallel()
	group := func(g api.TaskGroup) api.JobSpec { return api.JobSpec{Groups: []api.TaskGroup{g}} }
	for name, c := range map[string]struct {
		a, b any
		same bool
	}{
		"equal":             {group(api.TaskGroup{Count: 1}), group(api.TaskGroup{Count: 1}), true},
		"different":         {group(api.TaskGroup{Count: 1}), group(api.TaskGroup{Count: 2}), false},
		"empty list deep":   {group(api.TaskGroup{}), group(api.TaskGroup{Volumes: []api.VolumeRequest{}}), true},
		"one element":       {group(api.TaskGroup{}), group(api.TaskGroup{Volumes: []api.VolumeRequest{{}}}), false},
		"number and number": {map[string]any{"n": 1}, map[string]any{"n": 1.0}, true},
		"not to be encoded": {map[string]any{"f": func() {}}, map[string]any{"f": func() {}}, false},
	} {
		if got := fit.Same(c.a, c.b); got != c.same {
			t.Errorf("%s: same = %v, want %v", name, got, c.same)
		}
	}
	if !fit.Same(map[string]string(nil), map[string]string{}) {
		t.Error("an empty map differs from none")
	}
	if fit.Same(&api.MountOptions{}, nil) {
		t.Error("mount options that say nothing are the same as none, and the log keeps them apart")
	}
}
