package localdriver_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/internal/localdriver/filesystem"
)

func TestStage_NeverFormatsOverWhatItFinds(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(t *testing.T, image string){
		"SameType":  func(t *testing.T, image string) { command(t, "mkfs.ext4", "-q", "-F", image) },
		"OtherType": func(t *testing.T, image string) { command(t, "mkfs.ext3", "-q", "-F", image) },
		"Swap":      func(t *testing.T, image string) { command(t, "mkswap", image) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			id := r.create(ext4, "pg")
			image := r.content(id, ext4)
			put(t, image)
			before := readAll(t, image)
			err := r.stage(id, r.staging("pg"), capability(writer, "ext4"))
			must(t, "stage", err, codes.FailedPrecondition)
			has(t, err, image, "not formatted over")
			if readAll(t, image) != before {
				t.Error("the image was changed")
			}
			must(t, "delete", r.remove(id), codes.OK)
		})
	}
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestStage_NeverFormatsAVolumeTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	id, staging := r.create(ext4, "pg"), r.staging("pg")
	must(t, "stage", r.stage(id, staging, capability(writer, "ext4")), codes.OK)
	must(t, "unstage", r.unstage(id, staging), codes.OK)
	// A disaster has taken the superblock; somebody may still rescue the rest.
	image := r.content(id, ext4)
	f, err := os.OpenFile(image, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(make([]byte, 8192), 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	before := readAll(t, image)
	must(t, "stage", r.stage(id, staging, capability(writer, "ext4")), codes.Internal)
	if readAll(t, image) != before {
		t.Error("the image was changed")
	}
	must(t, "delete", r.remove(id), codes.OK)
}

// mkfs was cut off after it wrote the superblock and before all the rest.
func TestStage_FinishesAnInterruptedMkfs(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{ext4, xfs, btrfs} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			l := newLife(r, k)
			l.untilKilled("stage: formatted")
			if leaks := r.left(); len(leaks) > 0 {
				t.Errorf("the killed driver left %v", leaks)
			}
			image := r.content(l.id, k)
			f, err := os.OpenFile(image, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt(make([]byte, 1<<20), 1<<16)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			if err := exec.Command("fsck."+k.fsType, "-n", "-f", image).Run(); k == ext4 && err == nil {
				t.Fatal("the file system is sound, the test tests nothing")
			}
			r.start()
			l.succeed(l.calls[l.number("stage")])
			must(t, "unstage", r.unstage(l.id, l.staging), codes.OK)
			fsck(t, image, k)
			must(t, "delete", r.remove(l.id), codes.OK)
		})
	}
}

func TestStage_MkfsDiesWithTheDriver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tools, pidFile := r.path("tools"), r.path("pid")
	if err := os.Mkdir(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho $$ > " + pidFile + ".new; mv " + pidFile + ".new " + pidFile + "\nexec sleep 1000\n"
	if err := os.WriteFile(filepath.Join(tools, "mkfs.ext4"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	child := r.spawn("", "PATH="+tools+":"+os.Getenv("PATH"))
	id, staging := r.create(ext4, "pg"), r.staging("pg")
	staged := make(chan error)
	go func() { staged <- r.stage(id, staging, capability(writer, "ext4")) }()
	var pid int
	waitFor(t, "mkfs to start", func() bool {
		data, err := os.ReadFile(pidFile)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
		return err == nil
	})
	r.kill(child)
	must(t, "stage", <-staged, codes.Unavailable)
	waitFor(t, "mkfs to end", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	r.start()
	must(t, "stage", r.stage(id, staging, capability(writer, "ext4")), codes.OK)
	r.tearDown(id, staging)
}

func TestStage_FailedMkfsLeavesNothingStaged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tools := r.path("tools")
	if err := os.Mkdir(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\necho the disk is on fire >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(tools, "mkfs.ext4"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	d := r.driver()
	system := filesystem.SystemTools()
	d.SetTools(filesystem.Tools{Dirs: append([]string{tools}, system.Dirs...)})
	r.run(d)
	id := r.create(ext4, "pg")
	err := r.stage(id, r.staging("pg"), capability(writer, "ext4"))
	must(t, "stage", err, codes.Internal)
	has(t, err, id, "mkfs.ext4", "the disk is on fire")
	if leaks := r.left(); len(leaks) > 0 {
		t.Errorf("left behind: %v", leaks)
	}
	must(t, "delete", r.remove(id), codes.OK)
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// fsck reports whether an image that is not attached holds a sound file system.
func fsck(t *testing.T, image string, k kind) {
	t.Helper()
	switch k.fsType {
	case "xfs":
		command(t, "xfs_repair", "-n", "-f", image)
	case "btrfs":
		command(t, "btrfs", "check", image)
	default:
		command(t, "fsck.ext4", "-n", "-f", image)
	}
}
