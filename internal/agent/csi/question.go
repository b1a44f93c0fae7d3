package csi

import (
	"context"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/berth-dev/berth/api"
)

// Page is one page of a list, and where the next one begins: empty after the
// last.
type Page[T any] struct {
	Entries []T
	Next    string
}

// ListVolumes calls ListVolumes for the page that begins at token, of at most
// limit volumes; 0 leaves the size to the driver. What of its entries is
// broken makes the page an error: a list with holes would show losses that
// there are not.
func (c *Client) ListVolumes(ctx context.Context, token string, limit int32) (Page[api.ExternalVolume], error) {
	const method = "ListVolumes"
	var page Page[api.ExternalVolume]
	if limit < 0 {
		return page, invalid(method, "the page is to have %d entries", limit)
	}
	request := &csi.ListVolumesRequest{MaxEntries: limit, StartingToken: token}
	var response csi.ListVolumesResponse
	if err := c.invoke(ctx, csi.Controller_ListVolumes_FullMethodName, request, &response); err != nil {
		return page, err
	}
	for _, e := range response.GetEntries() {
		v, err := external(method, e.GetVolume())
		if err != nil {
			return page, err
		}
		if s := e.GetStatus(); s != nil {
			v.Nodes, v.Condition, err = reported(method, s.GetPublishedNodeIds(), s.GetVolumeCondition())
		}
		if err != nil {
			return page, err
		}
		page.Entries = append(page.Entries, v)
	}
	page.Next = response.GetNextToken()
	return page, nil
}

// GetVolume calls ControllerGetVolume.
func (c *Client) GetVolume(ctx context.Context, id string) (api.ExternalVolume, error) {
	const method = "ControllerGetVolume"
	request := &csi.ControllerGetVolumeRequest{VolumeId: id}
	var response csi.ControllerGetVolumeResponse
	if err := c.invoke(ctx, csi.Controller_ControllerGetVolume_FullMethodName, request, &response); err != nil {
		return api.ExternalVolume{}, err
	}
	v, err := external(method, response.GetVolume())
	switch {
	case err != nil:
		return api.ExternalVolume{}, err
	case v.ExternalID != id:
		return api.ExternalVolume{}, broken(method, "asked for volume %q, it answers of %q", id, v.ExternalID)
	}
	s := response.GetStatus()
	v.Nodes, v.Condition, err = reported(method, s.GetPublishedNodeIds(), s.GetVolumeCondition())
	return v, err
}

// external is a volume as a driver describes it.
func external(method string, v *csi.Volume) (api.ExternalVolume, error) {
	r, err := described(method, v)
	if err != nil {
		return api.ExternalVolume{}, err
	}
	return api.ExternalVolume{
		ExternalID: r.ExternalID, Capacity: r.Capacity, Context: r.Context, AccessibleTopology: r.AccessibleTopology,
	}, nil
}

// maxNodes bounds how many nodes one volume may be published to.
const maxNodes = 100_000

// reported is what a driver says besides of a volume. Some say the same node
// twice.
func reported(method string, nodes []string, condition *csi.VolumeCondition) ([]string, *api.VolumeCondition, error) {
	if len(nodes) > maxNodes {
		return nil, nil, broken(method, "a volume is published to %d nodes", len(nodes))
	}
	for _, n := range nodes {
		if err := checkString("published_node_ids", n); err != nil {
			return nil, nil, broken(method, "%s", err)
		}
	}
	nodes = slices.Compact(slices.Sorted(slices.Values(nodes)))
	if condition == nil {
		return nodes, nil, nil
	}
	return nodes, &api.VolumeCondition{Abnormal: condition.GetAbnormal(), Message: clean(condition.GetMessage())}, nil
}

