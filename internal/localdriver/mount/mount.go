package mount

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrBusy is answered when a mount cannot go because a process is inside.
var ErrBusy = errors.New("a process still uses it")

// FileSystem mounts the file system of a block device.
func FileSystem(device, target, fsType string, o Options) error {
	if err := unix.Mount(device, target, fsType, o.Flags, strings.Join(o.Data, ",")); err != nil {
		return fmt.Errorf("mount %s of %s at %s: %w", fsType, device, target, err)
	}
	return nil
}

// Bind makes source visible at target, with the flags of source's own mount.
func Bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	return nil
}

// Remount gives the mount at target these per-mount flags and no others.
func Remount(target string, flags uintptr) error {
	err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|flags&PerMount, "")
	if err != nil {
		return fmt.Errorf("set mount flags of %s: %w", target, err)
	}
	return nil
}

// Unmount removes the topmost mount at target. The error is ErrBusy while a
// process is inside; nothing is ever unmounted lazily, because what is only
// hidden can still be written to.
func Unmount(target string) error {
	err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("unmount %s: %w", target, ErrBusy)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
}
