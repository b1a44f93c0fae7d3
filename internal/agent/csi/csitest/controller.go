package csitest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// defaultCapacity is the size of a volume that nobody asked a size for.
const defaultCapacity = 1 << 30

type controllerServer struct {
	csi.UnimplementedControllerServer
	driver *Driver
}

func (s controllerServer) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	r := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range s.driver.backend.options.controllerTypes() {
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return r, nil
}

func (s controllerServer) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	b := s.driver.backend
	switch {
	case r.GetName() == "":
		return nil, status.Error(codes.InvalidArgument, "name is missing")
	case len(r.GetVolumeCapabilities()) == 0:
		return nil, status.Error(codes.InvalidArgument, "volume_capabilities are missing")
	case len(r.GetMutableParameters()) > 0 && !b.options.Modify:
		return nil, status.Error(codes.InvalidArgument, "mutable_parameters are not supported")
	}
	if err := known(r.GetMutableParameters()); err != nil {
		return nil, err
	}
	for _, c := range r.GetVolumeCapabilities() {
		if err := b.checkCapability(c); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	id := volumeID(r.GetName())
	if v := b.volumes[id]; v != nil {
		return v.again(r)
	}
	if err := b.source(r.GetVolumeContentSource()); err != nil {
		return nil, err
	}
	capacity, err := b.room(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	topology, err := b.place(r.GetAccessibilityRequirements(), s.driver.config.Topology, capacity)
	if err != nil {
		return nil, err
	}
	b.used += capacity
	told := volumeContext(id)
	if b.options.Named {
		told["csitest/name"] = r.GetName()
	}
	b.volumes[id] = &volume{
		id: id, name: r.GetName(), request: r, capacity: capacity, grown: capacity, mutable: maps.Clone(r.GetMutableParameters()),
		context: told, topology: topology, on: make(map[string]*presence),
	}
	return b.volumes[id].answer(), nil
}

// source looks for the content that a new volume is to begin with.
func (b *Backend) source(s *csi.VolumeContentSource) error {
	var known bool
	switch {
	case s == nil:
		return nil
	case s.GetSnapshot() != nil:
		id := s.GetSnapshot().GetSnapshotId()
		made := b.snapshots[id]
		if made != nil && !b.ready(made) {
			return status.Errorf(codes.Unavailable, "the snapshot %s is not ready", made.name)
		}
		known = made != nil || slices.Contains(b.options.Snapshots, id)
	case s.GetVolume() != nil:
		known = b.options.Clone && b.volumes[s.GetVolume().GetVolumeId()] != nil
	default:
		return status.Error(codes.InvalidArgument, "volume_content_source names neither a snapshot nor a volume")
	}
	if !known {
		return status.Errorf(codes.NotFound, "the source %v does not exist", s)
	}
	return nil
}

func volumeContext(id string) map[string]string { return map[string]string{"csitest/volume": id} }

// again answers a CreateVolume for a volume that is there.
func (v *volume) again(r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	size := r.GetCapacityRange()
	fits := v.capacity >= size.GetRequiredBytes() && (size.GetLimitBytes() == 0 || v.capacity <= size.GetLimitBytes())
	if !fits || !maps.Equal(v.request.GetParameters(), r.GetParameters()) ||
		!slices.EqualFunc(v.request.GetVolumeCapabilities(), r.GetVolumeCapabilities(), protoEqual) ||
		!proto.Equal(v.request.GetVolumeContentSource(), r.GetVolumeContentSource()) ||
		!proto.Equal(v.request.GetAccessibilityRequirements(), r.GetAccessibilityRequirements()) {
		return nil, status.Errorf(codes.AlreadyExists, "the volume %s is there and different", r.GetName())
	}
	return v.answer(), nil
}

func protoEqual(a, b *csi.VolumeCapability) bool { return proto.Equal(a, b) }

func (v *volume) answer() *csi.CreateVolumeResponse {
	out := &csi.Volume{
		VolumeId: v.id, CapacityBytes: v.capacity, VolumeContext: maps.Clone(v.context),
		ContentSource: v.request.GetVolumeContentSource(),
	}
	for _, t := range v.topology {
		out.AccessibleTopology = append(out.AccessibleTopology, &csi.Topology{Segments: maps.Clone(t)})
	}
	return &csi.CreateVolumeResponse{Volume: out}
}

// room is the capacity that a new volume gets.
func (b *Backend) room(r *csi.CapacityRange) (int64, error) {
	least, most := r.GetRequiredBytes(), r.GetLimitBytes()
	if least < 0 || most < 0 || most > 0 && least > most {
		return 0, status.Errorf(codes.OutOfRange, "capacity_range is %d to %d", least, most)
	}
	capacity := cmp.Or(least, int64(defaultCapacity))
	if most > 0 {
		capacity = min(capacity, most)
	}
	if b.options.Capacity > 0 && b.used+capacity > b.options.Capacity {
		return 0, status.Errorf(codes.ResourceExhausted, "%d bytes are left", b.options.Capacity-b.used)
	}
	return capacity, nil
}

// place is where a new volume can be reached: the first topology wanted that
// has a node and room, or else where the driver runs.
func (b *Backend) place(r *csi.TopologyRequirement, here map[string]string, capacity int64) ([]map[string]string, error) {
	if !b.options.Topology {
		return nil, nil
	}
	wanted := slices.Concat(r.GetPreferred(), r.GetRequisite())
	if len(wanted) == 0 {
		if len(here) == 0 {
			return nil, nil
		}
		return []map[string]string{here}, nil
	}
	for _, t := range wanted {
		for _, n := range b.nodes {
			if within(t.GetSegments(), n.topology) && b.left(t.GetSegments()) >= capacity {
				return []map[string]string{t.GetSegments()}, nil
			}
		}
	}
	return nil, status.Error(codes.ResourceExhausted, "no node is in any topology that was asked for, or has no room")
}

// left is how much room there is in a topology.
func (b *Backend) left(t map[string]string) int64 {
	left := int64(1 << 60)
	if b.options.Capacity > 0 {
		left = b.options.Capacity - b.used
	}
	for key, value := range t {
		room, limited := b.options.RoomAt[value]
		if !limited {
			continue
		}
		for _, v := range b.volumes {
			if len(v.topology) > 0 && v.topology[0][key] == value {
				room -= v.capacity
			}
		}
		left = min(left, room)
	}
	return left
}

func (s controllerServer) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	b := s.driver.backend
	if r.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id is missing")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[r.GetVolumeId()]
	if v == nil {
		return &csi.DeleteVolumeResponse{}, nil
	}
	for id, p := range v.on {
		if p.attachment.real || p.used() {
			return nil, status.Errorf(codes.FailedPrecondition, "the volume is in use on %s", id)
		}
	}
	if name := b.snapshotted(v.id); name != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "snapshot %s depends on the volume", name)
	}
	b.used -= v.capacity
	delete(b.volumes, v.id)
	return &csi.DeleteVolumeResponse{}, nil
}

