package localdriver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/berth-dev/berth/internal/localdriver/mount"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

// publish makes a staged volume visible at a target path.
func (v *volumes) publish(id, staging, target string, want record.Publication) error {
	rec, end, err := v.begin(id)
	if err != nil {
		return err
	}
	defer end()
	if staging, err = v.resolve(staging); err != nil {
		return err
	}
	if target, err = v.resolve(target); err != nil {
		return err
	}
	if staging == target {
		return refuse(codes.InvalidArgument, "%s is both the staging and the target path", target)
	}
	seen, err := v.look(rec)
	if err != nil {
		return err
	}
	if rec.Content == record.Block {
		if _, err := usable(rec, want.Use); err != nil {
			return err
		}
		return v.publishBlock(rec, seen, staging, target, want)
	}
	flags, err := targetFlags(rec, seen, staging, want)
	if err != nil {
		return err
	}
	m, err := seen.at(target)
	if err != nil {
		return err
	}
	if had, recorded := rec.Publications[target]; m != nil && recorded {
		if !had.Equal(want) {
			return refuse(codes.AlreadyExists, "volume %s is already published at %s with other arguments", rec.ID, target)
		}
		if mount.Matches(m, flags) {
			return nil
		}
	}
	if err := mayShare(&rec, seen, target, want); err != nil {
		return err
	}
	if rec.Publications == nil {
		rec.Publications = map[string]record.Publication{}
	}
	rec.Publications[target] = want
	if err := v.put(rec); err != nil {
		return err
	}
	v.passed(publishRecorded)
	if err := v.mountTarget(rec, target, m != nil, flags); err != nil {
		// The record stays: NodeUnpublishVolume takes back what is there.
		return fmt.Errorf("publish volume %s: %w", rec.ID, err)
	}
	v.log.Info("volume published", "volume", rec.ID, "path", target, "read_only", flags&unix.MS_RDONLY != 0)
	return nil
}

// targetFlags are the mount flags that a publication has, or what of it the
// volume as it is staged cannot do.
func targetFlags(rec record.Volume, seen sight, staging string, want record.Publication) (uintptr, error) {
	asked, err := usable(rec, want.Use)
	if err != nil {
		return 0, err
	}
	if m, err := seen.at(staging); err != nil {
		return 0, err
	} else if m == nil || rec.Staging == nil || rec.Staging.Path != staging {
		return 0, refuse(codes.FailedPrecondition, "volume %s is not staged at %s; stage it there first", rec.ID, staging)
	}
	staged, err := mount.Parse(rec.Staging.MountFlags)
	if err != nil {
		return 0, err
	}
	if missing, ok := staged.Covers(asked); !ok {
		return 0, refuse(codes.FailedPrecondition,
			"volume %s is staged without the mount flag %q, which belongs to the whole file system", rec.ID, missing)
	}
	if want.Group != rec.Staging.Group {
		return 0, refuse(codes.FailedPrecondition, "volume %s is staged for the group %q, and asked for the group %q", rec.ID, rec.Staging.Group, want.Group)
	}
	if readsOnly(want) {
		asked.Flags |= unix.MS_RDONLY
	}
	return staged.Bound(asked), nil
}

// mayShare reports whether the volume may be published at one more target (CSI
// spec, second table of NodePublishVolume). Publications that the kernel does
// not have any more are forgotten.
func mayShare(rec *record.Volume, seen sight, target string, want record.Publication) error {
	const shared = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	for other, had := range rec.Publications {
		if other == target {
			continue
		}
		if !seen.shows(other) {
			delete(rec.Publications, other)
			continue
		}
		if had.AccessMode != shared.String() || want.AccessMode != shared.String() {
			return refuse(codes.FailedPrecondition,
				"volume %s is published at %s already; only with access mode %s can it be at two places (it is there with %s, and asked for with %s)",
				rec.ID, other, shared, had.AccessMode, want.AccessMode)
		}
	}
	return nil
}

// mountTarget brings about what the record says of a target.
func (v *volumes) mountTarget(rec record.Volume, target string, mounted bool, flags uintptr) error {
	if !mounted {
		if err := makeTarget(target); err != nil {
			return err
		}
		v.passed(publishPrepared)
		if err := mount.Bind(rec.Staging.Path, target); err != nil {
			return err
		}
		v.passed(publishBound)
	}
	if err := v.setFlags(rec, target, flags); err != nil {
		return err
	}
	v.passed(publishFlagged)
	return nil
}

// makeTarget makes the target directory. One that is there must be empty: what
// a mount hides cannot be removed with it.
func makeTarget(target string) error {
	err := os.Mkdir(target, 0o750)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	entries, err := os.ReadDir(target)
	if errors.Is(err, unix.ENOTDIR) {
		return refuse(codes.FailedPrecondition, "target path %s is there and is no directory", target)
	}
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return refuse(codes.FailedPrecondition, "target path %s is there and is not empty", target)
	}
	return nil
}

// unpublish undoes publish: the mount goes, and the target with it.
func (v *volumes) unpublish(id, target string) error {
	rec, end, err := v.begin(id)
	if err != nil {
		return err
	}
	defer end()
	if target, err = v.resolveOld(target); err != nil {
		return err
	}
	if rec.Staging != nil && rec.Staging.Path == target {
		return refuse(codes.InvalidArgument, "%s is the staging path of volume %s; unstage it", target, rec.ID)
	}
	if err := v.unmountAll(rec, target); err != nil {
		return fmt.Errorf("unpublish volume %s: %w", rec.ID, err)
	}
	v.passed(unpublishUnmounted)
	err = removeTarget(target, rec.Content == record.Block)
	switch {
	case errors.Is(err, unix.ENOTEMPTY):
		return refuse(codes.FailedPrecondition, "unpublish volume %s: target path %s holds files that are not the volume's", rec.ID, target)
	case errors.Is(err, unix.ENOTDIR):
		return refuse(codes.FailedPrecondition, "unpublish volume %s: %s is there and is no directory", rec.ID, target)
	}
	if err != nil {
		return fmt.Errorf("unpublish volume %s: remove %s: %w", rec.ID, target, err)
	}
	v.passed(unpublishRemoved)
	if _, recorded := rec.Publications[target]; recorded {
		delete(rec.Publications, target)
		if err := v.put(rec); err != nil {
			return err
		}
	}
	v.log.Info("volume unpublished", "volume", rec.ID, "path", target)
	return nil
}
