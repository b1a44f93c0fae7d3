package localdriver_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// These tests make the records and the kernel say different things.

func bind(t *testing.T, source, target string) {
	t.Helper()
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
}

func unmount(t *testing.T, target string) {
	t.Helper()
	if err := unix.Unmount(target, 0); err != nil {
		t.Fatal(err)
	}
}

// record is the path of a volume's record.
func (r *rig) record(id string) string {
	key, _, _ := strings.Cut(id, "@")
	return filepath.Join(r.root, "records", key+".json")
}

// The records were restored from a backup that knew of no staging.
func TestRecords_OlderThanTheKernel(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		for name, goOn := range map[string]func(r *rig, id, staging, target string){
			"TearDown": func(*rig, string, string, string) {},
			"CarryOn": func(r *rig, id, staging, target string) {
				c := capability(multiWriter, k.fsType)
				must(r.t, "stage elsewhere", r.stage(id, r.staging("other"), c), codes.AlreadyExists)
				must(r.t, "stage", r.stage(id, staging, c), codes.OK)
				must(r.t, "publish, now read-only", r.publish(id, staging, target, true, c), codes.OK)
				if err := os.WriteFile(filepath.Join(target, "file"), nil, 0o644); !errors.Is(err, unix.EROFS) {
					r.t.Errorf("write: %v, want %v", err, unix.EROFS)
				}
				must(r.t, "publish, writable again", r.publish(id, staging, target, false, c), codes.AlreadyExists)
			},
		} {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				stop := r.start()
				id, staging, target := r.create(k, "pg"), r.staging("pg"), r.target("pg")
				old := readAll(t, r.record(id))
				c := capability(multiWriter, k.fsType)
				must(t, "stage", r.stage(id, staging, c), codes.OK)
				must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
				write(t, filepath.Join(target, "file"), "data")
				stop()
				if k.image() {
					old = strings.Replace(old, `"formatted": false`, `"formatted": true`, 1)
				}
				write(t, r.record(id), old)

				r.start()
				must(t, "delete", r.remove(id), codes.FailedPrecondition)
				wantFile(t, filepath.Join(target, "file"), "data")
				goOn(r, id, staging, target)
				r.tearDown(id, staging, target)
			})
		}
	}
}

// Somebody has unmounted things by hand.
func TestRecords_NewerThanTheKernel(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			id, staging, target := r.create(k, "pg"), r.staging("pg"), r.target("pg")
			c := capability(writer, k.fsType)
			must(t, "stage", r.stage(id, staging, c), codes.OK)
			must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
			write(t, filepath.Join(target, "file"), "data")

			unmount(t, staging)
			must(t, "publish without the staging mount", r.publish(id, staging, r.target("two"), false, c), codes.FailedPrecondition)
			must(t, "stage again", r.stage(id, staging, c), codes.OK)
			wantFile(t, filepath.Join(staging, "file"), "data")

			unmount(t, target)
			must(t, "publish elsewhere", r.publish(id, staging, r.target("two"), false, c), codes.OK)
			must(t, "unpublish of what is gone", r.unpublish(id, target), codes.OK)
			if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("target: %v, want it gone", err)
			}

			r.wipe()
			must(t, "delete while recorded as staged", r.remove(id), codes.FailedPrecondition)
			must(t, "stage elsewhere", r.stage(id, r.staging("other"), c), codes.OK)
			wantFile(t, filepath.Join(r.staging("other"), "file"), "data")
			must(t, "unpublish", r.unpublish(id, r.target("two")), codes.OK)
			r.tearDown(id, r.staging("other"))
		})
	}
}

func TestReboot_VolumeCanBeStagedElsewhere(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			stop := r.start()
			id, staging, target := r.create(k, "pg"), r.staging("pg"), r.target("pg")
			c := capability(writer, k.fsType)
			must(t, "stage", r.stage(id, staging, c), codes.OK)
			must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
			write(t, filepath.Join(target, "file"), "data")
			stop()
			r.reboot()
			r.start()
			must(t, "stage elsewhere", r.stage(id, r.staging("other"), c), codes.OK)
			wantFile(t, filepath.Join(r.staging("other"), "file"), "data")
			must(t, "unstage", r.unstage(id, r.staging("other")), codes.OK)
			// The target directory outlived the reboot, and goes as well.
			must(t, "unpublish", r.unpublish(id, target), codes.OK)
			must(t, "delete", r.remove(id), codes.OK)
		})
	}
}

