package docker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
	"github.com/berth-dev/berth/internal/agent/driver/docker"
	"github.com/berth-dev/berth/internal/agent/driver/docker/dockertest"
	"github.com/berth-dev/berth/internal/agent/driver/executor"
	"github.com/berth-dev/berth/internal/agent/tasklog"
)

// world is an agent's side of an engine: drivers, task directories, and what
// the drivers said.
type world struct {
	*testing.T
	engine *dockertest.Engine
	dir    string
	config docker.Config

	mu      sync.Mutex // guards below
	said    []string
	unknown map[api.AllocID]bool
	changes int
}

func newWorld(t *testing.T, engine *dockertest.Engine) *world {
	t.Helper()
	dir := t.TempDir()
	return &world{T: t, engine: engine, dir: dir, unknown: map[api.AllocID]bool{}, config: docker.Config{
		Endpoint: engine.Socket, Agent: dir, StateDir: filepath.Join(dir, "state"), AllowPrivileged: true, AllowHostPaths: true,
	}}
}

// agent is a driver that runs until it is killed, or the test ends.
func (w *world) agent() (d *docker.Driver, kill func()) {
	w.Helper()
	d, err := docker.New(w.config, slog.New(slog.NewTextHandler(w.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		var was api.Driver
		first := true
		_ = d.Run(ctx, w.knows, func(is api.Driver) { // it ends with ctx
			w.mu.Lock()
			defer w.mu.Unlock()
			if !first && is != was {
				w.changes++
			}
			was, first = is, false
		})
	})
	var once sync.Once
	kill = func() { once.Do(func() { cancel(); running.Wait() }) }
	w.Cleanup(kill)
	return d, kill
}

func (w *world) knows(id api.AllocID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.unknown[id]
}

func (w *world) say(message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, message)
}

func (w *world) saidAll() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.said, "\n")
}

// spec is of a task that runs a shell script.
func (w *world) spec(id, script string) driver.Spec {
	w.Helper()
	dir := filepath.Join(w.dir, "tasks", strings.ReplaceAll(id, "/", "-"))
	for _, name := range []string{"local", "secrets", "tmp", "logs", "alloc"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			w.Fatal(err)
		}
	}
	return driver.Spec{
		ID: id, Dir: dir, AllocDir: filepath.Join(dir, "alloc"), Say: w.say, Env: map[string]string{"COLOUR": "blue"},
		Task: api.Task{Name: "main", Driver: "docker", Config: map[string]any{
			"image": dockertest.Busybox, "network_mode": "none", "command": "/bin/sh", "args": []any{"-c", script},
		}},
	}
}

func (w *world) start(d *docker.Driver, spec driver.Spec) {
	w.Helper()
	if err := d.Start(w.Context(), spec); err != nil {
		w.Fatal(err)
	}
}

func (w *world) wait(d *docker.Driver, spec driver.Spec) driver.Status {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	status, err := d.Wait(ctx, spec.ID)
	if err != nil {
		w.Fatal(err)
	}
	return status
}

func (w *world) log(spec driver.Spec, stream api.LogType) string {
	w.Helper()
	b, err := os.ReadFile(tasklog.Path(spec.Dir, spec.Task.Name, stream))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Fatal(err)
	}
	return string(b)
}

// eventually waits for what comes in a moment.
func (w *world) eventually(what string, is func() error) {
	w.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		err := is()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			w.Fatalf("%s: %v", what, err)
		}
	}
}

func (w *world) destroy(d *docker.Driver, spec driver.Spec) {
	w.Helper()
	if err := d.Destroy(w.Context(), spec.ID); err != nil {
		w.Error(err)
	}
}

