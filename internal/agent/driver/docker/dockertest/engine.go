// Package dockertest runs Docker engines for tests: each in a directory of its
// own, beside whatever engine the machine has, and killed as tests please. It
// needs root, and Debian's docker.io and busybox-static.
//
// It ends only processes that it started, or that these did. Invariant: when a
// test has ended, nothing of its engine is left.
package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Engine is a Docker engine without a bridge, unless it was started with one:
// containers have the machine's network, or none.
type Engine struct {
	tb  testing.TB
	dir string
	// Socket is where it listens.
	Socket string
	// Client speaks to it.
	Client *client.Client
	args   []string
	bridge string
	cmd    *exec.Cmd
	exited chan struct{}
	output bytes.Buffer
}

// Busybox is the name of the image that every engine has: a static busybox,
// with its programs in /bin, and users root, nobody and app (1000).
const Busybox = "berth-test/busybox:1"

// Start starts an engine, which ends with the test. The arguments are added to
// its own.
func Start(tb testing.TB, args ...string) *Engine {
	tb.Helper()
	e := Prepare(tb, args...)
	e.Resume()
	e.Import(Busybox, Tar(tb, nil))
	return e
}

// StartBridged starts an engine with a bridge of its own.
func StartBridged(tb testing.TB, args ...string) *Engine {
	tb.Helper()
	e := Prepare(tb, args...)
	e.bridge = "dk" + filepath.Base(e.dir)[2:]
	e.bridge = e.bridge[:min(len(e.bridge), unix.IFNAMSIZ-1)]
	e.ip("link", "add", e.bridge, "type", "bridge")
	tb.Cleanup(func() { e.ip("link", "delete", e.bridge) })
	// Addresses for tests (RFC 2544), so that they meet nobody's; the engine's
	// containers get others of the same network.
	e.ip("address", "add", fmt.Sprintf("198.18.%d.1/24", os.Getpid()%256), "dev", e.bridge)
	e.ip("link", "set", e.bridge, "up")
	e.Resume()
	e.Import(Busybox, Tar(tb, nil))
	return e
}

// ip runs ip(8).
func (e *Engine) ip(args ...string) {
	e.tb.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(e.tb.Context()), "ip", args...).CombinedOutput(); err != nil {
		e.tb.Errorf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Prepare makes an engine that does not run yet.
func Prepare(tb testing.TB, args ...string) *Engine {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Fatal("this test runs a docker engine: run it as root")
	}
	dir, err := os.MkdirTemp("/tmp", "dk") // short, for its sockets
	if err != nil {
		tb.Fatal(err)
	}
	e := &Engine{tb: tb, dir: dir, Socket: filepath.Join(dir, "s"), args: args}
	e.Client, err = client.New(client.WithHost("unix://" + e.Socket))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(e.end)
	return e
}

// Resume starts the engine on what the last one left behind.
func (e *Engine) Resume() {
	e.tb.Helper()
	bridge := "none"
	if e.bridge != "" {
		bridge = e.bridge
	}
	args := append([]string{
		"--data-root", e.dir + "/data", "--exec-root", e.dir + "/x", "-H", "unix://" + e.Socket, "--pidfile", e.dir + "/pid",
		"--iptables=false", "--ip6tables=false", "--ip-forward=false", "--bridge=" + bridge,
	}, e.args...)
	// What was killed may be a zombie for long, and its pid look alive.
	for _, pid := range []string{"/pid", "/x/containerd/containerd.pid"} {
		_ = os.Remove(e.dir + pid)
	}
	cmd := exec.Command("dockerd", args...) //nolint:noctx // it is ended by signals
	cmd.Stdout, cmd.Stderr = &e.output, &e.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		e.tb.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is ended by signals
		close(exited)
	}()
	e.cmd, e.exited = cmd, exited
	asks := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.Socket)
	}}}
	await(e.tb, "the engine answers", func() bool {
		select {
		case <-exited:
			e.tb.Fatalf("the engine ended:\n%s", e.output.String())
		default:
		}
		res, err := asks.Get("http://docker/_ping") //nolint:noctx // local
		if err != nil {
			return false
		}
		_ = res.Body.Close() // nothing of it is wanted
		return res.StatusCode == http.StatusOK
	})
}

// Kill kills the engine with SIGKILL. What its containers run goes on.
func (e *Engine) Kill() { e.signal(syscall.SIGKILL) }

