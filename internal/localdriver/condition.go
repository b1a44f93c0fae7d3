package localdriver

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/localdriver/clone"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

// condition says whether something is wrong with a volume, in words.
func (v *volumes) condition(ctx context.Context, rec record.Volume) (*csi.VolumeCondition, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	seen, err := v.look(rec)
	if err != nil {
		return nil, err
	}
	if problem := v.problem(rec, seen); problem != "" {
		return &csi.VolumeCondition{Abnormal: true, Message: problem}, nil
	}
	message := "nothing is known to be wrong"
	if rec.FileSystem != nil && rec.FileSystem.Grow {
		message = "the file system has yet to grow to the volume's capacity"
	}
	return &csi.VolumeCondition{Message: message}, nil
}

// problem is what is wrong with a volume; empty for nothing.
func (v *volumes) problem(rec record.Volume, seen sight) string {
	path := v.data(keyOf(rec))
	if rec.Sparse() {
		path = v.image(keyOf(rec))
	}
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Sprintf("its content is gone: %v", err)
	case rec.Sparse() && st.Size() < rec.Capacity:
		return fmt.Sprintf("its image has %d bytes, %d are missing", st.Size(), rec.Capacity-st.Size())
	case rec.Frozen:
		return "its file system is frozen to be copied"
	}
	if problem := v.notMounted(rec, seen); problem != "" {
		return problem
	}
	for _, m := range seen.mounts {
		if problem := mountProblem(rec, m); problem != "" {
			return problem
		}
	}
	return v.noRoom(rec, path)
}

// notMounted says that a volume is not where it was staged or published.
func (v *volumes) notMounted(rec record.Volume, seen sight) string {
	if rec.Staging != nil && !v.isAt(rec, seen, rec.Staging.Path) {
		return fmt.Sprintf("it was staged at %s and is not there any more", rec.Staging.Path)
	}
	for target := range rec.Publications {
		if !seen.shows(target) {
			return fmt.Sprintf("it was published at %s and is not there any more", target)
		}
	}
	return ""
}

// mountProblem says that a file system has stopped to serve: ext4 and btrfs
// become read-only after an error, xfs refuses everything.
func mountProblem(rec record.Volume, m *mountinfo.Info) string {
	if rec.Content == record.Block {
		return ""
	}
	if rec.Content == record.Image && slices.Contains(strings.Split(m.VFSOptions, ","), "ro") && !stagedReadOnly(rec) {
		return fmt.Sprintf("its file system at %s has become read-only, as it does after an error", m.Mountpoint)
	}
	fd, err := unix.Open(m.Mountpoint, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOATIME, 0)
	if err != nil {
		return fmt.Sprintf("its mount at %s cannot be read: %v", m.Mountpoint, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := unix.ReadDirent(fd, make([]byte, 4096)); err != nil {
		return fmt.Sprintf("its mount at %s cannot be read: %v", m.Mountpoint, err)
	}
	return ""
}

// stagedReadOnly reports whether the volume's mount flags made it read-only.
func stagedReadOnly(rec record.Volume) bool {
	if rec.Staging == nil {
		return false
	}
	words := strings.Split(strings.Join(rec.Staging.MountFlags, ","), ",")
	return slices.Contains(words, "ro")
}

// scarce is how much of the node's disk counts as nothing left.
const scarce = 16 << 20

// noRoom says that a sparse image cannot grow into its capacity, because the
// node's disk is full.
func (v *volumes) noRoom(rec record.Volume, path string) string {
	if !rec.Sparse() {
		return ""
	}
	allocated, err := clone.Allocated(path)
	if err != nil {
		return ""
	}
	available, err := v.available()
	if err != nil || available >= scarce || rec.Capacity-allocated <= available {
		return ""
	}
	return fmt.Sprintf("the node's disk has %d bytes left, and the volume may still write %d", available, rec.Capacity-allocated)
}