func TestEngine(t *testing.T) {
	t.Parallel()
	engine := dockertest.Start(t)
	for name, test := range map[string]func(*world){
		"RunsToItsEnd": testRun, "Stops": testStop, "Adopts": testAdopt, "Volumes": testVolumes, "Privileged": testPrivileged,
		"Strangers": testStrangers, "Limits": testLimits, "NoImage": testNoImage, "WrongCommand": testWrongCommand, "User": testUser,
		"Reboot": testReboot, "Usage": testUsage, "Copied": testCopied, "LogCutShort": testLogCutShort, "RemovedByHand": testRemovedByHand,
		"Visit": testVisit, "Terminal": testTerminal, "BlockDevices": testBlockDevices,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, engine))
		})
	}
}

// testRun runs a task to its end: what it said is in its logs when the end is
// told, and what it wrote is in its directories.
func testRun(w *world) {
	d, _ := w.agent()
	if is := d.Fingerprint(w.Context()); !is.Healthy || is.Version == "" || !is.MountsVolumes {
		w.Fatalf("the driver is %+v", is)
	}
	spec := w.spec("a1/main", `echo out $COLOUR; echo err >&2; echo x > /local/x; echo y > /alloc/y; printf end; exit 3`)
	spec.Files = []driver.File{{Dir: "secrets", Path: "key", Content: "s", Mode: 0o600}}
	w.start(d, spec)
	status := w.wait(d, spec)
	if status.State != driver.StateEnded || status.ExitCode != 3 || status.Reason != "" || status.Ended.IsZero() {
		w.Errorf("it ended as %+v", status)
	}
	if out, err := w.log(spec, api.LogStdout), w.log(spec, api.LogStderr); out != "out blue\nend\n" && out != "out blue\nend" || err != "err\n" {
		w.Errorf("its logs are %q and %q", out, err)
	}
	for _, path := range []string{"local/x", "alloc/y"} {
		if _, err := os.Stat(filepath.Join(spec.Dir, path)); err != nil {
			w.Error(err)
		}
	}
	w.start(d, spec) // changes nothing: it has ended
	if again := w.wait(d, spec); again.ExitCode != 3 || !again.Started.Equal(status.Started) {
		w.Errorf("it is now %+v", again)
	}
	w.destroy(d, spec)
	if status, err := d.Status(w.Context(), spec.ID); err != nil || status.State != driver.StateUnknown {
		w.Errorf("it is still known: %+v, %v", status, err)
	}
	if marks, _ := filepath.Glob(w.config.StateDir + "/*"); len(marks) > 0 {
		w.Errorf("left behind: %q", marks)
	}
}

// testTerminal: a task that asks for a terminal has one, and its log is whole
// across agents; what one reads stays open if it asks for that.
func testTerminal(w *world) {
	d, kill := w.agent()
	spec := w.spec("tty/main", `[ -t 1 ] && echo terminal; echo err >&2; head -c 40000 /dev/zero | tr '\0' x; echo; until [ -e /local/go ]; do sleep 0.05; done; echo last`)
	spec.Task.Config["tty"] = true
	w.start(d, spec)
	want := "terminal\r\nerr\r\n" + strings.Repeat("x", 40000) + "\r\n"
	w.eventually("it has a terminal", func() error {
		if got := w.log(spec, api.LogStdout); got != want {
			return fmt.Errorf("it wrote %d bytes, not %d", len(got), len(want))
		}
		return nil
	})
	kill()
	d, _ = w.agent()
	if err := os.WriteFile(filepath.Join(spec.Dir, "local", "go"), nil, 0o600); err != nil {
		w.Fatal(err)
	}
	if status := w.wait(d, spec); status.ExitCode != 0 {
		w.Errorf("it ended as %+v", status)
	}
	if got := w.log(spec, api.LogStdout); got != want+"last\r\n" {
		w.Errorf("it wrote %d bytes, not %d", len(got), len(want)+6)
	}
	w.destroy(d, spec)
	open := w.spec("stdin/main", "cat; echo over")
	closed := open
	closed.ID, closed.Dir, closed.AllocDir = "stdin2/main", w.spec("stdin2/main", "").Dir, ""
	open.Task.Config = maps.Clone(open.Task.Config)
	open.Task.Config["interactive"] = true
	w.start(d, open)
	w.start(d, closed)
	if status := w.wait(d, closed); status.ExitCode != 0 {
		w.Errorf("it ended as %+v", status)
	}
	if status, err := d.Status(w.Context(), open.ID); err != nil || status.State != driver.StateRunning {
		w.Errorf("it is %+v (%v), and what it reads has no end", status, err)
	}
	w.destroy(d, open)
	w.destroy(d, closed)
}

