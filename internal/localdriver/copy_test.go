package localdriver_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/loop"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

func TestSnapshot_ShowsTheVolumeAsItWas(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{ext4, btrfs, subvolume, shared} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, k.disk)
			r.start()
			id, staging, target := r.create(k, "pg"), r.staging("pg"), r.target("pg")
			must(t, "stage", r.stage(id, staging, k.capability()), codes.OK)
			must(t, "publish", r.publish(id, staging, target, false, k.capability()), codes.OK)
			write(t, filepath.Join(target, "file"), "then")
			must(t, "snapshot of a volume in use", r.snapshot(id, "nightly"), codes.OK)
			write(t, filepath.Join(target, "file"), "now")
			must(t, "the same snapshot again", r.snapshot(id, "nightly"), codes.OK)

			// Both are mounted at once, whatever UUID they share.
			must(t, "restore", r.copyOf(k, "restored", record.Source{Snapshot: idOf("nightly")}), codes.OK)
			must(t, "clone", r.copyOf(k, "cloned", record.Source{Volume: id}), codes.OK)
			must(t, "clone again", r.copyOf(k, "cloned", record.Source{Volume: id}), codes.OK)
			err := r.copyOf(k, "cloned", record.Source{Snapshot: idOf("nightly")})
			must(t, "clone of something else by the same name", err, codes.AlreadyExists)
			for name, want := range map[string]string{"restored": "then", "cloned": "now"} {
				must(t, "stage "+name, r.stage(idOf(name), r.staging(name), k.capability()), codes.OK)
				wantFile(t, filepath.Join(r.staging(name), "file"), want)
				write(t, filepath.Join(r.staging(name), "file"), "changed")
			}
			wantFile(t, filepath.Join(target, "file"), "now")
			r.tearDown(id, staging, target)
			for _, name := range []string{"restored", "cloned"} {
				r.tearDown(idOf(name), r.staging(name))
			}

			// It outlives its volume.
			must(t, "restore again", r.copyOf(k, "again", record.Source{Snapshot: idOf("nightly")}), codes.OK)
			must(t, "delete", r.remove(idOf("again")), codes.OK)
			must(t, "delete snapshot", r.dropSnapshot(idOf("nightly")), codes.OK)
			must(t, "delete it again", r.dropSnapshot(idOf("nightly")), codes.OK)
			if files := r.files(); len(files) > 0 {
				t.Errorf("left behind: %v", files)
			}
		})
	}
}

func TestSnapshot_OfADirectoryWaitsForItsWriters(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, staging, target := r.create(directory, "pg"), r.staging("pg"), r.target("pg")
	must(t, "stage", r.stage(id, staging, directory.capability()), codes.OK)
	must(t, "publish", r.publish(id, staging, target, false, directory.capability()), codes.OK)
	write(t, filepath.Join(target, "file"), "data")
	err := r.snapshot(id, "nightly")
	must(t, "snapshot while somebody may write", err, codes.FailedPrecondition)
	has(t, err, target, "unpublish")
	must(t, "unpublish", r.unpublish(id, target), codes.OK)
	must(t, "snapshot", r.snapshot(id, "nightly"), codes.OK)
	must(t, "restore", r.copyOf(directory, "restored", record.Source{Snapshot: idOf("nightly")}), codes.OK)
	wantFile(t, filepath.Join(r.content(idOf("restored"), directory), "file"), "data")
	must(t, "delete", r.remove(idOf("restored")), codes.OK)
	must(t, "delete snapshot", r.dropSnapshot(idOf("nightly")), codes.OK)
	r.tearDown(id, staging)
}

