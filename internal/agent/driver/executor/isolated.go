package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // lets the cgroup managers restrict devices
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/agent/driver/executor/first"
)

// isolated is a task in namespaces and a root file system of its own, made by
// libcontainer. Process 1 of its pid namespace is that of package first, which
// runs the command; the kernel kills everything in there with it.
type isolated struct {
	container *libcontainer.Container
	process   *libcontainer.Process
	reports   *json.Decoder
}

// startIsolated prepares the task, reports its first process to record, and
// only then lets the command run.
func startIsolated(spec Spec, dir runDir, output *output, record func(pid int) error) (task, error) {
	config, err := containerConfig(spec, dir)
	if err != nil {
		return nil, err
	}
	container, err := libcontainer.Create(string(dir), containerName, config)
	if err != nil {
		return nil, fmt.Errorf("create container: %w", err)
	}
	assignment, err := assign(spec)
	if err != nil {
		return nil, err
	}
	defer func() { _ = assignment.Close() }()
	reports, reporter, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	user := spec.User
	if user == nil {
		user = &User{}
	}
	t := &isolated{container: container, reports: json.NewDecoder(reports), process: &libcontainer.Process{
		Args: []string{"/proc/self/exe", first.Arg}, Cwd: spec.Cwd,
		UID: user.UID, GID: user.GID, AdditionalGroups: user.Groups,
		Stdout: output.stdout.writer, Stderr: output.stderr.writer,
		// In the order of first.AssignmentDescriptor and first.ReportDescriptor.
		ExtraFiles: []*os.File{assignment, reporter},
		Init:       true,
	}}
	err = container.Start(t.process)
	_ = reporter.Close()
	if err != nil {
		return nil, fmt.Errorf("start container: %w", err)
	}
	if err := t.release(spec, container, record); err != nil {
		return nil, err
	}
	return t, nil
}

// release lets the first process run the command. If it cannot, it is dead when
// the task's cgroup has been killed.
func (t *isolated) release(spec Spec, container *libcontainer.Container, record func(pid int) error) error {
	pid, err := t.process.Pid()
	if err != nil {
		return fmt.Errorf("start container: %w", err)
	}
	if err := record(pid); err != nil {
		return err
	}
	if err := container.Exec(); err != nil {
		return fmt.Errorf("start container: %w", err)
	}
	var r first.Report
	if err := t.reports.Decode(&r); err != nil {
		return fmt.Errorf("start first process of container: %w", err)
	}
	if err := r.Err(); err != nil {
		return badCommand(spec, err)
	}
	return nil
}

// signal reaches the command through the first process; SIGKILL ends both.
func (t *isolated) signal(sig syscall.Signal) error { return t.process.Signal(sig) }

// wait prefers what the first process reports of the command to how it ended
// itself: there is no report if it was killed.
func (t *isolated) wait() (ending, error) {
	ps, err := t.process.Wait()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		return ending{}, fmt.Errorf("wait for container: %w", err)
	}
	var r first.Report
	if t.reports.Decode(&r) == nil {
		return ending{code: r.Code, signal: r.Signal}, nil
	}
	return endingOf(ps), nil
}

// containerConfig is the container in libcontainer's words.
func containerConfig(spec Spec, dir runDir) (*configs.Config, error) {
	mounts, extra, err := rootMounts(spec, dir)
	if err != nil {
		return nil, err
	}
	nodes := append(deviceNodes(), extra...)
	if spec.Privileged {
		nodes = append(allDevices(), extra...)
	}
	rules := make([]*devices.Rule, len(nodes))
	for i, n := range nodes {
		rules[i] = &n.Rule
	}
	namespaces := configs.Namespaces{{Type: configs.NEWNS}, {Type: configs.NEWPID}, {Type: configs.NEWIPC}}
	if configs.IsNamespaceSupported(configs.NEWCGROUP) {
		namespaces = append(namespaces, configs.Namespace{Type: configs.NEWCGROUP})
	}
	resources := spec.Limits.Resources()
	resources.Devices = rules
	config := &configs.Config{
		Rootfs:          dir.path(rootName),
		Readonlyfs:      true,
		RootPropagation: rootPropagation(spec.Root),
		Namespaces:      namespaces,
		Mounts:          mounts,
		Devices:         nodes,
		Cgroups:         &cgroups.Cgroup{Path: spec.Cgroup, Resources: resources},
		Capabilities:    capabilities(spec.User),
		NoNewPrivileges: true,
		MaskPaths:       maskedPaths(),
		ReadonlyPaths:   readOnlyPaths(),
	}
	if spec.Privileged {
		privilege(config)
	}
	return config, nil
}

