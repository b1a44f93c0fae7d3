// Package host runs Berth as its users do, as processes of the real binary on
// this machine, and accounts for what they leave behind. It is for tests that
// need root.
//
// It ends only processes that it started. Invariant: a test that passes leaves
// the mount table, the loop devices, the network namespaces and the processes
// of the machine as they were.
package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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

	"github.com/berth-dev/berth/api/client"
)

// Options say how an agent is started.
type Options struct {
	// Config is HCL that is added to the agent's configuration.
	Config string
	// Args are added to `berth agent --dev`.
	Args []string
	// Apart runs the server as a process of its own, which can be killed without
	// the agent. Nothing ends what such an agent runs but the test itself.
	Apart bool
	// Boot is where the agent runs, and nil for the machine as it is.
	Boot *Boot
	// Disk is the size in MiB of a file system for the agent's data, and 0 for
	// the machine's own.
	Disk int
	// Data is the data directory, where that is given: a path that the boot has for
	// itself. Raft is the server's address that belongs to it.
	Data, Raft string
	// Service: the agent is no development agent, but what Config says.
	Service bool
}

// Berth is one development agent: server, agent and local driver; or, apart, a
// server and an agent.
type Berth struct {
	tb      testing.TB
	binary  string
	DataDir string
	config  string
	opts    Options
	http    string
	raft    string
	server  *exec.Cmd // if it is apart and runs

	mu     sync.Mutex // guards below
	cmd    *exec.Cmd
	exited chan struct{}
	output bytes.Buffer
}

// startLimit bounds how long an agent may take until its node is registered.
const startLimit = 20 * time.Second

// Start starts a development agent. It ends with the test, and what it leaves
// is then a failure.
func Start(tb testing.TB, opts Options) *Berth {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Fatal("this test mounts file systems: run it as root")
	}
	before := look(tb)
	// Short, because drivers and sockets need short paths.
	dir, err := os.MkdirTemp("/tmp", "berth")
	if err != nil {
		tb.Fatal(err)
	}
	b := &Berth{
		tb: tb, binary: Binary(tb), DataDir: filepath.Join(dir, "d"), config: filepath.Join(dir, "berth.hcl"),
		opts: opts, http: FreeAddress(tb), raft: FreeAddress(tb),
	}
	if opts.Data != "" {
		b.DataDir, b.raft = opts.Data, opts.Raft
	}
	if opts.Apart {
		b.opts.Config += fmt.Sprintf("client {\n enabled = true\n servers = [%q]\n}\n", "http://"+b.http)
	}
	if err := os.WriteFile(b.config, []byte(b.opts.Config), 0o600); err != nil {
		tb.Fatal(err)
	}
	if opts.Disk > 0 {
		b.mount(opts.Disk)
	}
	tb.Cleanup(func() {
		b.Stop()
		b.KillServer()
		if tb.Failed() {
			b.scrub()
		}
		if opts.Disk > 0 {
			if err := syscall.Unmount(b.DataDir, 0); err != nil {
				tb.Errorf("unmount %s: %v", b.DataDir, err)
			}
		}
		if tb.Failed() {
			tb.Logf("output of the agent:\n%s", b.Output())
		}
		before.compare(tb, dir)
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	if opts.Apart {
		b.StartServer()
	}
	b.Resume()
	return b
}

// Binary is the program that runs.
func (b *Berth) Binary() string { return b.binary }

// scrub ends what a test that failed leaves running and mounted on the agent's
// data: it would stay for ever.
func (b *Berth) scrub() {
	for _, pid := range b.below() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with another
	}
	var at []string
	for path := range mounts(b.tb) {
		if strings.HasPrefix(path, b.DataDir+"/") {
			at = append(at, path)
		}
	}
	slices.Sort(at)
	for _, path := range slices.Backward(at) {
		_ = syscall.Unmount(path, syscall.MNT_DETACH) // the test has failed already
	}
}

// mount makes a file system of that many MiB for the agent's data.
func (b *Berth) mount(size int) {
	b.tb.Helper()
	if err := os.Mkdir(b.DataDir, 0o700); err != nil {
		b.tb.Fatal(err)
	}
	if err := syscall.Mount("berth-test", b.DataDir, "tmpfs", 0, fmt.Sprintf("size=%dm", size)); err != nil {
		b.tb.Fatal(err)
	}
}