func TestSnapshot_RefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, other := r.create(ext4, "pg"), r.create(ext4, "other")
	must(t, "snapshot", r.snapshot(id, "nightly"), codes.OK)
	strange := func(q *csi.CreateSnapshotRequest) error {
		_, err := r.CreateSnapshot(t.Context(), q)
		return err
	}
	from := func(change func(*csi.CreateVolumeRequest)) error {
		q := ext4.createRequest("copy")
		q.VolumeContentSource = contentOf(&record.Source{Snapshot: idOf("nightly")})
		change(q)
		_, err := r.CreateVolume(t.Context(), q)
		return err
	}
	check(t, map[string]answer{
		"no name":            {r.snapshot(id, ""), codes.InvalidArgument, "name"},
		"no source":          {r.snapshot("", "new"), codes.InvalidArgument, "source_volume_id"},
		"missing source":     {r.snapshot(missing(), "new"), codes.NotFound, missing()},
		"parameters":         {strange(&csi.CreateSnapshotRequest{Name: "n", SourceVolumeId: id, Parameters: map[string]string{"a": "b"}}), codes.InvalidArgument, "takes none"},
		"name of another":    {r.snapshot(other, "nightly"), codes.AlreadyExists, id},
		"delete without id":  {r.dropSnapshot(""), codes.InvalidArgument, "snapshot_id"},
		"delete strange id":  {r.dropSnapshot("strange"), codes.OK, ""},
		"delete of another":  {r.dropSnapshot(record.ID{Key: record.KeyOf("nightly"), Node: "db-2"}.String()), codes.FailedPrecondition, "db-2"},
		"copy too small":     {from(capacity(4*mib, 0)), codes.OutOfRange, "16777216"},
		"copy limit too low": {from(capacity(0, 8*mib)), codes.OutOfRange, "limit"},
		"copy of another fs": {from(capabilities(xfs.capability())), codes.InvalidArgument, "xfs"},
		"copy as a device":   {from(capabilities(device.capability())), codes.InvalidArgument, "block"},
		"copy of other kind": {from(parameters("kind", "directory")), codes.InvalidArgument, "directory"},
	})
	for _, id := range []string{id, other} {
		must(t, "delete", r.remove(id), codes.OK)
	}
	must(t, "delete snapshot", r.dropSnapshot(idOf("nightly")), codes.OK)
}

func TestRestore_IntoALargerVolume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, staging := r.create(ext4, "pg"), r.staging("pg")
	must(t, "stage", r.stage(id, staging, ext4.capability()), codes.OK)
	write(t, filepath.Join(staging, "file"), "data")
	must(t, "snapshot", r.snapshot(id, "nightly"), codes.OK)
	r.tearDown(id, staging)

	q := ext4.createRequest("large")
	q.CapacityRange.RequiredBytes = 64 * mib
	q.VolumeContentSource = contentOf(&record.Source{Snapshot: idOf("nightly")})
	response, err := r.CreateVolume(t.Context(), q)
	must(t, "restore", err, codes.OK)
	if got := response.GetVolume().GetCapacityBytes(); got != 64*mib {
		t.Errorf("capacity %d, want %d", got, 64*mib)
	}
	staging = r.staging("large")
	must(t, "stage", r.stage(idOf("large"), staging, ext4.capability()), codes.OK)
	wantFile(t, filepath.Join(staging, "file"), "data")
	if total := r.total(idOf("large"), staging); total < 48*mib {
		t.Errorf("the file system has %d bytes, and did not grow with its volume", total)
	}
	r.tearDown(idOf("large"), staging)
	must(t, "delete snapshot", r.dropSnapshot(idOf("nightly")), codes.OK)
}

// total is what NodeGetVolumeStats says of a volume's size.
func (r *rig) total(id, path string) int64 {
	r.t.Helper()
	stats, err := r.NodeGetVolumeStats(r.t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: path})
	must(r.t, "stats", err, codes.OK)
	return totals(r.t, stats)[csi.VolumeUsage_BYTES]
}

func TestListSnapshots_FiltersAndPages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, other := r.create(directory, "pg"), r.create(directory, "other")
	for _, name := range []string{"a", "b", "c"} {
		must(t, "snapshot", r.snapshot(id, name), codes.OK)
	}
	must(t, "snapshot", r.snapshot(other, "d"), codes.OK)
	list := func(q *csi.ListSnapshotsRequest) (ids []string, next string) {
		t.Helper()
		response, err := r.ListSnapshots(t.Context(), q)
		must(t, "list", err, codes.OK)
		for _, e := range response.GetEntries() {
			s := e.GetSnapshot()
			if !s.GetReadyToUse() || time.Since(s.GetCreationTime().AsTime()) > time.Hour {
				t.Errorf("snapshot %v", s)
			}
			ids = append(ids, s.GetSnapshotId())
		}
		return ids, response.GetNextToken()
	}
	if ids, _ := list(&csi.ListSnapshotsRequest{SourceVolumeId: id}); len(ids) != 3 {
		t.Errorf("snapshots of one volume: %v", ids)
	}
	if ids, _ := list(&csi.ListSnapshotsRequest{SnapshotId: idOf("d")}); len(ids) != 1 || ids[0] != idOf("d") {
		t.Errorf("one snapshot: %v", ids)
	}
	first, next := list(&csi.ListSnapshotsRequest{MaxEntries: 3})
	second, end := list(&csi.ListSnapshotsRequest{MaxEntries: 3, StartingToken: next})
	if len(first) != 3 || len(second) != 1 || end != "" {
		t.Errorf("pages %v and %v, then %q", first, second, end)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		must(t, "delete snapshot", r.dropSnapshot(idOf(name)), codes.OK)
	}
}

