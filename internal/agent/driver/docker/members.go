package docker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/driver/process"
)

// members lists the processes of a container by their numbers, given the number
// of its first. Where its cgroup cannot be seen from here, as that of an engine in
// other namespaces, it lists all of the machine.
func members(first int, container string) func() ([]int, error) {
	for _, dir := range cgroupsOf(first, container) {
		list := func() ([]int, error) { return below(dir) }
		if pids, err := list(); err == nil && slices.Contains(pids, first) {
			return list
		}
	}
	return process.All
}

// cgroupsOf are the directories that the container's cgroup may have: one for each
// hierarchy. Those that the container made below are part of it.
func cgroupsOf(pid int, container string) (dirs []string) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return nil
	}
	const root = "/sys/fs/cgroup"
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		before, after, found := strings.Cut(parts[2], container)
		if !found {
			continue
		}
		rest, _, _ := strings.Cut(after, "/") // as in docker-ID.scope
		path := before + container + rest
		if parts[1] == "" {
			dirs = append(dirs, filepath.Join(root, path), filepath.Join(root, "unified", path))
		} else {
			dirs = append(dirs, filepath.Join(root, strings.TrimPrefix(parts[1], "name="), path))
		}
	}
	return dirs
}

// below lists the processes of a cgroup and of those below it. One that is gone
// has none.
func below(dir string) (pids []int, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if gone(err) {
			return nil
		}
		if err != nil || !entry.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if gone(err) || errors.Is(err, unix.EOPNOTSUPP) { // a threaded one is listed above
			return nil
		}
		for line := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(line); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return err
	})
	return pids, err
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }
