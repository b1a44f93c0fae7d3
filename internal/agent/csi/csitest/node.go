package csitest

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type nodeServer struct {
	csi.UnimplementedNodeServer
	driver *Driver
}

func (s nodeServer) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range s.driver.backend.options.nodeTypes() {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return r, nil
}

func (s nodeServer) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	r := &csi.NodeGetInfoResponse{NodeId: s.driver.config.ID, MaxVolumesPerNode: s.driver.config.MaxVolumes}
	if s.driver.backend.options.Topology {
		r.AccessibleTopology = &csi.Topology{Segments: s.driver.config.Topology}
	}
	return r, nil
}

func (s nodeServer) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	b := s.driver.backend
	if !b.options.Stage {
		return nil, status.Error(codes.Unimplemented, "volumes are not staged")
	}
	if err := s.check(r, r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	done, err := b.stage(s.driver.config.ID, r)
	if err != nil || done {
		return &csi.NodeStageVolumeResponse{}, err
	}
	if m := s.driver.config.Mounter; m != nil {
		if err := m.Stage(r.GetVolumeId(), r.GetStagingTargetPath(), isBlock(r)); err != nil {
			return nil, status.Errorf(codes.Internal, "stage: %v", err)
		}
	}
	b.update(r.GetVolumeId(), s.driver.config.ID, func(p *presence) { p.stage.real, p.stage.made = true, r })
	return &csi.NodeStageVolumeResponse{}, nil
}

// stage decides on a NodeStageVolume: done, refused, or to be done.
func (b *Backend) stage(nodeID string, r *csi.NodeStageVolumeRequest) (done bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, err := b.find(r, nodeID)
	switch {
	case err != nil:
		return false, err
	case p.stage.real && !same(p.stage.made, r):
		return false, status.Error(codes.AlreadyExists, "the volume is staged with other arguments")
	case p.stage.real:
		return true, nil
	case b.options.Attach && !p.attachment.real:
		return false, status.Error(codes.FailedPrecondition, "the volume is not attached to the node")
	}
	return false, nil
}

func (s nodeServer) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	b := s.driver.backend
	switch {
	case !b.options.Stage:
		return nil, status.Error(codes.Unimplemented, "volumes are not staged")
	case r.GetVolumeId() == "" || r.GetStagingTargetPath() == "":
		return nil, status.Error(codes.InvalidArgument, "volume_id or staging_target_path is missing")
	}
	published := false
	b.update(r.GetVolumeId(), s.driver.config.ID, func(p *presence) {
		for _, t := range p.targets {
			published = published || t.real
		}
	})
	if published {
		return nil, status.Error(codes.FailedPrecondition, "the volume is published")
	}
	if m := s.driver.config.Mounter; m != nil {
		if err := m.Unstage(r.GetStagingTargetPath()); err != nil {
			return nil, status.Errorf(codes.Internal, "unstage: %v", err)
		}
	}
	b.update(r.GetVolumeId(), s.driver.config.ID, func(p *presence) { p.stage.real, p.stage.made = false, nil })
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (s nodeServer) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	b := s.driver.backend
	if err := s.check(r, r.GetTargetPath()); err != nil {
		return nil, err
	}
	if b.options.Stage && r.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.FailedPrecondition, "staging_target_path is missing")
	}
	done, err := b.publish(s.driver.config.ID, r)
	if err != nil || done {
		return &csi.NodePublishVolumeResponse{}, err
	}
	if m := s.driver.config.Mounter; m != nil {
		err := m.Publish(r.GetVolumeId(), r.GetStagingTargetPath(), r.GetTargetPath(), isBlock(r), r.GetReadonly())
		if err != nil {
			return nil, status.Errorf(codes.Internal, "publish: %v", err)
		}
	}
	b.update(r.GetVolumeId(), s.driver.config.ID, func(p *presence) {
		t := p.target(r.GetTargetPath())
		t.real, t.made = true, r
	})
	return &csi.NodePublishVolumeResponse{}, nil
}

