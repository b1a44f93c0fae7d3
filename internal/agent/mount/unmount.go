package mount

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Bind mounts source, a file or directory, on target, which exists and is of
// the same sort. The new mount keeps the restrictions of source's: nosuid,
// nodev, noexec.
func (k Kernel) Bind(source, target string, readOnly bool) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s on %s: %w", source, target, err)
	}
	if !readOnly {
		return nil
	}
	// The kernel ignores the read-only flag of a first bind.
	err := k.remountReadOnly(target)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("bind %s on %s read-only: %w", source, target, err)
	return errors.Join(err, k.Unmount(target))
}

func (k Kernel) remountReadOnly(target string) error {
	m, found, err := k.now(target)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("the mount went away: %w", unix.EINVAL)
	}
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY)
	keep := map[string]uintptr{
		"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV,
		"noexec": unix.MS_NOEXEC, "nosymfollow": unix.MS_NOSYMFOLLOW,
	}
	for _, option := range m.Options {
		flags |= keep[option]
	}
	return unix.Mount("", target, "", flags, "")
}

// Unmount takes the topmost mount at path away. It may wait for as long as the
// file system takes to write back what it holds.
func (k Kernel) Unmount(path string) error {
	path, err := resolve(path)
	if err != nil {
		return err
	}
	m, found, err := k.now(path)
	if err != nil || !found {
		return err
	}
	err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	for errors.Is(err, unix.EINTR) {
		err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EBUSY):
		return k.busy(m)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		// Somebody else may have been faster.
		if now, found, lookErr := k.now(path); lookErr == nil && (!found || now.ID != m.ID) {
			return nil
		}
	}
	return fmt.Errorf("unmount %s: %w", path, err)
}

// BusyError says that a mount is in use, and by whom as far as can be told.
type BusyError struct {
	Path string
	// Holders are phrases: "postgres (pid 812, open file /data/pg/base/1)".
	Holders []string
}

func (e *BusyError) Error() string {
	by := "nobody that can be seen from here: a process that has just ended, or the kernel itself (a loop device, swap, an NFS export)"
	if len(e.Holders) > 0 {
		by = strings.Join(e.Holders, ", ")
	}
	return fmt.Sprintf("unmount %s: it is in use by %s", e.Path, by)
}

// Unwrap makes the error an EBUSY.
func (e *BusyError) Unwrap() error { return unix.EBUSY }

// Naming the holders is a courtesy: it ends after so many names, and after so
// many open or mapped files have been looked at.
const (
	maxHolders = 8
	maxLooks   = 1 << 18
)

func (k Kernel) busy(m Mount) error {
	e := &BusyError{Path: m.Path}
	if list, err := k.List(); err == nil {
		for _, on := range list {
			if on.Parent == m.ID && len(e.Holders) < maxHolders {
				e.Holders = append(e.Holders, "the mount at "+on.Path)
			}
		}
	}
	e.Holders = append(e.Holders, holders(m.Path, maxHolders-len(e.Holders))...)
	return e
}

// holders finds processes in this mount namespace that use a file below path.
// It reads links and tables in /proc only, and so never waits for the file
// system. Mapped files, of which there are most, come last.
func holders(path string, most int) []string {
	self, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []string
	looks := maxLooks
	for _, usage := range []func(proc, path string, looks *int) string{openFile, mappedFile} {
		for _, entry := range entries {
			pid, err := strconv.Atoi(entry.Name())
			if err != nil {
				continue
			}
			proc := filepath.Join("/proc", entry.Name())
			if ns, err := os.Readlink(filepath.Join(proc, "ns/mnt")); err != nil || ns != self {
				continue
			}
			if use := usage(proc, path, &looks); use != "" {
				name, _ := os.ReadFile(filepath.Join(proc, "comm"))
				found = append(found, fmt.Sprintf("%s (pid %d, %s)", strings.TrimSpace(string(name)), pid, use))
			}
			if len(found) >= most || looks <= 0 {
				return found
			}
		}
		if len(found) > 0 {
			break
		}
	}
	return found
}

// openFile says what the process at /proc/PID has open below path, or "".
func openFile(proc, path string, looks *int) string {
	links := []struct{ name, use string }{
		{"cwd", "working directory "}, {"root", "root directory "}, {"exe", "program "},
	}
	fds, _ := os.ReadDir(filepath.Join(proc, "fd"))
	for _, fd := range fds {
		links = append(links, struct{ name, use string }{"fd/" + fd.Name(), "open file "})
	}
	*looks -= len(links)
	for _, link := range links {
		if to, err := os.Readlink(filepath.Join(proc, link.name)); err == nil && below(path, to) {
			return link.use + to
		}
	}
	return ""
}

// mappedFile says what the process at /proc/PID has mapped below path, or "".
func mappedFile(proc, path string, looks *int) string {
	maps, _ := os.ReadFile(filepath.Join(proc, "maps"))
	for line := range strings.Lines(string(maps)) {
		*looks--
		// The path is the last column, and the only one with a slash.
		if _, file, found := strings.Cut(strings.TrimSpace(line), "/"); found && below(path, "/"+file) {
			return "mapped file /" + file
		}
	}
	return ""
}
