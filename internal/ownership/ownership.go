// Package ownership gives a directory and all below it to a group: what is there
// belongs to the group, which gets the rights that the owner has, and what is
// made in its directories later belongs to it too.
//
// It also lets users through directories that are closed to others.
//
// It owns the descent. It never follows a symbolic link and never leaves the
// file system that it was sent to: openat2 with RESOLVE_NO_XDEV refuses even a
// bind mount, at the moment of descent, so that a task that changes the tree
// meanwhile leads it nowhere. It changes no owner and no content, and takes no
// right away.
//
// Invariant: the top is changed last. A top that is as it should be says that
// all below it was, once; a walk that was cut short goes on when it is repeated.
package ownership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Order is what to give to whom.
type Order struct {
	// Dir is an absolute path: a directory, and no symbolic link.
	Dir   string
	Group int
	// Always: the tree is walked even if its top is as it should be.
	Always bool
	// Inherit: what is made in its directories later is the group's to read and
	// write too, whatever the umask of who makes it, by a default ACL (acl(5)). The
	// file system must have such.
	Inherit bool
	// Every is how often Said is told how far the walk is; nil tells nobody.
	Every time.Duration
	Said  func(Progress)
}

// Progress is how far a walk is.
type Progress struct {
	// Seen are the entries that were looked at, and Changed those among them
	// that were not as they should be.
	Seen, Changed int64
}

// Give gives a tree to a group, and returns how far it came.
func Give(ctx context.Context, o Order) (Progress, error) {
	if !filepath.IsAbs(o.Dir) {
		return Progress{}, fmt.Errorf("give %q to group %d: the path must be absolute", o.Dir, o.Group)
	}
	fd, err := unix.Open(o.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Progress{}, fmt.Errorf("give %s to group %d: open it: %w", o.Dir, o.Group, err)
	}
	w := walk{Order: o, fd: fd, told: time.Now()}
	defer func() { _ = unix.Close(w.fd) }()
	err = w.run(ctx)
	if err != nil {
		err = fmt.Errorf("give %s to group %d: %w", o.Dir, o.Group, err)
	}
	return w.Progress, err
}

// walk goes through a tree with a single open directory, so that no depth of
// directories exhausts the process's files. It goes down by name and up by
// "..", and checks on the way up that it is where it came from: whoever moves
// directories about meanwhile makes it fail, not astray.
type walk struct {
	Order
	Progress
	// fd is the directory that the walk is in, dirs are those in it that it has
	// yet to enter, and levels the directories above it.
	fd     int
	dirs   []string
	levels []level
	told   time.Time
}

// level is a directory that the walk went down from, into name.
type level struct {
	name     string
	dev, ino uint64
	dirs     []string
}

func (w *walk) run(ctx context.Context) error {
	var top unix.Stat_t
	if err := unix.Fstat(w.fd, &top); err != nil {
		return err
	}
	if w.right(&top) && !w.Always {
		return nil
	}
	if err := w.read(ctx); err != nil {
		return err
	}
	for len(w.dirs) > 0 || len(w.levels) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(w.dirs) == 0 {
			if err := w.leave(); err != nil {
				return err
			}
			continue
		}
		name := w.dirs[0]
		w.dirs = w.dirs[1:]
		if err := w.enter(ctx, name); err != nil {
			return err
		}
	}
	w.Seen++
	if w.right(&top) {
		return nil
	}
	return w.change(w.fd, &top, "")
}

// enter goes down into a directory and looks at what is in it. One that is gone
// by now is passed over, and so is a mount, which is not the volume's.
func (w *walk) enter(ctx context.Context, name string) error {
	var here unix.Stat_t
	if err := unix.Fstat(w.fd, &here); err != nil {
		return w.fail("look at", "", err)
	}
	fd, err := w.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if passedOver(err) {
		return nil
	}
	if err != nil {
		return w.fail("open", name, err)
	}
	_ = unix.Close(w.fd)
	w.fd = fd
	w.levels = append(w.levels, level{name: name, dev: here.Dev, ino: here.Ino, dirs: w.dirs})
	w.dirs = nil
	return w.read(ctx)
}

