package main_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// mounted is a driver with -real-mounts and room for its targets.
type mounted struct {
	*driver
	dir   string
	state string
}

func startMounted(t *testing.T, args ...string) mounted {
	t.Helper()
	dir := t.TempDir()
	m := mounted{dir: dir, state: filepath.Join(dir, "state")}
	m.driver = m.restart(t, args...)
	return m
}

// restart runs another process on the same socket and state.
func (m mounted) restart(t *testing.T, args ...string) *driver {
	t.Helper()
	return start(t, m.dir, append([]string{"-disable-attach", "-real-mounts", "-state-dir", m.state}, args...)...)
}

// target is a path to publish at. What is left mounted there goes with the test.
func (m mounted) target(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(m.dir, name)
	t.Cleanup(func() {
		for unix.Unmount(path, unix.MNT_DETACH) == nil {
			t.Logf("%s was left mounted", path)
		}
	})
	return path
}

func publishTo(target string) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{VolumeId: "1", TargetPath: target, VolumeCapability: writer}
}

func unpublishFrom(target string) *csi.NodeUnpublishVolumeRequest {
	return &csi.NodeUnpublishVolumeRequest{VolumeId: "1", TargetPath: target}
}

// TestDataOutlivesPublish writes at one target and reads at the next.
func TestDataOutlivesPublish(t *testing.T) {
	t.Parallel()
	m := startMounted(t)
	first, second := m.target(t, "first"), m.target(t, "second")

	must(m.NodePublishVolume(t.Context(), publishTo(first)))(t)
	if !isMount(t, first) {
		t.Fatal("the target is no mount")
	}
	write(t, first, "row 1")
	must(m.NodeUnpublishVolume(t.Context(), unpublishFrom(first)))(t)
	gone(t, first)
	must(m.NodePublishVolume(t.Context(), publishTo(second)))(t)
	equal(t, "data", read(t, second), "row 1")
	must(m.NodeUnpublishVolume(t.Context(), unpublishFrom(second)))(t)
}

// TestPublishTwiceMountsOnce repeats a publish: one unmount must be enough.
func TestPublishTwiceMountsOnce(t *testing.T) {
	t.Parallel()
	m := startMounted(t)
	target := m.target(t, "target")
	for range 2 {
		must(m.NodePublishVolume(t.Context(), publishTo(target)))(t)
	}
	if err := unix.Unmount(target, 0); err != nil {
		t.Fatal(err)
	}
	if isMount(t, target) {
		t.Error("a second mount lies under the first")
	}
	must(m.NodeUnpublishVolume(t.Context(), unpublishFrom(target)))(t)
	gone(t, target)
}

// TestReadonlyTarget can be read and not written.
func TestReadonlyTarget(t *testing.T) {
	t.Parallel()
	m := startMounted(t)
	writable, readonly := m.target(t, "writable"), m.target(t, "readonly")

	must(m.NodePublishVolume(t.Context(), publishTo(writable)))(t)
	request := publishTo(readonly)
	request.Readonly = true
	must(m.NodePublishVolume(t.Context(), request))(t)
	write(t, writable, "row 2")
	equal(t, "data", read(t, readonly), "row 2")
	if err := os.WriteFile(filepath.Join(readonly, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("write to a read-only target: %v", err)
	}
	for _, target := range []string{writable, readonly} {
		must(m.NodeUnpublishVolume(t.Context(), unpublishFrom(target)))(t)
	}
}

// TestBusyTargetKeepsData has a process in the way of an unpublish.
func TestBusyTargetKeepsData(t *testing.T) {
	t.Parallel()
	m := startMounted(t)
	target := m.target(t, "target")
	must(m.NodePublishVolume(t.Context(), publishTo(target)))(t)
	write(t, target, "row 1")
	busy, err := os.Open(filepath.Join(target, "file"))
	if err != nil {
		t.Fatal(err)
	}

	_, err = m.NodeUnpublishVolume(t.Context(), unpublishFrom(target))
	equal(t, "code while busy", codeName(err), "Internal")
	equal(t, "data while busy", read(t, target), "row 1")

	if err := busy.Close(); err != nil {
		t.Fatal(err)
	}
	must(m.NodeUnpublishVolume(t.Context(), unpublishFrom(target)))(t)
	gone(t, target)
}

// TestFaultKeepsMount answers an unpublish with an error and undoes nothing.
func TestFaultKeepsMount(t *testing.T) {
	t.Parallel()
	m := startMounted(t, "-fault", "NodeUnpublishVolume:INTERNAL:1")
	target := m.target(t, "target")
	must(m.NodePublishVolume(t.Context(), publishTo(target)))(t)

	_, err := m.NodeUnpublishVolume(t.Context(), unpublishFrom(target))
	equal(t, "code", codeName(err), "Internal")
	if !isMount(t, target) {
		t.Error("the fault undid the mount")
	}
	must(m.NodeUnpublishVolume(t.Context(), unpublishFrom(target)))(t)
}

// TestMountOutlivesProcess dies with a mount in place, which another process
// undoes although it has never heard of it.
func TestMountOutlivesProcess(t *testing.T) {
	t.Parallel()
	m := startMounted(t, "-die-in", "NodePublishVolume")
	target := m.target(t, "target")
	_, err := m.NodePublishVolume(t.Context(), publishTo(target))
	equal(t, "code", codeName(err), "Unavailable")
	equal(t, "exit status", m.exit(t), 3)
	write(t, target, "row 1")

	again := m.restart(t)
	must(again.NodeUnpublishVolume(t.Context(), unpublishFrom(target)))(t)
	if isMount(t, target) {
		t.Error("the target is still mounted")
	}
	must(again.NodePublishVolume(t.Context(), publishTo(target)))(t)
	equal(t, "data", read(t, target), "row 1")

	// A clean end leaves mounts alone too: restarting a driver stops no task.
	equal(t, "exit status", again.terminate(t), 0)
	equal(t, "data after the end", read(t, target), "row 1")
}

// TestBlockVolumeIsNotMounted leaves a block volume as the mock makes it.
func TestBlockVolumeIsNotMounted(t *testing.T) {
	t.Parallel()
	m := startMounted(t)
	target := m.target(t, "target")
	request := publishTo(target)
	request.VolumeCapability = &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: writer.AccessMode,
	}
	must(m.NodePublishVolume(t.Context(), request))(t)
	if isMount(t, target) {
		t.Error("the target is a mount")
	}
}

