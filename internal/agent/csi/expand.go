package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/berth-dev/berth/api"
)

// ControllerExpand makes a volume larger. The result has the size that it has
// now, and whether the nodes have to expand it too.
func (c *Client) ControllerExpand(ctx context.Context, r api.ExpandRequest) (api.OperationResult, error) {
	const method = "ControllerExpandVolume"
	capability, err := volumeCapability(r.Capability, r.MountOptions, c.controllerMultiWriter)
	if err != nil {
		return api.OperationResult{}, invalid(method, "%s", err)
	}
	request := &csi.ControllerExpandVolumeRequest{
		VolumeId:         r.ExternalID,
		CapacityRange:    &csi.CapacityRange{RequiredBytes: r.CapacityMin, LimitBytes: r.CapacityMax},
		VolumeCapability: capability,
		Secrets:          c.secrets,
	}
	var response csi.ControllerExpandVolumeResponse
	if err := c.invoke(ctx, csi.Controller_ControllerExpandVolume_FullMethodName, request, &response); err != nil {
		return api.OperationResult{}, err
	}
	if err := checkSize(method, response.GetCapacityBytes(), r.CapacityMin); err != nil {
		return api.OperationResult{}, err
	}
	return api.OperationResult{Capacity: response.GetCapacityBytes(), NodeExpansionRequired: response.GetNodeExpansionRequired()}, nil
}

// checkSize refuses a size that is less than was asked for. 0 is one that is
// not known.
func checkSize(method string, size, asked int64) error {
	if size < 0 || size > 0 && size < asked {
		return broken(method, "capacity_bytes is %d, and %d were asked for", size, asked)
	}
	return nil
}

// ControllerModify changes the mutable parameters that are named.
func (c *Client) ControllerModify(ctx context.Context, r api.ModifyRequest) error {
	request := &csi.ControllerModifyVolumeRequest{VolumeId: r.ExternalID, Secrets: c.secrets, MutableParameters: r.MutableParameters}
	return c.invoke(ctx, csi.Controller_ControllerModifyVolume_FullMethodName, request, &csi.ControllerModifyVolumeResponse{})
}

// NodeExpandRequest is NodeExpandVolume's.
type NodeExpandRequest struct {
	api.NodeExpandRequest
	// VolumePath is where the volume is published, or staged if it is not
	// published.
	VolumePath string
	// StagingPath is empty if the driver does not stage.
	StagingPath string
}

// NodeExpand has what is on a volume grow on this node. The result has its size
// if the driver tells it.
func (c *Client) NodeExpand(ctx context.Context, r NodeExpandRequest) (api.OperationResult, error) {
	const method = "NodeExpandVolume"
	capability, err := volumeCapability(r.Capability, r.MountOptions, c.nodeMultiWriter)
	if err != nil {
		return api.OperationResult{}, invalid(method, "%s", err)
	}
	request := &csi.NodeExpandVolumeRequest{
		VolumeId:          r.ExternalID,
		VolumePath:        r.VolumePath,
		StagingTargetPath: r.StagingPath,
		CapacityRange:     &csi.CapacityRange{RequiredBytes: r.CapacityMin, LimitBytes: r.CapacityMax},
		VolumeCapability:  capability,
		Secrets:           c.secrets,
	}
	var response csi.NodeExpandVolumeResponse
	if err := c.invoke(ctx, csi.Node_NodeExpandVolume_FullMethodName, request, &response); err != nil {
		return api.OperationResult{}, err
	}
	if response.GetCapacityBytes() < 0 {
		return api.OperationResult{}, broken(method, "capacity_bytes is %d", response.GetCapacityBytes())
	}
	return api.OperationResult{Capacity: response.GetCapacityBytes()}, nil
}
