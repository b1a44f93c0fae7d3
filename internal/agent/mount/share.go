package mount

import (
	"fmt"
	"path/filepath"
	"slices"

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

// Unshare takes the mount at dir away that Share made, unless others lie below
// it: one of dir itself. Any other is an operator's.
func (k Kernel) Unshare(dir string) error {
	dir, err := resolve(dir)
	if err != nil {
		return err
	}
	list, err := k.List()
	if err != nil {
		return err
	}
	below := list.Under(dir)
	if len(below) != 1 || below[0].Path != dir || !list.onItself(below[0]) {
		return nil
	}
	return k.Unmount(dir)
}

// onItself reports whether a mount shows the directory that it is mounted on.
func (l List) onItself(m Mount) bool {
	i := slices.IndexFunc(l, func(on Mount) bool { return on.ID == m.Parent })
	if i < 0 || l[i].Device != m.Device {
		return false
	}
	rest, err := filepath.Rel(l[i].Path, m.Path)
	return err == nil && m.Root == filepath.Join(l[i].Root, rest)
}