// A kernel keeps a file system frozen when the process that froze it is gone.
func TestCrash_NothingStaysFrozen(t *testing.T) {
	t.Parallel()
	for name, guardToo := range map[string]bool{"DriverKilled": false, "GuardKilledToo": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var alone []string
			if guardToo {
				alone = append(alone, childAlone+"=yes")
			}
			child := r.spawn("copy: source frozen", alone...)
			id, staging := r.create(ext4, "pg"), r.staging("pg")
			must(t, "stage", r.stage(id, staging, ext4.capability()), codes.OK)
			must(t, "snapshot", r.snapshot(id, "nightly"), codes.Unavailable)
			r.awaitKilled(child)
			if guardToo {
				r.start()
			}
			written := make(chan error, 1)
			go func() { written <- os.WriteFile(filepath.Join(staging, "file"), []byte("data"), 0o600) }()
			timeout := time.NewTimer(deadline)
			defer timeout.Stop()
			select {
			case err := <-written:
				if err != nil {
					t.Error(err)
				}
			case <-timeout.C:
				t.Fatal("writers still wait")
			}
			letGo()
			if !guardToo {
				r.start()
			}
			waitFor(t, "the snapshot to be taken back", func() bool { return len(r.files()) == 2 })
			r.tearDown(id, staging)
		})
	}
}

func TestSubvolume_IsLimitedAndAccountedFor(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, "btrfs")
	r.start()
	id, staging := r.create(subvolume, "pg"), r.staging("pg")
	must(t, "stage", r.stage(id, staging, subvolume.capability()), codes.OK)
	fill := func() int64 {
		out, _ := exec.Command("sh", "-c", "cat /dev/urandom | head -c 200M > "+staging+"/large; sync -f "+staging+"; stat -c %s "+staging+"/large").Output()
		size, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return size
	}
	if size := fill(); size > 64*mib || size < 32*mib {
		t.Errorf("%d bytes were written into a volume of %d", size, 64*mib)
	}
	if total := r.total(id, staging); total != 64*mib {
		t.Errorf("stats tell of %d bytes, want %d", total, 64*mib)
	}
	must(t, "expand", r.expand(id, 128*mib), codes.OK)
	if size := fill(); size > 128*mib || size < 96*mib {
		t.Errorf("%d bytes were written into a volume expanded to %d", size, 128*mib)
	}
	r.tearDown(id, staging)
	left, err := exec.Command("btrfs", "subvolume", "list", r.disk).Output()
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %s (%v)", left, err)
	}
}

func TestSubvolume_IsChosenWhereItCanBe(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, "btrfs")
	r.start()
	for name, c := range map[string]struct {
		kind   kind
		change func(*csi.CreateVolumeRequest)
		path   string
	}{
		"unsized": {directory, func(*csi.CreateVolumeRequest) {}, "data"},
		"btrfs":   {btrfs, func(*csi.CreateVolumeRequest) {}, "data"},
		"ext4":    {ext4, func(*csi.CreateVolumeRequest) {}, "image"},
		"image":   {subvolume, parameters("kind", "image"), "image"},
		"xfs":     {subvolume, parameters("fs_type", "ext4"), "image"},
		"option":  {subvolume, capabilities(capability(writer, "", "discard")), "image"},
		"plain":   {directory, parameters("kind", "directory"), "data"},
	} {
		q := c.kind.createRequest(name)
		c.change(q)
		_, err := r.CreateVolume(t.Context(), q)
		must(t, name, err, codes.OK)
		if _, err := os.Lstat(filepath.Join(r.root, "volumes", string(record.KeyOf(name)), c.path)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		must(t, "delete", r.remove(idOf(name)), codes.OK)
	}
}

