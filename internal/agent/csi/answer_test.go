package csi_test

import (
	"context"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
)

func TestCreateVolume_Answer(t *testing.T) {
	t.Parallel()
	c := serve(t, always(t, &spec.CreateVolumeResponse{Volume: &spec.Volume{
		VolumeId: oddID, CapacityBytes: 5 << 30, VolumeContext: map[string]string{"k": "v"},
		AccessibleTopology: []*spec.Topology{{Segments: map[string]string{"Zone": "a"}}, {Segments: map[string]string{"Zone": "b"}}},
	}}))
	got, err := c.CreateVolume(t.Context(), api.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := api.OperationResult{
		ExternalID: oddID, Capacity: 5 << 30, Context: map[string]string{"k": "v"},
		AccessibleTopology: []api.Topology{{"Zone": "a"}, {"Zone": "b"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

// A plugin that makes an empty volume where a copy was asked for would be taken
// for one that has lost the data.
func TestCreateVolume_TellsTheContentOfTheVolume(t *testing.T) {
	t.Parallel()
	snapshot := &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Snapshot{
		Snapshot: &spec.VolumeContentSource_SnapshotSource{SnapshotId: "other"},
	}}
	volume := &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Volume{
		Volume: &spec.VolumeContentSource_VolumeSource{VolumeId: "vol-1"},
	}}
	for _, test := range []struct {
		answer *spec.VolumeContentSource
		want   api.OperationResult
	}{
		{nil, api.OperationResult{ExternalID: "v"}},
		{snapshot, api.OperationResult{ExternalID: "v", SnapshotID: "other"}},
		{volume, api.OperationResult{ExternalID: "v", CloneID: "vol-1"}},
	} {
		c := serve(t, always(t, &spec.CreateVolumeResponse{Volume: &spec.Volume{VolumeId: "v", ContentSource: test.answer}}))
		got, err := c.CreateVolume(t.Context(), api.CreateRequest{SnapshotID: "snap-1"})
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
}

func TestCreateVolume_TopologyWithoutSegmentsIsEverywhere(t *testing.T) {
	t.Parallel()
	c := serve(t, always(t, &spec.CreateVolumeResponse{Volume: &spec.Volume{
		VolumeId: "v", AccessibleTopology: []*spec.Topology{{Segments: map[string]string{"zone": "a"}}, {}},
	}}))
	got, err := c.CreateVolume(t.Context(), api.CreateRequest{})
	if diff := cmp.Diff(api.OperationResult{ExternalID: "v"}, got); err != nil || diff != "" {
		t.Errorf("result: %v (-want +got):\n%s", err, diff)
	}
}

// Drivers in use exceed the specification's 128 bytes.
func TestCreateVolume_LongIDsOfRealDriversAreTaken(t *testing.T) {
	t.Parallel()
	id := "/subscriptions/" + strings.Repeat("0123456789abcdef/", 20)
	c := serve(t, always(t, &spec.CreateVolumeResponse{Volume: &spec.Volume{VolumeId: id}}))
	if got, err := c.CreateVolume(t.Context(), api.CreateRequest{}); err != nil || got.ExternalID != id {
		t.Errorf("result = %+v, %v", got, err)
	}
}

func TestAnswersThatBreakTheSpecification(t *testing.T) {
	t.Parallel()
	long, huge := strings.Repeat("x", 2<<10), map[string]string{"k": strings.Repeat("x", 40<<10)}
	twice := &spec.Topology{Segments: map[string]string{"zone": "a", "ZONE": "b"}}
	create := func(ctx context.Context, c *csi.Client) error {
		_, err := c.CreateVolume(ctx, api.CreateRequest{})
		return err
	}
	publish := func(ctx context.Context, c *csi.Client) error {
		_, err := c.ControllerPublish(ctx, api.PublishRequest{Capability: writer})
		return err
	}
	node := func(ctx context.Context, c *csi.Client) error { _, err := c.NodeInfo(ctx); return err }
	info := func(ctx context.Context, c *csi.Client) error { _, err := c.Info(ctx); return err }
	stats := func(ctx context.Context, c *csi.Client) error {
		_, err := c.NodeStats(ctx, csi.StatsRequest{})
		return err
	}
	for name, test := range map[string]struct {
		call    func(context.Context, *csi.Client) error
		answer  proto.Message
		method  string
		message string
	}{
		"NoVolume":           {create, &spec.CreateVolumeResponse{}, "CreateVolume", "the answer has no volume"},
		"NoVolumeID":         {create, &spec.CreateVolumeResponse{Volume: &spec.Volume{}}, "CreateVolume", "volume_id is empty"},
		"LongVolumeID":       {create, &spec.CreateVolumeResponse{Volume: &spec.Volume{VolumeId: long}}, "CreateVolume", "volume_id has 2048 bytes"},
		"NegativeCapacity":   {create, &spec.CreateVolumeResponse{Volume: &spec.Volume{VolumeId: "v", CapacityBytes: -1}}, "CreateVolume", "capacity_bytes is -1"},
		"HugeContext":        {create, &spec.CreateVolumeResponse{Volume: &spec.Volume{VolumeId: "v", VolumeContext: huge}}, "CreateVolume", "volume_context has 40961 bytes"},
		"TopologyKeyTwice":   {create, &spec.CreateVolumeResponse{Volume: &spec.Volume{VolumeId: "v", AccessibleTopology: []*spec.Topology{twice}}}, "CreateVolume", `"ZONE" and "zone"`},
		"HugeTopology":       {create, &spec.CreateVolumeResponse{Volume: &spec.Volume{VolumeId: "v", AccessibleTopology: []*spec.Topology{{Segments: huge}}}}, "CreateVolume", "topology segments"},
		"HugePublishContext": {publish, &spec.ControllerPublishVolumeResponse{PublishContext: huge}, "ControllerPublishVolume", "publish_context has"},
		"NoNodeID":           {node, &spec.NodeGetInfoResponse{}, "NodeGetInfo", "node_id is empty"},
		"LongNodeID":         {node, &spec.NodeGetInfoResponse{NodeId: long}, "NodeGetInfo", "node_id has 2048 bytes"},
		"NegativeMax":        {node, &spec.NodeGetInfoResponse{NodeId: "n", MaxVolumesPerNode: -1}, "NodeGetInfo", "max_volumes_per_node is -1"},
		"NodeTopologyTwice":  {node, &spec.NodeGetInfoResponse{NodeId: "n", AccessibleTopology: twice}, "NodeGetInfo", "which are one"},
		"NoName":             {info, &spec.GetPluginInfoResponse{VendorVersion: "1"}, "GetPluginInfo", "the name is empty"},
		"LongName":           {info, &spec.GetPluginInfoResponse{Name: long}, "GetPluginInfo", "name has 2048 bytes"},
		"LongVersion":        {info, &spec.GetPluginInfoResponse{Name: "n", VendorVersion: long}, "GetPluginInfo", "vendor_version has 2048 bytes"},
		"NegativeUsage":      {stats, &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{{Used: -1}}}, "NodeGetVolumeStats", "a usage is negative"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := test.call(t.Context(), serve(t, always(t, test.answer)))
			wantError(t, err, csi.Error{Method: test.method, Code: csi.CodeInternal, Message: test.message})
			wantError(t, err, csi.Error{Method: test.method, Code: csi.CodeInternal, Message: "the driver broke the CSI specification"})
		})
	}
}

func TestAnswersThatAreNoMessages(t *testing.T) {
	t.Parallel()
	badUTF8 := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff\xfe")
	for name, answer := range map[string][]byte{"Garbage": {0xff, 0xff}, "NotUTF8": badUTF8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, func(context.Context, string, []byte) ([]byte, error) { return answer, nil })
			_, err := c.Info(t.Context())
			wantError(t, err, csi.Error{Method: "GetPluginInfo", Code: csi.CodeInternal})
		})
	}
}

