package localdriver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
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
	var err error
	if p.fsType, err = readCapabilities(r.GetVolumeCapabilities()); err != nil {
		return p, err
	}
	if p.size, err = readSize(r.GetCapacityRange()); err != nil {
		return p, err
	}
	if err := readParameters(r.GetParameters()); err != nil {
		return p, err
	}
	if len(r.GetMutableParameters()) > 0 {
		return p, refuse(codes.InvalidArgument, "mutable_parameters are not offered")
	}
	if r.GetVolumeContentSource() != nil {
		return p, refuse(codes.InvalidArgument, "volume_content_source is not offered: volumes start empty")
	}
	if p.size.wanted {
		return p, nil
	}
	if p.fsType != "" {
		return p, refuse(codes.InvalidArgument,
			"a volume without a capacity is a plain directory and holds no %s; ask for a capacity or leave fs_type out", p.fsType)
	}
	for _, capability := range r.GetVolumeCapabilities() {
		if err := directoryFlags(capability.GetMount().GetMountFlags()); err != nil {
			return p, err
		}
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
	id, ok := record.ParseID(r.GetVolumeId())
	if !ok {
		return nil, refuse(codes.NotFound, "volume %q does not exist", r.GetVolumeId())
	}
	rec, err := c.volumes.find(id)
	if err != nil {
		return nil, err
	}
	response := &csi.ValidateVolumeCapabilitiesResponse{}
	if err := confirm(rec, r); err != nil {
		response.Message = err.Error()
		return response, nil
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
	return readParameters(r.GetParameters())
}

// ListVolumes lists in the order of keys; the token is the key to go on from,
// and stays good when that volume is deleted.
func (c *controller) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	limit := int(r.GetMaxEntries())
	if limit < 0 {
		return nil, refuse(codes.InvalidArgument, "max_entries is negative")
	}
	start, ok := record.ParseKey(r.GetStartingToken())
	if !ok && r.GetStartingToken() != "" {
		return nil, refuse(codes.Aborted, "starting_token is not one of this driver's; start again without it")
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
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{Volume: c.volume(rec)})
	}
	return response, nil
}

func (c *controller) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if err := readParameters(r.GetParameters()); err != nil {
		return nil, err
	}
	var fsType filesystem.Type
	if capabilities := r.GetVolumeCapabilities(); len(capabilities) > 0 {
		var err error
		if fsType, err = readCapabilities(capabilities); err != nil {
			// Of a volume that is not offered, there is room for none.
			return &csi.GetCapacityResponse{}, nil
		}
	}
	if t := r.GetAccessibleTopology(); t != nil && !covers(t, c.volumes.node) {
		return &csi.GetCapacityResponse{}, nil
	}
	available, err := c.volumes.available()
	if err != nil {
		return nil, err
	}
	if fsType == "" {
		fsType = filesystem.Types()[0]
	}
	return &csi.GetCapacityResponse{
		AvailableCapacity: available,
		MinimumVolumeSize: wrapperspb.Int64(fsType.MinSize()),
	}, nil
}

// volume is how the orchestrator sees a record.
func (c *controller) volume(rec record.Volume) *csi.Volume {
	return &csi.Volume{
		VolumeId:           rec.ID,
		CapacityBytes:      rec.Capacity,
		AccessibleTopology: []*csi.Topology{topology(c.volumes.node)},
	}
}