// TestDeleteVolumeDeletesData leaves nothing of a volume, and nothing but the
// volume goes.
func TestDeleteVolumeDeletesData(t *testing.T) {
	t.Parallel()
	m := startMounted(t)
	for _, id := range []string{"1", "2"} {
		target := m.target(t, "target-"+id)
		request := publishTo(target)
		request.VolumeId = id
		must(m.NodePublishVolume(t.Context(), request))(t)
		write(t, target, "row 1")
		must(m.NodeUnpublishVolume(t.Context(),
			&csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target}))(t)
	}
	must(m.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "1"}))(t)
	// An id is no path: this one would be the parent of the state directory.
	must(m.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "../.."}))(t)

	entries, err := os.ReadDir(m.state)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	equal(t, "state directory", left, []string{"volume-2"})
}

// TestTemporaryStateIsRemoved leaves no directory behind once all volumes that
// had data are deleted.
func TestTemporaryStateIsRemoved(t *testing.T) {
	t.Parallel()
	dir, temp := t.TempDir(), t.TempDir()
	m := mounted{dir: dir}
	target := m.target(t, "target")
	d := startWith(t, dir, []string{"TMPDIR=" + temp, "CSI_ENDPOINT=unix://" + filepath.Join(dir, "csi.sock")},
		"-disable-attach", "-real-mounts")
	must(d.NodePublishVolume(t.Context(), publishTo(target)))(t)
	state, err := os.ReadDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "state directories", len(state), 1)
	must(d.NodeUnpublishVolume(t.Context(), unpublishFrom(target)))(t)
	must(d.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "1"}))(t)
	equal(t, "exit status", d.terminate(t), 0)
	gone(t, filepath.Join(temp, state[0].Name()))
}

// isMount asks the kernel whether path is where a mount begins.
func isMount(t *testing.T, path string) bool {
	t.Helper()
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_BASIC_STATS, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

func write(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestFuseApart kills the process of one mount: the mount is dead, the driver and
// its other mount are well, and the volume can be published again.
func TestFuseApart(t *testing.T) {
	t.Parallel()
	m := startMounted(t, "-fuse-mounts", "-fuse-apart")
	first, second := m.target(t, "first"), m.target(t, "second")
	must(m.NodePublishVolume(t.Context(), publishTo(first)))(t)
	must(m.NodePublishVolume(t.Context(), publishTo(second)))(t)
	must(m.NodePublishVolume(t.Context(), publishTo(first)))(t)

	servers := 0
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if line, err := os.ReadFile(path); err != nil || !strings.HasSuffix(string(line), "-serve-fuse\x00"+first+"\x00") {
			continue
		}
		pid := must(strconv.Atoi(filepath.Base(filepath.Dir(path))))(t)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		servers++
	}
	equal(t, "processes that serve the first", servers, 1)
	ended := time.Now().Add(patience)
	for {
		_, err := os.ReadDir(first)
		if errors.Is(err, unix.ENOTCONN) {
			break
		}
		if time.Now().After(ended) {
			t.Fatalf("the first answers %v", err)
		}
	}
	if _, err := os.ReadDir(second); err != nil {
		t.Error(err)
	}
	must(m.NodeUnpublishVolume(t.Context(), unpublishFrom(first)))(t)
	must(m.NodePublishVolume(t.Context(), publishTo(first)))(t)
	if _, err := os.ReadDir(first); err != nil {
		t.Error(err)
	}
	must(m.NodeUnpublishVolume(t.Context(), unpublishFrom(first)))(t)
	must(m.NodeUnpublishVolume(t.Context(), unpublishFrom(second)))(t)
	gone(t, first)
	gone(t, second)
}