func TestHugeAnswer_IsRefused(t *testing.T) {
	t.Parallel()
	c := newClient(t, listen(t, always(t, &spec.GetPluginInfoResponse{Name: strings.Repeat("x", 1<<20)})), csi.Config{MaxMessage: 1 << 20, ConnectTimeout: time.Minute})
	_, err := c.Info(t.Context())
	wantError(t, err, csi.Error{Method: "GetPluginInfo", Code: csi.CodeInternal, Message: "received message larger than max"})
	// A megabyte is no trouble if it is allowed; the name is.
	c = serve(t, always(t, &spec.GetPluginInfoResponse{Name: strings.Repeat("x", 1<<20)}))
	_, err = c.Info(t.Context())
	wantError(t, err, csi.Error{Method: "GetPluginInfo", Code: csi.CodeInternal, Message: "name has 1048576 bytes"})
}

func TestProbe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer *spec.ProbeResponse
		want   bool
	}{
		"SaysNothing": {&spec.ProbeResponse{}, true},
		"SaysReady":   {&spec.ProbeResponse{Ready: wrapperspb.Bool(true)}, true},
		"Starting":    {&spec.ProbeResponse{Ready: wrapperspb.Bool(false)}, false},
	} {
		if got, err := serve(t, always(t, test.answer)).Probe(t.Context()); err != nil || got != test.want {
			t.Errorf("%s: ready = %v, %v; want %v", name, got, err, test.want)
		}
	}
	c := serve(t, func(context.Context, string, []byte) ([]byte, error) {
		return nil, status.Error(codes.FailedPrecondition, "no license")
	})
	_, err := c.Probe(t.Context())
	wantError(t, err, csi.Error{Method: "Probe", Code: csi.CodeFailedPrecondition, Message: "no license"})
}

