package localdriver_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/localdriver"
)

// cutPower ends the machine in this moment. What was not synced is lost, mounts and
// loop devices are gone, and the file system of the rig's disk comes back as its
// journal has it. The driver must not run.
func (r *rig) cutPower() {
	r.t.Helper()
	r.shutdown()
	r.wipe()
	waitFor(r.t, "the disk to be let go of", func() bool { return !errors.Is(unix.Unmount(r.disk, 0), unix.EBUSY) })
	waitFor(r.t, "the kernel to detach the disk", func() bool { return len(r.loops("disk.img")) == 0 })
	command(r.t, "mount", "-o", "loop", r.path("disk.img"), r.disk)
	r.reboot()
}

// shutdown has the file system of the disk write nothing any more, not even its
// journal (FS_IOC_SHUTDOWN with NOLOGFLUSH).
func (r *rig) shutdown() {
	r.t.Helper()
	f, err := os.Open(r.disk)
	if err != nil {
		r.t.Fatal(err)
	}
	defer letGo()
	defer f.Close()
	const fsIOCShutdown, noLogFlush = 0x8004587d, 2
	how := uint32(noLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIOCShutdown, uintptr(unsafe.Pointer(&how))); errno != 0 {
		r.t.Fatalf("shut down %s: %v", r.disk, errno)
	}
}

// cutShort is a driver of the next boot, which is killed when it comes to the step:
// while it settles what it finds, or in a call from number on. It answers the call
// that saw it, or that none did.
func (l *life) cutShort(step string, number int) (_ int, killed bool) {
	l.r.t.Helper()
	child := l.r.exec(step)
	if !l.r.listens(child) {
		l.r.awaitKilled(child)
		return number, true
	}
	return l.killedBy(child, number)
}

// listens waits until a driver that was spawned listens, and reports false if it
// ended before.
func (r *rig) listens(child *exec.Cmd) bool {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.NewTimer(deadline)
	defer timeout.Stop()
	for {
		if conn, err := net.Dial("unix", r.sock); err == nil {
			conn.Close()
			r.speak()
			return true
		}
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, child.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if err == nil && info.Signo != 0 {
			return false
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			r.t.Fatalf("the driver did not listen within %s", deadline)
		}
	}
}

// TestPowerIsCutAtEveryStep cuts the power at every step of a volume's life, and
// kills the driver of the next boot where it comes to that step again. What was
// answered is still true then, what was cut off can be repeated, and the life goes
// on to its end.
func TestPowerIsCutAtEveryStep(t *testing.T) {
	t.Parallel()
	kinds := []kind{directory, ext4, device}
	if testing.Short() {
		kinds = []kind{ext4}
	}
	for _, k := range kinds {
		k.disk = "ext4"
		for _, step := range localdriver.Steps() {
			if !passes(k, step) {
				continue
			}
			t.Run(k.name+"/"+strings.ReplaceAll(step, ": ", "_"), func(t *testing.T) {
				t.Parallel()
				l := newLife(newRigOn(t, k.disk), k)
				l.synced = true
				number := l.untilKilled(step)
				l.r.cutPower()
				number, killed := l.cutShort(step, l.stagedBefore(number))
				if !killed {
					return // it made all calls
				}
				stop := l.r.start()
				l.from(number)
				stop()
			})
		}
	}
}

// sync has a workload's file survive a power cut.
func (l *life) sync(dir, name string) {
	t := l.r.t
	t.Helper()
	for _, path := range []string{filepath.Join(dir, name), dir} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	letGo()
}
