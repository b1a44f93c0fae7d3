package mount

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/berth-dev/berth/internal/tree"
)

// MountedError says that a tree holds a mount and was left alone.
type MountedError = tree.MountedError

// RemoveAll removes dir and what is in it, unless table has a mount at or
// below it; then it removes nothing. A mount that it meets all the same, and
// any symbolic link, is not followed: data behind it is out of reach. A dir
// that is not there is no error.
func RemoveAll(ctx context.Context, table Table, dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
		return fmt.Errorf("remove %q: the path must be absolute and not the root", dir)
	}
	dir = filepath.Clean(dir)
	mounts, err := table.Under(dir)
	if err != nil {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	if len(mounts) > 0 {
		return &MountedError{Dir: dir, Mount: mounts[len(mounts)-1].Path}
	}
	return tree.Remove(ctx, filepath.Dir(dir), filepath.Base(dir))
}
