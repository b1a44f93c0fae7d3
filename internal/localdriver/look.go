package localdriver

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
	"github.com/berth-dev/berth/internal/localdriver/loop"
	"github.com/berth-dev/berth/internal/localdriver/mount"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

// sight is what the kernel shows of one volume at one moment.
type sight struct {
	table  mount.Table
	origin mount.Origin
	// mounts are all those that show the volume or a part of it.
	mounts []*mountinfo.Info
	// attached: the image is on a loop device.
	attached bool
}

// look asks the kernel about a volume.
func (v *volumes) look(rec record.Volume) (sight, error) {
	var s sight
	var err error
	if s.table, err = mount.Read(); err != nil {
		return s, err
	}
	switch rec.Content {
	case record.Directory, record.Subvolume:
		s.origin, err = s.table.OriginOf(v.data(keyOf(rec)))
	case record.Image, record.Block:
		var device *loop.Device
		device, s.attached, err = loop.Find(v.image(keyOf(rec)))
		if s.attached {
			s.origin, err = s.originOn(rec, device)
			err = errors.Join(err, device.Close())
		}
	}
	if err != nil {
		return s, fmt.Errorf("look at volume %s: %w", rec.ID, err)
	}
	s.mounts = s.table.Of(s.origin)
	return s, nil
}

// originOn is what the mounts of an attached image show.
func (s sight) originOn(rec record.Volume, device *loop.Device) (mount.Origin, error) {
	switch {
	case rec.Content == record.Block:
		return s.table.OriginOf(device.Path) // the device's node, bound to a target
	case rec.FileSystem.Type == string(filesystem.Btrfs):
		return mount.BtrfsDevice(device.Path), nil
	}
	return mount.Device(device.Major, device.Minor), nil
}

// at reports whether path is a mount of the volume. Something else at path is
// an error: the driver neither covers nor removes what is not its own.
func (s sight) at(path string) (*mountinfo.Info, error) {
	top := s.table.Top(path)
	if top == nil {
		return nil, nil
	}
	if !s.origin.Shows(top) {
		return nil, refuse(codes.FailedPrecondition, "something else is mounted at %s (%s of type %s)", path, top.Source, top.FSType)
	}
	return top, nil
}

// shows reports whether the volume is mounted at path.
func (s sight) shows(path string) bool {
	top := s.table.Top(path)
	return top != nil && s.origin.Shows(top)
}

// unmountAll unmounts the volume at path, however often it is mounted there.
func (v *volumes) unmountAll(rec record.Volume, path string) error {
	for {
		seen, err := v.look(rec)
		if err != nil {
			return err
		}
		m, err := seen.at(path)
		if err != nil && orphaned(rec, seen, path) {
			m, err = seen.table.Top(path), nil
		}
		if err != nil || m == nil {
			return err
		}
		err = mount.Unmount(path)
		if errors.Is(err, mount.ErrBusy) {
			return refuse(codes.FailedPrecondition, "%v", err)
		}
		if err != nil {
			return err
		}
	}
}

// orphaned reports whether the mount at path is all that is left of a block
// volume that somebody has detached: the node of a device, which may have been
// given to another image since. It must go.
func orphaned(rec record.Volume, seen sight, path string) bool {
	_, recorded := rec.Publications[path]
	top := seen.table.Top(path)
	return recorded && rec.Content == record.Block && !seen.attached && top != nil &&
		strings.HasPrefix(filepath.Base(top.Root), "loop")
}
