package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver/executor"
)

// DefaultSystemDirs are the host's programs and their configuration. Those that
// a host lacks are passed over.
func DefaultSystemDirs() []string {
	return []string{"/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr"}
}

// Directories that every isolated task has.
func kernelDirs() []string { return []string{deviceDir, "/proc", "/sys"} }

// deviceDir has a task's devices.
const deviceDir = "/dev"

// layout is the root file system of an isolated task, in the making.
type layout struct {
	system []string
	binds  []executor.Bind
	links  map[string]string
	// hostDevices: the task sees the host's /dev.
	hostDevices bool
}

// newLayout begins with the host's system directories.
func newLayout(system []string) *layout {
	l := &layout{system: system, links: map[string]string{}}
	for _, dir := range system {
		l.addSystem(dir)
	}
	l.addMountsBelow()
	l.addResolver()
	return l
}

// addSystem shows one system directory, read only. On most hosts some are links
// into others, /bin to /usr/bin, and stay links.
func (l *layout) addSystem(dir string) {
	target, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return
	}
	info, err := os.Stat(target)
	if err != nil || !info.IsDir() {
		return
	}
	if target != dir && l.inSystem(target) {
		l.links[dir] = target
		return
	}
	l.bindSystem(target, dir)
}

func (l *layout) bindSystem(source, destination string) {
	l.binds = append(l.binds, executor.Bind{Source: source, Destination: destination, ReadOnly: true, Trusted: true})
}

// inSystem reports whether a path lies in one of the system directories.
func (l *layout) inSystem(path string) bool {
	return slices.ContainsFunc(l.system, func(dir string) bool { return within(path, dir) })
}

// addMountsBelow shows what the host has mounted below its system directories.
// Binding them recursively would do it too, but leave them writable on kernels
// before 5.12. What root itself cannot look at is passed over.
func (l *layout) addMountsBelow() {
	system := slices.Clone(l.binds)
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return
	}
	for _, b := range system {
		for _, m := range mounts {
			if m.Mountpoint == b.Source || !within(m.Mountpoint, b.Source) || m.FSType == "autofs" {
				continue
			}
			if _, err := os.Stat(m.Mountpoint); err != nil {
				continue
			}
			l.bindSystem(m.Mountpoint, b.Destination+strings.TrimPrefix(m.Mountpoint, b.Source))
		}
	}
	l.sort()
}

// addResolver shows the resolver's configuration where /etc/resolv.conf is a
// link out of the system directories, as it is with systemd-resolved.
func (l *layout) addResolver() {
	const link = "/etc/resolv.conf"
	target, err := os.Readlink(link)
	if err != nil || !l.inSystem(link) {
		return
	}
	if !filepath.IsAbs(target) {
		target = filepath.Join(filepath.Dir(link), target)
	}
	source, err := filepath.EvalSymlinks(link)
	if err != nil || l.inSystem(target) {
		return
	}
	l.bindSystem(source, filepath.Clean(target))
}

// own adds the task's own directories.
func (l *layout) own(dir string) {
	for _, name := range taskDirs() {
		l.binds = append(l.binds, executor.Bind{Source: filepath.Join(dir, name), Destination: "/" + name})
	}
}

// add adds the volumes, and notes what is wrong with their places. A mount
// without a source is only checked for its place.
func (l *layout) add(p *api.Problems, mounts []Mount) {
	order := make([]int, len(mounts))
	for i := range order {
		order[i] = i
	}
	// Parents first, so that each is checked against what will be below it.
	slices.SortStableFunc(order, func(a, b int) int {
		return strings.Compare(filepath.Clean(mounts[a].Destination), filepath.Clean(mounts[b].Destination))
	})
	seen := map[string]bool{}
	for _, i := range order {
		m := mounts[i]
		path := fmt.Sprintf("volume_mount[%d].destination", i)
		m.Destination = filepath.Clean(m.Destination)
		if seen[m.Destination] {
			p.Addf(path, "mount each volume at a place of its own", "is %s, and so is another's", m.Destination)
			continue
		}
		seen[m.Destination] = true
		if message, mend := l.obstacle(m); message != "" {
			p.Add(path, message, mend)
			continue
		}
		l.binds = append(l.binds, executor.Bind{
			Source: m.Source, Destination: m.Destination, ReadOnly: m.ReadOnly, Trusted: m.Trusted, Propagation: propagation(m.Propagation),
		})
	}
	l.sort()
}

