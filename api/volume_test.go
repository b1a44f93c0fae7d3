package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
)

// volumeSpec is a spec without a fault.
func volumeSpec() api.VolumeSpec {
	return api.VolumeSpec{
		PluginID:     "local",
		CapacityMin:  1 << 30,
		CapacityMax:  2 << 30,
		Capabilities: []api.Capability{{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}},
		MountOptions: &api.MountOptions{FSType: "ext4", MountFlags: []string{"noatime"}},
		Parameters:   map[string]string{"tier": "fast"},
		TopologyRequest: &api.TopologyRequest{
			Required:  []api.Topology{{"zone": "a"}, {"zone": "b"}},
			Preferred: []api.Topology{{"zone": "b"}},
		},
	}
}

// modes is what a message lists of the access modes.
const modes = "single-node-writer, single-node-reader-only, single-node-single-writer, single-node-multi-writer, " +
	"multi-node-reader-only, multi-node-single-writer, multi-node-multi-writer"

func TestVolumeSpecValidate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(*api.VolumeSpec)
		want  []string
	}{
		"Whole":        {func(*api.VolumeSpec) {}, nil},
		"SizeLeftOpen": {func(s *api.VolumeSpec) { s.CapacityMin, s.CapacityMax = 0, 0 }, nil},
		"OnlyAtLeast":  {func(s *api.VolumeSpec) { s.CapacityMax = 0 }, nil},
		"OnlyAtMost":   {func(s *api.VolumeSpec) { s.CapacityMin = 0 }, nil},
		"LongestLabel": {func(s *api.VolumeSpec) { s.Name = strings.Repeat("n", 128) }, nil},
		"NothingElse": {func(s *api.VolumeSpec) {
			s.MountOptions, s.Parameters, s.TopologyRequest = nil, nil, nil
		}, nil},
		"Registered":   {func(s *api.VolumeSpec) { s.ExternalID, s.Context = "loc#1", map[string]string{"server": "nfs"} }, nil},
		"FromSnapshot": {func(s *api.VolumeSpec) { s.SnapshotID = strings.Repeat("s", 128) }, nil},
		"Copy":         {func(s *api.VolumeSpec) { s.CloneID = "pg" }, nil},
		"EveryOrigin": {func(s *api.VolumeSpec) { s.ExternalID, s.SnapshotID, s.CloneID = "a", "b", "c" }, []string{
			"snapshot_id is given, and so is external_id: a volume that exists already has its content; remove one of them",
			"clone_id is given, and so is external_id: a volume that exists already has its content; remove one of them",
		}},
		"TwoContents": {func(s *api.VolumeSpec) { s.SnapshotID, s.CloneID = "b", "c" }, []string{
			"clone_id is given, and so is snapshot_id: a volume begins as one thing; remove one of them",
		}},
		"IDsOfNoPlugin": {func(s *api.VolumeSpec) { s.SnapshotID = strings.Repeat("s", 128) + "\x00" }, []string{
			"snapshot_id is longer than the 128 bytes that CSI allows; correct it",
			"snapshot_id has a NUL character; remove it",
		}},
		"ContextOfANewVolume": {func(s *api.VolumeSpec) { s.Context = map[string]string{"": strings.Repeat("c", 4097)} }, []string{
			"context has an empty key; remove it",
			"context is 4097 bytes, more than the 4096 that CSI allows; shorten it",
			`context belongs to a volume that exists already, and external_id is missing; add external_id = "...", or remove it: the plugin gives a new volume its context`,
		}},
		"PluginMissing": {func(s *api.VolumeSpec) { s.PluginID = "" }, []string{
			"plugin_id is empty; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit",
		}},
		"LabelTooLong": {func(s *api.VolumeSpec) { s.Name = strings.Repeat("n", 129) }, []string{
			"name is longer than the 128 bytes that CSI allows; shorten it",
		}},
		"SizeNegative": {func(s *api.VolumeSpec) { s.CapacityMin, s.CapacityMax = -2, -1 }, []string{
			"capacity_min is negative; give a size such as 10GiB",
			"capacity_max is negative; give a size such as 10GiB",
		}},
		"SizesSwapped": {func(s *api.VolumeSpec) { s.CapacityMin, s.CapacityMax = 2, 1 }, []string{
			"capacity_min is 2 bytes, more than capacity_max (1); make it at most capacity_max",
		}},
		"NoCapability": {func(s *api.VolumeSpec) { s.Capabilities = nil }, []string{
			`capability is missing; add capability { access_mode = "single-node-writer" attachment_mode = "file-system" }`,
		}},
		"UnknownModes": {func(s *api.VolumeSpec) { s.Capabilities[0] = api.Capability{AccessMode: "rwo", AttachmentMode: ""} }, []string{
			`capability[0].access_mode is "rwo"; use one of ` + modes,
			`capability[0].attachment_mode is ""; use one of file-system, block-device`,
		}},
		"CapabilityTwice": {func(s *api.VolumeSpec) { s.Capabilities = append(s.Capabilities, s.Capabilities[0]) }, []string{
			"capability[1] is there twice; remove one",
		}},
		"MountOptionsTooLong": {func(s *api.VolumeSpec) {
			s.MountOptions = &api.MountOptions{FSType: strings.Repeat("f", 129), MountFlags: []string{strings.Repeat("a", 4000), strings.Repeat("b", 97)}}
		}, []string{
			"mount_options.fs_type is longer than the 128 bytes that CSI allows; shorten it",
			"mount_options.mount_flags are 4097 bytes together, more than the 4096 that CSI allows; shorten them",
		}},
		"ParametersTooLong": {func(s *api.VolumeSpec) { s.Parameters = map[string]string{"k": strings.Repeat("v", 4096)} }, []string{
			"parameters is 4097 bytes, more than the 4096 that CSI allows; shorten it",
		}},
		"ParameterWithoutKey": {func(s *api.VolumeSpec) { s.Parameters = map[string]string{"": "v"} }, []string{
			"parameters has an empty key; remove it",
		}},
		"TopologyIncomplete": {func(s *api.VolumeSpec) {
			s.TopologyRequest = &api.TopologyRequest{Required: []api.Topology{{}, {"zone": ""}}, Preferred: []api.Topology{{"": "a"}}}
		}, []string{
			`topology_request.required[0] has no segments; write topology { segments { "zone" = "a" } }`,
			"topology_request.required[1] has an empty key or value; give both",
			"topology_request.preferred[0] has an empty key or value; give both",
		}},
		"EverythingAtOnce": {func(s *api.VolumeSpec) { *s = api.VolumeSpec{PluginID: "a/b", CapacityMin: -1} }, []string{
			`plugin_id has the character "/"; use 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit`,
			"capacity_min is negative; give a size such as 10GiB",
			`capability is missing; add capability { access_mode = "single-node-writer" attachment_mode = "file-system" }`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := volumeSpec()
			tc.spoil(&spec)
			if diff := cmp.Diff(problems("the volume", tc.want), message(spec.Validate())); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

// problems is the whole message about a thing with these problems.
func problems(what string, lines []string) string {
	switch len(lines) {
	case 0:
		return ""
	case 1:
		return what + " has a problem\n  " + lines[0]
	}
	return fmt.Sprintf("%s has %d problems\n  %s", what, len(lines), strings.Join(lines, "\n  "))
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// What a user says of the data counts, and else whether they were there first.
func TestVolumeRetained(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		external string
		reclaim  api.Reclaim
		want     bool
	}{
		{"", "", false},
		{"", api.ReclaimRetain, true},
		{"", api.ReclaimDelete, false},
		{"vol-1", "", true},
		{"vol-1", api.ReclaimRetain, true},
		{"vol-1", api.ReclaimDelete, false},
	} {
		vol := api.Volume{Reclaim: tc.reclaim, Spec: api.VolumeSpec{ExternalID: tc.external}}
		if got := vol.Retained(); got != tc.want {
			t.Errorf("external id %q, reclaim %q: %t", tc.external, tc.reclaim, got)
		}
	}
}
