package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/test/host"
)

const mib = 1 << 20

// sizeOf is the size in bytes of the file system at a mount point.
func sizeOf(t *testing.T, target string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(target, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Blocks) * s.Bsize
}

func mounted(t *testing.T, b *host.Berth) string {
	t.Helper()
	var info api.VolumeInfo
	b.JSON(&info, "volume", "status", "pg")
	if len(info.Attachments) != 1 || info.Attachments[0].Status.TargetPath == "" {
		t.Fatalf("attachments of a running job: %+v", info.Attachments)
	}
	return info.Attachments[0].Status.TargetPath
}

// TestLocal_Expand grows volumes of the embedded driver while a task writes to
// them. What cannot grow while it is mounted grows when it is mounted next: ext4
// where the driver lacks CAP_SYS_RESOURCE.
func TestLocal_Expand(t *testing.T) {
	t.Parallel()
	for fsType, size := range map[string]struct{ from, to int64 }{"xfs": {300, 400}, "btrfs": {256, 400}, "ext4": {64, 128}} {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			b := host.Start(t, host.Options{})
			volume := strings.ReplaceAll(volumeFile, `"1GiB"`, fmt.Sprintf(`"%dMiB"`, size.from))
			volume = strings.ReplaceAll(volume, `"mock"`, `"local"`) + fmt.Sprintf("mount_options {\n fs_type = %q\n}\n", fsType)
			b.Apply(volume)
			b.Apply(jobFile)
			before := sizeOf(t, mounted(t, b))
			out := b.Run("volume", "expand", "pg", "--capacity-min", fmt.Sprintf("%dMiB", size.to))
			if want := fmt.Sprintf("is ready (%dMiB)", size.to); !strings.Contains(out, want) {
				t.Errorf("expand says %s; want %s", out, want)
			}
			var info api.VolumeInfo
			b.JSON(&info, "volume", "status", "pg")
			if info.Status.Capacity != size.to*mib || info.Status.Expansion != nil {
				t.Errorf("the volume after its expansion: %+v", info.Status)
			}
			if later := strings.Contains(out, "grows when it is mounted next"); later {
				if fsType != "ext4" || info.Status.NodeExpansion != size.to*mib || info.Publications[0].Status.NodeExpansionRefused == "" {
					t.Errorf("what is to grow: %+v, %+v", info.Status, info.Publications[0].Status)
				}
				b.Run("job", "stop", "db")
				b.Apply(jobFile)
			}
			if after := sizeOf(t, mounted(t, b)); after < before+(size.to-size.from)*mib*8/10 {
				t.Errorf("the file system had %d bytes, and has %d", before, after)
			}
			wrote(t, b, mounted(t, b))
			b.Eventually("nothing is left to grow", limit, func() error {
				var info api.VolumeInfo
				b.JSON(&info, "volume", "status", "pg")
				if info.Status.NodeExpansion != 0 || info.Publications[0].Status.NodeExpansion != 0 {
					return fmt.Errorf("%+v, %+v", info.Status, info.Publications[0].Status)
				}
				return nil
			})
			// Applying the file of before is to ask for a smaller one.
			if _, errOut, status := b.Try("volume", "expand", "pg", "--capacity-min", "10MiB"); status != 2 || !strings.Contains(errOut, "volumes grow, and do not shrink") {
				t.Errorf("shrink: exit status %d, %s", status, errOut)
			}
			b.Run("job", "stop", "db")
			b.Run("volume", "delete", "pg")
		})
	}
}

// TestMock_Expand expands volumes of Kubernetes' mock driver: in use, where the
// nodes have to follow, and only while nobody uses them.
func TestMock_Expand(t *testing.T) {
	t.Parallel()
	const up, down = "ControllerPublishVolume OK\nNodeStageVolume OK\nNodePublishVolume OK\n",
		"NodeUnpublishVolume OK\nNodeUnstageVolume OK\nControllerUnpublishVolume OK\n"
	start := func(t *testing.T, flags ...string) (*host.Berth, *host.Mock) {
		b, m := withMock(t, "", append(flags, "-real-mounts")...)
		b.Apply(volumeFile)
		b.Apply(jobFile)
		return b, m
	}
	expect := func(t *testing.T, m *host.Mock, want string) {
		t.Helper()
		if diff := cmp.Diff(want, host.Sequence(m.Calls())); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	}
	t.Run("NodeExpansionRequired", func(t *testing.T) {
		t.Parallel()
		b, m := start(t, "-node-expansion-required")
		b.Run("volume", "expand", "pg", "--capacity-min", "2GiB")
		expect(t, m, "CreateVolume OK\n"+up+"ControllerExpandVolume OK\nNodeExpandVolume OK\n")
		b.Run("job", "stop", "db")
		b.Run("volume", "expand", "pg", "--capacity-min", "3GiB")
		b.Apply(jobFile)
		expect(t, m, "CreateVolume OK\n"+up+"ControllerExpandVolume OK\nNodeExpandVolume OK\n"+down+
			"ControllerExpandVolume OK\nControllerPublishVolume OK\nNodeStageVolume OK\nNodeExpandVolume OK\nNodePublishVolume OK\n")
	})
	t.Run("NodeExpansionFails", func(t *testing.T) {
		t.Parallel()
		b, m := start(t, "-node-expansion-required", "-fault", "NodeExpandVolume:INTERNAL:1")
		b.Run("volume", "expand", "pg", "--capacity-min", "2GiB")
		expect(t, m, "CreateVolume OK\n"+up+"ControllerExpandVolume OK\nNodeExpandVolume INTERNAL\nNodeExpandVolume OK\n")
	})
	t.Run("Offline", func(t *testing.T) {
		t.Parallel()
		// The mock never forgets that it has attached a volume, and then never
		// expands it: it must attach nothing.
		b, m := start(t, "-disable-online-expansion", "-node-expansion-required", "-disable-attach")
		out, errOut, _ := b.Try("volume", "expand", "pg", "--capacity-min", "2GiB", "--timeout", "2s")
		if !strings.Contains(out, "is expanded when nobody uses it") || !strings.Contains(out, "of job db uses volume pg") {
			t.Errorf("an expansion that waits says %s, %s", out, errOut)
		}
		b.Run("job", "stop", "db")
		b.Apply(jobFile)
		expect(t, m, "CreateVolume OK\nNodeStageVolume OK\nNodePublishVolume OK\nNodeUnpublishVolume OK\nNodeUnstageVolume OK\n"+
			"ControllerExpandVolume OK\nNodeStageVolume OK\nNodeExpandVolume OK\nNodePublishVolume OK\n")
	})
	t.Run("OnlyTheNode", func(t *testing.T) {
		t.Parallel()
		b, m := start(t, "-disable-controller-expansion", "-node-expansion-required")
		b.Run("volume", "expand", "pg", "--capacity-min", "2GiB")
		expect(t, m, "CreateVolume OK\n"+up+"NodeExpandVolume OK\n")
		var info api.VolumeInfo
		b.JSON(&info, "volume", "status", "pg")
		if info.Status.Capacity != 2<<30 || info.Status.Expansion != nil {
			t.Errorf("the volume after its expansion: %+v", info.Status)
		}
	})
	t.Run("NobodyKnows", func(t *testing.T) {
		t.Parallel()
		b, m := start(t, "-fault", "ControllerExpandVolume:DEADLINE_EXCEEDED:1")
		b.Run("volume", "expand", "pg", "--capacity-min", "2GiB")
		expect(t, m, "CreateVolume OK\n"+up+"ControllerExpandVolume DEADLINE_EXCEEDED\nControllerExpandVolume OK\n")
	})
}
