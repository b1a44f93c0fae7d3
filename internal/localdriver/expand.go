package localdriver

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
	"github.com/berth-dev/berth/internal/localdriver/loop"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

// expand gives a volume a larger capacity. onNode: NodeExpandVolume must follow
// if the volume is in use; one that is not grows when it is staged next.
func (v *volumes) expand(ctx context.Context, id string, want size) (capacity int64, onNode bool, err error) {
	rec, end, err := v.begin(id)
	if err != nil {
		return 0, false, err
	}
	defer end()
	if rec.State != record.Ready {
		return 0, false, refuse(codes.NotFound, "volume %s is %s", rec.ID, rec.State)
	}
	if rec.Capacity == 0 {
		return 0, false, refuse(codes.InvalidArgument, "volume %s is a %s without a capacity: there is nothing to expand", rec.ID, rec.Content)
	}
	larger := want
	larger.required = max(want.required, rec.Capacity)
	if want.limit > 0 && want.limit < rec.Capacity {
		return 0, false, refuse(codes.OutOfRange, "volume %s has %d bytes already, more than the limit of %d", rec.ID, rec.Capacity, want.limit)
	}
	if capacity, err = larger.choose(string(rec.Content), sector); err != nil {
		return 0, false, err
	}
	if capacity > rec.Capacity {
		if err := v.hasRoom(capacity - rec.Capacity); err != nil {
			return 0, false, err
		}
		rec.Capacity = capacity
		if rec.FileSystem != nil {
			rec.FileSystem.Grow = rec.FileSystem.Formatted
		}
		if err := v.put(rec); err != nil {
			return 0, false, err
		}
		v.passed(expandRecorded)
		v.log.Info("volume expanded", "volume", rec.ID, "capacity", rec.Capacity)
	}
	// Done again where nothing has changed: an earlier call may have been cut
	// off after its note.
	if rec.Content == record.Subvolume {
		err = v.tools.Limit(ctx, v.data(keyOf(rec)), rec.Capacity)
	} else {
		err = enlarge(v.image(keyOf(rec)), rec.Capacity)
	}
	if err != nil {
		return 0, false, full(fmt.Errorf("expand volume %s: %w", rec.ID, err), rec.Capacity)
	}
	v.passed(expandEnlarged)
	return rec.Capacity, rec.Sparse(), nil
}

// expandOnNode makes a volume in use as large as its capacity: the device, and
// the file system on it.
func (v *volumes) expandOnNode(ctx context.Context, id, path string, required int64) (capacity int64, err error) {
	rec, end, err := v.begin(id)
	if err != nil {
		return 0, err
	}
	defer end()
	resolved, err := v.resolve(path)
	if err != nil {
		return 0, refuse(codes.NotFound, "volume %s is not at %s: %v", id, path, err)
	}
	seen, err := v.look(rec)
	if err != nil {
		return 0, err
	}
	if !v.isAt(rec, seen, resolved) {
		return 0, refuse(codes.NotFound, "volume %s is neither staged nor published at %s", id, path)
	}
	if required > rec.Capacity && rec.Capacity > 0 {
		return 0, refuse(codes.OutOfRange, "volume %s has %d bytes, and %d are asked for; call ControllerExpandVolume first", id, rec.Capacity, required)
	}
	if !rec.Sparse() {
		return rec.Capacity, nil
	}
	if err := enlarge(v.image(keyOf(rec)), rec.Capacity); err != nil {
		return 0, full(fmt.Errorf("expand volume %s: %w", rec.ID, err), rec.Capacity)
	}
	device, found, err := loop.Find(v.image(keyOf(rec)))
	if err != nil {
		return 0, err
	}
	if !found {
		return 0, refuse(codes.FailedPrecondition, "the image of volume %s is on no device any more; stage it again", rec.ID)
	}
	defer device.Close()
	if err := device.Resize(); err != nil {
		return 0, err
	}
	v.passed(growResized)
	if rec.FileSystem == nil {
		return rec.Capacity, nil
	}
	if rec.FileSystem.Grow && !filesystem.Type(rec.FileSystem.Type).GrowsMounted() {
		v.log.Warn("file system grows when it is staged next", "volume", rec.ID, "reason", "no CAP_SYS_RESOURCE")
		return 0, refuse(codes.FailedPrecondition,
			"volume %s is in use, and the kernel grows a mounted ext4 only for processes with CAP_SYS_RESOURCE, which this driver lacks; "+
				"it grows when it is unstaged and staged again", rec.ID)
	}
	return rec.Capacity, v.growMounted(ctx, &rec, device, stagedAt(rec, seen))
}

// isAt reports whether the volume is staged or published at path.
func (v *volumes) isAt(rec record.Volume, seen sight, path string) bool {
	if rec.Content == record.Block && rec.Staging != nil && rec.Staging.Path == path {
		return seen.attached // nothing is mounted where a block device is staged
	}
	return seen.shows(path)
}

// stagedAt is where a mounted volume is staged, which is writable even where a
// publication of it is not.
func stagedAt(rec record.Volume, seen sight) string {
	if rec.Staging != nil && seen.shows(rec.Staging.Path) {
		return rec.Staging.Path
	}
	return seen.mounts[0].Mountpoint
}

// growMounted makes the file system as large as its device, if it is not.
func (v *volumes) growMounted(ctx context.Context, rec *record.Volume, device *loop.Device, path string) error {
	if !rec.FileSystem.Grow {
		return nil
	}
	fsType := filesystem.Type(rec.FileSystem.Type)
	if err := v.tools.GrowMounted(ctx, fsType, device.Path, path); err != nil {
		if missing, ok := errors.AsType[*filesystem.MissingError](err); ok {
			return refuse(codes.FailedPrecondition, "%v", missing)
		}
		return err
	}
	v.passed(growGrown)
	return v.grown(rec)
}

// grown notes that the file system is as large as its image.
func (v *volumes) grown(rec *record.Volume) error {
	rec.FileSystem.Grow = false
	if err := v.put(*rec); err != nil {
		return err
	}
	v.log.Info("file system grown", "volume", rec.ID, "capacity", rec.Capacity)
	return nil
}

// growUnmounted grows a file system before it is mounted, if it has to grow
// and this process cannot do it later.
func (v *volumes) growUnmounted(ctx context.Context, rec *record.Volume, device *loop.Device) error {
	if !rec.FileSystem.Grow || filesystem.Type(rec.FileSystem.Type).GrowsMounted() {
		return nil
	}
	if err := v.tools.GrowUnmounted(ctx, device.Path); err != nil {
		return err
	}
	if err := device.Sync(); err != nil {
		return err
	}
	v.passed(stageGrown)
	return v.grown(rec)
}
