// Package mounttest is a mount table in memory, for tests and simulations, and
// the conformance tests that it passes together with the kernel's. It never
// touches a file: what it is told is mounted, is. It keeps the kernel's rules
// on stacked, hidden and busy mounts.
package mounttest

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/berth-dev/berth/internal/agent/mount"
)

// Table is a mount table in memory. It is safe for concurrent use.
type Table struct {
	mu sync.Mutex
	// rows are by path, because a lookup needs only those on its way.
	rows    map[string][]mount.Mount
	on      map[int]int // mounts on each mount
	holders map[string][]string
	gone    map[int]bool
	id      int
}

// New is a table with nothing but the root.
func New() *Table {
	root := mount.Mount{
		ID: 1, Device: "0:1", Path: "/", Root: "/", Source: "rootfs", FSType: "rootfs",
		Options: []string{"rw"}, FSOptions: []string{"rw"},
	}
	return &Table{
		rows:    map[string][]mount.Mount{"/": {root}},
		on:      make(map[int]int),
		holders: make(map[string][]string),
		gone:    make(map[int]bool),
		id:      root.ID,
	}
}

// Bind mounts source on target. It is safe for both not to exist.
func (t *Table) Bind(source, target string, readOnly bool) error {
	source, err := clean(source)
	if err != nil {
		return err
	}
	target, err = clean(target)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	from, parent := t.covering(source), t.covering(target)
	t.id++
	m := from
	m.ID, m.Parent, m.Path = t.id, parent.ID, target
	if readOnly {
		m.ReadOnly, m.Options = true, []string{"ro"}
	}
	rest, err := filepath.Rel(from.Path, source)
	if err != nil {
		return fmt.Errorf("bind %s on %s: %w", source, target, err)
	}
	m.Root = filepath.Join(from.Root, rest)
	t.rows[target] = append(t.rows[target], m)
	t.on[parent.ID]++
	return nil
}

// At is the topmost mount at path.
func (t *Table) At(path string) (mount.Mount, bool, error) {
	path, err := clean(path)
	if err != nil {
		return mount.Mount{}, false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m, found := t.way(path).At(path)
	return m, found, nil
}

// Under is every mount at or below dir.
func (t *Table) Under(dir string) ([]mount.Mount, error) {
	dir, err := clean(dir)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var list mount.List
	for _, rows := range t.rows {
		list = append(list, rows...)
	}
	return list.Under(dir), nil
}

// Gone reports whether SetGone said so of what is mounted at path.
func (t *Table) Gone(path string) (bool, error) {
	m, mounted, err := t.At(path)
	t.mu.Lock()
	defer t.mu.Unlock()
	return mounted && t.gone[m.ID], err
}

// SetGone has the file system of the mount at path be gone.
func (t *Table) SetGone(path string) error {
	m, _, err := t.At(path)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone[m.ID] = true
	return err
}

// Share does nothing: there is one namespace, in which all mounts show.
func (*Table) Share(string) error { return nil }

// Unshare does nothing either.
func (*Table) Unshare(string) error { return nil }

// Unmount takes the topmost mount at path away.
func (t *Table) Unmount(path string) error {
	path, err := clean(path)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m, found := t.way(path).At(path)
	if !found {
		return nil
	}
	holders := slices.Clone(t.holders[path])
	if t.on[m.ID] > 0 || path == "/" {
		holders = append(holders, "other mounts")
	}
	if len(holders) > 0 {
		return &mount.BusyError{Path: path, Holders: holders}
	}
	t.rows[path] = slices.DeleteFunc(t.rows[path], func(r mount.Mount) bool { return r.ID == m.ID })
	t.on[m.Parent]--
	delete(t.on, m.ID)
	if len(t.rows[path]) == 0 {
		delete(t.rows, path)
	}
	return nil
}

// Hold makes whatever is mounted at path busy until Free.
func (t *Table) Hold(path, by string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holders[path] = append(t.holders[path], by)
}

// Free ends every Hold of path.
func (t *Table) Free(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.holders, path)
}

// Clear forgets every mount but the root, as a reboot does.
func (t *Table) Clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = map[string][]mount.Mount{"/": t.rows["/"][:1]}
	clear(t.on)
	clear(t.holders)
}

// way is the rows that a walk to path may meet.
func (t *Table) way(path string) mount.List {
	list := slices.Clone(t.rows["/"])
	for i := 1; i <= len(path); i++ {
		if i == len(path) && path != "/" || i < len(path) && path[i] == '/' {
			list = append(list, t.rows[path[:i]]...)
		}
	}
	return list
}

// covering is the mount that path is in.
func (t *Table) covering(path string) mount.Mount {
	way := t.way(path)
	for dir := path; ; dir = filepath.Dir(dir) {
		if m, found := way.At(dir); found {
			return m
		}
	}
}

func clean(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("look up mount %q: the path is not absolute", path)
	}
	return filepath.Clean(path), nil
}