// GetCapacity calls GetCapacity: the room for volumes that are made and used
// in that way.
func (c *Client) GetCapacity(ctx context.Context, r api.CapacityQuestion) (api.AvailableCapacity, error) {
	const method = "GetCapacity"
	none := api.AvailableCapacity{}
	capabilities, err := volumeCapabilities(r.Capabilities, nil, c.controllerMultiWriter)
	if err != nil {
		return none, invalid(method, "%s", err)
	}
	request := &csi.GetCapacityRequest{VolumeCapabilities: capabilities, Parameters: r.Parameters}
	if len(r.Topology) > 0 {
		if err := checkSegments(r.Topology); err != nil {
			return none, invalid(method, "%s", err)
		}
		request.AccessibleTopology = &csi.Topology{Segments: r.Topology}
	}
	var response csi.GetCapacityResponse
	if err := c.invoke(ctx, csi.Controller_GetCapacity_FullMethodName, request, &response); err != nil {
		return none, err
	}
	out := api.AvailableCapacity{
		Available: response.GetAvailableCapacity(),
		Maximum:   response.GetMaximumVolumeSize().GetValue(), Minimum: response.GetMinimumVolumeSize().GetValue(),
	}
	if out.Available < 0 || out.Maximum < 0 || out.Minimum < 0 {
		return none, broken(method, "a capacity is negative: %d available, volumes from %d to %d", out.Available, out.Minimum, out.Maximum)
	}
	return out, nil
}

// ValidateCapabilities calls ValidateVolumeCapabilities, and answers why the
// volume cannot be used in one of the ways, or "". A confirmation counts by
// access mode and type: drivers have been seen to leave out the rest.
func (c *Client) ValidateCapabilities(ctx context.Context, r api.ValidateQuestion) (refusal string, err error) {
	const method = "ValidateVolumeCapabilities"
	capabilities, err := volumeCapabilities(r.Capabilities, r.MountOptions, c.controllerMultiWriter)
	if err != nil {
		return "", invalid(method, "%s", err)
	}
	request := &csi.ValidateVolumeCapabilitiesRequest{
		VolumeId: r.ExternalID, VolumeContext: r.Context, VolumeCapabilities: capabilities, Parameters: r.Parameters, Secrets: c.secrets,
	}
	var response csi.ValidateVolumeCapabilitiesResponse
	if err := c.invoke(ctx, csi.Controller_ValidateVolumeCapabilities_FullMethodName, request, &response); err != nil {
		return "", err
	}
	confirmed := response.GetConfirmed()
	if confirmed == nil {
		if m := clean(response.GetMessage()); m != "" {
			return m, nil
		}
		return "the plugin does not confirm that the volume can be used so, and does not say why", nil
	}
	for _, want := range capabilities {
		same := func(got *csi.VolumeCapability) bool {
			return got.GetAccessMode().GetMode() == want.GetAccessMode().GetMode() && (got.GetBlock() == nil) == (want.GetBlock() == nil)
		}
		if all := confirmed.GetVolumeCapabilities(); len(all) > 0 && !slices.ContainsFunc(all, same) {
			return "the plugin does not confirm access mode " + want.GetAccessMode().GetMode().String(), nil
		}
	}
	return "", nil
}

// ListSnapshots calls ListSnapshots for one page, of all snapshots, of those
// of one volume, or of one snapshot.
func (c *Client) ListSnapshots(ctx context.Context, r api.SnapshotsQuestion) (Page[api.ExternalSnapshot], error) {
	const method = "ListSnapshots"
	var page Page[api.ExternalSnapshot]
	request := &csi.ListSnapshotsRequest{
		MaxEntries: r.Limit, StartingToken: r.Token, SourceVolumeId: r.SourceID, SnapshotId: r.SnapshotID, Secrets: c.secrets,
	}
	var response csi.ListSnapshotsResponse
	if err := c.invoke(ctx, csi.Controller_ListSnapshots_FullMethodName, request, &response); err != nil {
		return page, err
	}
	for _, e := range response.GetEntries() {
		s := e.GetSnapshot()
		if s.GetSnapshotId() == "" || s.GetSizeBytes() < 0 {
			return page, broken(method, "a snapshot has the id %q and %d bytes", s.GetSnapshotId(), s.GetSizeBytes())
		}
		for what, id := range map[string]string{"snapshot_id": s.GetSnapshotId(), "source_volume_id": s.GetSourceVolumeId()} {
			if err := checkString(what, id); err != nil {
				return page, broken(method, "%s", err)
			}
		}
		var made time.Time
		if s.GetCreationTime().IsValid() {
			made = s.GetCreationTime().AsTime()
		}
		page.Entries = append(page.Entries, api.ExternalSnapshot{
			ExternalID: s.GetSnapshotId(), SourceID: s.GetSourceVolumeId(), Size: s.GetSizeBytes(), Ready: s.GetReadyToUse(), Created: made,
		})
	}
	page.Next = response.GetNextToken()
	return page, nil
}