// testStop stops with the job's signal, and kills what does not obey.
func testStop(w *world) {
	d, _ := w.agent()
	polite := w.spec("b1/main", `trap 'echo usr1; exit 0' USR1; echo ready; while :; do sleep 0.1; done`)
	stubborn := w.spec("b2/main", `trap '' TERM; echo ready; while :; do sleep 0.1; done`)
	for _, spec := range []driver.Spec{polite, stubborn} {
		w.start(d, spec)
		w.eventually("it is ready", func() error {
			if out := w.log(spec, api.LogStdout); out != "ready\n" {
				return fmt.Errorf("it said %q", out)
			}
			return nil
		})
	}
	if err := d.Stop(w.Context(), polite.ID, "SIGUSR1", time.Minute); err != nil {
		w.Fatal(err)
	}
	if status := w.wait(d, polite); status.ExitCode != 0 || status.Reason != "" {
		w.Errorf("it ended as %+v", status)
	}
	if err := d.Stop(w.Context(), stubborn.ID, "", 100*time.Millisecond); err != nil {
		w.Fatal(err)
	}
	if status := w.wait(d, stubborn); status.Reason == "" || status.ExitCode != 137 {
		w.Errorf("it ended as %+v", status)
	}
	for _, spec := range []driver.Spec{polite, stubborn} {
		if err := d.Stop(w.Context(), spec.ID, "", 0); err != nil {
			w.Errorf("stop again: %v", err)
		}
		w.destroy(d, spec)
		w.destroy(d, spec)
	}
}

// testAdopt kills agents while a task writes: nothing is started twice, and
// each line is in the log once.
func testAdopt(w *world) {
	d, kill := w.agent()
	spec := w.spec("c1/main", `i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); [ $((i%100)) = 0 ] && sleep 0.1; done; echo last`)
	w.start(d, spec)
	for round := range 4 {
		w.eventually("the log grows", func() error {
			if n := strings.Count(w.log(spec, api.LogStdout), "\n"); n < 100*(round+1) {
				return fmt.Errorf("it has %d lines", n)
			}
			return nil
		})
		kill()
		d, kill = w.agent()
		w.start(d, spec)
		if all := strings.Join(w.engine.Containers(), " "); strings.Count(all, "c1.main") != 1 {
			w.Fatalf("the containers are %s", all)
		}
	}
	w.wait(d, spec)
	var want strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	want.WriteString("last\n")
	if got := w.log(spec, api.LogStdout); got != want.String() {
		w.Errorf("the log has %d bytes and %d lines in place of %d and 3001", len(got), strings.Count(got, "\n"), want.Len())
	}
	w.destroy(d, spec)
}

