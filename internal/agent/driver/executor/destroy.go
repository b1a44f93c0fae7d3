package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/driver/cgroup"
)

// Destroy kills what still runs of the task, and removes its cgroup and its
// run directory. It works if Start never ran, or half ran, and if the run
// directory was removed from under the task: the cgroup tells of it too.
func (t *Tasks) Destroy(ctx context.Context, id string) error {
	if err := t.destroy(ctx, t.dir(id)); err != nil {
		return fmt.Errorf("destroy task %s: %w", id, err)
	}
	return nil
}

func (t *Tasks) destroy(ctx context.Context, dir runDir) error {
	lock, err := dir.seizeLock(ctx, true)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	t.reapDead(dir)
	_, st, err := dir.recorded()
	if err != nil {
		t.log.Warn("task is destroyed without its record", "err", err)
	}
	if err := t.killAll(ctx, dir, st); err != nil {
		return err
	}
	return t.remove(dir)
}

// remove removes everything of a dead task, the lock last: as long as anything
// is left, the directory tells of it.
func (t *Tasks) remove(dir runDir) error {
	if err := t.clear(dir); err != nil {
		return err
	}
	for _, name := range []string{specFile, logFile, lockFile} {
		if err := os.Remove(dir.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove run directory: %w", err)
		}
	}
	err := os.Remove(string(dir))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) {
		return nil // not empty: since the lock went, somebody has begun anew
	}
	if err != nil {
		return fmt.Errorf("remove run directory: %w", err)
	}
	return nil
}

// clear removes what a start made, but for the spec, which names the cgroup,
// and the log, which may say why it failed. The caller holds the lock, and no
// process of the task is left.
func (t *Tasks) clear(dir runDir) error {
	if name := t.cgroupOf(dir); name != "" {
		group, err := cgroup.Open(name)
		if err == nil {
			err = group.Remove()
		}
		if err != nil {
			return err
		}
	}
	if err := removeRoot(dir.path(rootName)); err != nil {
		return err
	}
	entries, err := os.ReadDir(string(dir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list run directory: %w", err)
	}
	for _, e := range entries {
		if slices.Contains([]string{specFile, logFile, lockFile}, e.Name()) {
			continue
		}
		if err := os.RemoveAll(dir.path(e.Name())); err != nil {
			return fmt.Errorf("clear run directory: %w", err)
		}
	}
	return nil
}

// removeRoot removes a root file system's mount points. Volumes were once
// mounted there, if only in the task's own mount namespace: nothing is removed
// but empty directories, empty files and links, so that no mistake anywhere
// can cost data.
func removeRoot(root string) error {
	if err := unmountBelow(root); err != nil {
		return err
	}
	var paths []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type().IsRegular() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			if info.Size() > 0 {
				return fmt.Errorf("%s is not empty, and no mount point", path)
			}
		}
		paths = append(paths, path)
		return nil
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove root: %w", err)
	}
	for _, path := range slices.Backward(paths) {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove root: %w", err)
		}
	}
	return nil
}

// unmountBelow takes away mounts at root and below it. Berth makes none in the
// agent's mount namespace; one can only have been made by hand.
func unmountBelow(root string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(root))
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	slices.SortFunc(mounts, func(a, b *mountinfo.Info) int { return strings.Compare(b.Mountpoint, a.Mountpoint) })
	for _, m := range mounts {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}
