package csitest

import (
	"context"
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (s controllerServer) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	b := s.driver.backend
	switch {
	case !b.options.Expand:
		return nil, status.Error(codes.Unimplemented, "volumes are not expanded")
	case r.GetVolumeId() == "" || r.GetCapacityRange() == nil:
		return nil, status.Error(codes.InvalidArgument, "volume_id or capacity_range is missing")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[r.GetVolumeId()]
	if v == nil {
		return nil, status.Errorf(codes.NotFound, "there is no volume %q", r.GetVolumeId())
	}
	least, most := r.GetCapacityRange().GetRequiredBytes(), r.GetCapacityRange().GetLimitBytes()
	switch {
	case least < 0 || most < 0 || most > 0 && (least > most || v.capacity > most):
		return nil, status.Errorf(codes.OutOfRange, "capacity_range is %d to %d, and the volume has %d", least, most, v.capacity)
	case b.options.Largest > 0 && least > b.options.Largest:
		return nil, status.Errorf(codes.OutOfRange, "no volume is larger than %d", b.options.Largest)
	case b.options.Offline && v.inUse():
		return nil, status.Error(codes.FailedPrecondition, "the volume is in use")
	case b.options.Capacity > 0 && least > v.capacity && b.used+least-v.capacity > b.options.Capacity:
		return nil, status.Errorf(codes.ResourceExhausted, "%d bytes are left", b.options.Capacity-b.used)
	}
	if least > v.capacity {
		b.used += least - v.capacity
		v.capacity = least
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: v.capacity, NodeExpansionRequired: b.options.NodeExpand && v.grown < v.capacity}, nil
}

// inUse reports whether the volume is really on a node.
func (v *volume) inUse() bool {
	for _, p := range v.on {
		if p.attachment.real || p.used() {
			return true
		}
	}
	return false
}

func (s controllerServer) ControllerModifyVolume(_ context.Context, r *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	b := s.driver.backend
	switch {
	case !b.options.Modify:
		return nil, status.Error(codes.Unimplemented, "volumes have no mutable parameters")
	case r.GetVolumeId() == "":
		return nil, status.Error(codes.InvalidArgument, "volume_id is missing")
	}
	if err := known(r.GetMutableParameters()); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[r.GetVolumeId()]
	if v == nil {
		return nil, status.Errorf(codes.NotFound, "there is no volume %q", r.GetVolumeId())
	}
	if v.mutable == nil {
		v.mutable = map[string]string{}
	}
	maps.Copy(v.mutable, r.GetMutableParameters())
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// mutable are the parameters that a driver with MODIFY_VOLUME knows.
func mutable() []string { return []string{"iops", "throughput"} }

// known refuses parameters that are not mutable.
func known(parameters map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(parameters)) {
		if !slices.Contains(mutable(), k) {
			return status.Errorf(codes.InvalidArgument, "there is no mutable parameter %q", k)
		}
	}
	return nil
}

// NodeExpandVolume grows what is on the volume to the volume's size.
func (s nodeServer) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	b := s.driver.backend
	switch {
	case !b.options.NodeExpand:
		return nil, status.Error(codes.Unimplemented, "volumes are not expanded on nodes")
	case r.GetVolumeId() == "" || r.GetVolumePath() == "":
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
	published := t != nil && t.real
	least := r.GetCapacityRange().GetRequiredBytes()
	switch {
	case !published && (!p.stage.real || p.stagedAt() != r.GetVolumePath()):
		return nil, status.Errorf(codes.NotFound, "the volume is not at %s", r.GetVolumePath())
	case published && b.options.NodeOffline:
		return nil, status.Error(codes.FailedPrecondition, "the volume is published")
	case b.options.Expand && least > v.capacity:
		return nil, status.Errorf(codes.OutOfRange, "the volume has %d bytes", v.capacity)
	}
	v.capacity = max(v.capacity, least)
	v.grown = v.capacity
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.capacity}, nil
}

// judgeExpand holds a ControllerExpandVolume against the rules: a volume that is
// only expanded while it is not in use must be nowhere.
func (b *Backend) judgeExpand(c *call, v *volume) {
	if v == nil || !b.options.Offline {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(v.on)) {
		switch p := v.on[id]; {
		case p.mounted():
			b.violate(c, "staged or published on %s, and the driver expands OFFLINE", id)
		case p.attachment.there():
			b.violate(c, "attached to %s, and the driver expands OFFLINE", id)
		}
	}
}

// judgeNodeExpand holds a NodeExpandVolume against the rules: after
// ControllerExpandVolume where there is one, on a volume that is staged where
// the driver stages and else published, and not again after it was refused for
// being in use.
func (b *Backend) judgeNodeExpand(c *call, v *volume, r *csi.NodeExpandVolumeRequest) {
	b.judgeMode(c, r.GetVolumeCapability())
	if v == nil {
		return
	}
	p := v.presence(c.Node)
	t := p.targets[r.GetVolumePath()]
	published := t != nil && t.sure()
	switch {
	case b.options.Stage && !p.stage.sure():
		b.violate(c, "before NodeStageVolume succeeded")
	case b.options.Stage && r.GetStagingTargetPath() != p.stagedAt():
		b.violate(c, "staged at %s, not at %q", p.stagedAt(), r.GetStagingTargetPath())
	case !b.options.Stage && r.GetStagingTargetPath() != "":
		b.violate(c, "staging_target_path, and the driver lacks STAGE_UNSTAGE_VOLUME")
	case !published && (!b.options.Stage || r.GetVolumePath() != p.stagedAt()):
		b.violate(c, "volume_path %s is where the volume is neither staged nor published", r.GetVolumePath())
	case b.options.Expand && r.GetCapacityRange().GetRequiredBytes() > max(v.capacity, v.told):
		b.violate(c, "before ControllerExpandVolume succeeded")
	case published && v.inUseOn == c.Node+" "+r.GetVolumePath():
		b.violate(c, "again, after it was refused because the volume is in use")
	}
}

// settleExpand notes a refusal after which NodeExpandVolume must not be repeated
// (CSI spec, NodeExpandVolume Errors, Volume in use).
func (b *Backend) settleExpand(c *call) {
	v := b.volumes[c.Volume]
	if v == nil {
		return
	}
	switch r := c.message.(type) {
	case *csi.NodeExpandVolumeRequest:
		if c.Code == codeName(status.Error(codes.FailedPrecondition, "")) {
			v.inUseOn = c.Node + " " + r.GetVolumePath()
		}
	case *csi.ControllerExpandVolumeRequest:
		v.inUseOn = ""
		if c.Code == codeName(nil) {
			v.told = max(v.told, r.GetCapacityRange().GetRequiredBytes())
		}
	case *csi.NodePublishVolumeRequest, *csi.NodeUnpublishVolumeRequest:
		v.inUseOn = ""
	}
}