// Fill leaves no room on the agent's file system, until Empty is called.
func (b *Berth) Fill() {
	b.tb.Helper()
	f, err := os.Create(b.filler())
	if err != nil {
		b.tb.Fatal(err)
	}
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
	if err := f.Close(); err != nil {
		b.tb.Fatal(err)
	}
}

// Empty gives back the room.
func (b *Berth) Empty() {
	b.tb.Helper()
	if err := os.Remove(b.filler()); err != nil {
		b.tb.Error(err)
	}
}

func (b *Berth) filler() string { return filepath.Join(b.DataDir, "filler") }

// StartServer starts the server of an agent that is apart from it.
func (b *Berth) StartServer() {
	b.tb.Helper()
	config := filepath.Join(filepath.Dir(b.config), "server.hcl")
	if err := os.WriteFile(config, []byte("server {\n enabled = true\n}\n"), 0o600); err != nil {
		b.tb.Fatal(err)
	}
	cmd := exec.Command(b.binary, "agent", "--data-dir", filepath.Join(filepath.Dir(b.config), "s"), "--config", config, //nolint:noctx // it ends by signals
		"--http-address", b.http, "--raft-address", b.raft)
	cmd.Stdout, cmd.Stderr = &locked{b: b}, &locked{b: b}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.tb.Fatal(err)
	}
	b.server = cmd
}

// KillServer kills the server, if it is apart.
func (b *Berth) KillServer() {
	if b.server != nil {
		_ = b.server.Process.Kill() // it may have ended by itself
		_ = b.server.Wait()
		b.server = nil
	}
}

// Join starts another agent on this machine, with a configuration that names no
// server: it is a node of this one's. It ends with the test, which sees to it
// that nothing runs there then.
func (b *Berth) Join(name, config string) *Berth {
	b.tb.Helper()
	dir := filepath.Join(filepath.Dir(b.DataDir), name)
	n := &Berth{
		tb: b.tb, binary: b.binary, DataDir: dir, config: dir + ".hcl", http: b.http, raft: b.raft,
		opts: Options{Service: true, Args: []string{"--name", name}},
	}
	config = fmt.Sprintf("client {\n  enabled = true\n  servers = [%q]\n}\n%s", "http://"+b.http, config)
	if err := os.WriteFile(n.config, []byte(config), 0o600); err != nil {
		b.tb.Fatal(err)
	}
	b.tb.Cleanup(func() {
		n.Stop()
		if b.tb.Failed() {
			b.tb.Logf("output of agent %s:\n%s", name, n.Output())
		}
	})
	n.Resume()
	n.Eventually("node "+name+" is ready", startLimit, func() error {
		out, _, _ := n.Try("node", "list")
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, name+"-") && strings.Contains(line, "ready") {
				return nil
			}
		}
		return errors.New(out)
	})
	return n
}

// Binary is the berth binary: BERTH_BINARY, or one that is built for the tests.
func Binary(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv("BERTH_BINARY"); path != "" {
		return path
	}
	return build(tb, "..", "github.com/berth-dev/berth/cmd/berth", "berth")
}

// build builds a program once for all tests of a process tree.
func build(tb testing.TB, dir, pkg, name string) string {
	tb.Helper()
	path := filepath.Join(os.TempDir(), "berth-test-"+name)
	cmd := exec.CommandContext(context.Background(), "go", "build", "-o", path, pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

// FreeAddress is an address on loopback that nobody listens on now. Its port is
// none that the kernel gives to connections, which one may have by the time that
// an agent is started again.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(22_000))
		if l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	tb.Fatal("no port is free")
	return ""
}

// Resume starts the agent on what the last one left behind, and returns when
// its node is registered.
func (b *Berth) Resume() {
	b.tb.Helper()
	exited := b.Launch()
	b.Eventually("the node is ready", startLimit, func() error {
		select {
		case <-exited:
			b.tb.Fatalf("the agent ended\n%s", b.Output())
		default:
		}
		out, _, _ := b.Try("node", "list")
		if !strings.Contains(out, "ready") {
			return fmt.Errorf("nodes: %s", out)
		}
		return nil
	})
}

// Reboot makes the next agent one of another boot.
func (b *Berth) Reboot(boot *Boot) { b.opts.Boot = boot }

// Launch starts the agent on what the last one left behind, and waits for
// nothing. What it answers is closed when the agent ends.
func (b *Berth) Launch() (ended <-chan struct{}) {
	b.tb.Helper()
	args := []string{b.binary, "agent", "--data-dir", b.DataDir, "--config", b.config}
	if !b.opts.Apart {
		args = append(args, "--http-address", b.http, "--raft-address", b.raft)
	}
	if !b.opts.Apart && !b.opts.Service {
		args = append(args, "--dev")
	}
	cmd := b.opts.Boot.enter(append(args, b.opts.Args...)...)
	b.mu.Lock()
	cmd.Stdout, cmd.Stderr = &locked{b: b}, &locked{b: b}
	b.mu.Unlock()
	if err := cmd.Start(); err != nil {
		b.tb.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(exited)
	}()
	b.mu.Lock()
	b.cmd, b.exited = cmd, exited
	b.mu.Unlock()
	return exited
}

// locked collects output under the mutex.
type locked struct{ b *Berth }

func (l *locked) Write(p []byte) (int, error) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return l.b.output.Write(p)
}

