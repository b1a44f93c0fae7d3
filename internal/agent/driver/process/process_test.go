package process_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/agent/driver/process"
)

// spawn starts a process that is killed when the test ends, if not before.
func spawn(t *testing.T, name string, args ...string) (*exec.Cmd, process.ID) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	id, err := process.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, id
}

func TestSelfIsThisProcess(t *testing.T) {
	t.Parallel()
	id, err := process.Self()
	if err != nil || id.PID != os.Getpid() || id.Start == 0 || len(id.Boot) != 36 {
		t.Errorf("this process is %+v, %v", id, err)
	}
	if again, err := process.Of(os.Getpid()); again != id || err != nil {
		t.Errorf("a second look finds %+v, %v, not %+v", again, err, id)
	}
}

func TestSignalReachesTheProcess(t *testing.T) {
	t.Parallel()
	cmd, id := spawn(t, "sleep", "1000")
	if err := id.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the process ended with %v", err)
	}
	if err := id.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signalling it once more: %v", err)
	}
	if _, err := process.Of(id.PID); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("looking at it once more: %v", err)
	}
}

func TestSignalSparesAnother(t *testing.T) {
	t.Parallel()
	_, id := spawn(t, "sleep", "1000")
	earlier, otherBoot, nobody := id, id, process.ID{}
	earlier.Start--
	otherBoot.Boot = "00000000-0000-0000-0000-000000000000"
	for _, wrong := range []process.ID{earlier, otherBoot, nobody} {
		if err := wrong.Signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("signalling %+v: %v", wrong, err)
		}
	}
	if err := id.Signal(0); err != nil {
		t.Errorf("the process that has the number now: %v", err)
	}
}

func TestOddNamesAreRead(t *testing.T) {
	t.Parallel()
	// A process may call itself anything, even what looks like other fields.
	_, id := spawn(t, "python3", "-c", `
import ctypes, time
ctypes.CDLL(None).prctl(15, b") R 1 (a b) 2", 0, 0, 0)
print("ready", flush=True)
time.sleep(1000)`)
	waitComm(t, id.PID, ") R 1 (a b) 2")
	if again, err := process.Of(id.PID); again != id || err != nil {
		t.Errorf("renamed, the process is %+v, %v, not %+v", again, err, id)
	}
}

func waitComm(t *testing.T, pid int, want string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); ; {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
		if strings.TrimSpace(string(b)) == want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %d is called %q", pid, b)
		}
	}
}

func TestKillSessionKillsWhatTheLeaderLeft(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo $!; sleep 1000 & echo $!; setsid sleep 1000 & echo $!; read x")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	leader, err := process.Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	var members []process.ID
	lines := bufio.NewScanner(out)
	for len(members) < 3 && lines.Scan() {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		id, err := process.Of(pid)
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, id)
	}
	escaped := members[2]
	waitSession(t, escaped.PID)
	t.Cleanup(func() { _ = escaped.Signal(syscall.SIGKILL) })
	// The leader ends, and leaves the others behind.
	_ = in.Close()
	_ = cmd.Process.Kill()
	_, _ = cmd.Process.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := process.KillSession(ctx, leader); err != nil {
		t.Fatal(err)
	}
	for _, id := range members[:2] {
		if b, err := os.ReadFile("/proc/" + strconv.Itoa(id.PID) + "/stat"); err == nil && !strings.Contains(string(b), ") Z ") {
			t.Errorf("process %d of the session is alive: %s", id.PID, b)
		}
	}
	if err := escaped.Signal(0); err != nil {
		t.Errorf("a process of another session was killed: %v", err)
	}
}

// waitSession waits until a process leads a session of its own.
func waitSession(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); ; {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if strings.Fields(rest)[3] == strconv.Itoa(pid) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %d leads no session", pid)
		}
	}
}

func TestKillSessionSparesAnother(t *testing.T) {
	t.Parallel()
	_, leader := spawn(t, "sleep", "1000")
	earlier := leader
	earlier.Start--
	otherBoot := leader
	otherBoot.Boot = "00000000-0000-0000-0000-000000000000"
	for _, wrong := range []process.ID{earlier, otherBoot, {}} {
		if err := process.KillSession(t.Context(), wrong); err != nil {
			t.Errorf("kill session of %+v: %v", wrong, err)
		}
	}
	if err := leader.Signal(0); err != nil {
		t.Errorf("the session that has the number now: %v", err)
	}
}
