package host

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Mock is Kubernetes' mock CSI driver as a process.
type Mock struct {
	tb     testing.TB
	dir    string
	Socket string
	calls  string
	args   []string
	cmd    *exec.Cmd
	exited chan struct{}
}

// Call is one call that the mock has recorded.
type Call struct {
	Method   string          `json:"method"`
	Request  json.RawMessage `json:"request"`
	Response json.RawMessage `json:"response"`
	Code     string          `json:"code"`
}

// StartMock starts the mock with these flags. It ends with the test.
func StartMock(tb testing.TB, flags ...string) *Mock {
	tb.Helper()
	m := NewMock(tb)
	m.SetFlags(flags...)
	m.Start()
	tb.Cleanup(m.Stop)
	return m
}

// NewMock is a mock that is not started: a job is to run it.
func NewMock(tb testing.TB) *Mock {
	tb.Helper()
	dir, err := os.MkdirTemp("/tmp", "mock")
	if err != nil {
		tb.Fatal(err)
	}
	m := &Mock{tb: tb, dir: dir, Socket: filepath.Join(dir, "csi.sock"), calls: filepath.Join(dir, "calls")}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return m
}

// Binary is the mock's program.
func (m *Mock) Binary() string { return mockBinary(m.tb) }

// Dir is a directory for the mock, where Calls looks for them too.
func (m *Mock) Dir() string { return m.dir }

// Install copies a program to where isolated tasks find it, until the test ends.
func Install(tb testing.TB, program string) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/opt", "berth-test-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	content, err := os.ReadFile(program)
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(dir, filepath.Base(program))
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(path, content, 0o755)); err != nil {
		tb.Fatal(err)
	}
	return path
}

// mockBinary is BERTH_MOCKDRIVER, or one that is built for the tests.
func mockBinary(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv("BERTH_MOCKDRIVER"); path != "" {
		return path
	}
	return build(tb, filepath.Join("..", "e2e", "mockdriver"), ".", "mockdriver")
}

// Start starts the process, and returns when it listens.
func (m *Mock) Start() {
	m.tb.Helper()
	var output bytes.Buffer
	m.cmd = exec.Command(mockBinary(m.tb), m.args...) //nolint:noctx // it ends by signals
	m.cmd.Stdout, m.cmd.Stderr = &output, &output
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	m.exited = listens(m.tb, "the mock", m.cmd, m.Socket, &output)
}

// Exited is closed when the process has ended.
func (m *Mock) Exited() <-chan struct{} { return m.exited }

// Stop ends the process.
func (m *Mock) Stop() {
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		m.tb.Error(err)
	}
	<-m.exited
}

// SetFlags changes the flags for the next Start.
func (m *Mock) SetFlags(flags ...string) {
	m.args = append([]string{"-endpoint", "unix://" + m.Socket, "-calls", m.calls}, flags...)
	if slices.Contains(flags, "-real-mounts") {
		m.args = append(m.args, "-state-dir", filepath.Join(m.dir, "state"))
	}
}

// Calls are the calls so far that have an effect, in order.
func (m *Mock) Calls() []Call {
	m.tb.Helper()
	return ReadCalls(m.tb, m.calls)
}

// ReadCalls reads the calls that have an effect from a file of a mock that a job
// runs.
func ReadCalls(tb testing.TB, path string) []Call {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	var all []Call
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var c Call
		if err := json.Unmarshal(scan.Bytes(), &c); err != nil {
			tb.Fatal(err)
		}
		for _, effect := range []string{"Create", "Delete", "Publish", "Unpublish", "Stage", "Unstage", "Expand", "Modify"} {
			if strings.Contains(c.Method, effect) {
				all = append(all, c)
				break
			}
		}
	}
	if err := scan.Err(); err != nil {
		tb.Fatal(err)
	}
	return all
}

// Sequence renders calls as "Method CODE", one in a line.
func Sequence(calls []Call) string {
	var b strings.Builder
	for _, c := range calls {
		b.WriteString(c.Method + " " + c.Code + "\n")
	}
	return b.String()
}