// publish decides on a NodePublishVolume: done, refused, or to be done.
func (b *Backend) publish(nodeID string, r *csi.NodePublishVolumeRequest) (done bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, err := b.find(r, nodeID)
	if err != nil {
		return false, err
	}
	if t := p.targets[r.GetTargetPath()]; t != nil && t.real {
		if !same(t.made, r) {
			return false, status.Error(codes.AlreadyExists, "the volume is published there with other arguments")
		}
		return true, nil
	}
	for path, t := range p.targets {
		if t.real && !manyTargets(r.GetVolumeCapability()) {
			return false, status.Errorf(codes.FailedPrecondition, "the volume is published at %s", path)
		}
	}
	switch {
	case b.options.Stage && !p.stage.real:
		return false, status.Error(codes.FailedPrecondition, "the volume is not staged")
	case b.options.Attach && !p.attachment.real:
		return false, status.Error(codes.FailedPrecondition, "the volume is not attached to the node")
	}
	return false, nil
}

func (s nodeServer) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if r.GetVolumeId() == "" || r.GetTargetPath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id or target_path is missing")
	}
	if m := s.driver.config.Mounter; m != nil {
		if err := m.Unpublish(r.GetTargetPath()); err != nil {
			return nil, status.Errorf(codes.Internal, "unpublish: %v", err)
		}
	}
	s.driver.backend.update(r.GetVolumeId(), s.driver.config.ID, func(p *presence) {
		if t := p.targets[r.GetTargetPath()]; t != nil {
			t.real, t.made = false, nil
		}
	})
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeGetVolumeStats says that a tenth is used.
func (s nodeServer) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	b := s.driver.backend
	if r.GetVolumeId() == "" || r.GetVolumePath() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id or volume_path is missing")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[r.GetVolumeId()]
	if v == nil || v.on[s.driver.config.ID] == nil {
		return nil, status.Errorf(codes.NotFound, "there is no volume %q here", r.GetVolumeId())
	}
	p := v.on[s.driver.config.ID]
	t := p.targets[r.GetVolumePath()]
	if (t == nil || !t.real) && (!p.stage.real || p.stagedAt() != r.GetVolumePath()) {
		return nil, status.Errorf(codes.NotFound, "the volume is not at %s", r.GetVolumePath())
	}
	used := v.capacity / 10
	out := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: v.capacity, Used: used, Available: v.capacity - used},
		{Unit: csi.VolumeUsage_INODES, Total: 1000, Used: 100, Available: 900},
	}}
	if b.options.Conditions {
		out.VolumeCondition = v.healthy()
	}
	return out, nil
}

// check is what NodeStageVolume and NodePublishVolume require.
func (s nodeServer) check(r mounting, path string) error {
	if r.GetVolumeId() == "" || path == "" {
		return status.Error(codes.InvalidArgument, "volume_id or the path is missing")
	}
	return s.driver.backend.checkCapability(r.GetVolumeCapability())
}

// find is the volume's presence on the node; the caller holds the lock.
func (b *Backend) find(r mounting, nodeID string) (*presence, error) {
	v := b.volumes[r.GetVolumeId()]
	switch {
	case v == nil:
		return nil, status.Errorf(codes.NotFound, "there is no volume %q", r.GetVolumeId())
	case !v.allows(r.GetVolumeCapability()):
		return nil, status.Error(codes.FailedPrecondition, "the volume was not made for volume_capability")
	case !accessible(v.topology, b.nodes[nodeID].topology):
		return nil, status.Error(codes.FailedPrecondition, "the volume cannot be reached from the node")
	}
	return v.presence(nodeID), nil
}

// update changes the volume's presence on the node, if there is one.
func (b *Backend) update(volumeID, nodeID string, change func(*presence)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v := b.volumes[volumeID]; v != nil && v.on[nodeID] != nil {
		change(v.on[nodeID])
	}
}

func isBlock(r mounting) bool { return r.GetVolumeCapability().GetBlock() != nil }
