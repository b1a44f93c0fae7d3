package driver_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/agent/driver"
)

// lines is what a script says, line by line.
func lines(t *testing.T, d driver.Driver, spec driver.Spec) []string {
	t.Helper()
	stdout, stderr, end := run(t, d, spec)
	if stderr != "" || end.ExitCode != 0 || end.Signal != 0 {
		t.Errorf("the task complains: %q, %+v", stderr, end)
	}
	return strings.Split(strings.TrimSpace(stdout), "\n")
}

func TestEnvironmentIsExact(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		home := "/local"
		if d.Name() == driver.NameRawExec {
			home = "/nonexistent"
		}
		spec := w.spec("cat", "/proc/self/environ")
		spec.Task.User = "nobody"
		spec.Env = map[string]string{"GREETING": "hello world", "EMPTY": ""}
		stdout, _, _ := run(t, d, spec)
		got := strings.Split(strings.TrimSuffix(stdout, "\x00"), "\x00")
		slices.Sort(got)
		want := []string{
			"EMPTY=", "GREETING=hello world", "HOME=" + home,
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "USER=nobody",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}

		spec = w.spec("sh", "-c", `echo "$PATH $HOME $USER"`)
		spec.Env = map[string]string{"PATH": "/opt:/usr/bin", "HOME": "/tmp", "USER": "me"}
		if got, want := lines(t, d, spec), []string{"/opt:/usr/bin /tmp me"}; !slices.Equal(got, want) {
			t.Errorf("what the job sets became %q, not %q", got, want)
		}
	})
}

func TestTaskRunsAsItsUser(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ user, want string }{
		"Name":           {"daemon", "1:1:1"},
		"Number":         {"1", "1:1:1"},
		"NameAndGroup":   {"daemon:adm", "1:4:4"},
		"Numbers":        {"12345:54321", "12345:54321:54321"},
		"UnknownNumber":  {"12345", "12345:12345:12345"},
		"Root":           {"root", "0:0:0"},
		"ExecDefault":    {"", "65534:65534:65534"},
		"RawExecDefault": {"", "0:0:0"},
	}
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		for name, test := range tests {
			if name == "RawExecDefault" && d.Name() == driver.NameExec || name == "ExecDefault" && d.Name() != driver.NameExec {
				continue
			}
			spec := w.script(`echo "$(id -u):$(id -g):$(id -G)"; touch made $PWD/../tmp/made || touch /tmp/made; echo x > /dev/stderr`)
			spec.Task.User = test.user
			stdout, stderr, _ := run(t, d, spec)
			if got := strings.TrimSpace(stdout); got != test.want {
				t.Errorf("%s: user %q runs as %s, not as %s", name, test.user, got, test.want)
			}
			if stderr != "x\n" {
				t.Errorf("%s: stderr holds %q", name, stderr)
			}
			if _, err := os.Stat(filepath.Join(spec.Dir, "local", "made")); err != nil {
				t.Errorf("%s: the task does not own its directory: %v", name, err)
			}
		}
	})
}

// The directory of an allocation is closed to the machine's other users, and not
// to those as whom its tasks run.
func TestUserOfATaskComesToItsDirectories(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := w.script(`cat "$1/.alloc/shared" && cat "$1/task/local/own"`)
	alloc := filepath.Join(w.root, "closed")
	if err := errors.Join(os.Mkdir(alloc, 0o700), os.Mkdir(filepath.Join(alloc, ".alloc"), 0o777), os.Rename(spec.Dir, filepath.Join(alloc, "task")), os.Chmod(w.root, 0o711)); err != nil {
		t.Fatal(err)
	}
	spec.Dir = filepath.Join(alloc, "task")
	spec.Task.User = "daemon"
	spec.Task.Config["args"] = append(spec.Task.Config["args"].([]string), "sh", alloc)
	for _, path := range []string{".alloc/shared", "task/local/own"} {
		if err := os.WriteFile(filepath.Join(alloc, path), []byte(path+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr, _ := run(t, w.rawExec(), spec)
	if want := ".alloc/shared\ntask/local/own\n"; stdout != want {
		t.Errorf("the task reads %q, and says %q", stdout, stderr)
	}
	stranger := exec.CommandContext(t.Context(), "cat", filepath.Join(alloc, ".alloc", "shared"))
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4711, Gid: 4711}}
	if out, err := stranger.CombinedOutput(); err == nil {
		t.Errorf("another user reads %q", out)
	}
}

func TestTaskStartsInItsLocalDirectory(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script("pwd")
		want := []string{"/local"}
		if d.Name() == driver.NameRawExec {
			want = []string{filepath.Join(spec.Dir, "local")}
		}
		if diff := cmp.Diff(want, lines(t, d, spec)); diff != "" {
			t.Errorf("working directory (-want +got):\n%s", diff)
		}
		// A relative command starts from there.
		own := w.spec("./hello")
		script := []byte("#!/bin/sh\necho hello\n")
		if err := os.WriteFile(filepath.Join(own.Dir, "local", "hello"), script, 0o755); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"hello"}, lines(t, d, own)); diff != "" {
			t.Errorf("relative command (-want +got):\n%s", diff)
		}
	})
}

func TestExecCannotChangeTheMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, user := range []string{"root", "nobody"} {
		spec := w.script(`
			for f in /x /usr/x /usr/bin/x /bin/x /etc/x /etc/hosts /proc/sys/kernel/domainname /sys/x; do
				(echo > $f) 2>/dev/null && echo "can write $f"
			done
			mount -t tmpfs none /tmp 2>/dev/null && echo can mount
			mount -o remount,rw /usr 2>/dev/null && echo can remount
			mknod /local/disk b 254 0 2>/dev/null && echo can mknod
			hostname x 2>/dev/null && echo can set the hostname
			set -- /proc/[0-9]*; [ $# -le 2 ] || echo "sees the processes $*"
			readlink /proc/1/exe /proc/1/fd/*
			cat /proc/1/environ /proc/1/maps 2>/dev/null
			head -c 1 /proc/1/exe 2>/dev/null
			kill -KILL 1 2>/dev/null
			cat /proc/kcore >/dev/null 2>&1 && [ -s /proc/kcore ] && echo can read kcore
			ls -d /root /home /var /run 2>/dev/null
			true`)
		spec.Task.User = user
		if got := lines(t, w.exec(), spec); !slices.Equal(got, []string{""}) {
			t.Errorf("as %s, the task %q", user, got)
		}
	}
}

func TestTaskInheritsNoDescriptors(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		// The fourth is ls's own.
		if diff := cmp.Diff([]string{"0", "1", "2", "3"}, lines(t, d, w.spec("ls", "/proc/self/fd"))); diff != "" {
			t.Errorf("descriptors (-want +got):\n%s", diff)
		}
	})
}

// TestTaskInheritsLimits is about the number of files, which Go's runtime raises
// for itself.
func TestTaskInheritsLimits(t *testing.T) {
	t.Parallel()
	const ask = "ulimit -Sn; ulimit -Hn; umask"
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		out, err := exec.Command("sh", "-c", ask).Output()
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Fields(string(out))
		if diff := cmp.Diff(append(want[:2], "0022"), lines(t, d, w.script(ask))); diff != "" {
			t.Errorf("limits (-want +got):\n%s", diff)
		}
	})
}

func TestExecReapsOrphans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := w.script(`for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.01 &) ; done
		sleep 0.5; grep -l -s '^State:.*zombie' /proc/[0-9]*/status; echo looked`)
	if diff := cmp.Diff([]string{"looked"}, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("zombies (-want +got):\n%s", diff)
	}
}

func TestExecCapabilities(t *testing.T) {
	t.Parallel()
	// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP,
	// NET_BIND_SERVICE and SYS_CHROOT, as capabilities(7) numbers them.
	const few = 1<<0 | 1<<1 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<18
	w := newWorld(t)
	for user, want := range map[string]int{"root": few, "nobody": 0} {
		spec := w.spec("grep", "-E", "^(Cap|NoNewPrivs)", "/proc/self/status")
		spec.Task.User = user
		mask := fmt.Sprintf("%016x", want)
		zero := fmt.Sprintf("%016x", 0)
		lines := lines(t, w.exec(), spec)
		if diff := cmp.Diff([]string{
			"CapInh:\t" + zero, "CapPrm:\t" + mask, "CapEff:\t" + mask, "CapBnd:\t" + mask, "CapAmb:\t" + zero, "NoNewPrivs:\t1",
		}, lines); diff != "" {
			t.Errorf("%s (-want +got):\n%s", user, diff)
		}
	}
}

func TestExecHasTheUsualFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := w.script(`
		for f in null zero full random urandom tty ptmx; do [ -c /dev/$f ] || echo no /dev/$f; done
		echo x > /dev/null; head -c 4 /dev/urandom | wc -c; : > /dev/shm/x; ls /dev/pts
		for d in / /local /secrets /tmp /dev /dev/shm /dev/pts /proc /sys; do stat -c '%n %a' $d; done
		echo a > /local/a && echo b > /secrets/b && echo c > /tmp/c`)
	want := []string{
		"4", "ptmx",
		"/ 755", "/local 755", "/secrets 700", "/tmp 755", "/dev 755", "/dev/shm 1777", "/dev/pts 755", "/proc 555", "/sys 555",
	}
	if diff := cmp.Diff(want, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for _, name := range []string{"local/a", "secrets/b", "tmp/c"} {
		if _, err := os.Stat(filepath.Join(spec.Dir, name)); err != nil {
			t.Errorf("the task's file is not in its directory: %v", err)
		}
	}
}

func TestExecSeesNoMountsOfTheHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := w.spec("cut", "-d", " ", "-f", "5", "/proc/self/mountinfo")
	spec.Mounts = []driver.Mount{{Source: w.volume("a"), Destination: "/data"}}
	allowed := []string{"/", "/proc", "/sys", "/dev", "/local", "/secrets", "/tmp", "/data"}
	for _, point := range lines(t, w.exec(), spec) {
		inSystem := slices.ContainsFunc([]string{"/usr", "/etc", "/opt", "/proc/", "/sys/firmware", "/sys/devices/virtual/powercap", "/dev/"},
			func(p string) bool { return strings.HasPrefix(point, p) })
		if !inSystem && !slices.Contains(allowed, point) {
			t.Errorf("the task sees the mount %s", point)
		}
	}
}

func TestExecKeepsMergedDirectoriesLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec := w.script(`for d in /bin /sbin /lib /lib64; do readlink -f $d; done; readlink /bin`)
	var want []string
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		target, err := filepath.EvalSymlinks(dir)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, target)
	}
	if want[0] != "/bin" {
		want = append(want, want[0])
	}
	if diff := cmp.Diff(want, lines(t, w.exec(), spec)); diff != "" {
		t.Errorf("system directories (-want +got):\n%s", diff)
	}
}
