package e2e_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/test/host"
)

// neverSanity is what csi-sanity skips for every kind of volume, in its own
// words, and why that is right for this driver. docs/drivers.md has the same.
func neverSanity() map[string]string {
	return map[string]string{
		"ControllerPublishVolume not supported":             "a local disk is not attached by anybody",
		"ControllerUnpublishVolume not supported":           "as above",
		"Controller Publish, UnpublishVolume not supported": "as above",
		"Modify volume not supported":                       "volumes have no mutable parameters",
		"Modify Volume not supported":                       "as above",
		"ControllerModifyVolume not supported":              "as above",
		"GroupControllerService not supported":              "there are no groups of volumes",
		"ControllerGetVolumeHealth not supported":           "of CSI 1.13; this driver speaks 1.12 and tells VolumeCondition",
		"ControllerListVolumeHealth not supported":          "as above",
		"NodeGetVolumeHealth not supported":                 "as above",
		"NodeGetStorageHealth not supported":                "as above",
		"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported":  "as above; a snapshot is where its volume is",

		"Controller Service [Controller Server]: ListVolumes: pagination should detect volumes added between pages " +
			"and accept tokens when the last volume from a page is deleted": "csi-sanity itself has it switched off; the driver's own tests have one like it",
	}
}

// TestSanity runs csi-sanity against the local driver as a process: once with
// every kind of volume. What it skips is listed with its reason, and a skip
// that is not fails the test.
func TestSanity(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		disk       string
		size, grow int // in MiB
		parameters string
		flags      []string
		skips      map[string]string
	}{
		"directory": {size: 0, grow: 1, flags: []string{"-ginkgo.skip", `ExpandVolume.*should work|node-expand is called after`},
			skips: map[string]string{
				"capacity of the volume is unknown":                                                       "a plain directory has no capacity",
				"ExpandVolume [Controller Server]: should work":                                           "and nothing to expand",
				"Node Service: NodeExpandVolume: should work if node-expand is called after node-publish": "as above",
			}},
		"ext4":      {size: 64, grow: 128},
		"xfs":       {size: 300, grow: 400, parameters: "fs_type: xfs"},
		"btrfs":     {size: 256, grow: 400, parameters: "fs_type: btrfs"},
		"block":     {size: 64, grow: 128, flags: []string{"-csi.testvolumeaccesstype", "block"}},
		"subvolume": {disk: "btrfs", size: 64, grow: 128},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := host.ShortDir(t)
			root := host.Disk(t, dir, c.disk)
			socket := filepath.Join(dir, "csi.sock")
			serveLocal(t, filepath.Join(root, "root"), socket)
			flags := append([]string{
				"-csi.endpoint", "unix://" + socket,
				"-csi.mountdir", filepath.Join(dir, "target"), "-csi.stagingdir", filepath.Join(dir, "staging"),
				"-csi.testvolumesize", strconv.Itoa(c.size << 20), "-csi.testvolumeexpandsize", strconv.Itoa(c.grow << 20),
			}, c.flags...)
			if c.parameters != "" {
				file := filepath.Join(dir, "parameters.yaml")
				if err := os.WriteFile(file, []byte(c.parameters), 0o600); err != nil {
					t.Fatal(err)
				}
				flags = append(flags, "-csi.testvolumeparameters", file)
			}
			report := host.Sanity(t, flags...)
			for spec, message := range report.Failed {
				t.Errorf("%s: %s", spec, message)
			}
			want := neverSanity()
			maps.Copy(want, c.skips)
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(report.Skipped))); diff != "" {
				t.Errorf("reasons to skip a spec (-want +got):\n%s", diff)
			}
			if report.Passed < 60 {
				t.Errorf("%d specs passed, and there are more", report.Passed)
			}
			for _, sub := range []string{"records", "volumes", "snapshot-records", "snapshots"} {
				left, err := os.ReadDir(filepath.Join(root, "root", sub))
				if err != nil || len(left) > 0 {
					t.Errorf("left behind in %s: %v (%v)", sub, left, err)
				}
			}
			t.Logf("%d passed, skipped: %v", report.Passed, report.Skipped)
		})
	}
}

// serveLocal runs "berth plugin local" until the test is over.
func serveLocal(t *testing.T, root, socket string) {
	t.Helper()
	var output strings.Builder
	cmd := exec.Command(host.Binary(t), "plugin", "local", "--root", root, "--endpoint", "unix://"+socket, "--node-id", "node-1")
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("the driver ended: %v\n%s", err, output.String())
		}
	})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if _, err := os.Stat(socket); err == nil {
			return
		}
		<-tick.C
	}
	t.Fatal("the driver does not listen")
}
