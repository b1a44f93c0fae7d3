package filesystem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// subvolumeInode is the number that the top of every subvolume has.
const subvolumeInode = 256

// OnBtrfs reports whether path is on a btrfs.
func OnBtrfs(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, fmt.Errorf("look at file system of %s: %w", path, err)
	}
	return st.Type == unix.BTRFS_SUPER_MAGIC, nil
}

// IsSubvolume reports whether path is the top of a subvolume; what is not
// there is none.
func IsSubvolume(path string) (bool, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", path, err)
	}
	if st.Ino != subvolumeInode || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false, nil
	}
	return OnBtrfs(path)
}

// SubvolumesReady reports with a *MissingError that there is no program for
// subvolumes.
func (t Tools) SubvolumesReady() error {
	_, err := t.find("btrfs")
	return err
}

// MakeSubvolume makes an empty subvolume.
func (t Tools) MakeSubvolume(ctx context.Context, path string) error {
	if _, err := t.run(ctx, "btrfs", "subvolume", "create", path); err != nil {
		return fmt.Errorf("make subvolume %s: %w", path, err)
	}
	return nil
}

// CopySubvolume makes a snapshot of a subvolume: all of it at one moment.
func (t Tools) CopySubvolume(ctx context.Context, source, path string, readOnly bool) error {
	args := []string{"subvolume", "snapshot"}
	if readOnly {
		args = append(args, "-r")
	}
	if _, err := t.run(ctx, "btrfs", append(args, source, path)...); err != nil {
		return fmt.Errorf("copy subvolume %s to %s: %w", source, path, err)
	}
	return nil
}

// RemoveSubvolume removes a subvolume with all that is in it, and the account
// of its space. One that holds other subvolumes, or is in use, stays.
func (t Tools) RemoveSubvolume(ctx context.Context, path string) error {
	id, err := t.run(ctx, "btrfs", "inspect-internal", "rootid", path)
	if err != nil {
		return fmt.Errorf("remove subvolume %s: %w", path, err)
	}
	if _, err := t.run(ctx, "btrfs", "subvolume", "delete", "--commit-after", path); err != nil {
		return fmt.Errorf("remove subvolume %s: %w", path, err)
	}
	// Linux 6.11 removes the account by itself, later; an older one at once, if
	// it is asked. Where there are no accounts, none is there.
	_, _ = t.run(ctx, "btrfs", "qgroup", "destroy", "0/"+strings.TrimSpace(string(id)), parentOf(path))
	return nil
}

func parentOf(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 1)] }

// Limit bounds the space of a subvolume: what it shows to its user, shared
// with others or not. It turns accounts of space on for the whole file system
// if they are off.
func (t Tools) Limit(ctx context.Context, path string, size int64) error {
	if _, err := t.run(ctx, "btrfs", "quota", "enable", path); err != nil {
		return fmt.Errorf("account for space of %s: %w", path, err)
	}
	if _, err := t.run(ctx, "btrfs", "qgroup", "limit", strconv.FormatInt(size, 10), path); err != nil {
		return fmt.Errorf("limit subvolume %s: %w", path, err)
	}
	return nil
}

// Account is the space of a subvolume in bytes. Limit is 0 if there is none.
type Account struct{ Used, Limit int64 }

// Account asks for the space of a subvolume. It is what was written to the
// disk: what was written a moment ago may be missing.
func (t Tools) Account(ctx context.Context, path string) (Account, error) {
	var a Account
	id, err := t.run(ctx, "btrfs", "inspect-internal", "rootid", path)
	if err != nil {
		return a, fmt.Errorf("account for space of %s: %w", path, err)
	}
	out, err := t.run(ctx, "btrfs", "qgroup", "show", "--raw", "-r", path)
	if err != nil {
		return a, fmt.Errorf("account for space of %s: %w", path, err)
	}
	want := "0/" + strings.TrimSpace(string(id))
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line) // qgroupid, referenced, exclusive, limit, ...
		if len(f) < 4 || f[0] != want {
			continue
		}
		if a.Used, err = strconv.ParseInt(f[1], 10, 64); err != nil {
			return a, fmt.Errorf("account for space of %s: %q: %w", path, line, err)
		}
		if limit, err := strconv.ParseUint(f[3], 10, 64); err == nil && limit <= math.MaxInt64 {
			a.Limit = int64(limit)
		}
		return a, nil
	}
	return a, fmt.Errorf("account for space of %s: there is none for %s", path, want)
}

// CopyTree copies a directory with everything in it, its owners, times and
// attributes, to a path that is not there yet. Files share their blocks with
// the originals where the file system can do that.
func (t Tools) CopyTree(ctx context.Context, source, path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("copy %s: %s is there already", source, path)
	}
	_, err := t.run(ctx, "cp", "-a", "-T", "-x", "--reflink=auto", "--sparse=auto", source, path)
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", source, path, err)
	}
	return nil
}
