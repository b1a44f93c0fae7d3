package driver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/agent/driver"
)

func TestMountsBelowSystemDirsAreShownReadOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	system := filepath.Join(w.root, "system")
	below := filepath.Join(system, "below")
	if err := os.MkdirAll(below, 0o755); err != nil {
		t.Fatal(err)
	}
	mount(t, "tmpfs", below, "tmpfs", 0)
	write(t, filepath.Join(below, "file"), "content\n")
	w.config.SystemDirs = append(driver.DefaultSystemDirs(), system, filepath.Join(w.root, "no-such-dir"))
	spec := w.spec("sh", "-c", `cat "$0/file"; (echo > "$0/file") 2>/dev/null && echo written; true`, below)
	spec.Task.User = "root"
	if diff := cmp.Diff([]string{"content"}, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestVolumeMayHoldSystemDir(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	system := filepath.Join(w.root, "opt", "tools")
	if err := os.MkdirAll(system, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(system, "tool"), "")
	w.config.SystemDirs = append(driver.DefaultSystemDirs(), system)
	vol := w.volume("v")
	write(t, filepath.Join(vol, "mine"), "")
	spec := w.spec("ls", filepath.Dir(system), system)
	spec.Mounts = []driver.Mount{{Source: vol, Destination: filepath.Dir(system)}}
	want := []string{filepath.Dir(system) + ":", "mine", "tools", "", system + ":", "tool"}
	if diff := cmp.Diff(want, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// onMachine runs tests of this package in a mount namespace that a script has
// made into another kind of machine.
func onMachine(t *testing.T, script, tests string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script = "set -e\n" + script + "\n" + `exec "$0" -test.run="^($1)$" -test.v`
	cmd := exec.Command("unshare", "--mount", "sh", "-c", script, self, tests)
	cmd.Env = append(os.Environ(), otherMachine+"=1")
	out, err := cmd.CombinedOutput()
	for test := range strings.SplitSeq(tests, "|") {
		if err != nil || !strings.Contains(string(out), "--- PASS: "+test+" ") {
			t.Errorf("on the other machine, %s: %v\n%s", test, err, out)
		}
	}
}

// otherMachine is set in the environment of tests that onMachine runs.
const otherMachine = "BERTH_TEST_OTHER_MACHINE"

// TestOnUnifiedCgroups runs what rests on cgroups where there is version 2 only.
func TestOnUnifiedCgroups(t *testing.T) {
	t.Parallel()
	onMachine(t, `umount --recursive /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup`,
		"TestFingerprint|TestTaskLifecycle|TestStopKillsDaemonsOfTask|TestTaskDiesWithItsSupervisor|"+
			"TestSupervisorLeavesTheAgentsCgroup|TestHungSupervisorIsDestroyed|TestLostRunDirectoryLeaksNothing|"+
			"TestExecCannotChangeTheMachine|TestBlockDeviceVolumeIsUsable")
}

// TestOnSharedMounts runs what mounts where systemd has made all mounts shared,
// and where /run is a file system that nothing can be executed from.
func TestOnSharedMounts(t *testing.T) {
	t.Parallel()
	onMachine(t, `mount -t tmpfs -o nosuid,nodev,noexec none /run; mount --make-rshared /; export TMPDIR=/run`,
		"TestVolumesNestInAnyOrder|TestMountsDoNotCrossTheTasksBorder|TestExecHasTheUsualFiles|TestExecSeesNoMountsOfTheHost")
}

// TestOnResolvedMachine runs TestResolverOutsideOfEtc where /etc/resolv.conf is
// a link to /run, as systemd-resolved makes it.
func TestOnResolvedMachine(t *testing.T) {
	t.Parallel()
	onMachine(t, `
		mount -t tmpfs none /mnt
		cp /etc/passwd /etc/group /mnt
		ln -s ../run/resolve/stub.conf /mnt/resolv.conf
		mount --bind /mnt /etc
		mount -t tmpfs none /run
		mkdir /run/resolve
		echo nameserver 127.0.0.53 > /run/resolve/stub.conf`, "TestResolverOutsideOfEtc")
}

func TestResolverOutsideOfEtc(t *testing.T) {
	t.Parallel()
	if os.Getenv(otherMachine) == "" {
		return // TestOnResolvedMachine runs it
	}
	w := newWorld(t)
	spec := w.script("cat /etc/resolv.conf; ls /run /run/resolve; (echo > /etc/resolv.conf) 2>/dev/null && echo written; true")
	spec.Task.User = "root"
	want := []string{"nameserver 127.0.0.53", "/run:", "resolve", "", "/run/resolve:", "stub.conf"}
	if diff := cmp.Diff(want, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