// testVolumes mounts directories and a block device, with every propagation.
func testVolumes(w *world) {
	d, _ := w.agent()
	shared := filepath.Join(w.dir, "shared")
	for _, dir := range []string{"plain", "readonly", "shared", "shared/late", "shared/inside"} {
		if err := os.MkdirAll(filepath.Join(w.dir, dir), 0o755); err != nil {
			w.Fatal(err)
		}
	}
	must := func(err error) {
		w.Helper()
		if err != nil {
			w.Fatal(err)
		}
	}
	must(unix.Mount(shared, shared, "", unix.MS_BIND, ""))
	defer func() { _ = unix.Unmount(shared, unix.MNT_DETACH) }()
	must(unix.Mount("", shared, "", unix.MS_SHARED, ""))
	spec := w.spec("d1/main", `
		touch /data/x || exit 10
		touch /ro/x 2>/dev/null && exit 11
		[ -b /dev/volume ] || exit 12
		mount -t tmpfs inner /shared/inside || exit 13
		echo up
		until [ -e /slave/late/there ]; do sleep 0.05; done
		[ -e /data/late/there ] && exit 14
		umount /shared/inside
		exit 0`)
	spec.Task.Config["privileged"] = true
	block := filepath.Join(w.dir, "block")
	must(unix.Mknod(block, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))))
	spec.Mounts = []driver.Mount{
		{Source: filepath.Join(w.dir, "plain"), Destination: "/data"},
		{Source: filepath.Join(w.dir, "readonly"), Destination: "/ro", ReadOnly: true},
		{Source: shared, Destination: "/slave", Propagation: driver.PropagationHostToTask},
		{Source: shared, Destination: "/shared", Propagation: driver.PropagationBidirectional},
		{Source: block, Destination: "/dev/volume", ReadOnly: true},
	}
	w.start(d, spec)
	defer w.destroy(d, spec)
	w.eventually("the task's mount is seen outside", func() error {
		var fs unix.Statfs_t
		if err := unix.Statfs(filepath.Join(shared, "inside"), &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
			if status, _ := d.Status(w.Context(), spec.ID); status.State == driver.StateEnded {
				w.Fatalf("it ended as %+v: %s", status, w.log(spec, api.LogStderr))
			}
			return fmt.Errorf("it is a %x: %w", fs.Type, err)
		}
		return nil
	})
	late := filepath.Join(shared, "late")
	must(unix.Mount("late", late, "tmpfs", 0, ""))
	defer func() { _ = unix.Unmount(late, unix.MNT_DETACH) }()
	must(os.WriteFile(filepath.Join(late, "there"), nil, 0o600))
	if status := w.wait(d, spec); status.ExitCode != 0 {
		w.Errorf("it ended as %+v: %s", status, w.log(spec, api.LogStderr))
	}
}

// testBlockDevices: a block device kept the machine's owner, and a task of another
// user could not read it. The machine's node stays as it is.
func testBlockDevices(w *world) {
	d, _ := w.agent()
	file := filepath.Join(w.dir, "image")
	if err := os.WriteFile(file, append([]byte("mine"), make([]byte, 1<<20-4)...), 0o600); err != nil {
		w.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).Output()
	if err != nil {
		w.Fatalf("losetup: %v", err)
	}
	loop := strings.TrimSpace(string(out))
	defer func() {
		if out, err := exec.Command("losetup", "--detach", loop).CombinedOutput(); err != nil {
			w.Errorf("losetup: %v: %s", err, out)
		}
	}()
	was, err := os.Stat(loop)
	if err != nil {
		w.Fatal(err)
	}
	for user, want := range map[string]string{
		"1000": "600 1000:1000 400 1000:1000", "1000:7": "600 1000:7 400 1000:7", "app": "666 0:0 444 0:0", "": "600 0:0 400 0:0",
	} {
		spec := w.spec("bd"+strings.ReplaceAll(user, ":", "-")+"/main", `
			head -c 4 /dev/data || exit 1
			head -c 4 /srv/frozen || exit 2
			printf yours | dd of=/dev/data bs=1 seek=512 conv=notrunc 2>/dev/null || exit 3
			if [ "$(id -u)" != 0 ] && printf x 2>/dev/null >/srv/frozen; then exit 4; fi
			stat -c ' %a %u:%g' /dev/data /srv/frozen | tr -d '\n'`)
		spec.Task.User = user
		spec.Mounts = []driver.Mount{{Source: loop, Destination: "/dev/data"}, {Source: loop, Destination: "/srv/frozen", ReadOnly: true}}
		w.start(d, spec)
		status := w.wait(d, spec)
		if got := w.log(spec, api.LogStdout); status.ExitCode != 0 || got != "minemine "+want {
			w.Errorf("as %q it ended as %+v and said %q%s", user, status, got, w.log(spec, api.LogStderr))
		}
		w.destroy(d, spec)
		if _, err := os.Stat(filepath.Join(spec.Dir, "devices")); !errors.Is(err, os.ErrNotExist) {
			w.Errorf("nodes are left: %v", err)
		}
	}
	if is, err := os.Stat(loop); err != nil || is.Mode() != was.Mode() || is.Sys().(*syscall.Stat_t).Uid != was.Sys().(*syscall.Stat_t).Uid {
		w.Errorf("the machine's node is %v (%v)", is, err)
	}
}

