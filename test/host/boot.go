package host

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Boot is one boot of a machine: a mount namespace with a boot id of its own.
// What is mounted in it goes with the last of its processes.
type Boot struct {
	holder *exec.Cmd
}

// bootScript lets go of what other tests have mounted, which the new namespace
// would hold, and gives the boot its id.
const bootScript = `
awk '$5 ~ "^/tmp/" { print $5 }' /proc/self/mountinfo | tac | while read -r at; do umount --lazy "$at" 2>/dev/null; done
mount --bind "$0" /proc/sys/kernel/random/boot_id && echo up && exec sleep infinity`

// StartBoot begins a boot. It ends with the test, or with End.
func StartBoot(tb testing.TB) *Boot {
	tb.Helper()
	id := filepath.Join(tb.TempDir(), "boot_id")
	from, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(id, from, 0o600); err != nil {
		tb.Fatal(err)
	}
	b := &Boot{holder: exec.Command("unshare", "--mount", "--propagation", "private", //nolint:noctx // it ends by signals
		"sh", "-c", bootScript, id)}
	b.holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	b.holder.Stderr = os.Stderr
	out, err := b.holder.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := b.holder.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.End)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		tb.Fatalf("the boot does not come up: %q, %v", line, err)
	}
	return b
}

// End ends the boot, when all of its other processes have ended.
func (b *Boot) End() {
	if b.holder != nil {
		_ = b.holder.Process.Kill() // it does nothing but wait for this
		_ = b.holder.Wait()
		b.holder = nil
	}
}

// enter is a command that is run in the boot; without one, as it is.
func (b *Boot) enter(command ...string) *exec.Cmd {
	if b != nil {
		command = append([]string{"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", b.holder.Process.Pid), "--"}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // it ends by signals
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// mountTable is the kernel's for the boot.
func (b *Boot) mountTable() string {
	if b == nil {
		return "/proc/self/mountinfo"
	}
	return fmt.Sprintf("/proc/%d/mountinfo", b.holder.Process.Pid)
}

// Path is where this process finds what the agent's boot has at a path.
func (b *Berth) Path(path string) string {
	if b.opts.Boot == nil {
		return path
	}
	return fmt.Sprintf("/proc/%d/root%s", b.opts.Boot.holder.Process.Pid, path)
}

// PowerCut kills all that runs for an agent and its plugin in this boot, and
// lets go of the loop devices, which no boot outlives.
func (b *Boot) PowerCut(berth *Berth, plugin *Plugin) {
	berth.tb.Helper()
	plugin.Kill()
	berth.PowerOff()
	b.End()
	berth.Eventually("the loop devices are gone", startLimit, func() error {
		var left []string
		for file := range loops(berth.tb) {
			if strings.HasPrefix(file, plugin.Root+"/") {
				left = append(left, file)
				out, err := exec.CommandContext(berth.tb.Context(), "losetup", "--noheadings", "--output", "NAME", "--associated", file).Output()
				if err == nil {
					_ = exec.CommandContext(berth.tb.Context(), "losetup", "--detach", strings.TrimSpace(string(out))).Run()
				}
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("files %q", left)
		}
		return nil
	})
}

// PowerOff kills the agent and all that runs for it.
func (b *Berth) PowerOff() {
	b.tb.Helper()
	b.Kill()
	for _, pid := range b.below() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with another
	}
	b.Eventually("everything is dead", startLimit, func() error {
		if left := b.below(); len(left) > 0 {
			return fmt.Errorf("processes %v", left)
		}
		return nil
	})
}

// Room gives the boot an empty file system of its own at a directory of the
// machine, and answers where this process finds it.
func (b *Boot) Room(tb testing.TB, at string) string {
	tb.Helper()
	if out, err := b.enter("mount", "-t", "tmpfs", "berth-test", at).CombinedOutput(); err != nil {
		tb.Fatalf("mount a tmpfs at %s: %v\n%s", at, err, out)
	}
	return fmt.Sprintf("/proc/%d/root%s", b.holder.Process.Pid, at)
}

// has reports whether a process is one of the boot's; without one, all are.
func (b *Boot) has(proc string) bool {
	if b == nil || b.holder == nil {
		return true
	}
	mine, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", b.holder.Process.Pid))
	if err != nil {
		return false
	}
	its, err := os.Readlink(filepath.Join(proc, "ns", "mnt"))
	return err == nil && its == mine
}

// below are the processes of the agent's tasks: the supervisors and what they
// started.
func (b *Berth) below() (pids []int) {
	groups, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	parents := map[int]int{}
	mine := map[int]bool{}
	for _, f := range groups {
		stat, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		text := string(stat)
		var pid, parent int
		var state string
		if _, err := fmt.Sscanf(text, "%d", &pid); err != nil {
			continue
		}
		if _, err := fmt.Sscanf(text[strings.LastIndexByte(text, ')')+1:], "%s %d", &state, &parent); err != nil || state == "Z" {
			continue
		}
		parents[pid] = parent
		line, err := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		if err == nil && strings.Contains(string(line), "executor\x00"+b.DataDir+"/") && b.opts.Boot.has(filepath.Dir(f)) {
			mine[pid] = true
		}
	}
	for pid := range parents {
		for at := pid; at > 1; at = parents[at] {
			if mine[at] {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}
