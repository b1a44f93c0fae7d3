package executor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/executor"
	"github.com/berth-dev/berth/internal/agent/tasklog"
)

var worlds atomic.Int64

// newTasks makes a run directory and a cgroup for one test.
func newTasks(t *testing.T) (tasks *executor.Tasks, runDir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	runDir, err = os.MkdirTemp("", "berth-executor")
	if err != nil {
		t.Fatal(err)
	}
	cgroup := fmt.Sprintf("berth-executor-test-%d-%d", os.Getpid(), worlds.Add(1))
	tasks, err = executor.NewTasks(executor.Config{RunDir: runDir, Executable: self, CgroupParent: cgroup}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(runDir); err != nil {
			t.Errorf("the run directory is not empty: %v", err)
		}
		for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
			parents, _ := filepath.Glob(pattern + cgroup)
			for _, parent := range parents {
				_ = syscall.Rmdir(filepath.Join(parent, "supervisors"))
				if err := syscall.Rmdir(parent); err != nil {
					t.Errorf("cgroup %s is left: %v", parent, err)
				}
			}
		}
	})
	return tasks, runDir
}

func ctx(t *testing.T) context.Context {
	t.Helper()
	c, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	t.Cleanup(cancel)
	return c
}

// script is a task that runs on the host.
func script(t *testing.T, tasks *executor.Tasks, id, text string) executor.Spec {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := tasks.Destroy(ctx(t), id); err != nil {
			t.Error(err)
		}
	})
	return executor.Spec{
		ID: id, Command: "/bin/sh", Args: []string{"-c", text}, Env: []string{"PATH=/usr/bin:/bin"}, Cwd: dir,
		Stdout: filepath.Join(dir, "stdout.log"), Stderr: filepath.Join(dir, "stderr.log"),
	}
}

func run(t *testing.T, tasks *executor.Tasks, spec executor.Spec) executor.Status {
	t.Helper()
	if err := tasks.Start(ctx(t), spec); err != nil {
		t.Fatal(err)
	}
	s, err := tasks.Wait(ctx(t), spec.ID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRunDirectoryIsRecognisable(t *testing.T) {
	t.Parallel()
	ids := map[string]string{
		"0123456789abcdef/web":         `^01234567-web-[0-9a-f]{16}$`,
		"0123456789abcdef/" + long(63): `^01234567-a{16}-[0-9a-f]{16}$`,
		"../../../../etc/passwd":       `^__-_{9}etc_pas-[0-9a-f]{16}$`,
		"/":                            `^--[0-9a-f]{16}$`,
		"ünïcode/täsk":                 `^_n_code-t_sk-[0-9a-f]{16}$`,
	}
	for id, want := range ids {
		tasks, runDir := newTasks(t)
		run(t, tasks, script(t, tasks, id, "exit 0"))
		entries, err := os.ReadDir(runDir)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%q makes %v, %v", id, entries, err)
		}
		if got := entries[0].Name(); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%q becomes %q, not %s", id, got, want)
		}
		info, err := entries[0].Info()
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the run directory's mode is %v, %v", info.Mode(), err)
		}
	}
}

