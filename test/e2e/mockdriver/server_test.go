package main_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/status"
)

var writer = &csi.VolumeCapability{
	AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
}

// TestLife shows a volume's whole life, and that without -real-mounts the mock
// leaves no more than a directory.
func TestLife(t *testing.T) {
	t.Parallel()
	ctx, dir := t.Context(), t.TempDir()
	record := filepath.Join(dir, "calls")
	staging, target := filepath.Join(dir, "staging"), filepath.Join(dir, "target")
	d := start(t, dir, "-calls", record, "-name", "mock.example")

	created := must(d.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:               "db",
		CapacityRange:      &csi.CapacityRange{RequiredBytes: 1 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{writer},
		Secrets:            map[string]string{"key": "<value>"},
	}))(t)
	id := created.Volume.VolumeId
	attached := must(d.ControllerPublishVolume(ctx,
		&csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: "mock.example", VolumeCapability: writer}))(t)
	must(d.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: id, PublishContext: attached.PublishContext, StagingTargetPath: staging, VolumeCapability: writer,
	}))(t)
	must(d.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: id, PublishContext: attached.PublishContext, StagingTargetPath: staging, TargetPath: target,
		VolumeCapability: writer,
	}))(t)
	if isMount(t, target) {
		t.Errorf("%s is a mount without -real-mounts", target)
	}
	must(d.NodeUnpublishVolume(ctx,
		&csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target}))(t)
	gone(t, target)
	must(d.NodeUnstageVolume(ctx,
		&csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: staging}))(t)
	must(d.ControllerUnpublishVolume(ctx,
		&csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: "mock.example"}))(t)
	must(d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id}))(t)

	recorded := lines(t, record)
	equal(t, "calls", outcomes(recorded), []string{
		"CreateVolume OK", "ControllerPublishVolume OK", "NodeStageVolume OK", "NodePublishVolume OK",
		"NodeUnpublishVolume OK", "NodeUnstageVolume OK", "ControllerUnpublishVolume OK", "DeleteVolume OK",
	})
	equal(t, "request of CreateVolume", recorded[0].Request, map[string]any{
		"name":           "db",
		"capacity_range": map[string]any{"required_bytes": "1073741824"},
		"volume_capabilities": []any{map[string]any{
			"mount":       map[string]any{"fs_type": "ext4"},
			"access_mode": map[string]any{"mode": "SINGLE_NODE_WRITER"},
		}},
		"secrets": map[string]any{"key": "<value>"},
	})
	equal(t, "response of CreateVolume", recorded[0].Response, map[string]any{"volume": map[string]any{
		"volume_id":      id,
		"capacity_bytes": "1073741824",
		"volume_context": map[string]any{"name": "db"},
	}})
}

// TestErrorOfTheMock shows that the mock's own refusals reach caller and record.
func TestErrorOfTheMock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	record := filepath.Join(dir, "calls")
	d := start(t, dir, "-calls", record)

	_, err := d.CreateVolume(t.Context(), &csi.CreateVolumeRequest{})
	equal(t, "code", codeName(err), "InvalidArgument")
	recorded := lines(t, record)
	equal(t, "calls", outcomes(recorded), []string{"CreateVolume INVALID_ARGUMENT"})
	equal(t, "message", recorded[0].Message, "Volume Name cannot be empty")
	equal(t, "response", recorded[0].Response, nil)
}

// TestFaults answers the first calls of a method in the order of the flags, has
// the mock do nothing meanwhile, and leaves other methods alone.
func TestFaults(t *testing.T) {
	t.Parallel()
	ctx, dir := t.Context(), t.TempDir()
	record := filepath.Join(dir, "calls")
	d := start(t, dir, "-calls", record,
		"-fault", "CreateVolume:UNAVAILABLE:2", "-fault", "CreateVolume:RESOURCE_EXHAUSTED:1",
		"-fault", "DeleteVolume:ABORTED:1")

	request := &csi.CreateVolumeRequest{Name: "db", VolumeCapabilities: []*csi.VolumeCapability{writer}}
	var codes []string
	for range 4 {
		_, err := d.CreateVolume(ctx, request)
		codes = append(codes, codeName(err))
		if err != nil {
			equal(t, "volumes after a fault", volumes(t, d), 3)
		}
	}
	equal(t, "codes of CreateVolume", codes, []string{"Unavailable", "Unavailable", "ResourceExhausted", "OK"})
	equal(t, "volumes in the end", volumes(t, d), 4)
	equal(t, "calls", outcomes(lines(t, record)), []string{
		"CreateVolume UNAVAILABLE", "ListVolumes OK",
		"CreateVolume UNAVAILABLE", "ListVolumes OK",
		"CreateVolume RESOURCE_EXHAUSTED", "ListVolumes OK",
		"CreateVolume OK", "ListVolumes OK",
	})
}