// propagation is a mount's in the kernel's words.
func propagation(p Propagation) executor.Propagation {
	switch p {
	case PropagationHostToTask:
		return executor.PropagationSlave
	case PropagationBidirectional:
		return executor.PropagationShared
	case PropagationPrivate:
	}
	return executor.PropagationPrivate
}

// obstacle says why a volume cannot be mounted there, or "".
func (l *layout) obstacle(m Mount) (message, mend string) {
	const elsewhere = `choose a directory of its own, such as "/data"`
	switch dest := m.Destination; {
	case !filepath.IsAbs(dest):
		return fmt.Sprintf("is %q, which is not an absolute path", dest), elsewhere
	case dest == "/":
		return "is the root of the task", elsewhere
	case m.inDevices() && !l.hostDevices:
		return "", ""
	case slices.ContainsFunc(kernelDirs(), func(dir string) bool { return within(dest, dir) }):
		return fmt.Sprintf("is %s, and /%s is the kernel's", dest, firstOf(dest)), elsewhere
	case slices.Contains(l.system, dest):
		return fmt.Sprintf("is %s, and would hide the machine's programs there", dest), elsewhere
	case slices.Contains(taskDirs(), strings.TrimPrefix(dest, "/")):
		return fmt.Sprintf("is %s, and would hide the task's own directory", dest), elsewhere
	}
	base := l.covering(m.Destination)
	if base == nil || !base.ReadOnly || base.Source == "" {
		return "", ""
	}
	// The mount point must be there already: it cannot be made.
	rest := strings.TrimPrefix(l.resolve(m.Destination), base.Destination)
	info, err := os.Lstat(filepath.Join(base.Source, rest))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Sprintf("is %s, which does not exist, and %s is read only", m.Destination, base.Destination),
			`choose a directory outside of it, such as "/data", or make the directory there first`
	case err != nil:
		return fmt.Sprintf("is %s: %v", m.Destination, err), elsewhere
	case !info.IsDir() && !m.isFile():
		return fmt.Sprintf("is %s, which is no directory", m.Destination), elsewhere
	}
	return "", ""
}

// inDevices reports whether it is a block device that is to be among the task's
// devices. Of a mount without a source only the place is known; that such a place
// is for block devices, and not one of the kernel's own, was checked with the job.
func (m Mount) inDevices() bool {
	return m.Destination != deviceDir && within(m.Destination, deviceDir) && (m.Source == "" || m.isFile())
}

// isFile reports whether the volume is a block device or a file.
func (m Mount) isFile() bool {
	info, err := os.Stat(m.Source)
	return err == nil && !info.IsDir()
}

// covering is the bind that a path lies in, or nil: then it is the task's bare
// root, where every mount point can be made.
func (l *layout) covering(path string) *executor.Bind {
	path = l.resolve(path)
	var best *executor.Bind
	for i := range l.binds {
		b := &l.binds[i]
		if within(path, b.Destination) && (best == nil || len(b.Destination) > len(best.Destination)) {
			best = b
		}
	}
	return best
}

// resolve follows the links of the root.
func (l *layout) resolve(path string) string {
	for link, target := range l.links {
		if within(path, link) {
			return target + strings.TrimPrefix(path, link)
		}
	}
	return path
}

// sort puts parents before what is mounted in them.
func (l *layout) sort() {
	slices.SortStableFunc(l.binds, func(a, b executor.Bind) int { return strings.Compare(a.Destination, b.Destination) })
}

func (l *layout) root() *executor.Root { return &executor.Root{Binds: l.binds, Links: l.links} }

// within reports whether path is dir or lies below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// firstOf is the first element of an absolute path.
func firstOf(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}