// readLog is what is kept of a log.
func readLog(t *testing.T, path string) []byte {
	t.Helper()
	r, err := tasklog.Open(path, api.LogQuery{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var kept bytes.Buffer
	if err := r.Copy(t.Context(), &kept, func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	return kept.Bytes()
}

func long(n int) string { return strings.Repeat("a", n) }

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	tasks, _ := newTasks(t)
	const last = 5_000_000
	spec := script(t, tasks, "loud/task", fmt.Sprintf("seq 1 %d; echo short >&2", last))
	run(t, tasks, spec)
	parts, err := filepath.Glob(spec.Stdout + "*")
	if err != nil || len(parts) != 3 {
		t.Fatalf("the log is in %v (%v), want three parts", parts, err)
	}
	for _, part := range parts {
		if info, err := os.Stat(part); err != nil || info.Size() > 10<<20 {
			t.Errorf("%s has %d bytes (%v)", part, info.Size(), err)
		}
	}
	kept := readLog(t, spec.Stdout)
	if len(kept) < 20<<20 {
		t.Errorf("only %d bytes are kept", len(kept))
	}
	// What is kept is the end, whole.
	_, kept, _ = bytes.Cut(kept, []byte("\n"))
	next := 0
	for line := range bytes.Lines(kept) {
		n, err := strconv.Atoi(string(bytes.TrimSuffix(line, []byte("\n"))))
		if err != nil || next != 0 && n != next {
			t.Fatalf("after %d comes %q", next-1, line)
		}
		next = n + 1
	}
	if next != last+1 {
		t.Errorf("the last line is %d", next-1)
	}
	if b, err := os.ReadFile(spec.Stderr); string(b) != "short\n" {
		t.Errorf("stderr holds %q, %v", b, err)
	}
}

func TestFullDiskDoesNotStopTask(t *testing.T) {
	t.Parallel()
	tasks, _ := newTasks(t)
	spec := script(t, tasks, "full/task", "seq 1 200000; exit 4")
	logs := t.TempDir()
	if err := unix.Mount("tmpfs", logs, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(logs, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	spec.Stdout, spec.Stderr = filepath.Join(logs, "out"), filepath.Join(logs, "err")
	if got := run(t, tasks, spec); got.ExitCode != 4 {
		t.Errorf("the task ended so: %+v", got)
	}
	info, err := os.Stat(spec.Stdout)
	if err != nil || info.Size() == 0 {
		t.Errorf("what fitted is not kept: %v, %v", info, err)
	}
}

func TestOutputFollowsNoLink(t *testing.T) {
	t.Parallel()
	tasks, _ := newTasks(t)
	spec := script(t, tasks, "sly/task", "echo overwritten")
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, spec.Stdout); err != nil {
		t.Fatal(err)
	}
	if err := tasks.Start(ctx(t), spec); err == nil || !strings.Contains(err.Error(), "open log") {
		t.Errorf("start says %v", err)
	}
	if b, err := os.ReadFile(victim); string(b) != "precious" {
		t.Errorf("the file that was linked to holds %q, %v", b, err)
	}
}

func TestControlSocket(t *testing.T) {
	t.Parallel()
	tasks, runDir := newTasks(t)
	spec := script(t, tasks, "asked/task", "trap 'echo hup' HUP; trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done")
	if err := tasks.Start(ctx(t), spec); err != nil {
		t.Fatal(err)
	}
	waitFor(t, spec.Stdout, "ready\n")
	tests := []struct {
		method, target, body string
		code                 int
		state                executor.State
		refusal              string
	}{
		{"GET", "/status", "", 200, executor.StateRunning, ""},
		{"GET", "/wait?for=started", "", 200, executor.StateRunning, ""},
		{"GET", "/wait?for=godot", "", 400, "", `cannot wait for "godot"`},
		{"POST", "/stop", "{", 400, "", "read order: unexpected EOF"},
		{"POST", "/signal", `{"signal":1}`, 200, executor.StateRunning, ""},
		{"GET", "/stop", "", 405, "", ""},
		{"GET", "/nowhere", "", 404, "", ""},
		{"POST", "/stop", `{"signal":15,"timeout":"1m0s"}`, 200, executor.StateEnded, ""},
	}
	for _, test := range tests {
		code, answer := ask(t, runDir, test.method, test.target, test.body)
		if code != test.code {
			t.Errorf("%s %s answers %d", test.method, test.target, code)
		}
		var status executor.Status
		var refusal api.Error
		if code == 200 {
			if err := json.Unmarshal(answer, &status); err != nil {
				t.Errorf("%s %s answers %q", test.method, test.target, answer)
			}
		}
		if test.refusal != "" {
			if err := json.Unmarshal(answer, &refusal); err != nil {
				t.Errorf("%s %s answers %q", test.method, test.target, answer)
			}
		}
		if status.State != test.state || refusal.Message != test.refusal {
			t.Errorf("%s %s answers %s", test.method, test.target, answer)
		}
	}
	waitFor(t, spec.Stdout, "ready\nhup\n")
	if got, err := tasks.Status(ctx(t), spec.ID); got.ExitCode != 9 || err != nil {
		t.Errorf("the task ended so: %+v, %v", got, err)
	}
}

// ask speaks to the supervisor of the only task.
func ask(t *testing.T, runDir, method, target, body string) (code int, answer []byte) {
	t.Helper()
	sockets, err := filepath.Glob(filepath.Join(runDir, "*", "sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets: %q, %v", sockets, err)
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", sockets[0])
		},
	}}
	req, err := http.NewRequestWithContext(ctx(t), method, "http://supervisor"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// waitFor waits until a file has the content.
func waitFor(t *testing.T, path, want string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for c := ctx(t); ; {
		b, _ := os.ReadFile(path)
		if string(b) == want {
			return
		}
		select {
		case <-tick.C:
		case <-c.Done():
			t.Fatalf("%s holds %q, not %q", path, b, want)
		}
	}
}

func TestSupervisorIsStartedByAgentsOnly(t *testing.T) {
	t.Parallel()
	tasks, runDir := newTasks(t)
	spec := script(t, tasks, "once/task", "sleep 1000")
	if err := tasks.Start(ctx(t), spec); err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(runDir, "*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("run directories: %q, %v", dirs, err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(self, "executor", dirs[0]).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "only an agent starts a supervisor") {
		t.Errorf("a second supervisor says %q, %v", out, err)
	}
	if got, err := tasks.Status(ctx(t), spec.ID); got.State != executor.StateRunning || err != nil {
		t.Errorf("it disturbed the first: %+v, %v", got, err)
	}
}

func TestUnlinkedDataIsNeverRemoved(t *testing.T) {
	t.Parallel()
	tasks, runDir := newTasks(t)
	spec := script(t, tasks, "careful/task", "exit 0")
	run(t, tasks, spec)
	dirs, err := filepath.Glob(filepath.Join(runDir, "*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("run directories: %q, %v", dirs, err)
	}
	root := filepath.Join(dirs[0], "root")
	// Somebody has mounted a volume there by hand, and somebody else has put a
	// file where there should be mount points only.
	volume := t.TempDir()
	precious := filepath.Join(volume, "precious")
	if err := os.WriteFile(precious, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	point := filepath.Join(root, "data", "deep")
	if err := os.MkdirAll(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(volume, point, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "data", "file")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = tasks.Destroy(ctx(t), spec.ID)
	if err == nil || !strings.Contains(err.Error(), file+" is not empty, and no mount point") {
		t.Errorf("destroy says %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := tasks.Destroy(ctx(t), spec.ID); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(precious); string(b) != "data" {
		t.Errorf("the volume's file holds %q, %v", b, err)
	}
}

// smallDisk is a disk of its own at dir, which is soon full.
func smallDisk(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestEndOnFullDiskIsTheTasksOwn: nobody takes a task that did its work for one
// that was killed because its end could not be written down.
func TestEndOnFullDiskIsTheTasksOwn(t *testing.T) {
	t.Parallel()
	tasks, runDir := newTasks(t)
	smallDisk(t, runDir)
	spec := script(t, tasks, "full/end", "while [ ! -e go ]; do sleep 0.02; done; exit 7")
	if err := tasks.Start(ctx(t), spec); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(runDir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk does not fill: %v", err)
	}
	if err := os.WriteFile(filepath.Join(spec.Cwd, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := tasks.Wait(ctx(t), spec.ID)
	if err != nil || got.ExitCode != 7 || got.Signal != 0 || got.Reason != "" {
		t.Errorf("the task ended so: %+v, %v", got, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Error(err)
	}
}

// TestStartOnFullDiskSaysSo, also if the supervisor has no room for its words.
func TestStartOnFullDiskSaysSo(t *testing.T) {
	t.Parallel()
	tasks, runDir := newTasks(t)
	smallDisk(t, runDir)
	spec := script(t, tasks, "full/start", "exit 0")
	// Of the room that is left, the spec takes some, and what comes after it the
	// rest: in one of these the supervisor is the one that has none.
	const page = 4 << 10
	for free := range 4 {
		filler := filepath.Join(runDir, "filler")
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		size := int64(0)
		for ; ; size += page {
			if _, err := f.Write(make([]byte, page)); err != nil {
				break
			}
		}
		if err := errors.Join(f.Truncate(max(0, size-int64(free)*page)), f.Close()); err != nil {
			t.Fatal(err)
		}
		err = tasks.Start(ctx(t), spec)
		if err != nil && !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("with %d pages free: %v", free, err)
		}
		if err := errors.Join(tasks.Destroy(ctx(t), spec.ID), os.Remove(filler)); err != nil {
			t.Fatal(err)
		}
	}
}
