package localdriver_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/internal/localdriver/record"
)

// kind is one sort of volume.
type kind struct {
	name   string
	size   int64
	fsType string
	block  bool
	// disk is the file system of the driver's root; empty for the machine's own.
	disk string
}

// image: the content is a sparse file.
func (k kind) image() bool { return k.block || k.fsType != "" }

var (
	directory = kind{name: "directory"}
	ext4      = kind{name: "ext4", size: 16 << 20, fsType: "ext4"}
	xfs       = kind{name: "xfs", size: 300 << 20, fsType: "xfs"}
	btrfs     = kind{name: "btrfs", size: 256 << 20, fsType: "btrfs"}
	device    = kind{name: "block", size: 16 << 20, block: true}
	subvolume = kind{name: "subvolume", size: 64 << 20, disk: "btrfs"}
	// A root that can share blocks.
	shared = kind{name: "xfs-on-xfs", size: 300 << 20, fsType: "xfs", disk: "xfs"}
)

// kinds lists those that are mounted and need no disk of their own.
func kinds() []kind { return []kind{directory, ext4, xfs, btrfs} }

// allKinds lists all.
func allKinds() []kind { return append(kinds(), device, subvolume, shared) }

// capability is how the tests use a volume of the kind.
func (k kind) capability(flags ...string) *csi.VolumeCapability {
	c := capability(writer, k.fsType, flags...)
	if k.block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	return c
}

// mode is shorthand for the long names.
type mode = csi.VolumeCapability_AccessMode_Mode

const (
	writer       = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	reader       = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	singleWriter = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	multiWriter  = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
)

func capability(m mode, fsType string, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: m},
		AccessType: &csi.VolumeCapability_Mount{
			Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags},
		},
	}
}

func (k kind) createRequest(name string) *csi.CreateVolumeRequest {
	r := &csi.CreateVolumeRequest{
		Name:               name,
		VolumeCapabilities: []*csi.VolumeCapability{k.capability()},
	}
	if k.size > 0 {
		r.CapacityRange = &csi.CapacityRange{RequiredBytes: k.size}
	}
	return r
}

// The calls, each answering its error only.

func (r *rig) create(k kind, name string) string {
	r.t.Helper()
	response, err := r.CreateVolume(r.t.Context(), k.createRequest(name))
	if err != nil {
		r.t.Fatalf("create %s: %v", name, err)
	}
	return response.GetVolume().GetVolumeId()
}

func (r *rig) stage(id, path string, c *csi.VolumeCapability) error {
	_, err := r.NodeStageVolume(r.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: id, StagingTargetPath: path, VolumeCapability: c,
	})
	return err
}

// unstage repeats the call while the device is held from another mount
// namespace: containers that other programs start on this machine have copies
// of all mounts until they have changed their root. What looks at every new
// mount of the machine may be inside for a moment as well.
func (r *rig) unstage(id, path string) (err error) {
	waitFor(r.t, "other mount namespaces to let go", func() bool {
		err = r.unstageOnce(id, path)
		return err == nil || !strings.Contains(err.Error(), "mount namespace") && !strings.Contains(err.Error(), "still uses it")
	})
	return err
}

func (r *rig) unstageOnce(id, path string) error {
	_, err := r.NodeUnstageVolume(r.t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: path})
	return err
}

func (r *rig) publish(id, staging, target string, readOnly bool, c *csi.VolumeCapability) error {
	_, err := r.NodePublishVolume(r.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: id, StagingTargetPath: staging, TargetPath: target, Readonly: readOnly, VolumeCapability: c,
	})
	return err
}

func (r *rig) unpublish(id, target string) error {
	_, err := r.NodeUnpublishVolume(r.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target})
	return err
}

func (r *rig) snapshot(id, name string) error {
	_, err := r.CreateSnapshot(r.t.Context(), &csi.CreateSnapshotRequest{SourceVolumeId: id, Name: name})
	return err
}

func (r *rig) dropSnapshot(id string) error {
	_, err := r.DeleteSnapshot(r.t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id})
	return err
}

// copyOf makes a volume from a source.
func (r *rig) copyOf(k kind, name string, s record.Source) error {
	q := k.createRequest(name)
	q.CapacityRange = nil
	q.VolumeContentSource = contentOf(&s)
	_, err := r.CreateVolume(r.t.Context(), q)
	return err
}

func (r *rig) expand(id string, size int64) error {
	_, err := r.ControllerExpandVolume(r.t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
	})
	return err
}

func (r *rig) grow(id, path string, size int64) error {
	_, err := r.NodeExpandVolume(r.t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: id, VolumePath: path, CapacityRange: &csi.CapacityRange{RequiredBytes: size},
	})
	return err
}

// idOf is the id of the volume or snapshot with a name.
func idOf(name string) string { return record.ID{Key: record.KeyOf(name), Node: nodeID}.String() }

func (r *rig) remove(id string) error {
	_, err := r.DeleteVolume(r.t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
	return err
}

// must fails the test unless err has the code.
func must(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("%s: %v, want %s", what, err, want)
	}
}

// has reports whether err speaks of all the words.
func has(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(fmt.Sprint(err), word) {
			t.Errorf("%q does not speak of %q", err, word)
		}
	}
}

// tearDown ends a volume's life.
func (r *rig) tearDown(id, staging string, targets ...string) {
	r.t.Helper()
	for _, target := range targets {
		must(r.t, "unpublish", r.unpublish(id, target), codes.OK)
		if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
			r.t.Errorf("target after unpublish: %v, want it gone", err)
		}
	}
	must(r.t, "unstage", r.unstage(id, staging), codes.OK)
	must(r.t, "delete", r.remove(id), codes.OK)
}

// files lists what the driver keeps: records and the directories of volumes.
func (r *rig) files() []string {
	r.t.Helper()
	var names []string
	for _, dir := range []string{"records", "volumes", "snapshot-records", "snapshots"} {
		entries, err := os.ReadDir(filepath.Join(r.root, dir))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names
}

// content is the path of a volume's directory or image.
func (r *rig) content(id string, k kind) string {
	key, _, _ := strings.Cut(id, "@")
	if k.image() {
		return filepath.Join(r.root, "volumes", key, "image")
	}
	return filepath.Join(r.root, "volumes", key, "data")
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	letGo()
}

// letGo waits until no child of this process that is being started has copies
// of the files that were closed before: they would keep a mount or a device
// busy for a moment longer.
func letGo() {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock() //nolint:gocritic // staticcheck takes a lock without defer for forgotten code
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	letGo()
	if err != nil || string(got) != want {
		t.Fatalf("%s holds %q (%v), want %q", path, got, err, want)
	}
}

// mkdirWithFile makes a directory that is not empty.
func mkdirWithFile(path string) error {
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(path, "file"), []byte("precious"), 0o644)
}
