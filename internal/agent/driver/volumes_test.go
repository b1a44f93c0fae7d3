package driver_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// mount mounts on the host until the test ends.
func mount(t *testing.T, source, target, kind string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, ""); err != nil {
		t.Fatalf("mount %s: %v", target, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, 0); err != nil {
			t.Errorf("unmount %s: %v", target, err)
		}
	})
}

func TestVolumesAreBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	writable, readOnly := w.volume("writable"), w.volume("read-only")
	write(t, filepath.Join(writable, "in"), "w\n")
	write(t, filepath.Join(readOnly, "in"), "r\n")
	spec := w.script(`cat /data/in /srv/deep/in; echo out > /data/out
		(echo out > /srv/deep/out) 2>/dev/null && echo read-only volume was written; true`)
	spec.Mounts = []driver.Mount{
		{Source: writable, Destination: "/data"},
		{Source: readOnly, Destination: "/srv/deep/", ReadOnly: true},
	}
	if diff := cmp.Diff([]string{"w", "r"}, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	if b, err := os.ReadFile(filepath.Join(writable, "out")); string(b) != "out\n" {
		t.Errorf("the volume holds %q, %v", b, err)
	}
}

func TestVolumesNestInAnyOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	data, wal := w.volume("data"), w.volume("wal")
	if err := os.MkdirAll(filepath.Join(data, "there", "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	mounts := []driver.Mount{
		{Source: wal, Destination: "/data/wal"},
		{Source: data, Destination: "/data"},
		{Source: wal, Destination: "/data/there/deep", ReadOnly: true},
		{Source: wal, Destination: "/local/wal"},
	}
	for range mounts {
		mounts = append(mounts[1:], mounts[0])
		spec := w.script(`echo x > /data/wal/f && cat /data/wal/f /data/there/deep/f /local/wal/f && ls /data`)
		spec.Mounts = mounts
		if diff := cmp.Diff([]string{"x", "x", "x", "there", "wal"}, lines(t, w.exec(), spec)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", mounts, diff)
		}
	}
	if _, err := os.Stat(filepath.Join(data, "wal", "f")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what belongs to the inner volume is in the outer one: %v", err)
	}
}

func TestBadDestinationsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	readOnly := w.volume("read-only")
	write(t, filepath.Join(readOnly, "file"), "x")
	if err := os.Symlink("/etc", filepath.Join(readOnly, "link")); err != nil {
		t.Fatal(err)
	}
	base := driver.Mount{Source: readOnly, Destination: "/ro", ReadOnly: true}
	tests := map[string]string{
		"":                   `is ".", which is not an absolute path`,
		"data":               `is "data", which is not an absolute path`,
		"/":                  "is the root of the task",
		"/a/../..":           "is the root of the task",
		"/proc":              "is /proc, and /proc is the kernel's",
		"/proc/sys/x":        "is /proc/sys/x, and /proc is the kernel's",
		"/dev/shm":           "is /dev/shm, and /dev is the kernel's",
		"/x/../sys":          "is /sys, and /sys is the kernel's",
		"/usr":               "is /usr, and would hide the machine's programs there",
		"/bin":               "is /bin, and would hide the machine's programs there",
		"/tmp":               "is /tmp, and would hide the task's own directory",
		"/secrets/":          "is /secrets, and would hide the task's own directory",
		"/usr/no-such-place": "is /usr/no-such-place, which does not exist, and /usr is read only",
		"/bin/no-such-place": "is /bin/no-such-place, which does not exist, and /usr is read only",
		"/etc/hosts":         "is /etc/hosts, which is no directory",
		"/ro":                "is /ro, and so is another's",
		"/ro/missing":        "is /ro/missing, which does not exist, and /ro is read only",
		"/ro/file":           "is /ro/file, which is no directory",
		"/ro/link":           "is /ro/link, which is no directory",
	}
	for destination, want := range tests {
		spec := w.spec("true")
		spec.Mounts = []driver.Mount{base, {Source: w.volume("v"), Destination: destination}}
		err := w.exec().Start(ctx(t), spec)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeInvalid || len(e.Fields) != 1 {
			t.Errorf("%q is answered with %v", destination, err)
			continue
		}
		got := e.Fields[0]
		if got.Path != "volume_mount[1].destination" && got.Path != "volume_mount[0].destination" {
			t.Errorf("%q: the field is %q", destination, got.Path)
		}
		if got.Message != want || got.Mend == "" {
			t.Errorf("%q is refused with %q, not %q; mend %q", destination, got.Message, want, got.Mend)
		}
		if left := w.runDirs(); len(left) > 0 {
			t.Errorf("%q: something was started: %q", destination, left)
		}
	}
}