// Reconfigure gives a running service another configuration, and tells it to read
// that.
func (b *Berth) Reconfigure(config string) {
	b.tb.Helper()
	if err := os.WriteFile(b.config, []byte(config), 0o600); err != nil {
		b.tb.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		b.tb.Fatal(err)
	}
}

// Output is what the agents have printed so far.
func (b *Berth) Output() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.output.String()
}

// Kill kills the agent with SIGKILL.
func (b *Berth) Kill() {
	b.tb.Helper()
	b.end(syscall.SIGKILL)
}

// Stop ends the agent as Ctrl-C does: its allocations end, its data goes.
func (b *Berth) Stop() {
	b.tb.Helper()
	state := b.end(syscall.SIGINT)
	if state != nil && !state.Success() {
		b.tb.Errorf("the agent ended with %s", state)
	}
}

// Interrupt ends the agent with SIGINT, and answers its exit status. A development
// agent that cannot end what it runs leaves it.
func (b *Berth) Interrupt() (status int) {
	b.tb.Helper()
	return b.end(syscall.SIGINT).ExitCode()
}

// HangUp ends the agent as a terminal that is closed does.
func (b *Berth) HangUp() {
	b.tb.Helper()
	state := b.end(syscall.SIGHUP)
	if state == nil || !state.Success() {
		b.tb.Errorf("the agent ended with %s", state)
	}
}

func (b *Berth) end(sig syscall.Signal) *os.ProcessState {
	b.mu.Lock()
	cmd, exited := b.cmd, b.exited
	b.cmd = nil
	b.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		b.tb.Error(err)
	}
	<-exited
	return cmd.ProcessState
}

// Try runs a command of berth against the agent.
func (b *Berth) Try(args ...string) (stdout, stderr string, status int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := b.Command(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return out.String(), errOut.String(), exit.ExitCode()
	case err != nil:
		return out.String(), err.Error(), -1
	}
	return out.String(), errOut.String(), 0
}

// Command is a command of berth against the agent, for the test to run.
func (b *Berth) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.binary, args...)
	cmd.Env = append(os.Environ(), "BERTH_ADDRESS=http://"+b.http)
	return cmd
}

// Client is a client of the agent's API. It ends with the test.
func (b *Berth) Client() *client.Client {
	b.tb.Helper()
	c, err := client.New(client.Config{Address: "http://" + b.http})
	if err != nil {
		b.tb.Fatal(err)
	}
	b.tb.Cleanup(c.Close)
	return c
}

// Run runs a command of berth that must succeed.
func (b *Berth) Run(args ...string) string {
	b.tb.Helper()
	out, errOut, status := b.Try(args...)
	if status != 0 {
		b.tb.Fatalf("berth %s: exit status %d\n%s%s", strings.Join(args, " "), status, out, errOut)
	}
	return out
}

// JSON runs a command of berth with --json and reads what it prints.
func (b *Berth) JSON(into any, args ...string) {
	b.tb.Helper()
	out := b.Run(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		b.tb.Fatalf("berth %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Apply applies a file with this content.
func (b *Berth) Apply(content string, flags ...string) string {
	b.tb.Helper()
	path := filepath.Join(b.tb.TempDir(), "spec.hcl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		b.tb.Fatal(err)
	}
	return b.Run(append([]string{"apply", path}, flags...)...)
}

// Eventually repeats check until it answers nil, and fails the test after limit.
func (b *Berth) Eventually(what string, limit time.Duration, check func() error) {
	b.tb.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			status, _, _ := b.Try("status")
			b.tb.Fatalf("%s: not within %s: %v\n%s", what, limit, err, status)
		}
	}
}
