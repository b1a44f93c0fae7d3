package csitest

import (
	"context"
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ControllerGetVolume answers of one volume what ListVolumes answers of all.
func (s controllerServer) ControllerGetVolume(_ context.Context, r *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	b := s.driver.backend
	switch {
	case !b.options.GetVolume:
		return nil, status.Error(codes.Unimplemented, "volumes are not told of one by one")
	case r.GetVolumeId() == "":
		return nil, status.Error(codes.InvalidArgument, "volume_id is missing")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[r.GetVolumeId()]
	if v == nil {
		return nil, status.Errorf(codes.NotFound, "there is no volume %q", r.GetVolumeId())
	}
	out := &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: v.attached()}
	if b.options.Conditions {
		out.VolumeCondition = v.healthy()
	}
	return &csi.ControllerGetVolumeResponse{Volume: v.answer().GetVolume(), Status: out}, nil
}

// attached are the nodes that the volume is attached to; the caller holds the
// lock.
func (v *volume) attached() []string {
	var nodes []string
	for _, n := range slices.Sorted(maps.Keys(v.on)) {
		if v.on[n].attachment.real {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func (v *volume) healthy() *csi.VolumeCondition {
	return &csi.VolumeCondition{Abnormal: v.problem != "", Message: v.problem}
}

// SetProblem makes a volume abnormal, by its id; an empty problem makes it well
// again.
func (b *Backend) SetProblem(id, problem string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v := b.volumes[id]; v != nil {
		v.problem = problem
	}
}

// Vanish takes a volume away at the provider, behind everybody's back, and
// reports whether it was there.
func (b *Backend) Vanish(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[id]
	if v != nil {
		b.used -= v.capacity
		delete(b.volumes, id)
	}
	return v != nil
}

// Meddle attaches a volume to a node at the provider, or detaches it, behind
// everybody's back: callers are judged by what they were told before.
func (b *Backend) Meddle(id, nodeID string, attached bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[id]
	if v == nil {
		return
	}
	at := &v.presence(nodeID).attachment
	if n := b.nodes[nodeID]; n != nil && at.real != attached {
		n.attached++
		if !attached {
			n.attached -= 2
		}
	}
	at.real = attached
}