// TestSecrets refuses calls that take secrets and come without the right ones,
// and has the mock do nothing; other calls, and other secrets, pass.
func TestSecrets(t *testing.T) {
	t.Parallel()
	ctx, dir := t.Context(), t.TempDir()
	record := filepath.Join(dir, "calls")
	d := start(t, dir, "-calls", record, "-secret", "user=admin", "-secret", "key=a=b")
	before := volumes(t, d)
	var said []string
	for _, secrets := range []map[string]string{
		nil, {"user": "admin"}, {"user": "admin", "key": "a"}, {"user": "", "key": "a=b"},
		{"user": "admin", "key": "a=b", "zone": "1"},
	} {
		_, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "db", VolumeCapabilities: []*csi.VolumeCapability{writer}, Secrets: secrets})
		said = append(said, codeName(err)+" "+status.Convert(err).Message())
	}
	equal(t, "answers", said, []string{
		`Unauthenticated secret "key" is missing`, `Unauthenticated secret "key" is missing`, `Unauthenticated secret "key" is wrong`,
		`Unauthenticated secret "user" is wrong`, "OK ",
	})
	equal(t, "volumes made", volumes(t, d)-before, 1)
	must(d.ListSnapshots(ctx, &csi.ListSnapshotsRequest{}))(t)
	equal(t, "record of a refusal", lines(t, record)[1].Code, "UNAUTHENTICATED")
}

// volumes counts what the mock lists; it begins with three.
func volumes(t *testing.T, d *driver) int {
	t.Helper()
	return len(must(d.ListVolumes(t.Context(), &csi.ListVolumesRequest{}))(t).Entries)
}

// TestDieIn ends the process in the named call, done and recorded but not
// answered; a new process takes over the socket that is left.
func TestDieIn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	record, target := filepath.Join(dir, "calls"), filepath.Join(dir, "target")
	flags := []string{"-disable-attach", "-calls", record}
	d := start(t, dir, append(flags, "-die-in", "NodePublishVolume")...)

	publish := &csi.NodePublishVolumeRequest{VolumeId: "1", TargetPath: target, VolumeCapability: writer}
	_, err := d.NodePublishVolume(t.Context(), publish)
	equal(t, "code", codeName(err), "Unavailable")
	equal(t, "exit status", d.exit(t), 3)
	if _, err := os.Stat(target); err != nil {
		t.Errorf("the call was not done: %v", err)
	}
	if _, err := os.Stat(d.socket); err != nil {
		t.Errorf("a process that dies cleans nothing up: %v", err)
	}

	again := start(t, dir, flags...)
	must(again.NodePublishVolume(t.Context(), publish))(t)
	equal(t, "calls", outcomes(lines(t, record)), []string{"NodePublishVolume OK", "NodePublishVolume OK"})
}

// TestDieInFault ends the process before the mock did anything.
func TestDieInFault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	d := start(t, dir, "-disable-attach", "-die-in", "NodePublishVolume", "-fault", "NodePublishVolume:INTERNAL:1")

	_, err := d.NodePublishVolume(t.Context(),
		&csi.NodePublishVolumeRequest{VolumeId: "1", TargetPath: target, VolumeCapability: writer})
	equal(t, "code", codeName(err), "Unavailable")
	equal(t, "exit status", d.exit(t), 3)
	gone(t, target)
}

func TestTerminateEndsCleanly(t *testing.T) {
	t.Parallel()
	d := start(t, t.TempDir())
	equal(t, "exit status", d.terminate(t), 0)
	gone(t, d.socket)
}

// TestForeignFileIsKept refuses an endpoint that is no socket.
func TestForeignFileIsKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := program("-endpoint", "unix://"+path).Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 {
		t.Errorf("ended with %v, want exit status 1", err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "file", string(data), "data")
}

// TestUnrecordedCallFails has a full disk under the calls file.
func TestUnrecordedCallFails(t *testing.T) {
	t.Parallel()
	d := start(t, t.TempDir(), "-calls", "/dev/full")
	_, err := d.GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	equal(t, "code", codeName(err), "Internal")
}

// TestCallersInParallel has many callers list and change volumes at once. By
// itself the mock dies of it: "concurrent map iteration and map write".
func TestCallersInParallel(t *testing.T) {
	t.Parallel()
	ctx, dir := t.Context(), t.TempDir()
	d := start(t, dir, "-disable-attach")

	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			target := filepath.Join(dir, fmt.Sprint("target-", caller))
			publish := &csi.NodePublishVolumeRequest{VolumeId: "1", TargetPath: target, VolumeCapability: writer}
			unpublish := &csi.NodeUnpublishVolumeRequest{VolumeId: "1", TargetPath: target}
			for range 20 {
				_, published := d.NodePublishVolume(ctx, publish)
				_, listed := d.ListVolumes(ctx, &csi.ListVolumesRequest{})
				_, unpublished := d.NodeUnpublishVolume(ctx, unpublish)
				if err := errors.Join(published, listed, unpublished); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	// With the race detector on, a race is a status of its own.
	equal(t, "exit status", d.terminate(t), 0)
}

// gone fails the test if path is there.
func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", path, err)
	}
}
