package integration_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const visitedFile = `
job "db" {
  group "main" {
    task "alone" {
      driver = "exec"
      env { COLOUR = "blue" }
      config {
        command = "/bin/sleep"
        args    = ["100000"]
      }
    }
    task "bare" {
      driver = "raw_exec"
      env { COLOUR = "red" }
      config {
        command = "/bin/sleep"
        args    = ["100000"]
      }
    }
  }
}
`

// screen is a terminal that a person sits at.
type screen struct {
	t    *testing.T
	keys *os.File
	far  *os.File

	mu    sync.Mutex // guards below
	shown bytes.Buffer
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, keys: os.NewFile(uintptr(fd), "ptmx")}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if s.far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := s.keys.Read(buf)
			s.mu.Lock()
			s.shown.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = s.far.Close()
		_ = s.keys.Close()
		watching.Wait()
	})
	return s
}

func (s *screen) resize(rows, columns uint16) {
	s.t.Helper()
	if err := unix.IoctlSetWinsize(int(s.keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) modes() unix.Termios {
	s.t.Helper()
	m, err := unix.IoctlGetTermios(int(s.far.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return *m
}

func (s *screen) enter(keys string) {
	s.t.Helper()
	if _, err := io.WriteString(s.keys, keys); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) shows(what string) func() error {
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if strings.Contains(s.shown.String(), what) {
			return nil
		}
		return fmt.Errorf("the screen shows %q, not %q", s.shown.String(), what)
	}
}

// run runs a command at the terminal.
func (s *screen) run(cmd *exec.Cmd) {
	s.t.Helper()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.far, s.far, s.far
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(cmd.Env, "TERM=vt102")
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// TestShellInATask: a person's shell in a task, at a real terminal, through real
// processes: its size, its keys, its end; and their own terminal is as it was.
func TestShellInATask(t *testing.T) {
	t.Parallel()
	b, id, ctx := runs(t, visitedFile, "db")
	for _, tc := range []struct{ task, colour string }{{"alone", "blue"}, {"bare", "red"}} {
		s := newScreen(t)
		s.resize(33, 91)
		before := s.modes()
		cmd := b.Command(ctx, "alloc", "exec", "-it", "--task", tc.task, id, "sh")
		s.run(cmd)
		s.enter("stty size; echo \"=$TERM=$COLOUR=\"\n")
		b.Eventually("the shell has the terminal", limit, s.shows("=vt102="+tc.colour+"="))
		b.Eventually("and its size", limit, s.shows("33 91"))
		s.resize(20, 70)
		b.Eventually("the new size arrives", limit, func() error {
			s.enter("stty size\n")
			return s.shows("20 70")()
		})
		s.enter("trap 'echo heard' INT; echo at-$((6*7)); sleep 100000\n")
		b.Eventually("it sleeps", limit, s.shows("at-42"))
		s.enter("\x03")
		b.Eventually("the key is heard", limit, s.shows("heard\r\n"))
		s.enter("exit 5\n")
		err := cmd.Wait()
		var status *exec.ExitError
		if !errors.As(err, &status) || status.ExitCode() != 5 {
			t.Errorf("%s: the shell ended with 5, and berth with %v", tc.task, err)
		}
		if after := s.modes(); after != before {
			t.Errorf("%s: the terminal was %+v, and is %+v", tc.task, before, after)
		}
	}
	// What is piped arrives whole, and so does what is written.
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	cmd := b.Command(ctx, "alloc", "exec", "-i", "--task", "alone", id, "cat")
	cmd.Stdin = bytes.NewReader(big)
	if out, err := cmd.Output(); err != nil || !bytes.Equal(out, big) {
		t.Errorf("of %d bytes, %d came back (%v)", len(big), len(out), err)
	}
	b.Run("job", "stop", "db")
}

// TestNothingOutlivesItsVisitor: neither when the agent is killed nor when the
// visitor is does a command go on.
func TestNothingOutlivesItsVisitor(t *testing.T) {
	t.Parallel()
	b, id, ctx := runs(t, visitedFile, "db")
	marker := fmt.Sprint(200000000 + os.Getpid())
	runs := func() int {
		found := 0
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			if line, err := os.ReadFile(f); err == nil && bytes.Equal(line, []byte("sleep\x00"+marker+"\x00")) {
				found++
			}
		}
		return found
	}
	visit := func() []*exec.Cmd {
		var all []*exec.Cmd
		for _, task := range []string{"alone", "bare"} {
			cmd := b.Command(ctx, "alloc", "exec", "--task", task, id, "sh", "-c", "trap '' HUP; sleep "+marker+" & wait")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			all = append(all, cmd)
		}
		b.Eventually("both run", limit, func() error {
			if n := runs(); n != 2 {
				return fmt.Errorf("%d run", n)
			}
			return nil
		})
		return all
	}
	gone := func() error {
		if n := runs(); n != 0 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	}
	for _, cmd := range visit() {
		_ = cmd.Process.Kill() // it runs
		_ = cmd.Wait()         // it was killed
	}
	b.Eventually("what a killed visitor ran is gone", limit, gone)
	left := visit()
	began := time.Now()
	b.Kill()
	b.Eventually("what a killed agent served is gone", limit, gone)
	t.Logf("gone after %s", time.Since(began))
	for _, cmd := range left {
		if err := cmd.Wait(); err == nil {
			t.Error("a visitor was told that all is well")
		}
	}
	b.Resume()
	b.Run("job", "stop", "db")
}
