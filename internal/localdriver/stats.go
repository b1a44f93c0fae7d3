package localdriver

import (
	"context"
	"fmt"
	"math"
	"math/bits"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

// stats is how full a volume is, seen at one of its mounts, and whether
// something is wrong with it. A directory has no limit of its own and shows
// the node's file system. It waits for no other call: a question changes
// nothing.
func (v *volumes) stats(ctx context.Context, id, path string) ([]*csi.VolumeUsage, *csi.VolumeCondition, error) {
	rec, err := v.known(id)
	if err != nil {
		return nil, nil, err
	}
	resolved, err := v.resolve(path)
	if err != nil {
		return nil, nil, refuse(codes.NotFound, "volume %s is not at %s: %v", id, path, err)
	}
	seen, err := v.look(rec)
	if err != nil {
		return nil, nil, err
	}
	if !v.isAt(rec, seen, resolved) {
		return nil, nil, refuse(codes.NotFound, "volume %s is not mounted at %s", id, path)
	}
	condition, err := v.condition(ctx, rec)
	if err != nil {
		return nil, nil, err
	}
	usage, err := v.usage(ctx, rec, resolved)
	return usage, condition, err
}

func (v *volumes) usage(ctx context.Context, rec record.Volume, path string) ([]*csi.VolumeUsage, error) {
	if rec.Content == record.Block {
		// What of it holds something, only its user knows.
		return []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: rec.Capacity}}, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return nil, fmt.Errorf("look at space of %s: %w", path, err)
	}
	bytes := &csi.VolumeUsage{
		Unit:      csi.VolumeUsage_BYTES,
		Total:     blocks(st.Blocks, st.Frsize),
		Available: blocks(st.Bavail, st.Frsize),
		Used:      blocks(st.Blocks-st.Bfree, st.Frsize),
	}
	if rec.Content == record.Subvolume && rec.Capacity > 0 {
		account, err := v.tools.Account(ctx, v.data(keyOf(rec)))
		if err != nil {
			return nil, err
		}
		bytes.Total, bytes.Used = rec.Capacity, min(account.Used, rec.Capacity)
		bytes.Available = min(bytes.Available, bytes.Total-bytes.Used)
	}
	if st.Files == 0 {
		return []*csi.VolumeUsage{bytes}, nil // the file system makes inodes as it needs them
	}
	return []*csi.VolumeUsage{bytes, {
		Unit:      csi.VolumeUsage_INODES,
		Total:     blocks(st.Files, 1),
		Available: blocks(st.Ffree, 1),
		Used:      blocks(st.Files-st.Ffree, 1),
	}}, nil
}

// blocks is count times size, as far as the protocol's numbers go.
func blocks(count uint64, size int64) int64 {
	high, low := bits.Mul64(count, uint64(size)) //nolint:gosec // no size is negative
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}