// rootPropagation is how the task's mounts hang together with the host's.
// Without a bind that wants it, what the host mounts and unmounts later stays
// on the host, and what is mounted inside stays inside.
func rootPropagation(root *Root) int {
	flags := unix.MS_PRIVATE | unix.MS_REC
	for _, b := range root.Binds {
		switch b.Propagation {
		case PropagationShared:
			// Binds begin as peers of the host's mounts, and each is then made what it
			// is to be.
			return unix.MS_SHARED
		case PropagationSlave:
			flags = unix.MS_SLAVE | unix.MS_REC
		case PropagationPrivate:
		}
	}
	return flags
}

// deviceNodes are the devices of every task: the harmless ones, and terminals.
func deviceNodes() []*devices.Device {
	node := func(path string, major, minor int64) *devices.Device {
		return &devices.Device{
			Path: path, FileMode: 0o666,
			Rule: devices.Rule{Type: devices.CharDevice, Major: major, Minor: minor, Permissions: "rwm", Allow: true},
		}
	}
	return []*devices.Device{
		node("/dev/null", 1, 3), node("/dev/zero", 1, 5), node("/dev/full", 1, 7),
		node("/dev/random", 1, 8), node("/dev/urandom", 1, 9), node("/dev/tty", 5, 0),
		// Without a path, only the use is allowed: devpts makes these nodes.
		node("", 5, 2), node("", 136, devices.Wildcard),
	}
}

// capabilities of a task: none, but for root the few that make it root among
// its own files and processes. None reaches the host's network, devices,
// modules or mounts.
func capabilities(user *User) *configs.Capabilities {
	if user != nil && user.UID != 0 {
		return &configs.Capabilities{}
	}
	list := []string{
		"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE",
		"CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
	}
	return &configs.Capabilities{Bounding: list, Permitted: list, Effective: list}
}

// maskedPaths tell about the host, or change it, and are hidden from tasks.
func maskedPaths() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
}

func readOnlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// rootMounts fills a root file system. It also answers the block devices that
// are bound into it, which the task must be allowed to use.
func rootMounts(spec Spec, dir runDir) ([]*configs.Mount, []*devices.Device, error) {
	root := spec.Root
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	mounts := []*configs.Mount{
		{Source: "proc", Destination: "/proc", Device: "proc", Flags: quiet},
		{Source: "sysfs", Destination: "/sys", Device: "sysfs", Flags: quiet | unix.MS_RDONLY},
		{Source: "tmpfs", Destination: "/dev", Device: "tmpfs", Flags: unix.MS_NOSUID | unix.MS_STRICTATIME, Data: "mode=755,size=64k"},
		{
			Source: "devpts", Destination: "/dev/pts", Device: "devpts", Flags: unix.MS_NOSUID | unix.MS_NOEXEC,
			Data: "newinstance,ptmxmode=0666,mode=0620,gid=5",
		},
		// Databases share memory; as on the host, there may be as much as half
		// of all memory.
		{Source: "shm", Destination: "/dev/shm", Device: "tmpfs", Flags: quiet, Data: "mode=1777"},
		{Source: "mqueue", Destination: "/dev/mqueue", Device: "mqueue", Flags: quiet},
	}
	if spec.Privileged {
		mounts = privilegedMounts()
	}
	if err := os.Mkdir(dir.path(rootName), 0o755); err != nil {
		return nil, nil, fmt.Errorf("make root: %w", err)
	}
	for link, target := range root.Links {
		if err := os.Symlink(target, filepath.Join(dir.path(rootName), link)); err != nil {
			return nil, nil, fmt.Errorf("link %s: %w", link, err)
		}
	}
	var binds []*configs.Mount
	var blocks []*devices.Device
	var dirs []string
	for _, b := range root.Binds {
		m, block, err := bindMount(b)
		if err != nil {
			return nil, nil, err
		}
		if block != nil {
			blocks = append(blocks, block)
			if dir, ok := nodeDir(spec, b.Destination); ok {
				give(block, b, spec.User)
				dirs = append(dirs, dir)
				continue
			}
		}
		binds = append(binds, m)
	}
	// Parents first, and all of them before what is bound below them.
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if dir != devDir {
			mounts = append(mounts, &configs.Mount{
				Source: "tmpfs", Destination: dir, Device: "tmpfs", Flags: unix.MS_NOSUID | unix.MS_NOEXEC, Data: "mode=755,size=64k",
			})
		}
	}
	return append(mounts, binds...), blocks, nil
}

