// Package tree removes a directory and everything below it.
//
// It owns the descent. It never follows a symbolic link and never enters a
// mount: openat2 with RESOLVE_NO_XDEV refuses even a bind mount of the same
// file system, and refuses at the moment of descent, so a mount that appears
// during the removal is safe as well.
//
// Invariant: only names below the given one are unlinked, and a removal that
// stopped half way continues when it is repeated.
package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrMount is in the chain of the error that a mount in the tree causes.
var ErrMount = errors.New("a file system is mounted there")

// batch is how many names are read before they are removed.
const batch = 1024

// Remove removes the file or directory name in dir. What is not there is no
// error.
func Remove(ctx context.Context, dir, name string) error {
	if name != filepath.Base(name) || name == "." || name == ".." || name == "/" {
		return fmt.Errorf("remove %q: it is not a plain name", name)
	}
	parent, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer parent.Close()
	return remove(ctx, parent, name)
}

// remove removes one entry of parent. Names are joined for messages only;
// every call goes by descriptor.
func remove(ctx context.Context, parent *os.File, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path := filepath.Join(parent.Name(), name)
	unlinked := unix.Unlinkat(int(parent.Fd()), name, 0)
	switch {
	case unlinked == nil || errors.Is(unlinked, unix.ENOENT):
		return nil
	case errors.Is(unlinked, unix.EBUSY):
		return fmt.Errorf("remove %s: %w", path, ErrMount)
	}
	dir, err := enter(parent, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("remove %s: %w", path, ErrMount)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("remove %s: %w", path, unlinked)
	case err != nil:
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer dir.Close()
	if err := empty(ctx, dir); err != nil {
		return err
	}
	err = unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// enter opens a directory below parent, unless that means to pass a link or a
// mount.
func enter(parent *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat2(int(parent.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(parent.Name(), name)), nil
}

// empty removes all that a directory holds. It reads from the start again
// after each batch, because removing entries may move the others.
func empty(ctx context.Context, dir *os.File) error {
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read %s: %w", dir.Name(), err)
		}
		names, err := dir.Readdirnames(batch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", dir.Name(), err)
		}
		for _, name := range names {
			if err := remove(ctx, dir, name); err != nil {
				return err
			}
		}
	}
}
