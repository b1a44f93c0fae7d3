package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// mounts gives published volumes a file system: the mock by itself makes an
// empty directory at the target path and deletes it, with all that is in it, at
// unpublish. The kernel's mount table is the only memory, so that a process
// that starts anew can undo what an earlier one did.
type mounts struct {
	// dir holds one directory for each volume; empty if there are no mounts.
	dir string
	// fuse: what is mounted is an empty directory that this process serves, or,
	// apart, one of its own.
	fuse, apart bool
	log         *slog.Logger
}

// before comes ahead of the mock's own work. A target that cannot be unmounted,
// because a process uses it, must not reach the mock: it would delete the data.
func (m mounts) before(request any) error {
	unpublish, ok := request.(*csi.NodeUnpublishVolumeRequest)
	if m.dir == "" || !ok || unpublish.GetVolumeId() == "" || unpublish.GetTargetPath() == "" {
		return nil
	}
	return unmount(unpublish.GetTargetPath())
}

// after follows work that the mock has done. It can be repeated.
func (m mounts) after(request any) error {
	if m.dir == "" {
		return nil
	}
	switch r := request.(type) {
	case *csi.NodePublishVolumeRequest:
		// The mock makes a directory of a block volume too; that is all it gets.
		if r.GetVolumeCapability().GetMount() == nil {
			return nil
		}
		switch {
		case m.apart:
			return serveFuseApart(r.GetTargetPath(), m.log)
		case m.fuse:
			return serveFuse(r.GetTargetPath(), m.log)
		}
		return bind(m.data(r.GetVolumeId()), r.GetTargetPath(), r.GetReadonly())
	case *csi.DeleteVolumeRequest:
		if err := os.RemoveAll(m.data(r.GetVolumeId())); err != nil {
			return fmt.Errorf("delete data of volume %s: %w", r.GetVolumeId(), err)
		}
	}
	return nil
}

// data is where a volume's files are. The prefix and the escaping keep an id
// from naming a place outside dir.
func (m mounts) data(volumeID string) string {
	return filepath.Join(m.dir, "volume-"+url.PathEscape(volumeID))
}

// bind shows source at target, unless it is there already.
func bind(source, target string, readonly bool) error {
	if err := os.MkdirAll(source, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", source, err)
	}
	bound, err := sameFile(source, target)
	if err != nil {
		return err
	}
	if !bound {
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s to %s: %w", source, target, err)
		}
	}
	if !readonly {
		return nil
	}
	// The kernel takes read-only in a second step only.
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}

// sameFile reports whether both paths lead to one directory, which is how a
// bind mount looks from outside.
func sameFile(source, target string) (bool, error) {
	a, err := os.Stat(source)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", source, err)
	}
	b, err := os.Stat(target)
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", target, err)
	}
	return os.SameFile(a, b), nil
}

// unmount takes all mounts off target. One that is not a mount, or not there,
// is as it should be.
func unmount(target string) error {
	for {
		err := unix.Unmount(target, 0)
		switch {
		case err == nil:
		case errors.Is(err, unix.EINVAL), errors.Is(err, fs.ErrNotExist):
			return nil
		default:
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
}
