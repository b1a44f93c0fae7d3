package localdriver_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-dev/berth/internal/localdriver"
	"github.com/berth-dev/berth/internal/localdriver/loop"
	"github.com/berth-dev/berth/internal/localdriver/mount"
)

const nodeID = "db-1-9f31c2aa"

// deadline bounds every wait for a process or a call.
const deadline = 30 * time.Second

// rig is a place for one driver, and the orchestrator's side of it.
type rig struct {
	t    *testing.T
	dir  string
	root string
	sock string
	// disk is where the file system is mounted that holds the root; empty for
	// the machine's own.
	disk string

	csi.IdentityClient
	csi.ControllerClient
	csi.NodeClient
}

// newRig makes a place. When the test is over, whatever is still mounted or
// attached there is an error.
func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigIn(t, "")
}

// newRigIn makes a place below a directory; none is the one for what is temporary.
func newRigIn(t *testing.T, parent string) *rig {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "ld") // short, for the socket's sake
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, dir: dir, root: filepath.Join(dir, "root"), sock: filepath.Join(dir, "csi.sock")}
	t.Cleanup(func() {
		for _, leak := range r.leaks() {
			t.Errorf("left behind: %s", leak)
		}
		r.wipe()
		if r.disk != "" {
			command(t, "umount", r.disk)
			waitFor(t, "the kernel to detach the disk", func() bool { return len(r.loops("disk.img")) == 0 })
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Mkdir(r.path("pods"), 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

// newRigOn makes a place whose root is on a file system of its own.
func newRigOn(t *testing.T, fsType string) *rig {
	t.Helper()
	r := newRig(t)
	if fsType == "" {
		return r
	}
	image := r.path("disk.img")
	write(t, image, "")
	if err := os.Truncate(image, 2<<30); err != nil {
		t.Fatal(err)
	}
	r.disk = r.path("disk")
	if err := os.Mkdir(r.disk, 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, "mkfs."+fsType, "-q", image)
	command(t, "mount", "-o", "loop", image, r.disk)
	r.root = filepath.Join(r.disk, "root")
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

// target is a path whose parent exists and that does not.
func (r *rig) target(name string) string { return filepath.Join(r.dir, "pods", name) }

// staging is a directory that exists.
func (r *rig) staging(name string) string {
	r.t.Helper()
	path := r.path("staging-" + name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// leaks lists the mounts and the loop devices of this place.
func (r *rig) leaks() []string {
	r.t.Helper()
	table, err := mount.Read()
	if err != nil {
		r.t.Fatal(err)
	}
	var leaks []string
	for _, point := range table.Below(r.dir) {
		if point != r.disk {
			leaks = append(leaks, "mount "+point)
		}
	}
	for _, backing := range r.loops("") {
		if filepath.Base(backing) != "disk.img" {
			leaks = append(leaks, "loop "+backing)
		}
	}
	return leaks
}

// left is leaks, when nothing has become of them for a while: a program that is
// just being started, by a test beside this one too, has inherited what was open,
// and the kernel detaches an image when the last one has let go of it.
func (r *rig) left() []string {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.NewTimer(deadline)
	defer timeout.Stop()
	for {
		leaks := r.leaks()
		if len(leaks) == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			return leaks
		}
	}
}

// loops are the files in this place that are on loop devices, as the kernel
// names them, if name is part of it.
func (r *rig) loops(name string) []string {
	r.t.Helper()
	attached, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		r.t.Fatal(err)
	}
	var found []string
	for _, entry := range attached {
		backing, err := os.ReadFile(entry)
		file := strings.TrimSpace(string(backing))
		// A file on a mounted disk is named from the top of that disk.
		ours := strings.HasPrefix(file, r.dir+"/") || r.disk != "" && strings.HasPrefix(file, "/root/") && r.has(file)
		if err == nil && ours && strings.Contains(file, name) {
			found = append(found, file)
		}
	}
	return found
}

// has reports whether a volume of this place has the image.
func (r *rig) has(image string) bool {
	_, err := os.Lstat(filepath.Join(r.disk, image))
	return err == nil
}

// wipe takes from the kernel what it takes by itself in a reboot.
func (r *rig) wipe() {
	r.t.Helper()
	for range 16 { // some are mounted over each other
		table, err := mount.Read()
		if err != nil {
			r.t.Fatal(err)
		}
		points := slices.DeleteFunc(table.Below(r.dir), func(point string) bool { return point == r.disk })
		if len(points) == 0 {
			break
		}
		for _, point := range points {
			if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
				r.t.Errorf("unmount %s: %v", point, err)
			}
		}
	}
	// Block volumes are on devices that nobody holds.
	for _, image := range r.loops("image") {
		if !strings.HasPrefix(image, r.dir) {
			image = filepath.Join(r.disk, image)
		}
		if err := loop.Release(context.Background(), image); err != nil {
			r.t.Error(err)
		}
	}
	waitFor(r.t, "the kernel to detach the images", func() bool { return len(r.leaks()) == 0 })
}

// driver returns a driver for this place that does not run yet.
func (r *rig) driver() *localdriver.Driver {
	r.t.Helper()
	var log bytes.Buffer
	d, err := localdriver.New(config(r.root, r.sock), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("the driver's log:\n%s", log.String())
		}
	})
	return d
}

// run runs the driver in this process and connects to it. stop returns when
// Run has.
func (r *rig) run(d *localdriver.Driver) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("run: %v", err)
		}
	}
	r.t.Cleanup(stop)
	r.connect()
	return stop
}

