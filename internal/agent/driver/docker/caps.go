package docker

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// capabilities are the kernel's, by their numbers (linux/capability.h).
func capabilities() []string {
	return []string{
		"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
		"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
		"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
		"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
		"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
		"CHECKPOINT_RESTORE",
	}
}

// defaultCaps are what the engine gives to every container. To ask for them is
// nothing special.
func defaultCaps() []string {
	return []string{
		"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
		"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
	}
}

// allCaps stands for all of them.
const allCaps = "ALL"

// parseCapNames reads names of capabilities, as people write them.
func parseCapNames(v *values, name string) []string {
	var caps []string
	for i, s := range v.list(name, `write `+name+` = ["net_admin"]`) {
		plain := strings.TrimPrefix(strings.ToUpper(s), "CAP_")
		if plain != allCaps && !slices.Contains(capabilities(), plain) {
			v.wrong(fmt.Sprintf("%s[%d]", name, i), `use names of capabilities(7) such as "net_admin", or "all"`, strconv.Quote(s))
			continue
		}
		caps = append(caps, plain)
	}
	return caps
}

// parseCaps also refuses what the operator does not allow.
func (d *Driver) parseCaps(v *values, name string) []string {
	caps := parseCapNames(v, name)
	if d.cfg.AllowPrivileged {
		return caps
	}
	var allowed []string
	for _, s := range d.cfg.AllowCaps {
		allowed = append(allowed, strings.TrimPrefix(strings.ToUpper(s), "CAP_"))
	}
	for i, c := range caps {
		if !slices.Contains(defaultCaps(), c) && !slices.Contains(allowed, c) && !slices.Contains(allowed, allCaps) {
			v.wrong(fmt.Sprintf("%s[%d]", name, i),
				`remove it, or have the operator add it to allow_caps in driver "docker" of the agent's configuration`,
				strings.ToLower(c)+", and this node does not allow it")
		}
	}
	return caps
}

// engineCaps are the capabilities that the engine itself can have, and so give.
// The kernel tells which process listens on the socket. Where that is not the
// engine, as with systemd's sockets, it is taken to have what the agent has.
func (d *Driver) engineCaps() []string {
	bounding, err := boundingSet(d.enginePID())
	if err != nil {
		if bounding, err = boundingSet("self"); err != nil {
			return nil
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var caps []string
	for bit, name := range capabilities() {
		if bounding&(1<<bit) != 0 && !d.strange[name] {
			caps = append(caps, name)
		}
	}
	return caps
}

// enginePID is the process that listens on the engine's socket, or "self".
func (d *Driver) enginePID() string {
	conn, err := net.Dial("unix", d.cfg.Endpoint) //nolint:noctx // the kernel answers at once
	if err != nil {
		return "self"
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	peer, ok := conn.(*net.UnixConn)
	if !ok {
		return "self"
	}
	raw, err := peer.SyscallConn()
	if err != nil {
		return "self"
	}
	pid := "self"
	if err := raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && cred.Pid > 1 {
			pid = strconv.Itoa(int(cred.Pid))
		}
	}); err != nil {
		return "self"
	}
	return pid
}

// boundingSet is a process's bounding set.
func boundingSet(pid string) (uint64, error) {
	f, err := os.Open("/proc/" + pid + "/status")
	if err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if set, ok := strings.CutPrefix(lines.Text(), "CapBnd:"); ok {
			return strconv.ParseUint(strings.TrimSpace(set), 16, 64)
		}
	}
	return 0, fmt.Errorf("read capabilities: process %s has none", pid)
}