// testPrivileged shows that a privileged task may mount, and that it hears when
// the engine could not give it everything.
func testPrivileged(w *world) {
	d, _ := w.agent()
	for _, config := range []map[string]any{{"privileged": true}, {"cap_add": []any{"all"}, "security_opt": []any{"seccomp=unconfined", "apparmor=unconfined"}}} {
		spec := w.spec("e1/main", `mount -t tmpfs x /tmp || exit 1; [ -n "$WANTS_DEVICES" ] && { [ -c /dev/loop-control ] || exit 2; }; grep CapEff /proc/self/status`)
		maps.Copy(spec.Task.Config, config)
		if config["privileged"] != nil {
			spec.Env["WANTS_DEVICES"] = "1"
		}
		w.start(d, spec)
		if status := w.wait(d, spec); status.ExitCode != 0 {
			w.Errorf("%v: it ended as %+v: %s", config, status, w.log(spec, api.LogStderr))
		}
		w.destroy(d, spec)
	}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		w.Fatal(err)
	}
	const all = "CapBnd:\t000001ffffffffff"
	if said := w.saidAll(); strings.Contains(string(b), all) != (said == "") {
		w.Errorf("it was said: %q", said)
	}
}

// testStrangers removes the containers of allocations that nobody knows, and
// those only.
func testStrangers(w *world) {
	d, kill := w.agent()
	known, unknown := w.spec("f1/main", "sleep 1000"), w.spec("f2/main", "sleep 1000")
	other := newWorld(w.T, w.engine)
	theirs, _ := other.agent()
	foreign := other.spec("f2/main", "sleep 1000") // of the same allocation's id
	w.start(d, known)
	w.start(d, unknown)
	other.start(theirs, foreign)
	kill()
	w.unknown["f2"] = true
	d, _ = w.agent()
	w.eventually("the unknown one is removed", func() error {
		if status, err := d.Status(w.Context(), unknown.ID); err != nil || status.State != driver.StateUnknown {
			return fmt.Errorf("it is %+v, %w", status, err)
		}
		return nil
	})
	for _, task := range []struct {
		d    *docker.Driver
		spec driver.Spec
	}{{d, known}, {theirs, foreign}} {
		if status, err := task.d.Status(w.Context(), task.spec.ID); err != nil || status.State != driver.StateRunning {
			w.Errorf("it is %+v, %v", status, err)
		}
		w.destroy(task.d, task.spec)
	}
}

func testLimits(w *world) {
	d, _ := w.agent()
	spec := w.spec("g1/main", `x=$(head -c 100000000 /dev/zero | tr '\0' x); echo ${#x}`)
	spec.Task.Resources = &api.Resources{CPU: 100, MemoryMB: 32}
	w.start(d, spec)
	defer w.destroy(d, spec)
	if status := w.wait(d, spec); status.ExitCode != 137 || status.Reason != executor.ReasonOOM {
		w.Errorf("it ended as %+v and said %q", status, w.log(spec, api.LogStdout))
	}
}

