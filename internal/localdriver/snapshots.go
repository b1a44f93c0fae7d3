package localdriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

func (c *controller) CreateSnapshot(ctx context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := readName(r.GetName()); err != nil {
		return nil, err
	}
	if err := required("source_volume_id", r.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	if err := onlyKnown("parameters", r.GetParameters()); err != nil {
		return nil, err
	}
	rec, err := c.volumes.snapshot(ctx, r.GetName(), r.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: snapshotOf(rec)}, nil
}

func (c *controller) DeleteSnapshot(ctx context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := required("snapshot_id", r.GetSnapshotId()); err != nil {
		return nil, err
	}
	if err := c.volumes.removeSnapshot(ctx, r.GetSnapshotId()); err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

func (c *controller) GetSnapshot(_ context.Context, r *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if err := required("snapshot_id", r.GetSnapshotId()); err != nil {
		return nil, err
	}
	rec, err := c.volumes.findSnapshot(r.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	return &csi.GetSnapshotResponse{Snapshot: snapshotOf(rec)}, nil
}

// ListSnapshots lists in the order of keys, as ListVolumes does.
func (c *controller) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	limit, start, err := readPage(r.GetMaxEntries(), r.GetStartingToken())
	if err != nil {
		return nil, err
	}
	response := &csi.ListSnapshotsResponse{}
	for _, rec := range c.volumes.snapshots.List() {
		id, _ := record.ParseID(rec.ID)
		switch {
		case rec.State != record.Ready, id.Key < start,
			r.GetSnapshotId() != "" && r.GetSnapshotId() != rec.ID,
			r.GetSourceVolumeId() != "" && r.GetSourceVolumeId() != rec.Volume:
			continue
		}
		if limit > 0 && len(response.Entries) == limit {
			response.NextToken = string(id.Key)
			break
		}
		response.Entries = append(response.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: snapshotOf(rec)})
	}
	return response, nil
}

// readPage reads how many entries a list may have, and from which key on.
func readPage(entries int32, token string) (limit int, start record.Key, err error) {
	if entries < 0 {
		return 0, "", refuse(codes.InvalidArgument, "max_entries is negative")
	}
	start, ok := record.ParseKey(token)
	if !ok && token != "" {
		return 0, "", refuse(codes.Aborted, "starting_token is not one of this driver's; start again without it")
	}
	return int(entries), start, nil
}

// snapshotOf is how the orchestrator sees a record.
func snapshotOf(rec record.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId:     rec.ID,
		SourceVolumeId: rec.Volume,
		SizeBytes:      rec.Capacity,
		CreationTime:   timestamppb.New(rec.Taken),
		ReadyToUse:     true,
	}
}
