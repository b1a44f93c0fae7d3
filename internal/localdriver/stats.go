package localdriver

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

// stats is how full a volume is, seen at one of its mounts. A directory has no
// limit of its own and shows the node's file system. It waits for no other
// call: a question changes nothing.
func (v *volumes) stats(id, path string) ([]*csi.VolumeUsage, error) {
	parsed, ok := record.ParseID(id)
	if !ok {
		return nil, refuse(codes.NotFound, "volume %q does not exist", id)
	}
	rec, err := v.find(parsed)
	if err != nil {
		return nil, err
	}
	resolved, err := v.resolve(path)
	if err != nil {
		return nil, refuse(codes.NotFound, "volume %s is not at %s: %v", id, path, err)
	}
	seen, err := v.look(rec)
	if err != nil {
		return nil, err
	}
	if m, err := seen.at(resolved); err != nil || m == nil {
		return nil, refuse(codes.NotFound, "volume %s is not mounted at %s", id, path)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(resolved, &st); err != nil {
		return nil, fmt.Errorf("look at space of %s: %w", path, err)
	}
	usage := []*csi.VolumeUsage{{
		Unit:      csi.VolumeUsage_BYTES,
		Total:     blocks(st.Blocks, st.Frsize),
		Available: blocks(st.Bavail, st.Frsize),
		Used:      blocks(st.Blocks-st.Bfree, st.Frsize),
	}}
	if st.Files == 0 {
		return usage, nil // the file system makes inodes as it needs them
	}
	return append(usage, &csi.VolumeUsage{
		Unit:      csi.VolumeUsage_INODES,
		Total:     blocks(st.Files, 1),
		Available: blocks(st.Ffree, 1),
		Used:      blocks(st.Files-st.Ffree, 1),
	}), nil
}

// blocks is count times size, as far as the protocol's numbers go.
func blocks(count uint64, size int64) int64 {
	high, low := bits.Mul64(count, uint64(size))
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}