// testCopied: a container that somebody made from an image which has the labels
// of a task is theirs.
func testCopied(w *world) {
	d, kill := w.agent()
	spec := w.spec("m1/main", "exit 0")
	w.start(d, spec)
	w.wait(d, spec)
	list, err := w.engine.Client.ContainerList(w.Context(), client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", "dev.berth.agent="+w.dir)})
	if err != nil || len(list.Items) != 1 {
		w.Fatalf("its containers are %+v, %v", list.Items, err)
	}
	image, err := w.engine.Client.ContainerCommit(w.Context(), list.Items[0].ID, client.ContainerCommitOptions{})
	if err != nil {
		w.Fatal(err)
	}
	made, err := w.engine.Client.ContainerCreate(w.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: image.ID}, Name: "people-" + filepath.Base(w.dir)})
	if err != nil {
		w.Fatal(err)
	}
	if got, err := w.engine.Client.ContainerInspect(w.Context(), made.ID, client.ContainerInspectOptions{}); err != nil || got.Container.Config.Labels["dev.berth.alloc"] != "m1" {
		w.Fatalf("it has not the task's labels: %+v, %v", got.Container.Config, err)
	}
	kill()
	w.unknown["m1"] = true
	d, _ = w.agent()
	w.eventually("the task's own is removed", func() error {
		if status, err := d.Status(w.Context(), spec.ID); err != nil || status.State != driver.StateUnknown {
			return fmt.Errorf("it is %+v, %w", status, err)
		}
		return nil
	})
	if _, err := w.engine.Client.ContainerRemove(w.Context(), made.ID, client.ContainerRemoveOptions{}); err != nil {
		w.Errorf("theirs is gone: %v", err)
	}
}

// testLogCutShort: somebody empties a task's log while the agent is not there.
// The next agent goes on with what comes then.
func testLogCutShort(w *world) {
	d, kill := w.agent()
	spec := w.spec("n1/main", "i=0; while [ ! -e /local/stop ]; do echo line $i; i=$((i+1)); sleep 0.02; done")
	w.start(d, spec)
	path := tasklog.Path(spec.Dir, spec.Task.Name, api.LogStdout)
	marked := func() error {
		names, err := filepath.Glob(filepath.Join(w.config.StateDir, "*.stdout.json"))
		if err != nil || len(names) != 1 {
			return fmt.Errorf("marks %q, %w", names, err)
		}
		if b, err := os.ReadFile(names[0]); err != nil || strings.Contains(string(b), `"position":0`) {
			return fmt.Errorf("the mark is %s, %w", b, err)
		}
		return nil
	}
	w.eventually("it is recorded how far the log is copied", marked)
	kill()
	if err := os.Truncate(path, 0); err != nil {
		w.Fatal(err)
	}
	d, _ = w.agent()
	if _, err := d.Status(w.Context(), spec.ID); err != nil {
		w.Fatal(err)
	}
	w.eventually("it goes on", func() error {
		if n := strings.Count(w.log(spec, api.LogStdout), "\n"); n < 5 {
			return fmt.Errorf("it has %d lines", n)
		}
		return nil
	})
	if err := os.WriteFile(filepath.Join(spec.Dir, "local", "stop"), nil, 0o600); err != nil {
		w.Fatal(err)
	}
	w.wait(d, spec)
	lines := strings.Split(strings.TrimSpace(w.log(spec, api.LogStdout)), "\n")
	var first int
	if _, err := fmt.Sscanf(lines[0], "line %d", &first); err != nil {
		w.Fatalf("it begins with %q: %v", lines[0], err)
	}
	for i, line := range lines {
		if line != fmt.Sprintf("line %d", first+i) {
			w.Fatalf("line %d of the log, which begins with %q, is %q", i, lines[0], line)
		}
	}
	w.destroy(d, spec)
}

