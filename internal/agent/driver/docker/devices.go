package docker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/driver"
)

// nodesDir, in the task's directory, holds the nodes of its block devices while
// its container is being made. No container sees it.
const nodesDir = "devices"

// ownNodes has the task's block devices belong to its user, as exec does. The
// engine makes the container's nodes with the owner and the mode of those that it
// is shown, and the machine's are root's; to give these away would outlive the
// task. So it is shown others. A user whom only the image knows shares the device
// with all of the container's, as it does the task's directories. The nodes are of
// no use once the container runs: forget removes them.
func ownNodes(spec *driver.Spec, imageUser string) (forget func() error, err error) {
	dir := filepath.Join(spec.Dir, nodesDir)
	forget = func() error { return os.RemoveAll(dir) }
	if err := forget(); err != nil { // of a start that was cut off
		return nil, fmt.Errorf("remove the nodes of task %s: %w", spec.ID, err)
	}
	mounts := slices.Clone(spec.Mounts)
	for i := range mounts {
		var st unix.Stat_t
		if err := unix.Stat(mounts[i].Source, &st); err != nil {
			return nil, fmt.Errorf("look at what is to be mounted at %s: %w", mounts[i].Destination, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFBLK {
			continue
		}
		node := filepath.Join(dir, strconv.Itoa(i))
		err := makeNode(node, st.Rdev, mounts[i].ReadOnly, spec, imageUser)
		if errors.Is(err, unix.EPERM) {
			spec.Say(fmt.Sprintf("the block device at %s keeps the machine's owner: %v", mounts[i].Destination, err))
			continue
		}
		if err != nil {
			return nil, errors.Join(err, forget())
		}
		mounts[i].Source = node
	}
	spec.Mounts = mounts
	return forget, nil
}

func makeNode(path string, rdev uint64, readOnly bool, spec *driver.Spec, imageUser string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make a node of a block device: %w", err)
	}
	user, known := userOf(spec, imageUser)
	mode := uint32(0o600)
	if !known {
		mode = 0o666
	}
	if readOnly {
		mode &^= 0o222
	}
	err := unix.Mknod(path, unix.S_IFBLK|mode, int(rdev)) //nolint:gosec // it came from the kernel
	if err == nil {
		err = os.Chown(path, user.UID, user.GID)
	}
	if err == nil {
		err = unix.Chmod(path, mode) // whatever the umask
	}
	if err != nil {
		return fmt.Errorf("make a node of a block device: %w", err)
	}
	return nil
}