// used reports whether anything of the volume is really on the node.
func (p *presence) used() bool {
	for _, t := range p.targets {
		if t.real {
			return true
		}
	}
	return p.stage.real
}

func (s controllerServer) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	b := s.driver.backend
	switch {
	case !b.options.Attach:
		return nil, status.Error(codes.Unimplemented, "volumes are not attached")
	case r.GetVolumeId() == "" || r.GetNodeId() == "":
		return nil, status.Error(codes.InvalidArgument, "volume_id or node_id is missing")
	}
	if err := b.checkCapability(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v, n := b.volumes[r.GetVolumeId()], b.nodes[r.GetNodeId()]
	if v == nil || n == nil {
		return nil, status.Errorf(codes.NotFound, "there is no volume %q, or no node %q", r.GetVolumeId(), r.GetNodeId())
	}
	for id, p := range v.on {
		if id != r.GetNodeId() && p.attachment.real && !shareable(r, p.attachment.made) {
			return nil, status.Errorf(codes.FailedPrecondition, "the volume is attached to %s", id)
		}
	}
	p := v.presence(r.GetNodeId())
	switch {
	case p.attachment.real && !same(p.attachment.made, r):
		return nil, status.Error(codes.AlreadyExists, "the volume is attached with other arguments")
	case p.attachment.real:
		return &csi.ControllerPublishVolumeResponse{PublishContext: maps.Clone(p.context)}, nil
	case !v.allows(r.GetVolumeCapability()):
		return nil, status.Error(codes.FailedPrecondition, "the volume was not made for volume_capability")
	case !accessible(v.topology, n.topology):
		return nil, status.Error(codes.FailedPrecondition, "the volume cannot be reached from the node")
	case n.maxVolumes > 0 && n.attached >= n.maxVolumes:
		return nil, status.Errorf(codes.ResourceExhausted, "the node has %d volumes", n.attached)
	}
	n.attached++
	p.cut, p.context = false, b.publishContext(r.GetNodeId())
	p.attachment.real, p.attachment.made = true, r
	return &csi.ControllerPublishVolumeResponse{PublishContext: maps.Clone(p.context)}, nil
}

