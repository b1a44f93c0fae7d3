package mount

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Kernel is the mount table of the mount namespace that this process runs in.
// The zero value is ready.
type Kernel struct{}

// List reads the whole table.
func (Kernel) List() (List, error) {
	text, err := readTable("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	list, err := Parse(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	return list, nil
}

// At is the topmost mount at path. Symbolic links in the parents of path are
// followed; path itself is only compared, never opened.
func (Kernel) At(path string) (Mount, bool, error) { return at(path, last.current) }

// now is At by a table that is read for it: for who is about to change it.
func (k Kernel) now(path string) (Mount, bool, error) { return at(path, k.List) }

func at(path string, table func() (List, error)) (Mount, bool, error) {
	path, err := resolve(path)
	if err != nil {
		return Mount{}, false, err
	}
	list, err := table()
	if err != nil {
		return Mount{}, false, err
	}
	m, found := list.At(path)
	return m, found, nil
}

// Under is every mount at or below dir. If dir is a symbolic link, the
// directory that it leads to is meant.
func (k Kernel) Under(dir string) ([]Mount, error) {
	dir, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	list, err := k.List()
	if err != nil {
		return nil, err
	}
	// A mount point is no symbolic link, and may be a dead file system: look
	// at dir itself only if nothing is mounted there.
	if _, mounted := list.At(dir); !mounted {
		if target, err := filepath.EvalSymlinks(dir); err == nil {
			dir = target
		}
	}
	return list.Under(dir), nil
}

// Parse reads rows in the format of /proc/self/mountinfo.
func Parse(r io.Reader) (List, error) {
	infos, err := mountinfo.GetMountsFromReader(r, nil)
	if err != nil {
		return nil, err
	}
	list := make(List, len(infos))
	for i, info := range infos {
		m := Mount{
			ID:        info.ID,
			Parent:    info.Parent,
			Device:    fmt.Sprintf("%d:%d", info.Major, info.Minor),
			Source:    info.Source,
			FSType:    info.FSType,
			ReadOnly:  has(info.Options, "ro") || has(info.VFSOptions, "ro"),
			Shared:    strings.Contains(info.Optional, "shared:"),
			Options:   strings.Split(info.Options, ","),
			FSOptions: strings.Split(info.VFSOptions, ","),
		}
		// No name holds a slash, so the suffix can be nothing but the kernel's.
		var root, path bool
		m.Root, root = strings.CutSuffix(info.Root, "//deleted")
		m.Path, path = strings.CutSuffix(info.Mountpoint, "//deleted")
		m.Deleted = root || path
		list[i] = m
	}
	return list, nil
}

func has(options, option string) bool {
	return strings.Contains(","+options+",", ","+option+",")
}

// errUnstable: mounts came and went for as long as the table was read.
var errUnstable = errors.New("it changes faster than it can be read")

// readTable reads a mountinfo file whole. The kernel hands it out a page at a
// time, and up to Linux 5.7 a row may be passed over when another one vanishes
// in between; it says by poll(2) that the table changed, and then the table is
// read again.
func readTable(path string) ([]byte, error) {
	f, err := openTable(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return readStable(f)
}

// openTable opens a mountinfo file that Go's own poller does not know: the kernel
// tells of a change once, and the poller would be who hears of it.
func openTable(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func readStable(f *os.File) ([]byte, error) {
	for range 100 {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		text, err := io.ReadAll(f)
		if err != nil {
			return nil, err
		}
		changed, err := fileChanged(f)
		if err != nil {
			return nil, err
		}
		if !changed {
			return text, nil
		}
	}
	return nil, errUnstable
}

// fileChanged reports whether the table changed since it was asked last of the
// file, or since that was opened.
func fileChanged(f *os.File) (changed bool, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var pollErr error
	err = raw.Control(func(fd uintptr) { changed, pollErr = tableChanged(int(fd)) })
	return changed, errors.Join(err, pollErr)
}

// tableChanged reports whether the table changed since it was asked last.
func tableChanged(fd int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}} //nolint:gosec // a descriptor is small
	for {
		n, err := unix.Poll(fds, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return n > 0 && fds[0].Revents&(unix.POLLPRI|unix.POLLERR) != 0, err
	}
}

// resolve makes a path comparable with the table's: clean, and without
// symbolic links in its parents. The last element is left alone, because it
// may be a dead mount. Parents that cannot be read are taken as written: they
// may be dead mounts too, and what lies below them is found all the same.
func resolve(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("look up mount %q: the path is not absolute", path)
	}
	path = filepath.Clean(path)
	dir, rest := filepath.Dir(path), filepath.Base(path)
	for path != "/" {
		if target, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(target, rest), nil
		}
		dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest)
	}
	return path, nil
}