func TestReboot_VolumeThatNobodyWantsAgainCanBeDeleted(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			stop := r.start()
			id := r.create(k, "pg")
			must(t, "stage", r.stage(id, r.staging("pg"), capability(writer, k.fsType)), codes.OK)
			stop()
			r.reboot()
			r.start()
			must(t, "delete", r.remove(id), codes.OK)
		})
	}
}

func TestMounts_OfOthersAreNeitherCoveredNorRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, staging, target := r.create(directory, "pg"), r.staging("pg"), r.target("pg")
	foreign := r.path("foreign")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(foreign, "file"), "precious")
	c := capability(writer, "")

	bind(t, foreign, staging)
	must(t, "stage over it", r.stage(id, staging, c), codes.FailedPrecondition)
	must(t, "unstage it", r.unstage(id, staging), codes.FailedPrecondition)
	wantFile(t, filepath.Join(staging, "file"), "precious")
	unmount(t, staging)

	must(t, "stage", r.stage(id, staging, c), codes.OK)
	bind(t, foreign, target)
	must(t, "publish over it", r.publish(id, staging, target, false, c), codes.FailedPrecondition)
	must(t, "unpublish it", r.unpublish(id, target), codes.FailedPrecondition)
	wantFile(t, filepath.Join(target, "file"), "precious")
	unmount(t, target)
	r.tearDown(id, staging, target)
}

func TestUnpublish_RemovesEveryMountOfTheVolumeAtTheTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, staging, target := r.create(ext4, "pg"), r.staging("pg"), r.target("pg")
	c := capability(writer, "ext4")
	must(t, "stage", r.stage(id, staging, c), codes.OK)
	must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
	bind(t, staging, target)
	bind(t, staging, target)
	r.tearDown(id, staging, target)
}

func TestPaths_WithLinksAreTheSamePaths(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	if err := os.Symlink(r.dir, r.path("link")); err != nil {
		t.Fatal(err)
	}
	id, staging, target := r.create(directory, "pg"), r.staging("pg"), r.target("pg")
	linked := func(path string) string { return strings.Replace(path, r.dir, r.path("link"), 1) + "/" }
	c := capability(writer, "")
	must(t, "stage", r.stage(id, linked(staging), c), codes.OK)
	must(t, "stage", r.stage(id, staging, c), codes.OK)
	must(t, "publish", r.publish(id, linked(staging), linked(target), false, c), codes.OK)
	must(t, "publish", r.publish(id, staging, target, false, c), codes.OK)
	must(t, "stage over the root", r.stage(id, linked(r.root), c), codes.InvalidArgument)
	if err := os.Symlink(staging, r.target("link")); err != nil {
		t.Fatal(err)
	}
	must(t, "publish at a link", r.publish(id, staging, r.target("link"), false, c), codes.FailedPrecondition)
	must(t, "unpublish", r.unpublish(id, linked(target)), codes.OK)
	must(t, "unstage", r.unstage(id, linked(staging)), codes.OK)
	must(t, "delete", r.remove(id), codes.OK)
}

func TestRecords_UnreadableOneHarmsOnlyItsVolume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stop := r.start()
	broken, healthy := r.create(directory, "broken"), r.create(directory, "healthy")
	write(t, filepath.Join(r.content(broken, directory), "file"), "data")
	stop()
	write(t, r.record(broken), "{")
	r.start()
	must(t, "stage", r.stage(broken, r.staging("pg"), capability(writer, "")), codes.Internal)
	must(t, "create", create(r, "broken"), codes.Internal)
	must(t, "delete", r.remove(broken), codes.Internal)
	wantFile(t, filepath.Join(r.content(broken, directory), "file"), "data")
	must(t, "create", create(r, "healthy"), codes.OK)
	must(t, "delete", r.remove(healthy), codes.OK)
}
