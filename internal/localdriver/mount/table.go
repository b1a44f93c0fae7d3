// Package mount looks at the kernel's mount table, and binds and unmounts.
//
// It owns the reading of the table and of mount options. It never remembers
// anything and never decides whether a mount may go.
//
// Invariant: a mount is known by what it shows, a device and a path inside it,
// not by the paths that it was once made with.
package mount

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Table is the mount table of this process at one moment.
type Table []*mountinfo.Info

// Read reads the table.
func Read() (Table, error) {
	infos, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	return infos, nil
}

// Origin says what a mount shows: a directory inside a file system. The zero
// value is shown by no mount.
type Origin struct {
	Major, Minor int
	// Source replaces the numbers where they are not the device's own: btrfs
	// has numbers that belong to no device.
	Source string
	// Root is the path inside the file system, "/" for all of it.
	Root string
}

// Device is the origin of a mount of a whole block device.
func Device(major, minor int) Origin { return Origin{Major: major, Minor: minor, Root: "/"} }

// BtrfsDevice is the origin of a mount of the whole btrfs on a block device.
func BtrfsDevice(path string) Origin { return Origin{Source: path, Root: "/"} }

// OriginOf says what a bind mount of the directory would show. path is
// absolute and free of symbolic links.
func (t Table) OriginOf(path string) (Origin, error) {
	var longest string
	for _, m := range t {
		if len(m.Mountpoint) >= len(longest) && Within(path, m.Mountpoint) {
			longest = m.Mountpoint
		}
	}
	top := t.Top(longest)
	if top == nil {
		return Origin{}, fmt.Errorf("find file system of %s: no mount holds it", path)
	}
	rest, err := filepath.Rel(longest, path)
	if err != nil {
		return Origin{}, fmt.Errorf("find file system of %s: %w", path, err)
	}
	return Origin{Major: top.Major, Minor: top.Minor, Root: filepath.Join(top.Root, rest)}, nil
}

// Shows reports whether the mount shows exactly the origin.
func (o Origin) Shows(m *mountinfo.Info) bool {
	return o.on(m) && m.Root == o.Root
}

// Holds reports whether the mount shows the origin or a part of it.
func (o Origin) Holds(m *mountinfo.Info) bool {
	return o.on(m) && Within(m.Root, o.Root)
}

// on reports whether the mount is of the origin's file system.
func (o Origin) on(m *mountinfo.Info) bool {
	switch {
	case o.Root == "":
		return false
	case o.Source != "":
		return m.FSType == "btrfs" && m.Source == o.Source
	}
	return m.Major == o.Major && m.Minor == o.Minor
}

// Of lists the mounts that show the origin or a part of it.
func (t Table) Of(o Origin) []*mountinfo.Info {
	var found []*mountinfo.Info
	for _, m := range t {
		if o.Holds(m) {
			found = append(found, m)
		}
	}
	return found
}

// Below lists the mount points at path or anywhere below it.
func (t Table) Below(path string) []string {
	var found []string
	for _, m := range t {
		if Within(m.Mountpoint, path) {
			found = append(found, m.Mountpoint)
		}
	}
	return found
}

// Top is the mount that a look at path meets: of several at one mount point
// the one that covers the others. It is nil if path is no mount point.
func (t Table) Top(path string) *mountinfo.Info {
	covered := map[int]bool{}
	for _, m := range t {
		if m.Mountpoint == path {
			covered[m.Parent] = true
		}
	}
	for _, m := range t {
		if m.Mountpoint == path && !covered[m.ID] {
			return m
		}
	}
	return nil
}

// Within reports whether path is dir or below it. Both are clean.
func Within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
