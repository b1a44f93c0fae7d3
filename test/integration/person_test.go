package integration_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/test/host"
)

// person is somebody at a terminal, with a binary and an agent.
type person struct {
	binary, data, http, raft string
	agent                    *exec.Cmd
}

// TestFirstTenMinutes are those of a person, as docs/quickstart.md tells them.
func TestFirstTenMinutes(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Fatal("this test mounts file systems: run it as root")
	}
	binary, err := filepath.Abs(host.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "berth") // short, because drivers and sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	p := &person{binary: binary, data: filepath.Join(dir, "d"), http: host.FreeAddress(t), raft: host.FreeAddress(t)}
	t.Cleanup(func() {
		if err := errors.Join(p.end(syscall.SIGINT), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	testscript.Run(t, testscript.Params{
		Files: []string{"testdata/first-ten-minutes.txtar"},
		Setup: func(env *testscript.Env) error {
			env.Setenv("BERTH_ADDRESS", "http://"+p.http)
			env.Setenv("DATA", p.data)
			env.Setenv("NO_COLOR", "1")
			examples, err := filepath.Abs("../../examples")
			if err != nil {
				return err
			}
			return os.CopyFS(filepath.Join(env.WorkDir, "examples"), os.DirFS(examples))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"berth": func(ts *testscript.TestScript, neg bool, args []string) {
				want := 0
				if neg {
					want = 1
				}
				p.expect(ts, want, args)
			},
			"misuse":    func(ts *testscript.TestScript, _ bool, args []string) { p.expect(ts, 2, args) },
			"until":     p.until,
			"agent":     func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(p.start(ts)) },
			"killagent": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(p.end(syscall.SIGKILL)) },
			"stopagent": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(p.end(syscall.SIGINT)) },
			"grows":     grows,
			"setenv": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile(args[1])))
			},
		},
	})
}

func (p *person) start(ts *testscript.TestScript) error {
	log, err := os.Create(ts.MkAbs("agent.log"))
	if err != nil {
		return err
	}
	p.agent = exec.CommandContext(context.Background(), p.binary, "agent", "--dev", "--data-dir", p.data, "--http-address", p.http, "--raft-address", p.raft)
	p.agent.Stdout, p.agent.Stderr = log, log
	p.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return errors.Join(p.agent.Start(), log.Close())
}

// end ends the agent by a signal, if it runs.
func (p *person) end(sig syscall.Signal) error {
	if p.agent == nil {
		return nil
	}
	err := p.agent.Process.Signal(sig)
	state, waitErr := p.agent.Process.Wait()
	p.agent = nil
	if sig != syscall.SIGKILL && waitErr == nil && !state.Success() {
		err = errors.Join(err, fmt.Errorf("the agent ended with %s", state))
	}
	return errors.Join(err, waitErr)
}

// run runs a command of berth, whose output is a terminal of 120 columns.
func (p *person) run(ts *testscript.TestScript, args []string) (stdout string, status int) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	near, far, err := terminal(120)
	ts.Check(err)
	cmd := exec.CommandContext(ctx, p.binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = ts.Getenv("WORK"), far, ts.Stderr()
	cmd.Env = []string{"BERTH_ADDRESS=" + ts.Getenv("BERTH_ADDRESS"), "NO_COLOR=1"}
	ts.Check(cmd.Start())
	ts.Check(far.Close())
	var out strings.Builder
	for lines := bufio.NewScanner(near); lines.Scan(); {
		out.WriteString(lines.Text() + "\n") // a terminal ends them with \r\n, which Scan takes off
	}
	_ = near.Close()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		ts.Fatalf("berth %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// terminal makes a terminal: what is written to far is read from near.
func terminal(columns uint16) (near, far *os.File, err error) {
	near, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(near.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: 40})
	}
	if err == nil {
		far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, near.Close())
	}
	return near, far, nil
}

func (p *person) expect(ts *testscript.TestScript, want int, args []string) {
	out, status := p.run(ts, args)
	_, _ = ts.Stdout().Write([]byte(out))
	if status != want {
		ts.Fatalf("exit status %d, want %d", status, want)
	}
}

// until repeats a command until its output has a pattern.
func (p *person) until(ts *testscript.TestScript, _ bool, args []string) {
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	last := ""
	ts.Check(eventually(func() bool {
		last, _ = p.run(ts, args[1:])
		return pattern.MatchString(last)
	}, func() string { return last }))
}

// grows waits until a file has become longer.
func grows(ts *testscript.TestScript, _ bool, args []string) {
	length := func() int64 {
		info, err := os.Stat(ts.MkAbs(args[0]))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	before := length()
	ts.Check(eventually(func() bool { return length() > before }, func() string { return fmt.Sprintf("%s has %d bytes", args[0], before) }))
}

func eventually(check func() bool, last func() string) error {
	deadline, tick := time.NewTimer(limit), time.NewTicker(100*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for !check() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("not within %s; last:\n%s", limit, last())
		}
	}
	return nil
}

// TestQuickStartIsTyped: what docs/quickstart.md tells to type is what the
// script types, in the same order.
func TestQuickStartIsTyped(t *testing.T) {
	t.Parallel()
	commands := func(path string, line *regexp.Regexp) (found []string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range line.FindAllStringSubmatch(string(b), -1) {
			found = append(found, m[1])
		}
		return found
	}
	typed := commands("testdata/first-ten-minutes.txtar", regexp.MustCompile(`(?m)^(?:(?:! )?berth|misuse) (.*)$`))
	page := commands("../../docs/quickstart.md", regexp.MustCompile(`(?m)^    \$ berth (.*)$`))
	page = slices.DeleteFunc(page, func(command string) bool { return strings.HasPrefix(command, "agent") })
	if len(page) < 10 {
		t.Fatalf("docs/quickstart.md tells to type %q", page)
	}
	rest := typed
	for _, command := range page {
		i := slices.Index(rest, command)
		if i < 0 {
			t.Fatalf("berth %s is not typed after the command before it (-page +script):\n%s", command, cmp.Diff(page, typed))
		}
		rest = rest[i+1:]
	}
}
