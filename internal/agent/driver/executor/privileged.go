package executor

import (
	"strings"

	"github.com/moby/sys/capability"
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

// ownCapabilities are those of this process: nobody can give away more.
func ownCapabilities() []string {
	is, err := capability.NewPid2(0)
	if err == nil {
		err = is.Load()
	}
	if err != nil {
		return nil
	}
	var own []string
	for _, c := range capability.ListKnown() {
		if is.Get(capability.PERMITTED, c) {
			own = append(own, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	return own
}
