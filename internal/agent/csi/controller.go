package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/berth-dev/berth/api"
)

// CreateVolume makes a volume, or finds the one that an earlier call with the
// same request made. The result has its id, capacity, context and topology.
func (c *Client) CreateVolume(ctx context.Context, r api.CreateRequest) (api.OperationResult, error) {
	const method = "CreateVolume"
	capabilities, err := volumeCapabilities(r.Capabilities, r.MountOptions, c.controllerMultiWriter)
	if err != nil {
		return api.OperationResult{}, invalid(method, "%s", err)
	}
	topology, err := requirement(r.TopologyRequest)
	if err != nil {
		return api.OperationResult{}, invalid(method, "%s", err)
	}
	request := &csi.CreateVolumeRequest{
		Name:                      r.Name,
		VolumeCapabilities:        capabilities,
		Parameters:                r.Parameters,
		MutableParameters:         r.MutableParameters,
		AccessibilityRequirements: topology,
		Secrets:                   c.secrets,
	}
	if r.CapacityMin != 0 || r.CapacityMax != 0 {
		request.CapacityRange = &csi.CapacityRange{RequiredBytes: r.CapacityMin, LimitBytes: r.CapacityMax}
	}
	request.VolumeContentSource = contentSource(&r)
	var response csi.CreateVolumeResponse
	if err := c.invoke(ctx, csi.Controller_CreateVolume_FullMethodName, request, &response); err != nil {
		return api.OperationResult{}, err
	}
	return described(method, response.GetVolume())
}

// contentSource is the content that a new volume begins with (CSI spec,
// VolumeContentSource), nil for none.
func contentSource(r *api.CreateRequest) *csi.VolumeContentSource {
	switch {
	case r.SnapshotID != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: r.SnapshotID},
		}}
	case r.CloneID != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: r.CloneID},
		}}
	}
	return nil
}

// described is a volume as a driver describes it in the answer to a method.
func described(method string, v *csi.Volume) (api.OperationResult, error) {
	switch {
	case v == nil:
		return api.OperationResult{}, broken(method, "the answer has no volume")
	case v.GetVolumeId() == "":
		return api.OperationResult{}, broken(method, "volume_id is empty")
	case v.GetCapacityBytes() < 0:
		return api.OperationResult{}, broken(method, "capacity_bytes is %d", v.GetCapacityBytes())
	}
	if err := checkString("volume_id", v.GetVolumeId()); err != nil {
		return api.OperationResult{}, broken(method, "%s", err)
	}
	if err := checkMap("volume_context", v.GetVolumeContext()); err != nil {
		return api.OperationResult{}, broken(method, "%s", err)
	}
	topologies, err := fromTopologies(v.GetAccessibleTopology())
	if err != nil {
		return api.OperationResult{}, broken(method, "%s", err)
	}
	return api.OperationResult{
		ExternalID:         v.GetVolumeId(),
		Capacity:           v.GetCapacityBytes(),
		Context:            v.GetVolumeContext(),
		AccessibleTopology: topologies,
		SnapshotID:         v.GetContentSource().GetSnapshot().GetSnapshotId(),
		CloneID:            v.GetContentSource().GetVolume().GetVolumeId(),
	}, nil
}

// DeleteVolume deletes a volume. One that is not there is no error.
func (c *Client) DeleteVolume(ctx context.Context, r api.DeleteRequest) error {
	request := &csi.DeleteVolumeRequest{VolumeId: r.ExternalID, Secrets: c.secrets}
	return c.invoke(ctx, csi.Controller_DeleteVolume_FullMethodName, request, &csi.DeleteVolumeResponse{})
}

// ControllerPublish attaches a volume to a node. The result has the publish
// context.
func (c *Client) ControllerPublish(ctx context.Context, r api.PublishRequest) (api.OperationResult, error) {
	const method = "ControllerPublishVolume"
	capability, err := volumeCapability(r.Capability, r.MountOptions, c.controllerMultiWriter)
	if err != nil {
		return api.OperationResult{}, invalid(method, "%s", err)
	}
	request := &csi.ControllerPublishVolumeRequest{
		VolumeId:         r.ExternalID,
		NodeId:           r.ExternalNodeID,
		VolumeCapability: capability,
		Readonly:         r.ReadOnly,
		VolumeContext:    r.Context,
		Secrets:          c.secrets,
	}
	var response csi.ControllerPublishVolumeResponse
	if err := c.invoke(ctx, csi.Controller_ControllerPublishVolume_FullMethodName, request, &response); err != nil {
		return api.OperationResult{}, err
	}
	if err := checkMap("publish_context", response.GetPublishContext()); err != nil {
		return api.OperationResult{}, broken(method, "%s", err)
	}
	return api.OperationResult{PublishContext: response.GetPublishContext()}, nil
}

// ControllerUnpublish detaches a volume from a node. The node must be named:
// without one the specification means all of them.
func (c *Client) ControllerUnpublish(ctx context.Context, r api.UnpublishRequest) error {
	if r.ExternalNodeID == "" {
		return invalid("ControllerUnpublishVolume", "the node is not named, which means every node")
	}
	request := &csi.ControllerUnpublishVolumeRequest{VolumeId: r.ExternalID, NodeId: r.ExternalNodeID, Secrets: c.secrets}
	response := &csi.ControllerUnpublishVolumeResponse{}
	return c.invoke(ctx, csi.Controller_ControllerUnpublishVolume_FullMethodName, request, response)
}
