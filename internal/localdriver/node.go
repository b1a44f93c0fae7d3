package localdriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

// node is the Node service. What is not implemented here answers
// UNIMPLEMENTED, and is not advertised.
type node struct {
	csi.UnimplementedNodeServer
	volumes *volumes
	most    int64
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	rpcs := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP,
		csi.NodeServiceCapability_RPC_VOLUME_CONDITION,
	}
	response := &csi.NodeGetCapabilitiesResponse{}
	for _, rpc := range rpcs {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: rpc}},
		})
	}
	return response, nil
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{
		NodeId: n.volumes.node, AccessibleTopology: topology(n.volumes.node), MaxVolumesPerNode: n.most,
	}, nil
}

func (n *node) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "staging_target_path", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	use, err := readCapability(r.GetVolumeCapability(), codes.FailedPrecondition)
	if err != nil {
		return nil, err
	}
	staging := record.Staging{Path: r.GetStagingTargetPath(), Use: use}
	if err := n.volumes.stage(ctx, r.GetVolumeId(), staging); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (n *node) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "staging_target_path", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := n.volumes.unstage(ctx, r.GetVolumeId(), r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (n *node) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "target_path", r.GetTargetPath()); err != nil {
		return nil, err
	}
	use, err := readCapability(r.GetVolumeCapability(), codes.FailedPrecondition)
	if err != nil {
		return nil, err
	}
	if r.GetStagingTargetPath() == "" {
		return nil, refuse(codes.FailedPrecondition, "staging_target_path is missing: this driver stages volumes")
	}
	want := record.Publication{ReadOnly: r.GetReadonly(), Use: use}
	if err := n.volumes.publish(r.GetVolumeId(), r.GetStagingTargetPath(), r.GetTargetPath(), want); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n *node) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "target_path", r.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := n.volumes.unpublish(r.GetVolumeId(), r.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (n *node) NodeGetVolumeStats(ctx context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "volume_path", r.GetVolumePath()); err != nil {
		return nil, err
	}
	usage, condition, err := n.volumes.stats(ctx, r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: usage, VolumeCondition: condition}, nil
}

func (n *node) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "volume_path", r.GetVolumePath()); err != nil {
		return nil, err
	}
	want, err := readSize(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	capacity, err := n.volumes.expandOnNode(ctx, r.GetVolumeId(), r.GetVolumePath(), want.required)
	if err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: capacity}, nil
}