func TestBlock_DeviceBelongsToItsVolume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stop := r.start()
	id, staging, target := r.create(device, "raw"), r.staging("raw"), r.target("raw")
	c := device.capability()
	must(t, "mount access", r.stage(id, staging, capability(writer, "")), codes.FailedPrecondition)
	must(t, "stage", r.stage(id, staging, c), codes.OK)
	must(t, "stage again", r.stage(id, staging, c), codes.OK)
	must(t, "stage elsewhere", r.stage(id, r.staging("elsewhere"), c), codes.AlreadyExists)
	must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
	must(t, "publish again", r.publish(id, staging, target, false, c), codes.OK)
	must(t, "publish twice", r.publish(id, staging, r.target("second"), false, c), codes.FailedPrecondition)
	stop()

	// Nobody has it open and no driver runs: the device stays the volume's.
	if loops := r.loops("image"); len(loops) != 1 {
		t.Fatalf("images on devices: %v", loops)
	}
	data := bytes.Repeat([]byte("data"), 1024)
	f, err := os.OpenFile(target, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, 4096); err != nil {
		t.Fatal(err)
	}
	f.Close()
	letGo()
	r.start()
	must(t, "unstage while published", r.unstage(id, staging), codes.FailedPrecondition)
	if total := r.total(id, target); total != device.size {
		t.Errorf("stats tell of %d bytes, want %d", total, device.size)
	}
	must(t, "expand", r.expand(id, 32*mib), codes.OK)
	must(t, "grow", r.grow(id, target, 32*mib), codes.OK)
	if size, err := exec.Command("blockdev", "--getsize64", target).Output(); err != nil || strings.TrimSpace(string(size)) != strconv.Itoa(32*mib) {
		t.Errorf("the device has %s bytes (%v), want %d", size, err, 32*mib)
	}
	must(t, "unpublish", r.unpublish(id, target), codes.OK)
	must(t, "unstage", r.unstage(id, staging), codes.OK)
	image, err := os.ReadFile(r.content(id, device))
	if err != nil || !bytes.Equal(image[4096:4096+len(data)], data) {
		t.Errorf("what was written is not in the image (%v)", err)
	}
	must(t, "delete", r.remove(id), codes.OK)
}

// The number of a device that somebody has detached may be another image's
// by now, and its node is still at the target.
func TestBlock_DetachedByAnOperatorCanBeTakenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, staging, target := r.create(device, "raw"), r.staging("raw"), r.target("raw")
	must(t, "stage", r.stage(id, staging, device.capability()), codes.OK)
	must(t, "publish", r.publish(id, staging, target, false, device.capability()), codes.OK)
	if err := loop.Release(t.Context(), r.content(id, device)); err != nil {
		t.Fatal(err)
	}
	condition := r.condition(id)
	if !condition.GetAbnormal() || !strings.Contains(condition.GetMessage(), "not there any more") {
		t.Errorf("condition %v", condition)
	}
	must(t, "unpublish", r.unpublish(id, target), codes.OK)
	must(t, "unstage", r.unstage(id, staging), codes.OK)
	must(t, "delete", r.remove(id), codes.OK)
}

// condition is what ControllerGetVolume says of a volume's.
func (r *rig) condition(id string) *csi.VolumeCondition {
	r.t.Helper()
	response, err := r.ControllerGetVolume(r.t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: id})
	must(r.t, "get volume", err, codes.OK)
	return response.GetStatus().GetVolumeCondition()
}

