package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"
)

// GrowsMounted reports whether this process can grow the type while it is
// mounted. The kernel grows a mounted ext4 only for a process that has
// CAP_SYS_RESOURCE; the others grow no other way.
func (t Type) GrowsMounted() bool {
	return t != Ext4 || mayExceedLimits()
}

// mayExceedLimits reports whether this process has CAP_SYS_RESOURCE.
func mayExceedLimits() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// GrowMounted makes the file system on the device, mounted at path, as large
// as the device. One that is as large already stays as it is.
func (t Tools) GrowMounted(ctx context.Context, fs Type, device, path string) error {
	var err error
	switch fs {
	case Ext4:
		_, err = t.run(ctx, "resize2fs", device)
	case XFS:
		_, err = t.run(ctx, "xfs_growfs", "-d", path)
	case Btrfs:
		_, err = t.run(ctx, "btrfs", "filesystem", "resize", "max", path)
	}
	if err != nil {
		return fmt.Errorf("grow %s on %s: %w", fs, device, err)
	}
	return nil
}

// Statuses of e2fsck(8): it mended what it found.
const fsckMended = 1

// GrowUnmounted makes an ext4 that is not mounted as large as its device. It is
// checked first, which resize2fs wants, and which mends what an earlier one
// that was killed has left.
func (t Tools) GrowUnmounted(ctx context.Context, device string) error {
	_, err := t.run(ctx, "e2fsck", "-f", "-p", device)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == fsckMended {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("check ext4 on %s: %w", device, err)
	}
	if _, err := t.run(ctx, "resize2fs", device); err != nil {
		return fmt.Errorf("grow ext4 on %s: %w", device, err)
	}
	return nil
}
