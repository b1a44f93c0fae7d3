package csi_test

import (
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
)

func TestRequestsOfChanges(t *testing.T) {
	t.Parallel()
	const capability = `{"mount":{"fs_type":"xfs"},"access_mode":{"mode":"SINGLE_NODE_WRITER"}}`
	options := &api.MountOptions{FSType: "xfs"}
	for name, test := range map[string]struct {
		into proto.Message
		call func(c *csi.Client) error
		want string
	}{
		"ControllerExpandVolume": {&spec.ControllerExpandVolumeRequest{}, func(c *csi.Client) error {
			_, err := c.ControllerExpand(t.Context(), api.ExpandRequest{
				ExternalID: oddID, CapacityMin: 2 << 30, CapacityMax: 3 << 30, Capability: writer, MountOptions: options,
			})
			return err
		}, `{"volume_id":"` + oddID + `","capacity_range":{"required_bytes":"2147483648","limit_bytes":"3221225472"},"secrets":{"key":"1"},"volume_capability":` + capability + `}`},
		"NodeExpandVolume": {&spec.NodeExpandVolumeRequest{}, func(c *csi.Client) error {
			_, err := c.NodeExpand(t.Context(), csi.NodeExpandRequest{
				NodeExpandRequest: api.NodeExpandRequest{ExternalID: oddID, CapacityMin: 2 << 30, Capability: writer, MountOptions: options},
				VolumePath:        "/target", StagingPath: "/staging",
			})
			return err
		}, `{"volume_id":"` + oddID + `","volume_path":"/target","capacity_range":{"required_bytes":"2147483648"},"staging_target_path":"/staging","volume_capability":` +
			capability + `,"secrets":{"key":"1"}}`},
		"ControllerModifyVolume": {&spec.ControllerModifyVolumeRequest{}, func(c *csi.Client) error {
			return c.ControllerModify(t.Context(), api.ModifyRequest{ExternalID: oddID, MutableParameters: map[string]string{"iops": "3000"}})
		}, `{"volume_id":"` + oddID + `","secrets":{"key":"1"},"mutable_parameters":{"iops":"3000"}}`},
		"CreateVolume": {&spec.CreateVolumeRequest{}, func(c *csi.Client) error {
			_, err := c.CreateVolume(t.Context(), api.CreateRequest{Name: "pvc-1", MutableParameters: map[string]string{"iops": "3000"}})
			return err
		}, `{"name":"pvc-1","secrets":{"key":"1"},"mutable_parameters":{"iops":"3000"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, asked := recorder(t)
			if err := test.call(c.WithSecrets(map[string]string{"key": "1"})); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, asked(test.into)); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpand_Answers(t *testing.T) {
	t.Parallel()
	expand := func(answer *spec.ControllerExpandVolumeResponse) (api.OperationResult, error) {
		return serve(t, always(t, answer)).ControllerExpand(t.Context(), api.ExpandRequest{CapacityMin: 2 << 30, Capability: writer})
	}
	for name, test := range map[string]struct {
		answer *spec.ControllerExpandVolumeResponse
		want   api.OperationResult
		wrong  string
	}{
		"More":            {&spec.ControllerExpandVolumeResponse{CapacityBytes: 3 << 30, NodeExpansionRequired: true}, api.OperationResult{Capacity: 3 << 30, NodeExpansionRequired: true}, ""},
		"DoesNotSay":      {&spec.ControllerExpandVolumeResponse{}, api.OperationResult{}, ""},
		"LessThanAsked":   {&spec.ControllerExpandVolumeResponse{CapacityBytes: 1 << 30}, api.OperationResult{}, "capacity_bytes is 1073741824, and 2147483648 were asked for"},
		"LessThanNothing": {&spec.ControllerExpandVolumeResponse{CapacityBytes: -1}, api.OperationResult{}, "capacity_bytes is -1"},
	} {
		got, err := expand(test.answer)
		if test.wrong != "" {
			wantError(t, err, csi.Error{Method: "ControllerExpandVolume", Code: csi.CodeInternal, Message: test.wrong})
			continue
		}
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, result (-want +got):\n%s", name, err, diff)
		}
	}
	node, err := serve(t, always(t, &spec.NodeExpandVolumeResponse{CapacityBytes: 1 << 30})).
		NodeExpand(t.Context(), csi.NodeExpandRequest{NodeExpandRequest: api.NodeExpandRequest{Capability: writer, CapacityMin: 2 << 30}})
	if diff := cmp.Diff(api.OperationResult{Capacity: 1 << 30}, node); err != nil || diff != "" {
		t.Errorf("a file system is smaller than its device: %v (-want +got):\n%s", err, diff)
	}
	_, err = serve(t, always(t, &spec.NodeExpandVolumeResponse{CapacityBytes: -1})).
		NodeExpand(t.Context(), csi.NodeExpandRequest{NodeExpandRequest: api.NodeExpandRequest{Capability: writer}})
	wantError(t, err, csi.Error{Method: "NodeExpandVolume", Code: csi.CodeInternal, Message: "capacity_bytes is -1"})
}