func TestCapabilities_KeepWhatTheyDoNotKnow(t *testing.T) {
	t.Parallel()
	service := func(t spec.PluginCapability_Service_Type) *spec.PluginCapability {
		return &spec.PluginCapability{Type: &spec.PluginCapability_Service_{Service: &spec.PluginCapability_Service{Type: t}}}
	}
	expansion := func(t spec.PluginCapability_VolumeExpansion_Type) *spec.PluginCapability {
		return &spec.PluginCapability{Type: &spec.PluginCapability_VolumeExpansion_{VolumeExpansion: &spec.PluginCapability_VolumeExpansion{Type: t}}}
	}
	plugin, err := serve(t, always(t, &spec.GetPluginCapabilitiesResponse{Capabilities: []*spec.PluginCapability{
		service(spec.PluginCapability_Service_CONTROLLER_SERVICE), service(77), expansion(spec.PluginCapability_VolumeExpansion_ONLINE), {}, {},
	}})).PluginCapabilities(t.Context())
	if diff := cmp.Diff([]string{"CONTROLLER_SERVICE", "ONLINE", "UNKNOWN", "UNKNOWN(77)"}, plugin); err != nil || diff != "" {
		t.Errorf("plugin: %v (-want +got):\n%s", err, diff)
	}

	rpc := func(t spec.ControllerServiceCapability_RPC_Type) *spec.ControllerServiceCapability {
		return &spec.ControllerServiceCapability{Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: t}}}
	}
	controller, err := serve(t, always(t, &spec.ControllerGetCapabilitiesResponse{Capabilities: []*spec.ControllerServiceCapability{
		rpc(spec.ControllerServiceCapability_RPC_PUBLISH_READONLY), rpc(0), rpc(-1), rpc(16), rpc(spec.ControllerServiceCapability_RPC_PUBLISH_READONLY),
	}})).ControllerCapabilities(t.Context())
	if diff := cmp.Diff([]string{api.CapPublishReadonly, "UNKNOWN", "UNKNOWN(-1)", "UNKNOWN(16)"}, controller); err != nil || diff != "" {
		t.Errorf("controller: %v (-want +got):\n%s", err, diff)
	}

	node, err := serve(t, always(t, &spec.NodeGetCapabilitiesResponse{Capabilities: []*spec.NodeServiceCapability{
		{Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: 8}}},
		{Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}},
	}})).NodeCapabilities(t.Context())
	if diff := cmp.Diff([]string{api.CapStageUnstage, "UNKNOWN(8)"}, node); err != nil || diff != "" {
		t.Errorf("node: %v (-want +got):\n%s", err, diff)
	}
}

func TestNodeInfo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answer *spec.NodeGetInfoResponse
		want   csi.NodeInfo
	}{
		{&spec.NodeGetInfoResponse{NodeId: "i-1"}, csi.NodeInfo{ID: "i-1"}},
		{&spec.NodeGetInfoResponse{NodeId: "i-1", AccessibleTopology: &spec.Topology{}}, csi.NodeInfo{ID: "i-1"}},
		{
			&spec.NodeGetInfoResponse{NodeId: oddID, MaxVolumesPerNode: 16, AccessibleTopology: &spec.Topology{Segments: map[string]string{"x/Zone": "a"}}},
			csi.NodeInfo{ID: oddID, MaxVolumes: 16, Topology: api.Topology{"x/Zone": "a"}},
		},
	} {
		got, err := serve(t, always(t, test.answer)).NodeInfo(t.Context())
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("node info: %v (-want +got):\n%s", err, diff)
		}
	}
}

func TestNodeStats(t *testing.T) {
	t.Parallel()
	c := serve(t, always(t, &spec.NodeGetVolumeStatsResponse{
		Usage: []*spec.VolumeUsage{
			{Unit: spec.VolumeUsage_BYTES, Total: 10, Used: 4, Available: 6}, {Unit: 9, Total: 1},
			{Unit: spec.VolumeUsage_INODES, Total: 100},
		},
		VolumeCondition: &spec.VolumeCondition{Abnormal: true, Message: "not\x00 mounted"},
	}))
	got, err := c.NodeStats(t.Context(), csi.StatsRequest{})
	want := api.VolumeUsage{
		Bytes: &api.Usage{Total: 10, Used: 4, Available: 6}, Inodes: &api.Usage{Total: 100},
		Condition: &api.VolumeCondition{Abnormal: true, Message: "not mounted"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("stats: %v (-want +got):\n%s", err, diff)
	}
}