// testRemovedByHand: of a container that somebody else removed, nothing is
// remembered.
func testRemovedByHand(w *world) {
	d, kill := w.agent()
	spec := w.spec("o1/main", "echo hello; sleep 1000")
	w.start(d, spec)
	marks := func() []string {
		names, err := filepath.Glob(filepath.Join(w.config.StateDir, "*.json"))
		if err != nil {
			w.Fatal(err)
		}
		return names
	}
	w.eventually("its logs are copied", func() error {
		if n := len(marks()); n != 2 {
			return fmt.Errorf("%d of 2 are", n)
		}
		return nil
	})
	list, err := w.engine.Client.ContainerList(w.Context(), client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", "dev.berth.agent="+w.dir)})
	if err != nil || len(list.Items) != 1 {
		w.Fatalf("its containers are %+v, %v", list.Items, err)
	}
	if _, err := w.engine.Client.ContainerRemove(w.Context(), list.Items[0].ID, client.ContainerRemoveOptions{Force: true}); err != nil {
		w.Fatal(err)
	}
	w.destroy(d, spec)
	kill()
	w.agent()
	w.eventually("nothing is remembered", func() error {
		if left := marks(); len(left) > 0 {
			return fmt.Errorf("there is %q", left)
		}
		return nil
	})
}

// testNoImage shows that an image that is not to be had counts as an end.
func testNoImage(w *world) {
	d, _ := w.agent()
	spec := w.spec("h1/main", "true")
	spec.Task.Config["image"] = "127.0.0.1:1/no/such:1"
	err := d.Start(w.Context(), spec)
	if not, ok := errors.AsType[*driver.NotStarted](err); !ok || !strings.Contains(not.Reason, "pull image 127.0.0.1:1/no/such:1: ") {
		w.Errorf("the start ended with %v", err)
	}
	if said := w.saidAll(); !strings.Contains(said, "pulling image 127.0.0.1:1/no/such:1") {
		w.Errorf("it was said: %q", said)
	}
}

// testWrongCommand shows that what can never work is told at once, and leaves
// nothing.
func testWrongCommand(w *world) {
	d, _ := w.agent()
	spec := w.spec("i1/main", "true")
	spec.Task.Config["command"] = "/no/such/program"
	if err := d.Start(w.Context(), spec); api.CodeOf(err) != api.CodeInvalid {
		w.Errorf("the start ended with %v", err)
	}
	if all := strings.Join(w.engine.Containers(), " "); strings.Contains(all, "i1.main") {
		w.Errorf("the containers are %s", all)
	}
}

// testUser lets other users than root have the task's directories and a volume
// that is new.
func testUser(w *world) {
	d, _ := w.agent()
	fresh := filepath.Join(w.dir, "fresh")
	if err := os.Mkdir(fresh, 0o755); err != nil {
		w.Fatal(err)
	}
	for _, user := range []string{"1000", "1000:1000", "app", "1000 of a group"} {
		user, ofGroup := strings.CutSuffix(user, " of a group")
		spec := w.spec("j1/main", `id -u; [ -z "$GROUP" ] || id -G | grep -qw "$GROUP" || exit 4; touch /local/x /secrets/x || exit 1; [ $(id -u) = 1000 ] || exit 2; [ -z "$VOLUME" ] || touch /data/x || exit 3`)
		spec.Task.User = user
		if user == "1000" {
			spec.Mounts = []driver.Mount{{Source: fresh, Destination: "/data"}}
			spec.Env["VOLUME"] = "1"
		}
		if ofGroup {
			spec.Mounts[0].Group, spec.Env["GROUP"] = 4711, "4711"
		}
		w.start(d, spec)
		if status := w.wait(d, spec); status.ExitCode != 0 {
			w.Errorf("%s: it ended as %+v: %s", user, status, w.log(spec, api.LogStderr))
		}
		if info, err := os.Stat(spec.Dir); err != nil || info.Mode().Perm() != 0o700 {
			w.Errorf("%s: others of the machine reach its secrets: %v, %v", user, info.Mode(), err)
		}
		w.destroy(d, spec)
		if err := os.RemoveAll(spec.Dir); err != nil {
			w.Error(err)
		}
	}
}

// testReboot starts what an earlier boot ended again, without calling it ended.
func testReboot(w *world) {
	d, kill := w.agent()
	spec := w.spec("k1/main", "exit 1")
	w.start(d, spec)
	w.wait(d, spec)
	kill()
	w.config.BootID = "another"
	d, _ = w.agent()
	if status, err := d.Status(w.Context(), spec.ID); err != nil || status.State != driver.StateUnknown {
		w.Errorf("it is %+v, %v", status, err)
	}
	w.start(d, spec)
	if status := w.wait(d, spec); status.State != driver.StateEnded || status.ExitCode != 1 {
		w.Errorf("it ended as %+v", status)
	}
	w.destroy(d, spec)
}

// TestEngineKilled kills the engine below a running task: nobody calls the task
// dead before the engine is back, and its log has no hole.
func TestEngineKilled(t *testing.T) {
	t.Parallel()
	engine := dockertest.Start(t, "--live-restore")
	w := newWorld(t, engine)
	d, _ := w.agent()
	spec := w.spec("a1/main", `i=0; while [ ! -e /local/stop ]; do echo line $i; i=$((i+1)); sleep 0.02; done; exit 7`)
	w.start(d, spec)
	grown := func(n int) func() error {
		return func() error {
			if lines := strings.Count(w.log(spec, api.LogStdout), "\n"); lines < n {
				return fmt.Errorf("it has %d lines", lines)
			}
			return nil
		}
	}
	w.eventually("it writes", grown(10))
	ended := make(chan driver.Status, 1)
	var waiting sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); waiting.Wait() }()
	waiting.Go(func() {
		if status, err := d.Wait(ctx, spec.ID); err == nil {
			ended <- status
		}
	})
	engine.Kill()
	if _, err := d.Status(t.Context(), spec.ID); api.CodeOf(err) != api.CodeUnavailable {
		t.Errorf("without an engine, its status is %v", err)
	}
	w.eventually("the driver notices", func() error {
		if is := d.Fingerprint(t.Context()); is.Healthy || !strings.Contains(is.Reason, "does not answer") {
			return fmt.Errorf("it is %+v", is)
		}
		return nil
	})
	select {
	case status := <-ended:
		t.Fatalf("it was called ended: %+v", status)
	default:
	}
	lines := strings.Count(w.log(spec, api.LogStdout), "\n")
	engine.Resume()
	w.eventually("it goes on", grown(lines+20))
	if err := os.WriteFile(filepath.Join(spec.Dir, "local", "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if status := <-ended; status.ExitCode != 7 {
		t.Errorf("it ended as %+v", status)
	}
	log := w.log(spec, api.LogStdout)
	for i, line := range strings.Split(strings.TrimSpace(log), "\n") {
		if line != fmt.Sprintf("line %d", i) {
			t.Fatalf("line %d of the log is %q", i, line)
		}
	}
	w.destroy(d, spec)
}

