package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asBerth makes the test binary berth itself.
const asBerth = "BERTH_TEST_AS_BERTH"

func TestMain(m *testing.M) {
	if os.Getenv(asBerth) != "" {
		main()
	}
	os.Exit(m.Run())
}

// running is a berth that a test runs. Its executable is found by a link that
// needs no right to the directory of the binary.
type running struct {
	t      *testing.T
	cmd    *exec.Cmd
	exited chan struct{}
	mu     sync.Mutex // guards output
	output bytes.Buffer
}

// limit bounds everything that a test waits for.
const limit = 30 * time.Second

func start(t *testing.T, uid uint32, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	r := &running{t: t, exited: make(chan struct{}), cmd: exec.CommandContext(ctx, "/proc/self/exe", args...)}
	r.cmd.Env, r.cmd.Dir = append(os.Environ(), asBerth+"=1"), "/"
	r.cmd.Stdout, r.cmd.Stderr = r, r
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait() // how it ended is in ProcessState
		close(r.exited)
	}()
	return r
}

// Write collects what the process prints.
func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.Write(p)
}

func (r *running) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.String()
}

// wait returns what it printed and the exit status.
func (r *running) wait() (string, int) {
	<-r.exited
	return r.text(), r.cmd.ProcessState.ExitCode()
}

// says waits until the process has printed a text.
func (r *running) says(what string) {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(r.text(), what) {
		select {
		case <-tick.C:
		case <-r.exited:
			r.t.Fatalf("it ended without %q:\n%s", what, r.text())
		}
	}
}

// interrupt ends it as Ctrl-C does.
func (r *running) interrupt() (string, int) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.t.Error(err)
	}
	return r.wait()
}

// ports are two addresses that nobody listens on, held by no one.
func ports(t *testing.T) (http, raft string) {
	t.Helper()
	a, errA := net.Listen("tcp", "127.0.0.1:0")
	b, errB := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	return a.Addr().String(), b.Addr().String()
}

