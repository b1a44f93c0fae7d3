package docker

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"
)

// capabilities are the kernel's, as engines write them.
func capabilities() []string {
	var names []string
	for _, c := range capability.ListKnown() {
		names = append(names, strings.ToUpper(c.String()))
	}
	return names
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
	if d.rules.Load().AllowPrivileged {
		return caps
	}
	var allowed []string
	for _, s := range d.rules.Load().AllowCaps {
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
	engine, err := capabilitiesOf(d.enginePID())
	if err != nil {
		if engine, err = capabilitiesOf(0); err != nil {
			return nil
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var caps []string
	for _, c := range capability.ListKnown() {
		if name := strings.ToUpper(c.String()); engine.Get(capability.BOUNDING, c) && !d.strange[name] {
			caps = append(caps, name)
		}
	}
	return caps
}

// enginePID is the process that listens on the engine's socket, or 0.
func (d *Driver) enginePID() int {
	conn, err := net.Dial("unix", d.cfg.Endpoint) //nolint:noctx // the kernel answers at once
	if err != nil {
		return 0
	}
	defer func() { _ = conn.Close() }() // nothing was sent
	peer, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := peer.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	if err := raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && cred.Pid > 1 {
			pid = int(cred.Pid)
		}
	}); err != nil {
		return 0
	}
	return pid
}

// capabilitiesOf are those of a process, of this one for 0.
func capabilitiesOf(pid int) (capability.Capabilities, error) {
	caps, err := capability.NewPid2(pid)
	if err == nil {
		err = caps.Load()
	}
	if err != nil {
		return nil, fmt.Errorf("read capabilities: %w", err)
	}
	return caps, nil
}
