package localdriver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/loop"
	"github.com/berth-dev/berth/internal/localdriver/record"
)

func TestDelete_SparesWhatTheKernelShowsInUse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id := r.create(directory, "pg")
	data, elsewhere := r.content(id, directory), r.path("elsewhere")
	if err := os.MkdirAll(filepath.Join(data, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(data, "sub/file"), "data")

	bind(t, filepath.Join(data, "sub"), elsewhere)
	err := r.remove(id)
	must(t, "delete while a part is mounted elsewhere", err, codes.FailedPrecondition)
	has(t, err, elsewhere)
	unmount(t, elsewhere)

	inside := filepath.Join(data, "inside")
	write(t, filepath.Join(elsewhere, "file"), "precious")
	bind(t, elsewhere, inside)
	err = r.remove(id)
	must(t, "delete while something is mounted inside", err, codes.FailedPrecondition)
	has(t, err, inside)
	wantFile(t, filepath.Join(elsewhere, "file"), "precious")
	wantFile(t, filepath.Join(data, "sub/file"), "data")
	unmount(t, inside)

	// A refused deletion has not begun.
	must(t, "stage", r.stage(id, r.staging("pg"), capability(writer, "")), codes.OK)
	r.tearDown(id, r.staging("pg"))
	wantFile(t, filepath.Join(elsewhere, "file"), "precious")
}

func TestDelete_SparesAnAttachedImage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id := r.create(ext4, "pg")
	device, err := loop.Attach(r.content(id, ext4), loop.User)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	must(t, "delete", r.remove(id), codes.FailedPrecondition)
	if err := device.Close(); err != nil {
		t.Fatal(err)
	}
	letGo()
	must(t, "delete", r.remove(id), codes.OK)
}

// Two devices on one image would corrupt it.
func TestStage_UsesTheDeviceThatTheImageIsOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, staging := r.create(ext4, "pg"), r.staging("pg")
	command(t, "losetup", "--find", r.content(id, ext4)) // an operator's, without autoclear
	must(t, "stage", r.stage(id, staging, capability(writer, "ext4")), codes.OK)
	loops := 0
	for _, leak := range r.leaks() {
		if strings.HasPrefix(leak, "loop ") {
			loops++
		}
	}
	if loops != 1 {
		t.Errorf("the image is on %d devices, want 1", loops)
	}
	r.tearDown(id, staging)
}

func TestUnstage_IsNotDoneWhileAnotherMountShowsTheVolume(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{directory, ext4} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			id, staging, elsewhere := r.create(k, "pg"), r.staging("pg"), r.path("elsewhere")
			must(t, "stage", r.stage(id, staging, capability(writer, k.fsType)), codes.OK)
			bind(t, staging, elsewhere) // an operator's
			for range 2 {
				err := r.unstage(id, staging)
				must(t, "unstage", err, codes.FailedPrecondition)
				has(t, err, elsewhere)
			}
			unmount(t, elsewhere)
			r.tearDown(id, staging)
		})
	}
}

func TestCreate_FinishesADeletionBeforeItReusesTheName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := r.driver()
	var obstacle string
	d.OnStep(func(step string) {
		// A mount that appears in the middle of the deletion.
		if step == "delete: recorded" && obstacle == "" {
			obstacle = filepath.Join(r.root, "volumes", string(record.KeyOf("pg")), "data", "obstacle")
			bind(t, r.path("pods"), obstacle)
		}
	})
	r.run(d)
	id := r.create(directory, "pg")
	write(t, filepath.Join(r.content(id, directory), "file"), "old")
	must(t, "delete", r.remove(id), codes.FailedPrecondition)
	must(t, "stage of a volume that is half deleted", r.stage(id, r.staging("pg"), capability(writer, "")), codes.NotFound)
	must(t, "create", create(r, "pg"), codes.FailedPrecondition)
	if ids := r.listed(); len(ids) > 0 {
		t.Errorf("half deleted volumes are listed: %v", ids)
	}
	unmount(t, obstacle)
	if again := r.create(directory, "pg"); again != id {
		t.Errorf("volume %s, want %s", again, id)
	}
	entries, err := os.ReadDir(r.content(id, directory))
	if err != nil || len(entries) > 0 {
		t.Errorf("the new volume holds %v (%v)", entries, err)
	}
	must(t, "delete", r.remove(id), codes.OK)
}

// A mount in another mount namespace holds the device just like an open file.
func TestUnstage_IsNotDoneWhileSomethingHoldsTheDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, staging := r.create(ext4, "pg"), r.staging("pg")
	must(t, "stage", r.stage(id, staging, capability(writer, "ext4")), codes.OK)
	holder, found, err := loop.Find(r.content(id, ext4))
	if err != nil || !found {
		t.Fatalf("the staged image is on no device: %v", err)
	}
	defer holder.Close()
	err = r.unstageOnce(id, staging)
	must(t, "unstage", err, codes.FailedPrecondition)
	has(t, err, holder.Path, "mount namespace")
	must(t, "delete", r.remove(id), codes.FailedPrecondition)
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	letGo()
	r.tearDown(id, staging)
}

// TestUnstage_OfAnImageThatWasRemoved: the node could never let go of a volume
// whose image somebody had removed under a running task.
func TestUnstage_OfAnImageThatWasRemoved(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		r := newRig(t)
		r.start()
		id := r.create(ext4, "pg")
		must(t, "stage", r.stage(id, r.staging("pg"), capability(writer, "")), codes.OK)
		must(t, "publish", r.publish(id, r.staging("pg"), r.target("pg"), false, capability(writer, "")), codes.OK)
		gone := r.content(id, ext4)
		if whole {
			gone = filepath.Dir(gone)
		}
		if err := os.RemoveAll(gone); err != nil {
			t.Fatal(err)
		}
		must(t, "unpublish", r.unpublish(id, r.target("pg")), codes.OK)
		must(t, "unstage", r.unstage(id, r.staging("pg")), codes.OK)
		if left := r.left(); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}
