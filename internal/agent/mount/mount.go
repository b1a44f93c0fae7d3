package mount

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// Table is what is mounted on a node. Kernel is the real one, mounttest.Table
// the one in memory; both pass mounttest.Conformance. Paths are absolute.
type Table interface {
	// At is the topmost mount at exactly that path, as a process that opens the
	// path would meet it.
	At(path string) (Mount, bool, error)
	// Under is every mount at or below dir, hidden ones too, in an order in
	// which they can be unmounted: what lies on, below or over another mount
	// comes before it.
	Under(dir string) ([]Mount, error)
	// Unmount takes the topmost mount at path away. If nothing is mounted there
	// it answers nil. A mount in use stays, and the error is a *BusyError.
	Unmount(path string) error
	// Gone reports whether path is a mount whose file system was served by a
	// process that has ended.
	Gone(path string) (bool, error)
	// Share makes dir, which must be there, one on which the mounts of this and of
	// other mount namespaces show in each other. Where it is none yet, dir is
	// bound to itself.
	Share(dir string) error
	// Unshare takes away what Share has mounted, if nothing is mounted below dir;
	// else it stays.
	Unshare(dir string) error
}

// Mount is one row of the table (proc_pid_mountinfo(5)).
type Mount struct {
	// ID is the kernel's, and used again after the mount is gone. Parent is the
	// mount that this one is mounted on.
	ID     int
	Parent int
	// Device is the file system's major:minor.
	Device string
	// Root is the directory or file of the file system that is mounted.
	Root string
	// Deleted: Root, or the directory mounted on, no longer has a name.
	Deleted bool
	Path    string
	Source  string
	FSType  string
	// ReadOnly: the mount or its whole file system refuses writes.
	ReadOnly bool
	// Shared: what is mounted below shows in the peers of the mount, and what is
	// mounted there shows here (mount_namespaces(7)).
	Shared bool
	// Options are the mount's own, FSOptions those of the file system, which
	// all of its mounts share.
	Options   []string
	FSOptions []string
}

// Served reports whether a process serves the file system (FUSE): it can end while
// it is in use, with that process, and nothing tells.
func (m *Mount) Served() bool { return strings.HasPrefix(m.FSType, "fuse") }

// List is the rows of a table at one moment, in any order.
type List []Mount

// At is the mount that a path walk ends in, if path, absolute and free of
// symbolic links, is where it is mounted.
//
// Several rows may carry the same path: stacked mounts, and mounts that went
// out of sight when a directory above them was mounted over. Only following
// parents from the root, as the kernel does, tells which one is meant.
func (l List) At(path string) (Mount, bool) {
	way := make(map[string][]Mount)
	ids := make(map[int]bool)
	for _, m := range l {
		if below(m.Path, path) {
			way[m.Path] = append(way[m.Path], m)
			ids[m.ID] = true
		}
	}
	top, found := Mount{}, false
	onTop := func(m Mount) bool {
		if !found {
			return m.Parent == m.ID || !ids[m.Parent]
		}
		return m.Parent == top.ID && m.ID != top.ID
	}
	step := func(prefix string) {
		for range way[prefix] {
			i := slices.IndexFunc(way[prefix], onTop)
			if i < 0 {
				return
			}
			top, found = way[prefix][i], true
		}
	}
	step("/")
	for i := 1; i <= len(path); i++ {
		if i == len(path) || path[i] == '/' {
			step(path[:i])
		}
	}
	return top, found && top.Path == path
}

// Covering is the mount that a path is on. ok is false if the list lacks even
// the root.
func (l List) Covering(path string) (m Mount, ok bool) {
	for {
		if m, ok = l.At(path); ok || path == "/" {
			return m, ok
		}
		path = filepath.Dir(path)
	}
}

// Under is the rows at or below dir, absolute and free of symbolic links, in
// the order of Table.Under.
func (l List) Under(dir string) []Mount {
	children := make(map[int][]Mount)
	ids := make(map[int]bool)
	for _, m := range l {
		ids[m.ID] = true
	}
	var roots []Mount
	for _, m := range l {
		if m.Parent == m.ID || !ids[m.Parent] {
			roots = append(roots, m)
			continue
		}
		children[m.Parent] = append(children[m.Parent], m)
	}
	// Of two mounts on one parent, the one with the shorter path came later
	// and hides the other; else the other would be mounted on it. So a path
	// goes before what extends it, and what is mounted on a mount before it.
	byPath := func(a, b Mount) int { return cmp.Or(strings.Compare(a.Path, b.Path), a.ID-b.ID) }
	var out []Mount
	var visit func(rows []Mount)
	visit = func(rows []Mount) {
		slices.SortFunc(rows, byPath)
		for _, m := range rows {
			on := children[m.ID]
			delete(children, m.ID)
			visit(on)
			if below(dir, m.Path) {
				out = append(out, m)
			}
		}
	}
	visit(roots)
	return out
}

// below reports whether path is dir or lies in it. Both are clean.
func below(dir, path string) bool {
	return dir == "/" || path == dir ||
		len(path) > len(dir) && path[len(dir)] == '/' && strings.HasPrefix(path, dir)
}
