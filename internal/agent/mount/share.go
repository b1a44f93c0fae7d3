package mount

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Share makes dir one on which mounts show in other mount namespaces too. Where
// dir is on a shared mount, as everywhere on a host that systemd runs, there is
// nothing to do.
func (k Kernel) Share(dir string) error {
	dir, err := resolve(dir)
	if err != nil {
		return err
	}
	list, err := k.List()
	if err != nil {
		return err
	}
	if on, ok := list.Covering(dir); ok && on.Shared {
		return nil
	}
	if _, mounted := list.At(dir); !mounted {
		if below := list.Under(dir); len(below) > 0 {
			return fmt.Errorf("share %s: %s is mounted in it, and would be hidden: unmount it first", dir, below[0].Path)
		}
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s to itself: %w", dir, err)
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the mounts below %s: %w", dir, err)
	}
	return nil
}

// Unshare takes the mount at dir away, unless others lie below it.
func (k Kernel) Unshare(dir string) error {
	below, err := k.Under(dir)
	if err != nil || len(below) != 1 || below[0].Path != dir {
		return err
	}
	return k.Unmount(dir)
}
