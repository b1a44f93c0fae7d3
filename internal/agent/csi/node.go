package csi

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/berth-dev/berth/api"
)

// NodeInfo is what a driver says of the node that it runs on.
type NodeInfo struct {
	// ID is the storage provider's name for the node.
	ID string
	// MaxVolumes is how many volumes the node can have published, 0 if the
	// driver names no limit.
	MaxVolumes int64
	// Topology is nil if the driver names none.
	Topology api.Topology
}

// NodeInfo calls NodeGetInfo.
func (c *Client) NodeInfo(ctx context.Context) (NodeInfo, error) {
	var r csi.NodeGetInfoResponse
	if err := c.invoke(ctx, csi.Node_NodeGetInfo_FullMethodName, &csi.NodeGetInfoRequest{}, &r); err != nil {
		return NodeInfo{}, err
	}
	const method = "NodeGetInfo"
	switch {
	case r.GetNodeId() == "":
		return NodeInfo{}, broken(method, "node_id is empty")
	case r.GetMaxVolumesPerNode() < 0:
		return NodeInfo{}, broken(method, "max_volumes_per_node is %d", r.GetMaxVolumesPerNode())
	}
	if err := checkString("node_id", r.GetNodeId()); err != nil {
		return NodeInfo{}, broken(method, "%s", err)
	}
	topology, err := fromTopology(r.GetAccessibleTopology())
	if err != nil {
		return NodeInfo{}, broken(method, "%s", err)
	}
	return NodeInfo{ID: r.GetNodeId(), MaxVolumes: r.GetMaxVolumesPerNode(), Topology: topology}, nil
}

// StageRequest is NodeStageVolume's.
type StageRequest struct {
	ExternalID string
	// StagingPath is a directory, which is there already.
	StagingPath  string
	Capability   api.Capability
	MountOptions *api.MountOptions
	// Group is for drivers with VOLUME_MOUNT_GROUP; 0 for none.
	Group          int
	Context        map[string]string
	PublishContext map[string]string
}

// NodeStage calls NodeStageVolume.
func (c *Client) NodeStage(ctx context.Context, r StageRequest) error {
	capability, err := volumeCapability(r.Capability, r.MountOptions, c.nodeMultiWriter)
	if err != nil {
		return invalid("NodeStageVolume", "%s", err)
	}
	setGroup(capability, r.Group)
	request := &csi.NodeStageVolumeRequest{
		VolumeId:          r.ExternalID,
		StagingTargetPath: r.StagingPath,
		VolumeCapability:  capability,
		VolumeContext:     r.Context,
		PublishContext:    r.PublishContext,
		Secrets:           c.secrets,
	}
	return c.invoke(ctx, csi.Node_NodeStageVolume_FullMethodName, request, &csi.NodeStageVolumeResponse{})
}

// UnstageRequest is NodeUnstageVolume's.
type UnstageRequest struct {
	ExternalID  string
	StagingPath string
}

// NodeUnstage calls NodeUnstageVolume.
func (c *Client) NodeUnstage(ctx context.Context, r UnstageRequest) error {
	request := &csi.NodeUnstageVolumeRequest{VolumeId: r.ExternalID, StagingTargetPath: r.StagingPath}
	return c.invoke(ctx, csi.Node_NodeUnstageVolume_FullMethodName, request, &csi.NodeUnstageVolumeResponse{})
}

// PublishRequest is NodePublishVolume's.
type PublishRequest struct {
	ExternalID string
	// StagingPath is empty if the driver does not stage.
	StagingPath string
	// TargetPath is made by the driver; its parent is there already.
	TargetPath   string
	ReadOnly     bool
	Capability   api.Capability
	MountOptions *api.MountOptions
	// Group is for drivers with VOLUME_MOUNT_GROUP; 0 for none.
	Group          int
	Context        map[string]string
	PublishContext map[string]string
}

// NodePublish calls NodePublishVolume.
func (c *Client) NodePublish(ctx context.Context, r PublishRequest) error {
	capability, err := volumeCapability(r.Capability, r.MountOptions, c.nodeMultiWriter)
	if err != nil {
		return invalid("NodePublishVolume", "%s", err)
	}
	setGroup(capability, r.Group)
	request := &csi.NodePublishVolumeRequest{
		VolumeId:          r.ExternalID,
		StagingTargetPath: r.StagingPath,
		TargetPath:        r.TargetPath,
		Readonly:          r.ReadOnly,
		VolumeCapability:  capability,
		VolumeContext:     r.Context,
		PublishContext:    r.PublishContext,
		Secrets:           c.secrets,
	}
	return c.invoke(ctx, csi.Node_NodePublishVolume_FullMethodName, request, &csi.NodePublishVolumeResponse{})
}

// UnpublishRequest is NodeUnpublishVolume's.
type UnpublishRequest struct {
	ExternalID string
	TargetPath string
}

// NodeUnpublish calls NodeUnpublishVolume.
func (c *Client) NodeUnpublish(ctx context.Context, r UnpublishRequest) error {
	request := &csi.NodeUnpublishVolumeRequest{VolumeId: r.ExternalID, TargetPath: r.TargetPath}
	return c.invoke(ctx, csi.Node_NodeUnpublishVolume_FullMethodName, request, &csi.NodeUnpublishVolumeResponse{})
}

// StatsRequest is NodeGetVolumeStats'.
type StatsRequest struct {
	ExternalID string
	// VolumePath is where the volume is published or staged.
	VolumePath  string
	StagingPath string
}

// NodeStats calls NodeGetVolumeStats. What the driver does not say is nil.
func (c *Client) NodeStats(ctx context.Context, r StatsRequest) (api.VolumeUsage, error) {
	request := &csi.NodeGetVolumeStatsRequest{
		VolumeId:          r.ExternalID,
		VolumePath:        r.VolumePath,
		StagingTargetPath: r.StagingPath,
	}
	var response csi.NodeGetVolumeStatsResponse
	if err := c.invoke(ctx, csi.Node_NodeGetVolumeStats_FullMethodName, request, &response); err != nil {
		return api.VolumeUsage{}, err
	}
	return stats(&response)
}

func stats(r *csi.NodeGetVolumeStatsResponse) (api.VolumeUsage, error) {
	var s api.VolumeUsage
	for _, u := range r.GetUsage() {
		if u.GetTotal() < 0 || u.GetUsed() < 0 || u.GetAvailable() < 0 {
			return api.VolumeUsage{}, broken("NodeGetVolumeStats", "a usage is negative: %d of %d used, %d available",
				u.GetUsed(), u.GetTotal(), u.GetAvailable())
		}
		usage := &api.Usage{Total: u.GetTotal(), Used: u.GetUsed(), Available: u.GetAvailable()}
		switch u.GetUnit() {
		case csi.VolumeUsage_BYTES:
			s.Bytes = usage
		case csi.VolumeUsage_INODES:
			s.Inodes = usage
		case csi.VolumeUsage_UNKNOWN:
		}
	}
	if condition := r.GetVolumeCondition(); condition != nil {
		s.Condition = &api.VolumeCondition{Abnormal: condition.GetAbnormal(), Message: clean(condition.GetMessage())}
	}
	return s, nil
}