func TestVolumeMayCoverExistingSystemDirectory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	vol := w.volume("v")
	write(t, filepath.Join(vol, "mine"), "x")
	spec := w.script("ls /bin/../share/doc; ls /etc/apt")
	spec.Mounts = []driver.Mount{
		{Source: vol, Destination: "/usr/share/doc"},
		{Source: vol, Destination: "/etc/apt"},
	}
	if diff := cmp.Diff([]string{"mine", "mine"}, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRestrictionsOfVolumesMountAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	vol := w.volume("v")
	// As a CSI driver would publish it: read only and noexec, whatever the
	// task's mount says.
	mount(t, "tmpfs", vol, "tmpfs", unix.MS_NOEXEC)
	write(t, filepath.Join(vol, "script"), "#!/bin/sh\n")
	mount(t, vol, vol, "", unix.MS_BIND)
	if err := unix.Mount("", vol, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOEXEC, ""); err != nil {
		t.Fatal(err)
	}
	spec := w.script(`(echo > /data/x) 2>/dev/null && echo written; grep ' /data ' /proc/self/mountinfo | cut -d' ' -f6`)
	spec.Mounts = []driver.Mount{{Source: vol, Destination: "/data"}}
	got := lines(t, w.exec(), spec)
	if want := []string{"ro,nosuid,nodev,noexec,relatime"}; !cmp.Equal(want, got) {
		t.Errorf("the volume is mounted %q, not %q", got, want)
	}
}

func TestMountsDoNotCrossTheTasksBorder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	vol := w.volume("v")
	mount(t, vol, vol, "", unix.MS_BIND)
	if err := unix.Mount("", vol, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(vol, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := w.script(`echo ready; while [ ! -e /local/go ]; do sleep 0.02; done
		grep -c ' /data' /proc/self/mountinfo; grep -c -E 'shared:|master:' /proc/self/mountinfo`)
	spec.Mounts = []driver.Mount{{Source: vol, Destination: "/data"}}
	d := w.exec()
	start(t, d, spec)
	said(t, spec, "ready")
	// Mounted later on the host, on a shared mount: the task must not see it,
	// and so cannot keep it busy.
	mount(t, "tmpfs", inner, "tmpfs", 0)
	write(t, filepath.Join(spec.Dir, "local", "go"), "")
	wait(t, d, spec)
	if got, want := output(t, spec, "stdout"), "ready\n1\n0\n"; got != want {
		t.Errorf("the task says %q, not %q", got, want)
	}
}

func TestBlockDeviceVolumeIsUsable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	device, other := w.loopDevice("mine"), w.loopDevice("other")
	spec := w.script(`head -c 5 /data/disk; echo; (echo hello | dd of=/data/disk conv=fsync) 2>/dev/null; head -c 5 /data/disk; echo
		head -c 5 /data/frozen; echo; (echo no | dd of=/data/frozen) 2>/dev/null && echo written; true`)
	spec.Task.User = "root"
	spec.Mounts = []driver.Mount{
		{Source: device, Destination: "/data/disk"},
		{Source: other, Destination: "/data/frozen", ReadOnly: true},
	}
	if diff := cmp.Diff([]string{"mine_", "hello", "other"}, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("block devices (-want +got):\n%s", diff)
	}
}

// TestBlockDeviceIsTheTasksUsers: databases that bring their own file system do
// not run as root, and look for it among the devices.
func TestBlockDeviceIsTheTasksUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	device, frozen := w.loopDevice("mine"), w.loopDevice("other")
	before := w.owner(device)
	spec := w.script(`for d in /dev/data /disks/a/data; do
			head -c 5 $d; echo; (echo hello | dd of=$d conv=fsync) 2>/dev/null; head -c 5 $d; echo; (echo mine_ | dd of=$d conv=fsync) 2>/dev/null
		done
		head -c 5 /dev/frozen; echo; (echo no | dd of=/dev/frozen) 2>/dev/null && echo written
		ls /disks/a; stat -c '%u:%g %a %F' /dev/data /dev/frozen /disks/a/data`)
	spec.Task.User = "1234:5678"
	spec.Mounts = []driver.Mount{
		{Source: device, Destination: "/dev/data"},
		{Source: device, Destination: "/disks/a/data"},
		{Source: w.volume("v"), Destination: "/disks/b"},
		{Source: frozen, Destination: "/dev/frozen", ReadOnly: true},
	}
	want := []string{
		"mine_", "hello", "mine_", "hello", "other", "data",
		"1234:5678 600 block special file", "1234:5678 400 block special file", "1234:5678 600 block special file",
	}
	if diff := cmp.Diff(want, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("block devices (-want +got):\n%s", diff)
	}
	if after := w.owner(device); after != before {
		t.Errorf("the host's device was %s and is %s", before, after)
	}
}

// TestRootReadsOnlyWhatIsReadOnly: permissions keep nothing from root.
func TestRootReadsOnlyWhatIsReadOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := w.script(`head -c 5 /dev/frozen; echo; (echo no | dd of=/dev/frozen) 2>/dev/null && echo written; true`)
	spec.Task.User = "root"
	spec.Mounts = []driver.Mount{{Source: w.loopDevice("other"), Destination: "/dev/frozen", ReadOnly: true}}
	if diff := cmp.Diff([]string{"other"}, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("block device (-want +got):\n%s", diff)
	}
}