const devDir = "/dev"

// nodeDir is the directory in which a block device gets a node of the task's own,
// in memory, if that can be. The host's node is root's, and to give it to the
// task's user would outlive the task; where it is bound, only root can use it.
func nodeDir(spec Spec, destination string) (dir string, ok bool) {
	below := func(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
	if dir = filepath.Dir(destination); dir == "/" {
		return "", false
	}
	if below(dir, devDir) {
		return devDir, !spec.Privileged // there it is the host's
	}
	for link := range spec.Root.Links {
		if below(dir, link) {
			return "", false
		}
	}
	for _, b := range spec.Root.Binds {
		if below(dir, filepath.Clean(b.Destination)) {
			return "", false
		}
	}
	return dir, true
}

// give makes a block device's rule a node, for the task's user.
func give(block *devices.Device, b Bind, user *User) {
	block.Path, block.FileMode = b.Destination, 0o600
	if b.ReadOnly {
		block.FileMode = 0o400
	}
	if user != nil {
		block.Uid, block.Gid = uint32(user.UID), uint32(user.GID) //nolint:gosec // ids of users have 32 bits
	}
	block.Permissions += "m"
}

// bindMount keeps what the host's mount forbids: a bind mount takes exactly the
// flags that it is given.
func bindMount(b Bind) (*configs.Mount, *devices.Device, error) {
	var st unix.Stat_t
	if err := unix.Stat(b.Source, &st); err != nil {
		return nil, nil, fmt.Errorf("bind %s: look at %s: %w", b.Destination, b.Source, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(b.Source, &fs); err != nil {
		return nil, nil, fmt.Errorf("bind %s: look at %s: %w", b.Destination, b.Source, err)
	}
	flags := unix.MS_BIND | mountFlags(fs)
	if b.ReadOnly {
		flags |= unix.MS_RDONLY
	}
	m := &configs.Mount{
		Source: b.Source, Destination: b.Destination, Device: "bind", Flags: flags,
		PropagationFlags: []int{unix.MS_PRIVATE},
	}
	switch b.Propagation {
	case PropagationShared:
		m.Flags |= unix.MS_REC
		m.PropagationFlags = []int{unix.MS_SHARED | unix.MS_REC}
	case PropagationSlave:
		m.Flags |= unix.MS_REC
		m.PropagationFlags = []int{unix.MS_SLAVE | unix.MS_REC}
	case PropagationPrivate:
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return m, blockRule(st.Rdev, flags&unix.MS_RDONLY != 0), nil
	}
	if !b.Trusted {
		m.Flags |= unix.MS_NOSUID | unix.MS_NODEV
	}
	return m, nil, nil
}

// mountFlags are the restrictions of the mount that a path is on. Times of
// access are left out: bind mounts keep them by themselves.
func mountFlags(fs unix.Statfs_t) int {
	const stNoSymFollow = 0x2000 // <linux/statfs.h>; package unix has no name for it
	flags := 0
	for _, f := range []struct{ statfs, mount int }{
		{unix.ST_RDONLY, unix.MS_RDONLY},
		{unix.ST_NOSUID, unix.MS_NOSUID},
		{unix.ST_NODEV, unix.MS_NODEV},
		{unix.ST_NOEXEC, unix.MS_NOEXEC},
		{stNoSymFollow, unix.MS_NOSYMFOLLOW},
	} {
		if int(fs.Flags)&f.statfs != 0 {
			flags |= f.mount
		}
	}
	return flags
}

// blockRule allows the use of a block device. Without a path, no node is made:
// the one of the volume is bound.
func blockRule(rdev uint64, readOnly bool) *devices.Device {
	permissions := devices.Permissions("rw")
	if readOnly {
		permissions = "r"
	}
	return &devices.Device{Rule: devices.Rule{
		Type: devices.BlockDevice, Major: int64(unix.Major(rdev)), Minor: int64(unix.Minor(rdev)),
		Permissions: permissions, Allow: true,
	}}
}
