package executor

import (
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"
)

// privilege gives a task what root has on the host, in the task's own root file
// system: a driver that attaches and mounts devices needs no less.
func privilege(config *configs.Config) {
	list := ownCapabilities()
	config.Capabilities = &configs.Capabilities{Bounding: list, Permitted: list, Effective: list}
	config.NoNewPrivileges = false
	config.MaskPaths, config.ReadonlyPaths = nil, nil
}

// privilegedMounts are the kernel's file systems for a privileged task: those of
// the host, with devices that come and go.
func privilegedMounts() []*configs.Mount {
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return []*configs.Mount{
		{Source: "proc", Destination: "/proc", Device: "proc", Flags: quiet},
		{Source: "sysfs", Destination: "/sys", Device: "sysfs", Flags: quiet},
		{Source: "/dev", Destination: "/dev", Device: "bind", Flags: unix.MS_BIND | unix.MS_REC, PropagationFlags: []int{unix.MS_SLAVE | unix.MS_REC}},
	}
}

// allDevices allows the use of every device.
func allDevices() []*devices.Device {
	return []*devices.Device{{Rule: devices.Rule{
		Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm", Allow: true,
	}}}
}

// capabilityNames are the kernel's, by number (<linux/capability.h>).
func capabilityNames() []string {
	return []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
		"CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK",
		"CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN",
		"CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE",
		"CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG", "CAP_WAKE_ALARM",
		"CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
	}
}

// ownCapabilities are those of this process: nobody can give away more.
func ownCapabilities() []string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil
	}
	var own []string
	for i, name := range capabilityNames() {
		if data[i/32].Permitted&(1<<(i%32)) != 0 {
			own = append(own, name)
		}
	}
	return own
}
