package csitest

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// snapshot is what the provider knows of one.
type snapshot struct {
	id, name, source string
	request          *csi.CreateSnapshotRequest
	size             int64
	created          time.Time
	// asked counts the answers that said that it is not ready.
	asked int
}

// Snapshot is what the provider has of one snapshot.
type Snapshot struct {
	ID, Name string
	// Source is the volume's id.
	Source string
	Ready  bool
}

// SnapshotsMade are the snapshots that were made through CSI, by name.
func (b *Backend) SnapshotsMade() []Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Snapshot, 0, len(b.snapshots))
	for _, s := range b.snapshots {
		out = append(out, Snapshot{ID: s.id, Name: s.name, Source: s.source, Ready: b.ready(s)})
	}
	slices.SortFunc(out, func(a, b Snapshot) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (b *Backend) ready(s *snapshot) bool { return s.asked >= b.options.SnapshotWork }

// snapshotID is the id of the snapshot with that name.
func snapshotID(name string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("pool a/s@%016x?z=../é", h.Sum64())
}

// firstSnapshot is when the first snapshot was cut; each is a second later than
// the one before.
func firstSnapshot() time.Time { return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) }

func (s controllerServer) CreateSnapshot(_ context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	b := s.driver.backend
	switch {
	case !b.options.Snapshot:
		return nil, status.Error(codes.Unimplemented, "snapshots are not made")
	case r.GetName() == "" || r.GetSourceVolumeId() == "":
		return nil, status.Error(codes.InvalidArgument, "name or source_volume_id is missing")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	id := snapshotID(r.GetName())
	snap := b.snapshots[id]
	switch v := b.volumes[r.GetSourceVolumeId()]; {
	case snap != nil && snap.source != r.GetSourceVolumeId():
		return nil, status.Errorf(codes.AlreadyExists, "the snapshot %s is there, of another volume", r.GetName())
	case snap != nil:
		snap.asked++
	case v == nil:
		return nil, status.Errorf(codes.NotFound, "there is no volume %q", r.GetSourceVolumeId())
	default:
		snap = &snapshot{
			id: id, name: r.GetName(), source: r.GetSourceVolumeId(), request: r, size: v.capacity,
			created: firstSnapshot().Add(time.Duration(b.cut) * time.Second),
		}
		b.cut++
		b.snapshots[id] = snap
	}
	return &csi.CreateSnapshotResponse{Snapshot: &csi.Snapshot{
		SnapshotId: id, SourceVolumeId: snap.source, SizeBytes: snap.size,
		CreationTime: timestamppb.New(snap.created), ReadyToUse: b.ready(snap),
	}}, nil
}

func (s controllerServer) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	b := s.driver.backend
	switch {
	case !b.options.Snapshot:
		return nil, status.Error(codes.Unimplemented, "snapshots are not made")
	case r.GetSnapshotId() == "":
		return nil, status.Error(codes.InvalidArgument, "snapshot_id is missing")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range b.volumes {
		if b.options.SnapshotsDepend && v.request.GetVolumeContentSource().GetSnapshot().GetSnapshotId() == r.GetSnapshotId() {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s depends on the snapshot", v.name)
		}
	}
	delete(b.snapshots, r.GetSnapshotId())
	return &csi.DeleteSnapshotResponse{}, nil
}

// snapshotted names a snapshot that depends on the volume, or "".
func (b *Backend) snapshotted(volume string) string {
	for _, s := range b.snapshots {
		if b.options.SnapshotsDepend && s.source == volume {
			return s.name
		}
	}
	return ""
}

// judgeSnapshot holds CreateSnapshot against its rules: what is repeated is the
// same, and what is ready is not asked for again.
func (b *Backend) judgeSnapshot(c *call, r *csi.CreateSnapshotRequest) {
	if s := b.snapshots[snapshotID(r.GetName())]; s != nil && !same(s.request, r) {
		b.violate(c, "repeated with other arguments")
	}
}

// snapshotNamed is the CSI name of the snapshot with that id, or "".
func (b *Backend) snapshotNamed(id string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.snapshots[id]; s != nil {
		return s.name
	}
	return ""
}

// ListSnapshots lists in the order of ids; a token is the id to go on with.
func (s controllerServer) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	b := s.driver.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.options.ListSnapshots {
		return nil, status.Error(codes.Unimplemented, "snapshots are not listed")
	}
	ids := slices.Sorted(maps.Keys(b.snapshots))
	if token := r.GetStartingToken(); token != "" {
		i, known := slices.BinarySearch(ids, token)
		if !known {
			return nil, status.Errorf(codes.Aborted, "starting_token %q is not valid", token)
		}
		ids = ids[i:]
	}
	out := &csi.ListSnapshotsResponse{}
	for _, id := range ids {
		s := b.snapshots[id]
		switch {
		case r.GetSnapshotId() != "" && r.GetSnapshotId() != id, r.GetSourceVolumeId() != "" && r.GetSourceVolumeId() != s.source:
			continue
		case r.GetMaxEntries() > 0 && len(out.Entries) == int(r.GetMaxEntries()):
			out.NextToken = id
			return out, nil
		}
		out.Entries = append(out.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: &csi.Snapshot{
			SnapshotId: id, SourceVolumeId: s.source, SizeBytes: s.size, ReadyToUse: b.ready(s), CreationTime: timestamppb.New(s.created),
		}})
	}
	return out, nil
}