// KillContainerd kills what runs the containers for the engine. The engine starts
// another one.
func (e *Engine) KillContainerd() {
	e.tb.Helper()
	for _, pid := range e.named("containerd") {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// Shims are the processes that hold what runs in containers, whatever the engine
// knows of them. One that was cut off at its start, and holds nothing, is none.
func (e *Engine) Shims() (holding []int) {
	_, parents := e.family()
	shims := e.named("containerd-shim-runc-v2")
	for _, parent := range parents {
		if slices.Contains(shims, parent) && !slices.Contains(holding, parent) {
			holding = append(holding, parent)
		}
	}
	return holding
}

// named are the engine's processes of a program.
func (e *Engine) named(program string) (found []int) {
	for _, pid := range e.processes() {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		name, _, _ := strings.Cut(string(line), "\x00")
		if err == nil && filepath.Base(name) == program {
			found = append(found, pid)
		}
	}
	return found
}

// Stop stops the engine, and with it what its containers run, unless it has
// live-restore.
func (e *Engine) Stop() { e.signal(syscall.SIGTERM) }

func (e *Engine) signal(sig syscall.Signal) {
	e.tb.Helper()
	if e.cmd == nil {
		return
	}
	if err := e.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		e.tb.Error(err)
	}
	<-e.exited
	e.cmd = nil
}

// end removes all that the engine was.
func (e *Engine) end() {
	t := e.tb
	if t.Failed() {
		lines := strings.Split(strings.TrimSpace(e.output.String()), "\n")
		t.Logf("the engine's last words:\n%s", strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
	_ = e.Client.Close() // it holds idle connections at most
	e.Stop()
	// Of an engine that was killed, containerd and its shims stay.
	await(t, "the engine's processes end", func() bool {
		left := e.processes()
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		return len(left) == 0
	})
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(e.dir))
	if err != nil {
		t.Error(err)
	}
	for i := range mounts {
		if err := unix.Unmount(mounts[len(mounts)-1-i].Mountpoint, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", mounts[len(mounts)-1-i].Mountpoint, err)
		}
	}
	if err := os.RemoveAll(e.dir); err != nil {
		t.Error(err)
	}
}

// processes are those that name the engine's directory in their command line,
// and their children.
func (e *Engine) processes() (all []int) {
	mine, parents := e.family()
	for pid := range mine {
		if pid != os.Getpid() && (mine[pid] || mine[parents[pid]] && parents[pid] != os.Getpid()) {
			all = append(all, pid)
		}
	}
	return all
}

// family is which processes name the engine's directory, and the parents of all.
func (e *Engine) family() (mine map[int]bool, parents map[int]int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is one
	mine, parents = map[int]bool{}, map[int]int{}
	for _, f := range files {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		mine[pid] = strings.Contains(string(b), e.dir+"/")
		if stat, err := os.ReadFile(filepath.Dir(f) + "/stat"); err == nil {
			fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
			parents[pid], _ = strconv.Atoi(fields[1])
		}
	}
	return mine, parents
}

// Import makes an image of a tar of files.
func (e *Engine) Import(name string, files []byte) {
	e.tb.Helper()
	cmd := exec.CommandContext(e.tb.Context(), "docker", "-H", "unix://"+e.Socket, "import", "-", name)
	cmd.Stdin = bytes.NewReader(files)
	if out, err := cmd.CombinedOutput(); err != nil {
		e.tb.Fatalf("import %s: %v\n%s", name, err, out)
	}
}

// Tar is the files of an image: a static busybox with its programs, users, and
// files of the machine, by their places in the image. Programs bring the
// libraries that they need.
func Tar(tb testing.TB, programs map[string]string) []byte {
	tb.Helper()
	const busybox = "/usr/bin/busybox"
	var buf bytes.Buffer
	out := tar.NewWriter(&buf)
	put := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		err := out.WriteHeader(&h)
		if err == nil {
			_, err = out.Write(content)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	for _, dir := range []string{"bin", "dev", "etc", "proc", "root", "sys", "tmp", "usr", "usr/bin"} {
		put(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil)
	}
	file := func(name, source string) {
		b, err := os.ReadFile(source)
		if err != nil {
			tb.Fatalf("%v (is busybox-static installed?)", err)
		}
		put(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, b)
	}
	file("bin/busybox", busybox)
	list, err := exec.CommandContext(tb.Context(), busybox, "--list").Output()
	if err != nil {
		tb.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(list)) {
		if name != "busybox" {
			put(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + name, Linkname: "busybox"}, nil)
		}
	}
	const users = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
	put(tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, []byte(users))
	put(tar.Header{Typeflag: tar.TypeReg, Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\napp:x:1000:\n"))
	libraries := map[string]bool{}
	for place, source := range programs {
		file(strings.TrimPrefix(place, "/"), source)
		for _, library := range needs(tb, source) {
			if !libraries[library] {
				file(strings.TrimPrefix(library, "/"), library)
			}
			libraries[library] = true
		}
	}
	if err := out.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// FileSystemPrograms adds to programs those that the local driver makes file systems
// with.
func FileSystemPrograms(tb testing.TB, programs map[string]string) map[string]string {
	tb.Helper()
	for _, name := range []string{"mkfs.ext4", "blkid", "e2fsck", "resize2fs"} {
		path := filepath.Join("/usr/sbin", name)
		program, err := filepath.EvalSymlinks(path)
		if err != nil {
			tb.Fatal(err)
		}
		programs[path] = program
	}
	programs["/etc/mke2fs.conf"] = "/etc/mke2fs.conf"
	return programs
}

// needs are the libraries of a program; static ones, and what is no program,
// have none.
func needs(tb testing.TB, program string) (libraries []string) {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), "ldd", program).Output()
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(out)) {
		for word := range strings.FieldsSeq(line) {
			if strings.HasPrefix(word, "/") {
				libraries = append(libraries, word)
			}
		}
	}
	return libraries
}

// Containers are the containers of the engine, running or not, by their names.
func (e *Engine) Containers() []string {
	e.tb.Helper()
	list, err := e.Client.ContainerList(e.tb.Context(), client.ContainerListOptions{All: true})
	if err != nil {
		e.tb.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, fmt.Sprint(strings.TrimPrefix(list.Items[i].Names[0], "/"), " ", list.Items[i].State))
	}
	return names
}

// await waits for what comes in a moment.
func await(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-limit.C:
			tb.Fatalf("it never came that %s", what)
		}
	}
}
