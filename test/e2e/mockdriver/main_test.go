package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	mockdriver "github.com/berth-dev/berth/test/e2e/mockdriver"
)

// patience is how long a test waits for a process before it calls it stuck.
const patience = 30 * time.Second

// asProgram in the environment turns the test binary into mockdriver. The mock
// keeps a package variable that New overwrites, so servers that run in parallel
// must be processes; being this binary, they have the race detector too.
const asProgram = "MOCKDRIVER_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		mockdriver.Main()
		return
	}
	m.Run()
}

// program is a command that runs mockdriver.
func program(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	return cmd
}

// driver is a running mockdriver, and a client of it.
type driver struct {
	csi.IdentityClient
	csi.ControllerClient
	csi.NodeClient

	socket string
	cmd    *exec.Cmd
	ended  chan struct{}
	err    error // from cmd.Wait, set when ended closes
}

// start runs mockdriver on a socket in dir. It ends with the test.
func start(t *testing.T, dir string, args ...string) *driver {
	t.Helper()
	return startWith(t, dir, nil, append([]string{"-endpoint", "unix://" + filepath.Join(dir, "csi.sock")}, args...)...)
}

// startWith is start with more environment, and with no -endpoint of its own.
func startWith(t *testing.T, dir string, env []string, args ...string) *driver {
	t.Helper()
	d := &driver{socket: filepath.Join(dir, "csi.sock"), ended: make(chan struct{})}
	log := new(bytes.Buffer)
	d.cmd = program(args...)
	d.cmd.Env = append(d.cmd.Env, env...)
	d.cmd.Stderr = log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
		cancel()
	}()
	t.Cleanup(func() {
		if err := d.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("kill: %v", err)
		}
		<-d.ended
		if t.Failed() {
			t.Logf("mockdriver %q:\n%s", args, log)
		}
	})

	conn, err := grpc.NewClient("unix://"+d.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// The default would wait a second if the socket is not there at once.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, MaxDelay: 10 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	d.IdentityClient = csi.NewIdentityClient(conn)
	d.ControllerClient = csi.NewControllerClient(conn)
	d.NodeClient = csi.NewNodeClient(conn)

	// Any answer will do: what it says is the test's business.
	_, err = d.Probe(ctx, &csi.ProbeRequest{}, grpc.WaitForReady(true))
	if ctx.Err() != nil {
		t.Fatalf("wait for the socket: %v", err)
	}
	return d
}

// exit waits for the process to end and returns its exit status.
func (d *driver) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-d.ended:
	case <-time.After(patience):
		t.Fatal("the process did not end")
	}
	if exit, ok := errors.AsType[*exec.ExitError](d.err); ok {
		return exit.ExitCode()
	}
	if d.err != nil {
		t.Fatal(d.err)
	}
	return 0
}

// terminate sends SIGTERM and returns the exit status.
func (d *driver) terminate(t *testing.T) int {
	t.Helper()
	if err := d.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	return d.exit(t)
}

// line is what the calls file promises, as a reader who has only its
// documentation would write it.
type line struct {
	Time     time.Time      `json:"time"`
	Method   string         `json:"method"`
	Request  map[string]any `json:"request"`
	Response map[string]any `json:"response"`
	Code     string         `json:"code"`
	Message  string         `json:"message"`
}

// lines reads a calls file, without the probes that start sends.
func lines(t *testing.T, path string) []line {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []line
	for text := range bytes.Lines(data) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatalf("%v in line %q", err, text)
		}
		if l.Method != "Probe" {
			all = append(all, l)
		}
	}
	return all
}

// outcomes are the lines as "METHOD CODE".
func outcomes(lines []line) []string {
	var all []string
	for _, l := range lines {
		all = append(all, l.Method+" "+l.Code)
	}
	return all
}

// equal fails the test with a diff.
func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// must is for calls that have to work: must(call)(t) is the reply.
func must[T any](reply T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatalf("%T: %v", reply, err)
		}
		return reply
	}
}

// codeName is the error's code, for a diff.
func codeName(err error) string { return status.Code(err).String() }
