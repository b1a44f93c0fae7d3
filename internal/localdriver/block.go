package localdriver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/berth-dev/berth/internal/localdriver/loop"
	"github.com/berth-dev/berth/internal/localdriver/mount"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

// attachBlock puts the image on a device that stays there whether somebody has
// it open or not: the node at a target path does not hold the device, and its
// number must not pass to another image.
func (v *volumes) attachBlock(rec record.Volume) error {
	image := v.image(keyOf(rec))
	if err := enlarge(image, rec.Capacity); err != nil {
		return err
	}
	device, found, err := loop.Find(image)
	if err == nil && !found {
		device, err = loop.Attach(image, loop.Nobody)
	}
	if err != nil {
		return err
	}
	v.passed(stageAttached)
	return errors.Join(device.Resize(), device.Close())
}

// publishBlock shows the device of a staged volume at a target path.
func (v *volumes) publishBlock(rec record.Volume, seen sight, staging, target string, want record.Publication) error {
	if !seen.attached || rec.Staging == nil || rec.Staging.Path != staging {
		return refuse(codes.FailedPrecondition, "volume %s is not staged at %s; stage it there first", rec.ID, staging)
	}
	m, err := seen.at(target)
	if err != nil {
		return err
	}
	if had, recorded := rec.Publications[target]; m != nil && recorded && !had.Equal(want) {
		return refuse(codes.AlreadyExists, "volume %s is already published at %s with other arguments", rec.ID, target)
	}
	if err := mayShare(&rec, seen, target, want); err != nil {
		return err
	}
	readOnly := readsOnly(want)
	for other, had := range rec.Publications {
		if other != target && readsOnly(had) != readOnly {
			return refuse(codes.FailedPrecondition,
				"volume %s is a block device: it is read-only at every path or at none, and it is published at %s", rec.ID, other)
		}
	}
	if rec.Publications == nil {
		rec.Publications = map[string]record.Publication{}
	}
	rec.Publications[target] = want
	if err := v.put(rec); err != nil {
		return err
	}
	v.passed(publishRecorded)
	if err := v.bindDevice(rec, target, m != nil, readOnly); err != nil {
		return fmt.Errorf("publish volume %s: %w", rec.ID, err)
	}
	v.log.Info("volume published", "volume", rec.ID, "path", target, "read_only", readOnly)
	return nil
}

// readsOnly reports whether a publication may not write.
func readsOnly(p record.Publication) bool {
	return p.ReadOnly || p.AccessMode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY.String()
}

// bindDevice brings about what the record says of a target.
func (v *volumes) bindDevice(rec record.Volume, target string, bound, readOnly bool) error {
	device, found, err := loop.Find(v.image(keyOf(rec)))
	if err != nil {
		return err
	}
	if !found {
		return errors.New("its device is gone again")
	}
	defer device.Close()
	// Before anybody can open it.
	if err := device.SetReadOnly(readOnly); err != nil {
		return err
	}
	if bound {
		return nil
	}
	if err := makeTargetFile(target); err != nil {
		return err
	}
	v.passed(publishPrepared)
	if err := mount.Bind(device.Path, target); err != nil {
		return err
	}
	v.passed(publishBound)
	return nil
}

// makeTargetFile makes the file over which a device's node is bound. One that
// is there must be empty.
func makeTargetFile(target string) error {
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		return f.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := os.Lstat(target)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() > 0 {
		return refuse(codes.FailedPrecondition, "target path %s is there and is no empty file", target)
	}
	return nil
}

// removeTarget removes the directory, or for a block device the file, that a
// mount has covered, and nothing that holds anything.
func removeTarget(target string, block bool) error {
	st, err := os.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if block && st.Mode().IsRegular() && st.Size() == 0 {
		err = unix.Unlink(target)
	} else {
		err = unix.Rmdir(target)
	}
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
