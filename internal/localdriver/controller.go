package localdriver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

// controller is the Controller service. What is not implemented here answers
// UNIMPLEMENTED, and is not advertised.
type controller struct {
	csi.UnimplementedControllerServer
	volumes *volumes
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	rpcs := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_VOLUME_CONDITION,
	}
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, rpc := range rpcs {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: rpc}},
		})
	}
	return response, nil
}

func (c *controller) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	p, err := c.readPlan(r)
	if err != nil {
		return nil, err
	}
	rec, err := c.volumes.create(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("create volume %q: %w", p.name, err)
	}
	return &csi.CreateVolumeResponse{Volume: c.volume(rec)}, nil
}

func (c *controller) readPlan(r *csi.CreateVolumeRequest) (plan, error) {
	p := plan{name: r.GetName(), here: readTopology(r.GetAccessibilityRequirements(), c.volumes.node)}
	if err := readName(p.name); err != nil {
		return p, err
	}
	if err := p.readCapabilities(r.GetVolumeCapabilities()); err != nil {
		return p, err
	}
	var err error
	if p.size, err = readSize(r.GetCapacityRange()); err != nil {
		return p, err
	}
	if err := p.readParameters(r.GetParameters()); err != nil {
		return p, err
	}
	if err := onlyKnown("mutable_parameters", r.GetMutableParameters()); err != nil {
		return p, err
	}
	if p.source, err = readSource(r.GetVolumeContentSource()); err != nil {
		return p, err
	}
	return p, nil
}

func (c *controller) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := c.volumes.remove(ctx, r.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, refuse(codes.InvalidArgument, "volume_capabilities are missing")
	}
	rec, err := c.volumes.known(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	response := &csi.ValidateVolumeCapabilitiesResponse{}
	if err := confirm(rec, r); err != nil {
		response.Message = err.Error()
		return response, nil //nolint:nilerr // it is the answer
	}
	response.Confirmed = &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      r.GetVolumeContext(),
		VolumeCapabilities: r.GetVolumeCapabilities(),
	}
	return response, nil
}

// confirm reports what of a request a volume cannot do.
func confirm(rec record.Volume, r *csi.ValidateVolumeCapabilitiesRequest) error {
	for _, capability := range r.GetVolumeCapabilities() {
		use, err := readCapability(capability, codes.FailedPrecondition)
		if err != nil {
			return err
		}
		if _, err := usable(rec, use); err != nil {
			return err
		}
	}
	p := plan{block: rec.Content == record.Block}
	if err := p.readParameters(r.GetParameters()); err != nil {
		return err
	}
	if p.kind != "" && !p.block && p.kind != rec.Content {
		return refuse(codes.FailedPrecondition, "volume %s is a %s, not a %s", rec.ID, rec.Content, p.kind)
	}
	if problem := fsMismatch(rec.Body, p.fsType); problem != "" {
		return refuse(codes.FailedPrecondition, "volume %s does not fit: %s", rec.ID, problem)
	}
	return nil
}

// ControllerGetVolume tells of one volume what ListVolumes tells of all.
func (c *controller) ControllerGetVolume(ctx context.Context, r *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	rec, err := c.volumes.known(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	condition, err := c.volumes.condition(ctx, rec)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: c.volume(rec), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{VolumeCondition: condition},
	}, nil
}

func (c *controller) ControllerExpandVolume(ctx context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	want, err := readSize(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	if !want.wanted {
		return nil, refuse(codes.InvalidArgument, "capacity_range is missing")
	}
	capacity, onNode, err := c.volumes.expand(ctx, r.GetVolumeId(), want)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: capacity, NodeExpansionRequired: onNode}, nil
}

// ListVolumes lists in the order of keys; the token is the key to go on from,
// and stays good when that volume is deleted.
func (c *controller) ListVolumes(ctx context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	limit, start, err := readPage(r.GetMaxEntries(), r.GetStartingToken())
	if err != nil {
		return nil, err
	}
	response := &csi.ListVolumesResponse{}
	for _, rec := range c.volumes.store.List() {
		if rec.State != record.Ready || keyOf(rec) < start {
			continue
		}
		if limit > 0 && len(response.Entries) == limit {
			response.NextToken = string(keyOf(rec))
			break
		}
		condition, err := c.volumes.condition(ctx, rec)
		if err != nil {
			return nil, err
		}
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{
			Volume: c.volume(rec), Status: &csi.ListVolumesResponse_VolumeStatus{VolumeCondition: condition},
		})
	}
	return response, nil
}

func (c *controller) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	p := plan{size: size{wanted: true}}
	if capabilities := r.GetVolumeCapabilities(); len(capabilities) > 0 {
		if err := p.readCapabilities(capabilities); err != nil {
			// Of a volume that is not offered, there is room for none.
			return &csi.GetCapacityResponse{}, nil //nolint:nilerr // 0 is the answer
		}
	}
	if err := p.readParameters(r.GetParameters()); err != nil {
		return nil, err
	}
	if t := r.GetAccessibleTopology(); t != nil && !covers(t, c.volumes.node) {
		return &csi.GetCapacityResponse{}, nil
	}
	p.size.wanted = p.kind != record.Directory
	content, err := p.content(c.volumes.subvolumes())
	if err != nil {
		return &csi.GetCapacityResponse{}, nil //nolint:nilerr // as above
	}
	available, err := c.volumes.available()
	if err != nil {
		return nil, err
	}
	return &csi.GetCapacityResponse{
		AvailableCapacity: available,
		MinimumVolumeSize: wrapperspb.Int64(smallest(content, p.fsType)),
	}, nil
}

// contextName is the key of the CSI name in the volume context.
const contextName = "berth.dev/name"

// volume is how the orchestrator sees a record.
func (c *controller) volume(rec record.Volume) *csi.Volume {
	return &csi.Volume{
		VolumeId: rec.ID,
		// Whose volume it is shows in its name, when its orchestrator has forgotten it.
		VolumeContext:      map[string]string{contextName: rec.Name},
		CapacityBytes:      rec.Capacity,
		AccessibleTopology: []*csi.Topology{topology(c.volumes.node)},
		ContentSource:      contentSource(rec.Source),
	}
}

func contentSource(s *record.Source) *csi.VolumeContentSource {
	switch {
	case s == nil:
		return nil
	case s.Snapshot != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.Snapshot},
		}}
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: s.Volume},
	}}
}
