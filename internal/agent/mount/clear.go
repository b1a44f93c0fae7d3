package mount

import (
	"errors"
	"path/filepath"
)

// Clear takes away every mount below dir, though not one at dir itself, that
// keep does not claim. It goes on after one that cannot be taken away, and
// answers what was taken, and every error.
func Clear(table Table, dir string, keep func(path string) bool) (taken []Mount, err error) {
	mounts, err := table.Under(dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, m := range mounts {
		if m.Path == filepath.Clean(dir) || keep(m.Path) {
			continue
		}
		if err := table.Unmount(m.Path); err != nil {
			errs = append(errs, err)
			continue
		}
		taken = append(taken, m)
	}
	return taken, errors.Join(errs...)
}