// publishContext is another one for every attachment, so that one from before
// a detach is found out.
func (b *Backend) publishContext(nodeID string) map[string]string {
	b.attached++
	return map[string]string{"csitest/attachment": nodeID + " " + strconv.Itoa(b.attached)}
}

func (s controllerServer) ControllerUnpublishVolume(_ context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	b := s.driver.backend
	switch {
	case !b.options.Attach:
		return nil, status.Error(codes.Unimplemented, "volumes are not attached")
	case r.GetVolumeId() == "":
		return nil, status.Error(codes.InvalidArgument, "volume_id is missing")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[r.GetVolumeId()]
	if v == nil {
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	}
	for id, p := range v.on {
		if r.GetNodeId() != "" && id != r.GetNodeId() || !p.attachment.real {
			continue
		}
		if p.used() && !b.options.DetachIsFence {
			return nil, status.Errorf(codes.FailedPrecondition, "the volume is in use on %s", id)
		}
		p.cut = p.used()
		p.attachment.real = false
		if n := b.nodes[id]; n != nil {
			n.attached--
		}
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (s controllerServer) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	b := s.driver.backend
	if r.GetVolumeId() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume_id or volume_capabilities are missing")
	}
	b.mu.Lock()
	v := b.volumes[r.GetVolumeId()]
	b.mu.Unlock()
	if v == nil {
		return nil, status.Errorf(codes.NotFound, "there is no volume %q", r.GetVolumeId())
	}
	for _, c := range r.GetVolumeCapabilities() {
		if err := b.checkCapability(c); err != nil {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil //nolint:nilerr // it is the answer
		}
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext:      r.GetVolumeContext(),
			VolumeCapabilities: r.GetVolumeCapabilities(),
			Parameters:         r.GetParameters(),
		},
	}, nil
}

func (s controllerServer) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	b := s.driver.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	return &csi.GetCapacityResponse{AvailableCapacity: b.left(r.GetAccessibleTopology().GetSegments())}, nil
}

// ListVolumes lists in the order of ids; a token is the id to go on after.
func (s controllerServer) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	b := s.driver.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := slices.Sorted(maps.Keys(b.volumes))
	if token := r.GetStartingToken(); token != "" {
		i, known := slices.BinarySearch(ids, token)
		if !known {
			return nil, status.Errorf(codes.Aborted, "starting_token %q is not valid", token)
		}
		ids = ids[i:]
	}
	out := &csi.ListVolumesResponse{}
	if most := int(r.GetMaxEntries()); most > 0 && most < len(ids) {
		out.NextToken = ids[most]
		ids = ids[:most]
	}
	if b.options.Endless && len(ids) > 0 {
		out.NextToken = ids[0]
	}
	for _, id := range ids {
		v := b.volumes[id]
		state := &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: v.attached()}
		if b.options.Conditions {
			state.VolumeCondition = v.healthy()
		}
		out.Entries = append(out.Entries, &csi.ListVolumesResponse_Entry{Volume: v.answer().GetVolume(), Status: state})
	}
	return out, nil
}

// checkCapability refuses what is no capability, or one that the driver lacks.
func (b *Backend) checkCapability(c *csi.VolumeCapability) error {
	mode := c.GetAccessMode().GetMode()
	if mode == csi.VolumeCapability_AccessMode_UNKNOWN {
		return status.Error(codes.InvalidArgument, "volume_capability or its access_mode is missing")
	}
	if countsWriters(mode) && !b.options.MultiWriter {
		return status.Errorf(codes.InvalidArgument, "access mode %s is not supported", mode)
	}
	if c.GetAccessType() == nil {
		return status.Error(codes.InvalidArgument, "volume_capability has no access_type")
	}
	return nil
}
