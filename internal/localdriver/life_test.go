package localdriver_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/testing/protocmp"
)

func TestVolume_WholeLife(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			response, err := r.CreateVolume(t.Context(), k.createRequest("pg"))
			must(t, "create", err, codes.OK)
			id := response.GetVolume().GetVolumeId()
			want := &csi.Volume{
				VolumeId:      id,
				CapacityBytes: k.size,
				VolumeContext: map[string]string{"berth.dev/name": "pg"},
				AccessibleTopology: []*csi.Topology{
					{Segments: map[string]string{"local.berth.dev/node": nodeID}},
				},
			}
			if diff := cmp.Diff(want, response.GetVolume(), protocmp.Transform()); diff != "" {
				t.Errorf("volume (-want +got):\n%s", diff)
			}
			staging, target := r.staging("pg"), r.target("pg")
			c := capability(writer, k.fsType)
			for range 2 { // every call may be repeated
				must(t, "stage", r.stage(id, staging, c), codes.OK)
			}
			for range 2 {
				must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
			}
			write(t, filepath.Join(target, "file"), "data")
			for range 2 {
				must(t, "unpublish", r.unpublish(id, target), codes.OK)
			}
			for range 2 {
				must(t, "unstage", r.unstage(id, staging), codes.OK)
			}
			if leaks := r.left(); len(leaks) > 0 {
				t.Errorf("left behind by unstage: %v", leaks)
			}
			for range 2 {
				must(t, "delete", r.remove(id), codes.OK)
			}
			if diff := cmp.Diff([]string(nil), r.files()); diff != "" {
				t.Errorf("left behind by delete (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVolume_DataSurvivesUnstageAndRestart(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			stop := r.start()
			id := r.create(k, "pg")
			staging, target := r.staging("pg"), r.target("pg")
			c := capability(writer, k.fsType)
			must(t, "stage", r.stage(id, staging, c), codes.OK)
			must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
			write(t, filepath.Join(target, "file"), "data")
			must(t, "unpublish", r.unpublish(id, target), codes.OK)
			must(t, "unstage", r.unstage(id, staging), codes.OK)
			stop()

			r.start()
			if again := r.create(k, "pg"); again != id {
				t.Errorf("the repeated create answers %s, want %s", again, id)
			}
			must(t, "stage", r.stage(id, staging, c), codes.OK)
			must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
			wantFile(t, filepath.Join(target, "file"), "data")
			r.tearDown(id, staging, target)
		})
	}
}

func TestDriver_KilledWhileVolumesAreInUseNobodyNotices(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			child := r.spawn("")
			id := r.create(k, "pg")
			staging, target := r.staging("pg"), r.target("pg")
			c := capability(writer, k.fsType)
			must(t, "stage", r.stage(id, staging, c), codes.OK)
			must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
			workload, err := os.Create(filepath.Join(target, "file"))
			if err != nil {
				t.Fatal(err)
			}
			defer workload.Close()
			r.kill(child)
			if _, err := workload.WriteString("data"); err != nil {
				t.Errorf("the workload noticed: %v", err)
			}
			r.start()
			if _, err := workload.WriteString(" and more"); err != nil {
				t.Errorf("the workload noticed: %v", err)
			}
			must(t, "stage", r.stage(id, staging, c), codes.OK)
			must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
			wantFile(t, filepath.Join(target, "file"), "data and more")

			must(t, "unpublish while a file is open", r.unpublish(id, target), codes.FailedPrecondition)
			if err := workload.Close(); err != nil {
				t.Fatal(err)
			}
			letGo()
			r.tearDown(id, staging, target)
		})
	}
}

func TestPublish_ReadOnlyRefusesWrites(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			id := r.create(k, "pg")
			staging := r.staging("pg")
			shared := capability(multiWriter, k.fsType)
			must(t, "stage", r.stage(id, staging, shared), codes.OK)
			must(t, "publish", r.publish(id, staging, r.target("rw"), false, shared), codes.OK)
			must(t, "publish read-only", r.publish(id, staging, r.target("ro"), true, shared), codes.OK)

			write(t, filepath.Join(r.target("rw"), "file"), "data")
			wantFile(t, filepath.Join(r.target("ro"), "file"), "data")
			for _, name := range []string{"file", "new"} {
				err := os.WriteFile(filepath.Join(r.target("ro"), name), []byte("x"), 0o644)
				if !errors.Is(err, unix.EROFS) {
					t.Errorf("write of %s: %v, want %v", name, err, unix.EROFS)
				}
			}
			r.tearDown(id, staging, r.target("rw"), r.target("ro"))
		})
	}
}