// start runs a driver of the usual kind.
func (r *rig) start() (stop func()) {
	r.t.Helper()
	return r.run(r.driver())
}

// spawn runs the driver in a process of its own, which kills itself at the
// step, and connects to it. env is added to its environment.
func (r *rig) spawn(crashAt string, env ...string) *exec.Cmd {
	r.t.Helper()
	cmd := r.exec(crashAt, env...)
	r.connect()
	return cmd
}

// exec is spawn, and waits for nothing.
func (r *rig) exec(crashAt string, env ...string) *exec.Cmd {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childRoot+"="+r.root, childSock+"="+r.sock, childCrash+"="+crashAt)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			r.kill(cmd)
		}
	})
	return cmd
}

// kill ends a spawned driver as an operator in a hurry does.
func (r *rig) kill(cmd *exec.Cmd) {
	r.t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		r.t.Error(err)
	}
	r.awaitKilled(cmd)
}

// awaitKilled waits for a spawned driver that has killed itself.
func (r *rig) awaitKilled(cmd *exec.Cmd) {
	r.t.Helper()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		r.t.Fatalf("the driver ended with %v, want it killed", err)
	}
}

// connect waits until a driver listens, and speaks to it from then on.
func (r *rig) connect() {
	r.t.Helper()
	waitFor(r.t, "the driver's socket", func() bool {
		conn, err := net.Dial("unix", r.sock)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	r.speak()
}

// speak makes clients of the driver, which may have ended by now.
func (r *rig) speak() {
	r.t.Helper()
	conn, err := grpc.NewClient("unix://"+r.sock, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	r.IdentityClient = csi.NewIdentityClient(conn)
	r.ControllerClient = csi.NewControllerClient(conn)
	r.NodeClient = csi.NewNodeClient(conn)
}

// waitFor polls a condition that another process brings about.
func waitFor(t *testing.T, what string, met func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.NewTimer(deadline)
	defer timeout.Stop()
	for !met() {
		select {
		case <-tick.C:
		case <-timeout.C:
			t.Fatalf("waited %s in vain for %s", deadline, what)
		}
	}
}

// listed are the ids of ListVolumes.
func (r *rig) listed() []string {
	r.t.Helper()
	response, err := r.ListVolumes(r.t.Context(), &csi.ListVolumesRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	var ids []string
	for _, e := range response.GetEntries() {
		ids = append(ids, e.GetVolume().GetVolumeId())
	}
	return ids
}

// reboot takes mounts and devices away, and makes the records those of an
// earlier boot. The driver must not run.
func (r *rig) reboot() {
	r.t.Helper()
	r.wipe()
	records, err := filepath.Glob(filepath.Join(r.root, "records", "*.json"))
	if err != nil {
		r.t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, path := range records {
		data, err := os.ReadFile(path)
		if err != nil {
			r.t.Fatal(err)
		}
		data = bytes.ReplaceAll(data, bytes.TrimSpace(boot), []byte("an earlier one"))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}