// TestDevicesAreForBlockDevices, and those of a privileged task are the host's.
func TestDevicesAreForBlockDevices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, test := range map[string]struct {
		mount      driver.Mount
		privileged bool
	}{
		"Directory":  {driver.Mount{Source: w.volume("v"), Destination: "/dev/data"}, false},
		"Privileged": {driver.Mount{Source: w.loopDevice("mine"), Destination: "/dev/data"}, true},
	} {
		spec := w.spec("true")
		spec.Task.Config["privileged"] = test.privileged
		spec.Mounts = []driver.Mount{test.mount}
		if err := w.exec().Start(ctx(t), spec); err == nil || !strings.Contains(err.Error(), "is /dev/data, and /dev is the kernel's") {
			t.Errorf("%s: start says %v", name, err)
		}
	}
}

// owner says whose a file is.
func (w *world) owner(path string) string {
	w.t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode)
}

// loopDevice makes a block device whose content begins with text.
func (w *world) loopDevice(text string) string {
	w.t.Helper()
	file := filepath.Join(w.root, text+".img")
	write(w.t, file, text+strings.Repeat("_", 1<<16-len(text)))
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	if err != nil {
		w.t.Fatalf("losetup: %v", err)
	}
	device := string(bytes.TrimSpace(out))
	w.t.Cleanup(func() {
		if err := exec.Command("losetup", "--detach", device).Run(); err != nil {
			w.t.Errorf("detach %s: %v", device, err)
		}
	})
	return device
}

func TestMissingVolumeFailsStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := w.spec("true")
	spec.Mounts = []driver.Mount{{Source: filepath.Join(w.root, "gone"), Destination: "/data"}}
	err := w.exec().Start(ctx(t), spec)
	if want := fmt.Sprintf("look at %s: no such file or directory", spec.Mounts[0].Source); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("start says %v, not %q", err, want)
	}
}

func TestRawExecRefusesVolumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := w.spec("true")
	spec.Mounts = []driver.Mount{{Source: w.volume("v"), Destination: "/data"}}
	err := w.rawExec().Start(ctx(t), spec)
	var e *api.Error
	want := &api.Error{
		Code:    api.CodeInvalid,
		Message: `driver raw_exec cannot mount volumes: it runs the command directly on the host; use driver "exec"`,
	}
	if errors.As(err, &e); !cmp.Equal(want, e) {
		t.Errorf("start says %v", err)
	}
	if left := w.runDirs(); len(left) > 0 {
		t.Errorf("something was started: %q", left)
	}
}

// TestNewVolumeIsTheTasksToWrite: a new file system belongs to root, and a
// database under its own user could not write to it.
func TestNewVolumeIsTheTasksToWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := func(name string, entries ...string) string {
		dir := w.volume(name)
		for _, e := range entries {
			if err := os.Mkdir(filepath.Join(dir, e), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.Chown(dir, 0, 0), os.Chmod(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	empty, made, used, shown := root("empty"), root("made", "lost+found"), root("used", "base"), root("shown")
	spec := w.script("for d in empty made used shown; do touch /$d/x 2>/dev/null && echo $d; done; true")
	spec.Task.User = "1234:5678"
	spec.Mounts = []driver.Mount{
		{Source: empty, Destination: "/empty"}, {Source: made, Destination: "/made"},
		{Source: used, Destination: "/used"}, {Source: shown, Destination: "/shown", ReadOnly: true},
	}
	if diff := cmp.Diff([]string{"empty", "made"}, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("volumes that the task could write to (-want +got):\n%s", diff)
	}
	for dir, want := range map[string]uint32{empty: 1234, made: 1234, used: 0, shown: 0} {
		var stat unix.Stat_t
		if err := unix.Stat(dir, &stat); err != nil {
			t.Fatal(err)
		}
		if stat.Uid != want {
			t.Errorf("%s belongs to uid %d, want %d", filepath.Base(dir), stat.Uid, want)
		}
	}
}

// A task is in the groups of its volumes, and in none for it that is not its own
// otherwise. A new volume gets the task's user, and keeps its group.
func TestTaskIsInItsVolumesGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.volume("one"), w.volume("two")
	if err := errors.Join(os.Chown(one, 0, 4711), os.Chmod(one, 0o2775)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(two, 33, 4712); err != nil {
		t.Fatal(err)
	}
	spec := w.script(`echo "$(id -u):$(id -g):$(id -G)"; stat -c '%u %g' /one /two`)
	spec.Task.User = "12345"
	spec.Mounts = []driver.Mount{
		{Source: one, Destination: "/one", Group: 4711}, {Source: two, Destination: "/two", Group: 4712}, {Source: two, Destination: "/again", Group: 4712},
	}
	if diff := cmp.Diff([]string{"12345:12345:12345 4711 4712", "12345 4711", "33 4712"}, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("user and owners (-want +got):\n%s", diff)
	}
}
