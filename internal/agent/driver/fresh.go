package driver

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/berth-dev/berth/internal/agent/driver/executor"
)

// giveFresh gives the root of a volume that nobody has used yet to the user of
// the task that is about to write to it: a new file system belongs to root, and
// a database under its own user could not use it. What is in a volume, and a
// root that was ever given to somebody, stays as it is.
func giveFresh(mounts []Mount, user executor.User) error {
	var all error
	for _, m := range mounts {
		if m.ReadOnly || m.Kept || user.UID == 0 {
			continue
		}
		fresh, err := isFresh(m.Source, m.Group)
		if err == nil && fresh {
			gid := user.GID
			if m.Group != 0 {
				gid = -1 // it is the group's that was asked for
			}
			err = os.Chown(m.Source, user.UID, gid)
		}
		if err != nil {
			all = errors.Join(all, fmt.Errorf("give the volume at %s to uid %d: %w", m.Destination, user.UID, err))
		}
	}
	return all
}

// isFresh reports whether a volume is a directory of root's, and of the group
// that it was given to, with nothing in it but what mkfs puts there.
func isFresh(source string, group int) (bool, error) {
	info, err := os.Lstat(source)
	if err != nil || !info.IsDir() {
		return false, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != 0 || int(stat.Gid) != group {
		return false, nil
	}
	entries, err := os.ReadDir(source)
	if err != nil {
		return false, err
	}
	return len(entries) == 0 || len(entries) == 1 && entries[0].Name() == "lost+found", nil
}