// TestEngineComesLate shows that a driver is there when its engine is.
func TestEngineComesLate(t *testing.T) {
	t.Parallel()
	engine := dockertest.Prepare(t)
	w := newWorld(t, engine)
	d, _ := w.agent()
	if is := d.Fingerprint(t.Context()); is.Healthy || is.Reason == "" || !is.MountsVolumes {
		t.Errorf("without an engine it is %+v", is)
	}
	engine.Resume()
	w.eventually("the change is told", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.changes == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	if is := d.Fingerprint(t.Context()); !is.Healthy {
		t.Errorf("it is %+v", is)
	}
}

// testUsage measures a task that is busy.
func testUsage(w *world) {
	d, _ := w.agent()
	spec := w.spec("l1/main", "while :; do :; done")
	spec.Task.Resources = &api.Resources{MemoryMB: 64}
	w.start(d, spec)
	w.eventually("it is busy", func() error {
		u, err := d.Usage(w.Context(), spec.ID)
		if err != nil || u.CPU < 100*time.Millisecond || u.MemoryBytes == 0 || u.MemoryLimitBytes != 64<<20 || u.Processes == 0 {
			return fmt.Errorf("it uses %+v, %w", u, err)
		}
		return nil
	})
	w.destroy(d, spec)
	if _, err := d.Usage(w.Context(), spec.ID); api.CodeOf(err) != api.CodeNotFound {
		w.Errorf("what is gone is measured: %v", err)
	}
}