func TestPublish_ReaderOnlyModeIsReadOnlyWithoutTheFlag(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id := r.create(directory, "pg")
	staging, target := r.staging("pg"), r.target("pg")
	c := capability(reader, "")
	must(t, "stage", r.stage(id, staging, c), codes.OK)
	must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
	if err := os.WriteFile(filepath.Join(target, "file"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("write: %v, want %v", err, unix.EROFS)
	}
	r.tearDown(id, staging, target)
}

func TestStage_MountFlagsTakeEffect(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			id := r.create(k, "pg")
			staging, target := r.staging("pg"), r.target("pg")
			must(t, "stage", r.stage(id, staging, capability(writer, k.fsType, "noexec,noatime")), codes.OK)
			must(t, "publish", r.publish(id, staging, target, false, capability(writer, k.fsType, "nodev")), codes.OK)
			for path, want := range map[string]int64{
				staging: unix.ST_NOEXEC | unix.ST_NOATIME,
				target:  unix.ST_NOEXEC | unix.ST_NOATIME | unix.ST_NODEV,
			} {
				var st unix.Statfs_t
				if err := unix.Statfs(path, &st); err != nil {
					t.Fatal(err)
				}
				const asked = unix.ST_NOEXEC | unix.ST_NOATIME | unix.ST_NODEV | unix.ST_NOSUID | unix.ST_RDONLY
				if got := st.Flags & asked; got != want {
					t.Errorf("%s has flags %#x, want %#x", path, got, want)
				}
			}
			r.tearDown(id, staging, target)
		})
	}
}

func TestStage_FileSystemOptionsReachTheFileSystem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id := r.create(ext4, "pg")
	staging := r.staging("pg")
	err := r.stage(id, staging, capability(writer, "ext4", "no_such_option"))
	must(t, "stage with a strange option", err, codes.InvalidArgument)
	has(t, err, "no_such_option", "ext4")
	if leaks := r.left(); len(leaks) > 0 {
		t.Errorf("left behind by a stage that failed: %v", leaks)
	}
	must(t, "stage", r.stage(id, staging, capability(writer, "ext4", "data=journal")), codes.OK)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	has(t, errors.New(string(mounts)), "data=journal")
	err = r.publish(id, staging, r.target("pg"), false, capability(writer, "ext4", "discard"))
	must(t, "publish with an option that the staging lacks", err, codes.FailedPrecondition)
	has(t, err, "discard")
	r.tearDown(id, staging)
}

func TestDelete_RefusedWhileInUse(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			id := r.create(k, "pg")
			staging, target := r.staging("pg"), r.target("pg")
			c := capability(writer, k.fsType)
			must(t, "stage", r.stage(id, staging, c), codes.OK)
			err := r.remove(id)
			must(t, "delete of a staged volume", err, codes.FailedPrecondition)
			has(t, err, staging)
			must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
			write(t, filepath.Join(target, "file"), "data")
			must(t, "delete of a published volume", r.remove(id), codes.FailedPrecondition)
			must(t, "unstage of a published volume", r.unstage(id, staging), codes.FailedPrecondition)
			wantFile(t, filepath.Join(staging, "file"), "data")
			wantFile(t, filepath.Join(target, "file"), "data")
			r.tearDown(id, staging, target)
		})
	}
}

func TestStats_TellSpaceAndInodes(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			id := r.create(k, "pg")
			staging, target := r.staging("pg"), r.target("pg")
			c := capability(writer, k.fsType)
			must(t, "stage", r.stage(id, staging, c), codes.OK)
			must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
			for _, path := range []string{staging, target} {
				stats, err := r.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path})
				must(t, "stats", err, codes.OK)
				var st unix.Statfs_t
				if err := unix.Statfs(path, &st); err != nil {
					t.Fatal(err)
				}
				units := totals(t, stats)
				want := int64(st.Blocks) * st.Frsize
				if units[csi.VolumeUsage_BYTES] != want || k.image() && want > k.size {
					t.Errorf("%d bytes, want the file system's %d of the volume's %d", units[csi.VolumeUsage_BYTES], want, k.size)
				}
				if units[csi.VolumeUsage_INODES] == 0 && k != btrfs { // which has no such table
					t.Error("no inodes")
				}
			}
			for _, path := range []string{r.dir, r.target("other"), "pods/pg"} {
				_, err := r.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path})
				must(t, "stats at "+path, err, codes.NotFound)
			}
			r.tearDown(id, staging, target)
		})
	}
}

// totals are by unit.
func totals(t *testing.T, stats *csi.NodeGetVolumeStatsResponse) map[csi.VolumeUsage_Unit]int64 {
	t.Helper()
	units := map[csi.VolumeUsage_Unit]int64{}
	for _, u := range stats.GetUsage() {
		units[u.GetUnit()] = u.GetTotal()
		if u.GetAvailable() < 0 || u.GetUsed() < 0 || u.GetUsed()+u.GetAvailable() > u.GetTotal() {
			t.Errorf("%s: available %d and used %d of %d", u.GetUnit(), u.GetAvailable(), u.GetUsed(), u.GetTotal())
		}
	}
	return units
}

func TestCapacity_OfAFullVolumeIsItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id := r.create(ext4, "pg")
	staging := r.staging("pg")
	must(t, "stage", r.stage(id, staging, capability(writer, "ext4")), codes.OK)
	err := os.WriteFile(filepath.Join(staging, "large"), make([]byte, ext4.size), 0o600)
	letGo()
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("write of more than the capacity: %v, want %v", err, unix.ENOSPC)
	}
	r.tearDown(id, staging)
}
