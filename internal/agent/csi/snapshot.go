package csi

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/berth-dev/berth/api"
)

// CreateSnapshot cuts a snapshot of a volume, or says how far the one is that
// an earlier call with the same request cut. The result has its id, size, time
// and whether it can be used (CSI spec, CreateSnapshot).
func (c *Client) CreateSnapshot(ctx context.Context, r api.SnapshotRequest) (api.OperationResult, error) {
	const method = "CreateSnapshot"
	request := &csi.CreateSnapshotRequest{Name: r.Name, SourceVolumeId: r.SourceID, Parameters: r.Parameters, Secrets: c.secrets}
	var response csi.CreateSnapshotResponse
	if err := c.invoke(ctx, csi.Controller_CreateSnapshot_FullMethodName, request, &response); err != nil {
		return api.OperationResult{}, err
	}
	snap := response.GetSnapshot()
	switch {
	case snap == nil:
		return api.OperationResult{}, broken(method, "the answer has no snapshot")
	case snap.GetSnapshotId() == "":
		return api.OperationResult{}, broken(method, "snapshot_id is empty")
	case snap.GetSizeBytes() < 0:
		return api.OperationResult{}, broken(method, "size_bytes is %d", snap.GetSizeBytes())
	case snap.GetSourceVolumeId() != r.SourceID:
		return api.OperationResult{}, broken(method, "source_volume_id is %q, and the snapshot was asked for of %q", snap.GetSourceVolumeId(), r.SourceID)
	}
	if err := checkString("snapshot_id", snap.GetSnapshotId()); err != nil {
		return api.OperationResult{}, broken(method, "%s", err)
	}
	// The specification requires the time. A driver without one loses nothing but
	// that people see when it was cut.
	var created time.Time
	if t := snap.GetCreationTime(); t.IsValid() && t.AsTime().Unix() != 0 {
		created = t.AsTime()
	}
	return api.OperationResult{Snapshot: &api.SnapshotResult{
		ExternalID: snap.GetSnapshotId(), Size: snap.GetSizeBytes(), Created: created, Ready: snap.GetReadyToUse(),
	}}, nil
}

// DeleteSnapshot deletes a snapshot. One that is not there is no error.
func (c *Client) DeleteSnapshot(ctx context.Context, r api.DeleteSnapshotRequest) error {
	request := &csi.DeleteSnapshotRequest{SnapshotId: r.ExternalID, Secrets: c.secrets}
	return c.invoke(ctx, csi.Controller_DeleteSnapshot_FullMethodName, request, &csi.DeleteSnapshotResponse{})
}
