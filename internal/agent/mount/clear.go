package mount

import (
	"errors"
	"path/filepath"
)

// Clear takes away every mount below dir, though not one at dir itself, that
// keep does not claim. It goes on after one that cannot be taken away, and
// answers what was taken, and every error. Paths begin with dir as it was given,
// also where symbolic links lead there.
func Clear(table Table, dir string, keep func(path string) bool) (taken []Mount, err error) {
	mounts, err := table.Under(dir)
	if err != nil {
		return nil, err
	}
	dir = filepath.Clean(dir)
	shown := dir
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		shown = target
	}
	var errs []error
	for _, m := range mounts {
		at := m.Path
		if rest, err := filepath.Rel(shown, at); err == nil {
			m.Path = filepath.Join(dir, rest)
		}
		if m.Path == dir || keep(m.Path) {
			continue
		}
		if err := table.Unmount(at); err != nil {
			errs = append(errs, err)
			continue
		}
		taken = append(taken, m)
	}
	return taken, errors.Join(errs...)
}
