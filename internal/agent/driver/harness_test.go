package driver_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

// TestMain lets the test binary play an agent that can be killed. The supervisor
// and the process that becomes an isolated task it is by itself.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "agent" {
		fmt.Println(playAgent(os.Args[2]))
		select {} // until it is killed
	}
	os.Exit(m.Run())
}

// world is a machine of its own for one test: a run directory, a cgroup, and
// task directories. It fails the test if anything is left at the end.
type world struct {
	t      testing.TB
	root   string
	config driver.Config
	ids    []string
	serial int
}

var worlds atomic.Int64

func newWorld(t testing.TB) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("these tests mount, and change users: run them as root")
	}
	root, err := os.MkdirTemp("", "berth-driver")
	if err != nil {
		t.Fatal(err)
	}
	// Tasks of other users must reach their directories.
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, root: root, config: driver.Config{
		RunDir:       filepath.Join(root, "run"),
		CgroupParent: fmt.Sprintf("berth-test-%d-%d", os.Getpid(), worlds.Add(1)),
	}}
	t.Cleanup(w.end)
	return w
}

// end destroys every task and looks for remains.
func (w *world) end() {
	t := w.t
	for _, id := range w.ids {
		if err := w.exec().Destroy(ctx(t), id); err != nil {
			t.Errorf("destroy %s: %v", id, err)
		}
	}
	w.rest()
	for _, remains := range [][]string{w.runDirs(), w.mounts(), w.processes(), w.cgroups()} {
		if len(remains) > 0 {
			t.Errorf("the test leaves %q", remains)
		}
	}
	eventually(t, "the supervisors have left their cgroup", func() bool {
		for _, dir := range w.cgroupDirs("supervisors") {
			_ = syscall.Rmdir(dir)
		}
		return len(w.cgroupDirs("supervisors")) == 0
	})
	for _, dir := range w.cgroupDirs("") {
		if err := syscall.Rmdir(dir); err != nil {
			t.Errorf("remove cgroup %s: %v", dir, err)
		}
	}
	if err := os.RemoveAll(w.root); err != nil {
		t.Error(err)
	}
}

func (w *world) exec() *driver.Exec {
	w.t.Helper()
	d, err := driver.NewExec(w.config, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) rawExec() *driver.RawExec {
	w.t.Helper()
	d, err := driver.NewRawExec(w.config, slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) driver(name string) driver.Driver {
	w.t.Helper()
	if name == driver.NameExec {
		return w.exec()
	}
	return w.rawExec()
}

// spec makes a task with a directory of its own.
func (w *world) spec(command string, args ...string) driver.Spec {
	w.t.Helper()
	w.serial++
	id := fmt.Sprintf("%032x/task", w.serial)
	w.ids = append(w.ids, id)
	dir := filepath.Join(w.root, strconv.Itoa(w.serial))
	if err := os.Mkdir(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"local": 0o755, "secrets": 0o700, "tmp": 0o755, "logs": 0o755} {
		if err := os.Mkdir(filepath.Join(dir, name), mode); err != nil {
			w.t.Fatal(err)
		}
	}
	return driver.Spec{
		ID: id, Dir: dir, Env: map[string]string{},
		Task: api.Task{Name: "task", Config: map[string]any{"command": command, "args": args}},
	}
}

// script makes a task of a shell script.
func (w *world) script(text string) driver.Spec {
	w.t.Helper()
	return w.spec("/bin/sh", "-c", text)
}

// volume makes a directory to mount.
func (w *world) volume(name string) string {
	w.t.Helper()
	dir := filepath.Join(w.root, "volumes", name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// runDirs lists the tasks that the run directory still tells of.
func (w *world) runDirs() []string {
	dirs, err := filepath.Glob(filepath.Join(w.config.RunDir, "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return dirs
}

// mounts lists what is mounted on the host below the world's directories.
func (w *world) mounts() []string {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(w.root))
	if err != nil {
		w.t.Fatal(err)
	}
	var paths []string
	for _, m := range infos {
		paths = append(paths, m.Mountpoint)
	}
	return paths
}

// cgroupDirs lists the directories of a cgroup of the world in all hierarchies.
func (w *world) cgroupDirs(name string) []string {
	var dirs []string
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, err := filepath.Glob(filepath.Join(pattern, w.config.CgroupParent, name))
		if err != nil {
			w.t.Fatal(err)
		}
		dirs = append(dirs, found...)
	}
	return dirs
}

// cgroups lists the world's cgroups, but for the supervisors'.
func (w *world) cgroups() []string {
	return slices.DeleteFunc(w.cgroupDirs("*"), func(dir string) bool {
		info, err := os.Stat(dir)
		return err != nil || !info.IsDir() || filepath.Base(dir) == "supervisors"
	})
}

// processes lists the living processes in the world's cgroups, and those that
// name its directories.
func (w *world) processes() []string {
	return processes(w.t, func(pid string) bool {
		groups, _ := os.ReadFile("/proc/" + pid + "/cgroup")
		line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		return pid != strconv.Itoa(os.Getpid()) &&
			(strings.Contains(string(groups), w.config.CgroupParent+"/") || strings.Contains(string(line), w.root+"/"))
	})
}

// rest waits until no process is left. A supervisor of an agent that was killed is
// init's to reap: it has let go of its lock, and is still in its cgroup, for a
// moment longer than anything tells of it.
func (w *world) rest() {
	w.t.Helper()
	eventually(w.t, "no process is left", func() bool { return len(w.processes()) == 0 })
}

// ctx bounds what a test may wait for.
func ctx(t testing.TB) context.Context {
	t.Helper()
	c, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	t.Cleanup(cancel)
	return c
}

// eventually polls for what no call waits for.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for c := ctx(t); !holds(); {
		select {
		case <-tick.C:
		case <-c.Done():
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// kinds runs a test with either driver.
func kinds(t *testing.T, test func(t *testing.T, w *world, d driver.Driver)) {
	t.Helper()
	for _, name := range []string{driver.NameExec, driver.NameRawExec} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			test(t, w, w.driver(name))
		})
	}
}