// leave goes up.
func (w *walk) leave() error {
	last := w.levels[len(w.levels)-1]
	fd, err := w.open("..", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return w.fail("leave", "", err)
	}
	var here unix.Stat_t
	if err = unix.Fstat(fd, &here); err == nil && (here.Dev != last.dev || here.Ino != last.ino) {
		err = errors.New("it was moved meanwhile")
	}
	if err != nil {
		_ = unix.Close(fd)
		return w.fail("leave", "", err)
	}
	_ = unix.Close(w.fd)
	w.fd, w.dirs, w.levels = fd, last.dirs, w.levels[:len(w.levels)-1]
	return nil
}

// read looks at everything in the directory that the walk is in, and notes the
// directories among it. Of a directory with millions of files only a buffer is
// kept.
func (w *walk) read(ctx context.Context) error {
	buf := make([]byte, 32<<10)
	var names []string
	for {
		n, err := unix.ReadDirent(w.fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return w.fail("read", "", err)
		}
		if n <= 0 {
			return nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if err := w.look(name); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if w.Said != nil && time.Since(w.told) >= w.Every {
			w.told = time.Now()
			w.Said(w.Progress)
		}
	}
}

// look brings about that one entry is as it should be.
func (w *walk) look(name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(w.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return w.fail("look at", name, err)
	}
	w.Seen++
	dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if !w.right(&st) || dir && w.Inherit {
		fd, err := w.open(name, unix.O_PATH)
		if passedOver(err) {
			return nil
		}
		if err != nil {
			return w.fail("open", name, err)
		}
		// It may be another file by now.
		if err = unix.Fstat(fd, &st); err == nil && (!w.right(&st) || w.Inherit) {
			err = w.change(fd, &st, name)
		}
		_ = unix.Close(fd)
		switch {
		case errors.Is(err, unix.EROFS):
			// What a file system shows of its own, such as its snapshots.
			return nil
		case err != nil:
			return err
		}
		dir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	}
	if dir {
		w.dirs = append(w.dirs, name)
	}
	return nil
}

// forGroup are the rights of a group that has what the owner has.
func forGroup(mode uint32) uint32 { return mode & 0o700 >> 3 }

// right reports whether an entry is as it should be. A symbolic link has no
// rights, and a device is not the volume's to give.
func (w *walk) right(st *unix.Stat_t) bool {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return int(st.Gid) == w.Group && st.Mode&forGroup(st.Mode) == forGroup(st.Mode) && st.Mode&unix.S_ISGID != 0
	case unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK:
		return int(st.Gid) == w.Group && st.Mode&forGroup(st.Mode) == forGroup(st.Mode)
	}
	return true
}

// change gives what is open at fd to the group. A file's set-user-ID and
// set-group-ID bits do not outlive it: the kernel takes them, and a group that
// may write to a program must not make it another's.
func (w *walk) change(fd int, st *unix.Stat_t, name string) error {
	if int(st.Gid) != w.Group {
		if err := unix.Fchownat(fd, "", -1, w.Group, unix.AT_EMPTY_PATH); err != nil {
			return w.fail("change the group of", name, err)
		}
	}
	mode := st.Mode&0o1777 | forGroup(st.Mode)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode = st.Mode&0o7777 | forGroup(st.Mode) | unix.S_ISGID
	}
	right := w.right(st)
	path := "/proc/self/fd/" + strconv.Itoa(fd) // one of a path only has no fchmod(2)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && w.Inherit {
		if err := unix.Setxattr(path, "system.posix_acl_default", defaultACL(mode), 0); err != nil {
			return w.fail("set the default ACL of", name, err)
		}
	}
	if right {
		return nil
	}
	if err := unix.Chmod(path, mode); err != nil {
		return w.fail("change the rights of", name, err)
	}
	w.Changed++
	return nil
}

// defaultACL is an ACL by which the group may read and write what is made in a
// directory, and others may what they may there.
func defaultACL(mode uint32) []byte {
	list := aclOf(mode)
	list[0].rights, list[1].rights = allRights, allRights
	return list.bytes()
}

// passedOver reports whether an entry is not the walk's: it is gone, it has
// become something else, or it is a mount.
func passedOver(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// open opens an entry next to the walk, never across a mount point and never
// through a symbolic link (openat2(2), Linux 5.6).
func (w *walk) open(name string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(w.fd, name, &how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		return fd, err
	}
}

// fail names the entry, as it is called below the top.
func (w *walk) fail(verb, name string, err error) error {
	var names []string
	for _, l := range w.levels {
		names = append(names, l.name)
	}
	path := filepath.Join(append(names, name)...)
	if path == "" {
		path = "."
	}
	return &os.PathError{Op: verb, Path: path, Err: err}
}
