package filesystem_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
	"github.com/berth-dev/berth/internal/localdriver/loop"
)

// uuidOf is one that no other test has: mkfs.btrfs looks for it on all devices.
func uuidOf(t *testing.T) string {
	t.Helper()
	sum := sha256.Sum256([]byte(t.Name()))
	digits := hex.EncodeToString(sum[:])
	return digits[:8] + "-" + digits[8:12] + "-4" + digits[12:15] + "-8" + digits[15:18] + "-" + digits[18:30]
}

// device is a loop device with a new image of the size behind it.
func device(t *testing.T, size int64) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	d, err := loop.Attach(image, loop.User)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d.Path
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
}

func check(t *testing.T, fs filesystem.Type, device string) {
	t.Helper()
	switch fs {
	case filesystem.Ext4:
		run(t, "fsck.ext4", "-n", "-f", device)
	case filesystem.XFS:
		run(t, "xfs_repair", "-n", device)
	case filesystem.Btrfs:
		run(t, "btrfs", "check", device)
	}
}

func probe(t *testing.T, device string) filesystem.Found {
	t.Helper()
	found, err := filesystem.SystemTools().Probe(t.Context(), device)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestMake_SmallestSizeIsEnough(t *testing.T) {
	t.Parallel()
	for _, fs := range filesystem.Types() {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			path := device(t, fs.MinSize())
			if diff := cmp.Diff(filesystem.Found{}, probe(t, path)); diff != "" {
				t.Errorf("an empty device holds something (-want +got):\n%s", diff)
			}
			if err := filesystem.SystemTools().Make(t.Context(), fs, path, uuidOf(t), false); err != nil {
				t.Fatal(err)
			}
			check(t, fs, path)
			if diff := cmp.Diff(filesystem.Found{What: string(fs), UUID: uuidOf(t)}, probe(t, path)); diff != "" {
				t.Errorf("the device holds something else (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMake_AgainGoesOverAnUnfinishedOne(t *testing.T) {
	t.Parallel()
	for _, fs := range filesystem.Types() {
		t.Run(string(fs), func(t *testing.T) {
			t.Parallel()
			path := device(t, fs.MinSize())
			tools := filesystem.SystemTools()
			for _, again := range []bool{false, true} {
				if err := tools.Make(t.Context(), fs, path, uuidOf(t), again); err != nil {
					t.Fatal(err)
				}
			}
			check(t, fs, path)
		})
	}
}

// mkfs.xfs itself is one more guard of what is there.
func TestMake_XFSSparesWhatItFinds(t *testing.T) {
	t.Parallel()
	path := device(t, filesystem.XFS.MinSize())
	tools := filesystem.SystemTools()
	if err := tools.Make(t.Context(), filesystem.Ext4, path, uuidOf(t), false); err != nil {
		t.Fatal(err)
	}
	if err := tools.Make(t.Context(), filesystem.XFS, path, uuidOf(t), false); err == nil {
		t.Error("mkfs.xfs went over an ext4")
	}
	check(t, filesystem.Ext4, path)
}

func TestProbe_SeesWhatIsNoFileSystem(t *testing.T) {
	t.Parallel()
	path := device(t, 4<<20)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	// A DOS partition table: one partition and the signature.
	_, err = f.WriteAt([]byte{0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0}, 446)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{0x55, 0xaa}, 510)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if found := probe(t, path); !strings.Contains(found.What, "partition table") {
		t.Errorf("found %+v, want a partition table", found)
	}
}

func TestProbe_MissingDeviceIsAnErrorAndNotEmpty(t *testing.T) {
	t.Parallel()
	found, err := filesystem.SystemTools().Probe(t.Context(), filepath.Join(t.TempDir(), "missing"))
	if err == nil {
		t.Errorf("a missing device was probed: %+v", found)
	}
}

// blkid exits alike for "nothing there" and for "cannot look".
func TestProbe_ComplaintOfBlkidIsAnErrorAndNotEmpty(t *testing.T) {
	t.Parallel()
	path := device(t, 1<<20)
	for script, empty := range map[string]bool{
		"exit 2":                                 true,
		"echo error: read failed >&2; exit 2":    false,
		"exit 4":                                 false,
		"kill -9 $$":                             false,
		"echo TYPE=ext4; echo UUID=" + uuidOf(t): false,
		"exit 8":                                 false,
		"echo PTTYPE=dos; echo PTUUID=1234abcd":  false,
		"echo something; echo that; echo is new": false,
	} {
		tools := filesystem.Tools{Dirs: []string{fake(t, "blkid", script)}}
		found, err := tools.Probe(t.Context(), path)
		if got := err == nil && found == (filesystem.Found{}); got != empty {
			t.Errorf("blkid %q: %+v, %v; empty is %v, want %v", script, found, err, got, empty)
		}
	}
}

func TestReady_NamesThePackageOfAMissingProgram(t *testing.T) {
	t.Parallel()
	empty := filesystem.Tools{Dirs: []string{t.TempDir()}}
	blkidOnly := filesystem.Tools{Dirs: []string{fake(t, "blkid", "exit 0")}}
	for _, c := range []struct {
		tools filesystem.Tools
		fs    filesystem.Type
		want  filesystem.MissingError
	}{
		{empty, filesystem.Ext4, filesystem.MissingError{Program: "blkid", Package: "util-linux"}},
		{blkidOnly, filesystem.Ext4, filesystem.MissingError{Program: "mkfs.ext4", Package: "e2fsprogs"}},
		{blkidOnly, filesystem.XFS, filesystem.MissingError{Program: "mkfs.xfs", Package: "xfsprogs"}},
	} {
		var missing *filesystem.MissingError
		if err := c.tools.Ready(c.fs); !errors.As(err, &missing) {
			t.Fatalf("Ready: %v, want a *MissingError", err)
		}
		if diff := cmp.Diff(c.want, *missing); diff != "" {
			t.Errorf("missing (-want +got):\n%s", diff)
		}
		if !strings.Contains(missing.Error(), "apt-get install "+c.want.Package) {
			t.Errorf("%q does not say how to mend it", missing)
		}
	}
	if err := filesystem.SystemTools().Ready(filesystem.Ext4); err != nil {
		t.Errorf("this machine's own programs: %v", err)
	}
}

// fake makes a program and returns its directory.
func fake(t *testing.T, name, script string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, "#!/bin/sh\n%s\n", script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMake_FailureCarriesTheComplaint(t *testing.T) {
	t.Parallel()
	tools := filesystem.Tools{Dirs: []string{fake(t, "mkfs.ext4", "echo device is on fire >&2; echo usage >&2; exit 3")}}
	err := tools.Make(t.Context(), filesystem.Ext4, "/dev/none", uuidOf(t), false)
	if err == nil || !strings.Contains(err.Error(), "device is on fire") || strings.Contains(err.Error(), "usage") {
		t.Errorf("error is %v, want the first line of the complaint", err)
	}
}

// What the machine remembers of devices may be of an image that was there before:
// mkfs.btrfs then takes the volume's own UUID for another's.
func TestMake_DoesNotBelieveTheCacheOfDevices(t *testing.T) {
	t.Parallel()
	tools := filesystem.Tools{Dirs: []string{fake(t, "mkfs.btrfs", "echo cache $BLKID_FILE >&2; exit 3")}}
	err := tools.Make(t.Context(), filesystem.Btrfs, "/dev/none", uuidOf(t), false)
	if err == nil || !strings.Contains(err.Error(), "cache /dev/null") {
		t.Errorf("error is %v, want no cache", err)
	}
}

func TestMake_CancelEndsTheProgram(t *testing.T) {
	t.Parallel()
	tools := filesystem.Tools{Dirs: []string{fake(t, "mkfs.ext4", "exec sleep 1000")}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- tools.Make(ctx, filesystem.Ext4, "/dev/none", uuidOf(t), false) }()
	cancel()
	if err := <-ended; err == nil {
		t.Error("a cancelled mkfs succeeded")
	}
}
