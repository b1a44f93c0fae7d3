package csi_test

import (
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/csi"
)

func TestCreateSnapshot_Answer(t *testing.T) {
	t.Parallel()
	when := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		answer *spec.Snapshot
		want   api.SnapshotResult
	}{
		"Ready": {
			&spec.Snapshot{SnapshotId: oddID, SourceVolumeId: "v", SizeBytes: 5, CreationTime: timestamppb.New(when), ReadyToUse: true},
			api.SnapshotResult{ExternalID: oddID, Size: 5, Created: when, Ready: true},
		},
		"CutOnly":     {&spec.Snapshot{SnapshotId: "s", SourceVolumeId: "v", CreationTime: timestamppb.New(when)}, api.SnapshotResult{ExternalID: "s", Created: when}},
		"WithoutTime": {&spec.Snapshot{SnapshotId: "s", SourceVolumeId: "v", ReadyToUse: true}, api.SnapshotResult{ExternalID: "s", Ready: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, always(t, &spec.CreateSnapshotResponse{Snapshot: test.answer}))
			got, err := c.CreateSnapshot(t.Context(), api.SnapshotRequest{Name: "n", SourceID: "v"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(api.OperationResult{Snapshot: &test.want}, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// An answer that names no snapshot, or one of another volume, is none: what
// would be restored from it is another volume's data.
func TestCreateSnapshot_AnswerThatBreaksTheSpecification(t *testing.T) {
	t.Parallel()
	for want, answer := range map[string]*spec.Snapshot{
		"the answer has no snapshot":  nil,
		"snapshot_id is empty":        {SourceVolumeId: "v"},
		"size_bytes is -1":            {SnapshotId: "s", SourceVolumeId: "v", SizeBytes: -1},
		`source_volume_id is "other"`: {SnapshotId: "s", SourceVolumeId: "other"},
		"snapshot_id has":             {SnapshotId: strings.Repeat("s", 1<<16), SourceVolumeId: "v"},
	} {
		c := serve(t, always(t, &spec.CreateSnapshotResponse{Snapshot: answer}))
		_, err := c.CreateSnapshot(t.Context(), api.SnapshotRequest{Name: "n", SourceID: "v"})
		if err == nil || !strings.Contains(err.Error(), want) || csi.CodeOf(err) != csi.CodeInternal {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
