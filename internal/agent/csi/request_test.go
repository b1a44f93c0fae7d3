package csi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
)

// oddID has what volume ids of real drivers have.
const oddID = "loc#vol1?snapshot_driver=filecopy&id=a b/../c%20"

var writer = api.Capability{AccessMode: api.SingleNodeWriter, AttachmentMode: api.FileSystem}

// recorder is a client, and what its driver was asked last.
func recorder(t *testing.T) (c *csi.Client, asked func(into proto.Message) string) {
	t.Helper()
	var last atomic.Pointer[[]byte]
	c = serve(t, func(_ context.Context, method string, request []byte) ([]byte, error) {
		last.Store(&request)
		if method != "CreateVolume" {
			return nil, nil
		}
		var r spec.CreateVolumeRequest
		if err := proto.Unmarshal(request, &r); err != nil {
			return nil, err
		}
		return proto.Marshal(&spec.CreateVolumeResponse{Volume: &spec.Volume{VolumeId: "id", ContentSource: r.GetVolumeContentSource()}})
	})
	return c, func(into proto.Message) string {
		t.Helper()
		if err := proto.Unmarshal(*last.Load(), into); err != nil {
			t.Fatal(err)
		}
		loose, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(into)
		if err != nil {
			t.Fatal(err)
		}
		var tight bytes.Buffer
		if err := json.Compact(&tight, loose); err != nil {
			t.Fatal(err)
		}
		return tight.String()
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	options := &api.MountOptions{FSType: "xfs", MountFlags: []string{"noatime", "ro"}}
	for name, test := range map[string]struct {
		into proto.Message
		call func(ctx context.Context, c *csi.Client) error
		want string
	}{
		"CreateVolumeFromSnapshot": {
			into: &spec.CreateVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				_, err := c.CreateVolume(ctx, api.CreateRequest{Name: "pvc-1", SnapshotID: oddID})
				return err
			},
			want: `{"name":"pvc-1","volume_content_source":{"snapshot":{"snapshot_id":"` + oddID + `"}}}`,
		},
		"CreateVolumeAsCopy": {
			into: &spec.CreateVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				_, err := c.CreateVolume(ctx, api.CreateRequest{Name: "pvc-1", CloneID: "vol-1"})
				return err
			},
			want: `{"name":"pvc-1","volume_content_source":{"volume":{"volume_id":"vol-1"}}}`,
		},
		"CreateVolumeFull": {
			into: &spec.CreateVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				_, err := c.CreateVolume(ctx, api.CreateRequest{
					Name: "pvc-1", CapacityMin: 1, CapacityMax: 2, MountOptions: options,
					Capabilities: []api.Capability{writer, {AccessMode: api.MultiNodeReaderOnly, AttachmentMode: api.BlockDevice}},
					Parameters:   map[string]string{"type": "ssd"},
					TopologyRequest: &api.TopologyRequest{
						Required:  []api.Topology{{"zone": "a"}, {}, {"zone": "b"}},
						Preferred: []api.Topology{{"zone": "b"}},
					},
				})
				return err
			},
			want: `{"name":"pvc-1","capacity_range":{"required_bytes":"1","limit_bytes":"2"},"volume_capabilities":[` +
				`{"mount":{"fs_type":"xfs","mount_flags":["noatime","ro"]},"access_mode":{"mode":"SINGLE_NODE_WRITER"}},` +
				`{"block":{},"access_mode":{"mode":"MULTI_NODE_READER_ONLY"}}],"parameters":{"type":"ssd"},` +
				`"accessibility_requirements":{"requisite":[{"segments":{"zone":"a"}},{"segments":{"zone":"b"}}],` +
				`"preferred":[{"segments":{"zone":"b"}}]}}`,
		},
		"CreateVolumeLeavesOutWhatIsNotAsked": {
			into: &spec.CreateVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				_, err := c.CreateVolume(ctx, api.CreateRequest{
					Name: "pvc-1", Capabilities: []api.Capability{writer},
					TopologyRequest: &api.TopologyRequest{Required: []api.Topology{{}}, Preferred: []api.Topology{}},
				})
				return err
			},
			want: `{"name":"pvc-1","volume_capabilities":[{"mount":{},"access_mode":{"mode":"SINGLE_NODE_WRITER"}}]}`,
		},
		"CreateVolumeModesThatBecomeOneAreSentOnce": {
			into: &spec.CreateVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				_, err := c.CreateVolume(ctx, api.CreateRequest{Name: "n", Capabilities: []api.Capability{
					writer, {AccessMode: api.SingleNodeMultiWriter, AttachmentMode: api.FileSystem},
				}})
				return err
			},
			want: `{"name":"n","volume_capabilities":[{"mount":{},"access_mode":{"mode":"SINGLE_NODE_WRITER"}}]}`,
		},
		"DeleteVolume": {
			into: &spec.DeleteVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				return c.DeleteVolume(ctx, api.DeleteRequest{ExternalID: oddID})
			},
			want: `{"volume_id":"` + oddID + `"}`,
		},
		"ControllerPublish": {
			into: &spec.ControllerPublishVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				_, err := c.ControllerPublish(ctx, api.PublishRequest{
					ExternalID: oddID, ExternalNodeID: "i-1", Capability: writer, MountOptions: options, ReadOnly: true,
					Context: map[string]string{"pool": "a"},
				})
				return err
			},
			want: `{"volume_id":"` + oddID + `","node_id":"i-1","volume_capability":{"mount":{"fs_type":"xfs",` +
				`"mount_flags":["noatime","ro"]},"access_mode":{"mode":"SINGLE_NODE_WRITER"}},"readonly":true,"volume_context":{"pool":"a"}}`,
		},
		"ControllerUnpublish": {
			into: &spec.ControllerUnpublishVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				return c.ControllerUnpublish(ctx, api.UnpublishRequest{ExternalID: "v", ExternalNodeID: "i-1"})
			},
			want: `{"volume_id":"v","node_id":"i-1"}`,
		},
		"NodeStage": {
			into: &spec.NodeStageVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				return c.NodeStage(ctx, csi.StageRequest{
					ExternalID: "v", StagingPath: "/s", Capability: writer, MountOptions: options,
					Context: map[string]string{"pool": "a"}, PublishContext: map[string]string{"device": "/dev/sdb"},
				})
			},
			want: `{"volume_id":"v","publish_context":{"device":"/dev/sdb"},"staging_target_path":"/s","volume_capability":` +
				`{"mount":{"fs_type":"xfs","mount_flags":["noatime","ro"]},"access_mode":{"mode":"SINGLE_NODE_WRITER"}},"volume_context":{"pool":"a"}}`,
		},
		"NodeStageForAGroup": {
			into: &spec.NodeStageVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				return c.NodeStage(ctx, csi.StageRequest{ExternalID: "v", StagingPath: "/s", Capability: writer, Group: 4711})
			},
			want: `{"volume_id":"v","staging_target_path":"/s","volume_capability":{"mount":{"volume_mount_group":"4711"},"access_mode":{"mode":"SINGLE_NODE_WRITER"}}}`,
		},
		"NodePublishForAGroup": {
			into: &spec.NodePublishVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				return c.NodePublish(ctx, csi.PublishRequest{ExternalID: "v", TargetPath: "/t", Capability: writer, Group: 4711})
			},
			want: `{"volume_id":"v","target_path":"/t","volume_capability":{"mount":{"volume_mount_group":"4711"},"access_mode":{"mode":"SINGLE_NODE_WRITER"}}}`,
		},
		"NodeUnstage": {
			into: &spec.NodeUnstageVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				return c.NodeUnstage(ctx, csi.UnstageRequest{ExternalID: "v", StagingPath: "/s"})
			},
			want: `{"volume_id":"v","staging_target_path":"/s"}`,
		},
		"NodePublish": {
			into: &spec.NodePublishVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				return c.NodePublish(ctx, csi.PublishRequest{
					ExternalID: "v", StagingPath: "/s", TargetPath: "/t", ReadOnly: true, MountOptions: options,
					Capability: api.Capability{AccessMode: api.MultiNodeMultiWriter, AttachmentMode: api.BlockDevice},
					Context:    map[string]string{"pool": "a"}, PublishContext: map[string]string{"device": "/dev/sdb"},
				})
			},
			want: `{"volume_id":"v","publish_context":{"device":"/dev/sdb"},"staging_target_path":"/s","target_path":"/t",` +
				`"volume_capability":{"block":{},"access_mode":{"mode":"MULTI_NODE_MULTI_WRITER"}},"readonly":true,"volume_context":{"pool":"a"}}`,
		},
		"NodeUnpublish": {
			into: &spec.NodeUnpublishVolumeRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				return c.NodeUnpublish(ctx, csi.UnpublishRequest{ExternalID: "v", TargetPath: "/t"})
			},
			want: `{"volume_id":"v","target_path":"/t"}`,
		},
		"NodeStats": {
			into: &spec.NodeGetVolumeStatsRequest{},
			call: func(ctx context.Context, c *csi.Client) error {
				_, err := c.NodeStats(ctx, csi.StatsRequest{ExternalID: "v", VolumePath: "/t", StagingPath: "/s"})
				return err
			},
			want: `{"volume_id":"v","volume_path":"/t","staging_target_path":"/s"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, asked := recorder(t)
			if err := test.call(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, asked(test.into)); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAccessModes(t *testing.T) {
	t.Parallel()
	const (
		single = "SINGLE_NODE_SINGLE_WRITER"
		multi  = "SINGLE_NODE_MULTI_WRITER"
	)
	modes := map[api.AccessMode]string{
		api.SingleNodeWriter:      "SINGLE_NODE_WRITER",
		api.SingleNodeReaderOnly:  "SINGLE_NODE_READER_ONLY",
		api.MultiNodeReaderOnly:   "MULTI_NODE_READER_ONLY",
		api.MultiNodeSingleWriter: "MULTI_NODE_SINGLE_WRITER",
		api.MultiNodeMultiWriter:  "MULTI_NODE_MULTI_WRITER",
	}
	has := []string{api.CapStageUnstage, api.CapSingleNodeMultiWrite}
	c, asked := recorder(t)
	for _, mode := range api.AccessModes() {
		for name, test := range map[string]struct {
			controller, node        []string
			wantAttach, wantPublish map[api.AccessMode]string
		}{
			"unknown": {},
			"neither": {controller: []string{api.CapPublishUnpublish}, node: []string{api.CapStageUnstage}},
			"controller": {
				controller: has, wantAttach: map[api.AccessMode]string{api.SingleNodeSingleWriter: single, api.SingleNodeMultiWriter: multi},
			},
			"node": {
				node: has, wantPublish: map[api.AccessMode]string{api.SingleNodeSingleWriter: single, api.SingleNodeMultiWriter: multi},
			},
		} {
			capability := api.Capability{AccessMode: mode, AttachmentMode: api.BlockDevice}
			want := func(special map[api.AccessMode]string) string {
				for _, m := range []map[api.AccessMode]string{special, modes} {
					if word := m[mode]; word != "" {
						return word
					}
				}
				return "SINGLE_NODE_WRITER"
			}
			told := c.WithCapabilities(test.controller, test.node)
			if _, err := told.ControllerPublish(t.Context(), api.PublishRequest{Capability: capability}); err != nil {
				t.Fatal(err)
			}
			attach := asked(&spec.ControllerPublishVolumeRequest{})
			if err := told.NodePublish(t.Context(), csi.PublishRequest{Capability: capability}); err != nil {
				t.Fatal(err)
			}
			publish := asked(&spec.NodePublishVolumeRequest{})
			for got, want := range map[string]string{attach: want(test.wantAttach), publish: want(test.wantPublish)} {
				if !strings.Contains(got, `"mode":"`+want+`"`) {
					t.Errorf("%s, capability of %s: %s, want mode %s", mode, name, got, want)
				}
			}
		}
	}
}

func TestInvalidRequests_AreNotSent(t *testing.T) {
	t.Parallel()
	c := serve(t, func(_ context.Context, method string, _ []byte) ([]byte, error) {
		t.Errorf("%s was sent", method)
		return nil, nil
	})
	bad := api.Capability{AccessMode: "both-nodes", AttachmentMode: api.FileSystem}
	worse := api.Capability{AccessMode: api.SingleNodeWriter, AttachmentMode: "usb"}
	create := func(r api.CreateRequest) error { _, err := c.CreateVolume(t.Context(), r); return err }
	publish := func(r api.PublishRequest) error { _, err := c.ControllerPublish(t.Context(), r); return err }
	expand := func(r api.ExpandRequest) error { _, err := c.ControllerExpand(t.Context(), r); return err }
	grow := func(r csi.NodeExpandRequest) error { _, err := c.NodeExpand(t.Context(), r); return err }
	for _, test := range []struct {
		err             error
		method, message string
	}{
		{create(api.CreateRequest{Capabilities: []api.Capability{writer, bad}}), "CreateVolume", `the access mode is "both-nodes"`},
		{create(api.CreateRequest{Capabilities: []api.Capability{writer}, TopologyRequest: &api.TopologyRequest{
			Preferred: []api.Topology{{"Zone": "a", "zone": "b"}},
		}}), "CreateVolume", `the keys "Zone" and "zone", which are one`},
		{publish(api.PublishRequest{Capability: worse}), "ControllerPublishVolume", `the attachment mode is "usb"`},
		{expand(api.ExpandRequest{Capability: bad}), "ControllerExpandVolume", `the access mode is "both-nodes"`},
		{grow(csi.NodeExpandRequest{NodeExpandRequest: api.NodeExpandRequest{Capability: bad}}), "NodeExpandVolume", `the access mode is "both-nodes"`},
		{c.ControllerUnpublish(t.Context(), api.UnpublishRequest{ExternalID: "v"}), "ControllerUnpublishVolume", "every node"},
		{c.NodeStage(t.Context(), csi.StageRequest{Capability: bad}), "NodeStageVolume", `"both-nodes"`},
		{c.NodePublish(t.Context(), csi.PublishRequest{}), "NodePublishVolume", `the access mode is ""`},
		{c.DeleteVolume(t.Context(), api.DeleteRequest{ExternalID: "not\xffutf8"}), "DeleteVolume", "cannot be encoded"},
	} {
		wantError(t, test.err, csi.Error{Method: test.method, Code: csi.CodeInvalidArgument, Message: test.message, Unsent: true})
	}
}
