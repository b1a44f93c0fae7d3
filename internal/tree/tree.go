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

// Remove removes the file or directory name in dir, an absolute path. What is
// not there is no error. A mount in the tree ends the removal with a
// MountedError.
func Remove(ctx context.Context, dir, name string) error {
	if name != filepath.Base(name) || name == "." || name == ".." || name == "/" {
		return fmt.Errorf("remove %q: it is not a plain name", name)
	}
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("remove %s in %q: the path must be absolute", name, dir)
	}
	path := filepath.Join(dir, name)
	parent, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: open its parent: %w", path, err)
	}
	r := remover{dir: path, fd: parent, names: []string{name}}
	defer func() { _ = unix.Close(r.fd) }()
	for len(r.names) > 0 || len(r.levels) > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("remove %s: %w", path, err)
		}
		if err := r.step(); err != nil {
			return err
		}
	}
	return nil
}

// MountedError says that a tree holds a mount, which was left alone.
type MountedError struct {
	Dir   string
	Mount string
}

func (e *MountedError) Error() string {
	return fmt.Sprintf("remove %s: %s is a mount point, and what is mounted is not removed", e.Dir, e.Mount)
}

// remover walks a tree with a single open directory, so that no depth of
// directories exhausts the process's files. It goes down by name and up by
// "..", and checks on the way up that it is where it came from: whoever moves
// directories about meanwhile makes it fail, not astray.
type remover struct {
	dir string // what goes
	// fd is the directory that the walk is in, names are what is to go there,
	// and levels the directories above it.
	fd     int
	names  []string
	levels []level
}

// level is a directory that the walk went down from, into name.
type level struct {
	name     string
	dev, ino uint64
	names    []string
}

// step removes one name, enters one directory, or leaves an empty one.
func (r *remover) step() error {
	if len(r.names) == 0 {
		names, err := r.read()
		if err != nil {
			return r.fail("read", "", err)
		}
		if len(names) == 0 {
			return r.leave()
		}
		r.names = names
	}
	name := r.names[0]
	r.names = r.names[1:]
	return r.remove(name)
}

// remove removes a name that is no directory, and enters one that is.
func (r *remover) remove(name string) error {
	err := unix.Unlinkat(r.fd, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return r.fail("remove", name, err)
	}
	// EPERM is said of directories too: look whether it is one.
	switch enterErr := r.enter(name); {
	case errors.Is(enterErr, unix.ENOTDIR), errors.Is(enterErr, unix.ELOOP):
		return r.fail("remove", name, err)
	case enterErr != nil && !errors.Is(enterErr, unix.ENOENT):
		return r.fail("open", name, enterErr)
	}
	return nil
}

func (r *remover) enter(name string) error {
	var here unix.Stat_t
	if err := unix.Fstat(r.fd, &here); err != nil {
		return err
	}
	fd, err := r.open(name)
	if err != nil {
		return err
	}
	_ = unix.Close(r.fd)
	r.fd = fd
	r.levels = append(r.levels, level{name: name, dev: here.Dev, ino: here.Ino, names: r.names})
	r.names = nil
	return nil
}

// leave goes up and removes the directory that the walk was in.
func (r *remover) leave() error {
	last := r.levels[len(r.levels)-1]
	fd, err := r.open("..")
	if err != nil {
		return r.fail("leave", "", err)
	}
	_ = unix.Close(r.fd)
	r.fd = fd
	var here unix.Stat_t
	if err := unix.Fstat(fd, &here); err != nil {
		return r.fail("leave", "", err)
	}
	if here.Dev != last.dev || here.Ino != last.ino {
		return r.fail("leave", "", errors.New("it was moved while it was removed"))
	}
	r.levels, r.names = r.levels[:len(r.levels)-1], last.names
	err = unix.Unlinkat(fd, last.name, unix.AT_REMOVEDIR)
	// ENOTEMPTY: somebody made a file meanwhile. Above the top directory the
	// names are read again before that is left; the top itself is not.
	again := errors.Is(err, unix.ENOTEMPTY) && len(r.levels) > 0
	if err == nil || errors.Is(err, unix.ENOENT) || again {
		return nil
	}
	return r.fail("remove", last.name, err)
}

// open opens a directory next to the walk, never across a mount point and
// never through a symbolic link (openat2(2), Linux 5.6).
func (r *remover) open(name string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(r.fd, name, &how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOSYS):
			return fd, fmt.Errorf("this needs Linux 5.6: %w", err)
		}
		return fd, err
	}
}

// read is a batch of names, none if the directory is empty.
func (r *remover) read() ([]string, error) {
	// A descriptor of its own, because the position moves and os.File owns
	// what it reads from.
	fd, err := r.open(".")
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), ".")
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(1024)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	return names, err
}

func (r *remover) fail(verb, name string, err error) error {
	names := []string{filepath.Dir(r.dir)}
	for _, l := range r.levels {
		names = append(names, l.name)
	}
	path := filepath.Join(append(names, name)...)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EBUSY) {
		return &MountedError{Dir: r.dir, Mount: path}
	}
	return fmt.Errorf("%s %s: %w", verb, path, err)
}