// serverFile is the configuration of a server without a node.
func serverFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server.hcl")
	if err := os.WriteFile(path, []byte("server {\n  enabled = true\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestWrongFlags: every problem at once, exit status 2, and nothing is made.
func TestWrongFlags(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "d")
	for args, want := range map[string]string{
		"agent --data-dir " + dir: "berth: the configuration has a problem\n  server.enabled is false, and so is client.enabled: there is nothing to do; " +
			"set one of them in a file and give it with --config, or run with --dev\n",
		"agent --dev --log-level loud --log-format xml --http-address here --raft-address :7401 --data-dir " + dir: "berth: the configuration has 4 problems\n" +
			"  log_level is \"loud\"; use one of debug, info, warn, error\n" +
			"  log_format is \"xml\"; use one of text, json\n" +
			"  http.address is \"here\"; give a host and a port, such as 127.0.0.1:7400\n" +
			"  server.raft_address is \":7401\", which other servers cannot connect to; give one address of this machine, such as 127.0.0.1:7401\n",
		"agent --dev --config /none.hcl": "berth: the configuration has a problem\n  /none.hcl: cannot be read: no such file or directory; " +
			"give a file that is there, and that this user may read\n",
		"agent --deb":   "berth: unknown flag: --deb; did you mean --dev? (see 'berth agent --help')\n",
		"agent server":  "berth: berth agent does not take \"server\" (see 'berth agent --help')\n",
		"executor":      "berth: berth executor needs DIR (see 'berth executor --help')\n",
		"plugin locale": "berth: berth plugin has no command \"locale\"; did you mean local? (see 'berth plugin --help')\n",
		"plugin local --root r --endpoint s --node-id /": "berth: the local driver's config has 3 problems\n" +
			"  root is \"r\", which depends on the working directory; give an absolute path\n" +
			"  endpoint is \"s\", which is no absolute path of a unix socket; give a path such as unix:///run/berth/local/csi.sock\n" +
			"  node_id is \"/\", which cannot be a topology value; use 1 to 63 letters, digits, dots, dashes or underscores, the first and last a letter or digit\n",
		"plugin local --log-level loud --root " + dir: "berth: the log's configuration has a problem\n  log_level is \"loud\"; use one of debug, info, warn, error\n",
	} {
		if got, status := start(t, 0, strings.Fields(args)...).wait(); got != want || status != 2 {
			t.Errorf("berth %s: exit status %d, got\n%swant\n%s", args, status, got, want)
		}
	}
	if exists(dir) {
		t.Errorf("%s was made", dir)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if got, status := start(t, 0, "--version").wait(); !strings.HasPrefix(got, "berth ") || strings.Count(got, "\n") != 1 || status != 0 {
		t.Errorf("exit status %d, %q", status, got)
	}
}

// TestPortInUse: what stands in the way is said before anything is kept.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	free, _ := ports(t)
	used := taken.Addr().String()
	for args, want := range map[string]string{
		"--http-address " + used + " --raft-address " + free: "berth: listen for the API on " + used + ": listen tcp " + used +
			": bind: address already in use (is another server running? see --http-address)\n",
		"--http-address " + free + " --raft-address " + used: "berth: listen for raft on " + used + ": listen tcp " + used +
			": bind: address already in use (is another server running? see --raft-address)\n",
	} {
		dir := filepath.Join(t.TempDir(), "d")
		got, status := start(t, 0, append(strings.Fields("agent --dev --data-dir "+dir), strings.Fields(args)...)...).wait()
		if got != want || status != 1 || exists(dir) {
			t.Errorf("%s: exit status %d, the directory is there: %t, got\n%swant\n%s", args, status, exists(dir), got, want)
		}
	}
}

// TestFailedStartLeavesWhatItFound: an empty directory of somebody stays, and
// what an earlier development agent left stays whole.
func TestFailedStartLeavesWhatItFound(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	free, _ := ports(t)
	empty, left := t.TempDir(), t.TempDir()
	for _, name := range []string{devMark, "agent.db"} {
		if err := os.WriteFile(filepath.Join(left, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{empty, left} {
		args := []string{"agent", "--dev", "--data-dir", dir, "--http-address", free, "--raft-address", taken.Addr().String()}
		if out, status := start(t, 0, args...).wait(); status != 1 {
			t.Errorf("exit status %d\n%s", status, out)
		}
	}
	if entries, err := os.ReadDir(empty); err != nil || len(entries) > 0 {
		t.Errorf("the empty directory holds %v, %v", entries, err)
	}
	if !exists(filepath.Join(left, "agent.db")) || !exists(filepath.Join(left, devMark)) {
		t.Error("what an earlier agent left is gone")
	}
}

// TestSecondAgentOnADataDirectory: it hung for ever, waiting for the lock of
// the first one's log, deaf to Ctrl-C.
func TestSecondAgentOnADataDirectory(t *testing.T) {
	t.Parallel()
	dir, file := filepath.Join(t.TempDir(), "d"), serverFile(t)
	http, raft := ports(t)
	first := start(t, 0, "agent", "--config", file, "--data-dir", dir, "--http-address", http, "--raft-address", raft)
	first.says("leadership won")
	http2, raft2 := ports(t)
	got, status := start(t, 0, "agent", "--config", file, "--data-dir", dir, "--http-address", http2, "--raft-address", raft2).wait()
	want := "berth: another agent uses the data directory " + dir + ": stop that one, or choose another with --data-dir\n"
	if got != want || status != 1 {
		t.Errorf("exit status %d, got %q, want %q", status, got, want)
	}
	if out, status := first.interrupt(); status != 0 {
		t.Errorf("the first ended with %d:\n%s", status, out)
	}
	third := start(t, 0, "agent", "--config", file, "--data-dir", dir, "--http-address", http2, "--raft-address", raft2)
	third.says("leadership won")
	if out, status := third.interrupt(); status != 0 {
		t.Errorf("the third ended with %d:\n%s", status, out)
	}
}

// TestStartRightAfterAKill: the killed agent's lock is held a moment longer by
// what it was starting, and the next agent gave up.
func TestStartRightAfterAKill(t *testing.T) {
	t.Parallel()
	dir, file := filepath.Join(t.TempDir(), "d"), serverFile(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	http, raft := ports(t)
	next := start(t, 0, "agent", "--config", file, "--data-dir", dir, "--http-address", http, "--raft-address", raft)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for late := time.After(limit); !next.opened(held.Name()); {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("it does not come to the lock:\n%s", next.text())
		}
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	next.says("leadership won")
	if out, status := next.interrupt(); status != 0 {
		t.Errorf("it ended with %d:\n%s", status, out)
	}
}

// opened reports whether the process has the file open.
func (r *running) opened(path string) bool {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", r.cmd.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	return slices.ContainsFunc(links, func(link string) bool {
		target, err := os.Readlink(link)
		return err == nil && target == path
	})
}

// TestCopiedDataDirectory: a copy of a data directory beside the original took
// the node over from the agent that ran.
func TestCopiedDataDirectory(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	file := filepath.Join(base, "berth.hcl")
	if err := os.WriteFile(file, []byte("server {\n  enabled = true\n}\nclient {\n  enabled = true\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	http, raft := ports(t)
	original := start(t, 0, "agent", "--config", file, "--data-dir", filepath.Join(base, "d"), "--http-address", http, "--raft-address", raft)
	original.says("registered")
	db, err := os.ReadFile(filepath.Join(base, "d", "agent.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(base, "copy"), 0o700), os.WriteFile(filepath.Join(base, "copy", "agent.db"), db, 0o600)); err != nil {
		t.Fatal(err)
	}
	http2, raft2 := ports(t)
	got, status := start(t, 0, "agent", "--config", file, "--data-dir", filepath.Join(base, "copy"), "--http-address", http2, "--raft-address", raft2).wait()
	if status != 1 || !strings.Contains(got, "another agent on this machine is node ") || !strings.Contains(got, "was its data directory copied?") {
		t.Errorf("the copy: exit status %d, got %q", status, got)
	}
	if out, status := original.interrupt(); status != 0 {
		t.Errorf("the original ended with %d:\n%s", status, out)
	}
}

// TestDevelopmentAgentTakesNoDirectoryOfOthers: with --dev --data-dir $HOME it
// removed the home directory when it ended.
func TestDevelopmentAgentTakesNoDirectoryOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	letter := filepath.Join(dir, "letter")
	if err := os.WriteFile(letter, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	http, raft := ports(t)
	got, status := start(t, 0, "agent", "--dev", "--data-dir", dir, "--http-address", http, "--raft-address", raft).wait()
	want := "berth: " + dir + " is not empty, and no 'berth agent --dev' made it: with --dev it would be removed at the end; choose an empty directory with --data-dir\n"
	if got != want || status != 2 {
		t.Errorf("exit status %d, got %q, want %q", status, got, want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v is left (%v)", left, err)
	}
}

// TestDevelopmentAgentRemovesWhatItMade, also what one before it left that was
// killed; and no longer what a real agent has used since.
func TestDevelopmentAgentRemovesWhatItMade(t *testing.T) {
	t.Parallel()
	// Short, for the driver's socket.
	parent, err := os.MkdirTemp("/tmp", "berth")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	dir := filepath.Join(parent, "d")
	http, raft := ports(t)
	where := []string{"--data-dir", dir, "--http-address", http, "--raft-address", raft}
	killed := start(t, 0, append([]string{"agent", "--dev"}, where...)...)
	killed.says("registered")
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.wait()
	next := start(t, 0, append([]string{"agent", "--dev"}, where...)...)
	next.says("registered")
	out, status := next.interrupt()
	if status != 0 || !strings.Contains(out, "development agent on "+http+", data in "+dir+"; end it with Ctrl-C\n") {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	if exists(dir) {
		t.Errorf("%s is left", dir)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, devMark), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	earnest := start(t, 0, append([]string{"agent", "--config", serverFile(t)}, where...)...)
	earnest.says("leadership won")
	earnest.interrupt()
	if got, status := start(t, 0, append([]string{"agent", "--dev"}, where...)...).wait(); status != 2 || !strings.Contains(got, "is not empty") {
		t.Errorf("after a real agent: exit status %d:\n%s", status, got)
	}
}

// nobody is a user that may do nothing.
const nobody = 65534

// TestNotRoot: who may not write the data directory learns what to do, and who
// may is told what will not work.
func TestNotRoot(t *testing.T) {
	t.Parallel()
	http, raft := ports(t)
	dir, err := os.MkdirTemp("/tmp", "berth")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	where := []string{"agent", "--dev", "--http-address", http, "--raft-address", raft, "--data-dir"}
	got, status := start(t, nobody, append(where, filepath.Join(dir, "d"))...).wait()
	if !strings.HasPrefix(got, "berth: make data directory: mkdir "+dir) || !strings.HasSuffix(got, ": permission denied (run as root, or choose another with --data-dir)\n") || status != 1 {
		t.Errorf("exit status %d, %q", status, got)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	got, status = start(t, nobody, append(where, dir)...).wait()
	if want := "berth: look into data directory: open " + dir + ": permission denied (run as root, or choose another with --data-dir)\n"; got != want || status != 1 {
		t.Errorf("exit status %d, got %q, want %q", status, got, want)
	}
	own, err := os.MkdirTemp("/tmp", "berth")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(own) })
	if err := os.Chown(own, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	r := start(t, nobody, append(where, own)...)
	r.says("not root: volumes are not mounted")
	r.says("registered")
	r.interrupt()
}

// TestAllThatAnAgentSaysIsJSON, where that was asked for: what reads its lines
// reads nothing else, on either stream, from its start to its end.
func TestAllThatAnAgentSaysIsJSON(t *testing.T) {
	t.Parallel()
	// Short, for the driver's socket.
	parent, err := os.MkdirTemp("/tmp", "berth")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(parent) })
	http, raft := ports(t)
	agent := start(t, 0, "agent", "--dev", "--log-format", "json", "--data-dir", filepath.Join(parent, "d"), "--http-address", http, "--raft-address", raft)
	agent.says("registered")
	out, status := agent.interrupt()
	if status != 0 {
		t.Errorf("exit status %d", status)
	}
	var messages []string
	for line := range strings.Lines(out) {
		var one struct {
			Time    time.Time `json:"time"`
			Level   string    `json:"level"`
			Message string    `json:"msg"`
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil || one.Time.IsZero() || one.Level == "" || one.Message == "" {
			t.Errorf("%q is no line of the log: %v", line, err)
		}
		messages = append(messages, one.Message)
	}
	if !slices.Contains(messages, "development agent") {
		t.Errorf("nothing says where the agent is: %q", messages)
	}
}