func TestCondition_TellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, staging, target := r.create(ext4, "pg"), r.staging("pg"), r.target("pg")
	must(t, "stage", r.stage(id, staging, ext4.capability()), codes.OK)
	must(t, "publish", r.publish(id, staging, target, false, ext4.capability()), codes.OK)
	if c := r.condition(id); c.GetAbnormal() {
		t.Errorf("condition of a healthy volume: %v", c)
	}
	want := func(words string) {
		t.Helper()
		c := r.condition(id)
		list, err := r.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
		must(t, "list", err, codes.OK)
		listed := list.GetEntries()[0].GetStatus().GetVolumeCondition()
		if !c.GetAbnormal() || !strings.Contains(c.GetMessage(), words) || listed.GetMessage() != c.GetMessage() {
			t.Errorf("condition %v, listed as %v, want one that speaks of %q", c, listed, words)
		}
	}
	unmount(t, target)
	want("not there any more")
	must(t, "publish", r.publish(id, staging, target, false, ext4.capability()), codes.OK)
	command(t, "mount", "-o", "remount,ro", staging) // as ext4 does it after an error
	want("read-only")
	r.tearDown(id, staging, target)
	_, err := r.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: id})
	must(t, "get of a volume that is gone", err, codes.NotFound)
}

func TestMountGroup_ReadsAndWritesEverything(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{directory, ext4, xfs} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			id, staging, target := r.create(k, "pg"), r.staging("pg"), r.target("pg")
			must(t, "stage", r.stage(id, staging, k.capability()), codes.OK)
			write(t, filepath.Join(staging, "old"), "data")
			command(t, "chmod", "600", filepath.Join(staging, "old"))
			// A tenant's link leads to nothing that is not the volume's.
			outside := filepath.Join(t.TempDir(), "outside")
			write(t, outside, "the host's")
			command(t, "chmod", "600", outside)
			command(t, "ln", "-s", outside, filepath.Join(staging, "link"))
			must(t, "unstage", r.unstage(id, staging), codes.OK)

			c := k.capability()
			c.GetMount().VolumeMountGroup = "4242"
			must(t, "stage", r.stage(id, staging, c), codes.OK)
			must(t, "publish without the group", r.publish(id, staging, target, false, k.capability()), codes.FailedPrecondition)
			must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
			member := func(script string) {
				t.Helper()
				cmd := exec.Command("sh", "-c", "umask 077; cd / && "+script)
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000, Groups: []uint32{4242}}}
				// The place itself is root's; what counts is the volume.
				cmd.Dir = "/"
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", script, err, out)
				}
			}
			for dir := target; dir != "/tmp"; dir = filepath.Dir(dir) {
				if dir != target {
					command(t, "chmod", "755", dir)
				}
			}
			member("echo more >> " + target + "/old && mkdir -p " + target + "/sub/dir && echo new > " + target + "/sub/dir/file")
			out, err := exec.Command("stat", "-c", "%g %A", target+"/sub/dir/file").Output()
			if err != nil || strings.TrimSpace(string(out)) != "4242 -rw-rw----" && !strings.HasPrefix(string(out), "4242 -rw-rw-") {
				t.Errorf("a new file has %s (%v), want the group 4242 to read and write it", out, err)
			}
			if out, err := exec.Command("stat", "-c", "%g %a", outside).Output(); err != nil || strings.TrimSpace(string(out)) != "0 600" {
				t.Errorf("a file outside of the volume has %s (%v)", out, err)
			}
			r.tearDown(id, staging, target)
		})
	}
}

func TestExpand_RefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, dir := r.create(ext4, "pg"), r.create(directory, "dir")
	limited := func(required, limit int64) error {
		_, err := r.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
			VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit},
		})
		return err
	}
	check(t, map[string]answer{
		"no id":          {r.expand("", mib), codes.InvalidArgument, "volume_id"},
		"no range":       {limited(0, 0), codes.InvalidArgument, "capacity_range"},
		"missing":        {r.expand(missing(), mib), codes.NotFound, missing()},
		"directory":      {r.expand(dir, mib), codes.InvalidArgument, "nothing to expand"},
		"limit too low":  {limited(0, mib), codes.OutOfRange, "limit"},
		"disk too small": {r.expand(id, 1<<60), codes.ResourceExhausted, nodeID},
		"smaller":        {r.expand(id, mib), codes.OK, ""},
		"not in use":     {r.grow(id, r.staging("pg"), mib), codes.NotFound, "neither staged nor published"},
		"grow no path":   {r.grow(id, "", mib), codes.InvalidArgument, "volume_path"},
	})
	must(t, "stage", r.stage(id, r.staging("pg"), ext4.capability()), codes.OK)
	must(t, "grow beyond the capacity", r.grow(id, r.staging("pg"), gib), codes.OutOfRange)
	r.tearDown(id, r.staging("pg"))
}
