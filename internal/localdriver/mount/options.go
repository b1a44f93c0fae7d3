package mount

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Options are mount flags as mount(2) wants them.
type Options struct {
	Flags uintptr
	// Data are the options that only the file system understands.
	Data []string
}

// PerMount are the flags that belong to one mount. All others, and Data, belong
// to the file system and are the same at each of its mounts.
const PerMount = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NODIRATIME | accessTime

// accessTime are the flags of which a mount has one.
const accessTime = unix.MS_NOATIME | unix.MS_RELATIME | unix.MS_STRICTATIME

// wholeFileSystem are the words whose flags belong to the file system.
func wholeFileSystem() []string { return []string{"sync", "dirsync", "lazytime"} }

// flag is what a word means: bits to set and bits to clear.
type flag struct{ set, clear uintptr }

// lookup knows the words of mount(8) that are flags of mount(2).
func lookup(word string) (flag, bool) {
	switch word {
	case "", "defaults":
		return flag{}, true
	case "ro":
		return flag{set: unix.MS_RDONLY}, true
	case "rw":
		return flag{clear: unix.MS_RDONLY}, true
	case "nosuid":
		return flag{set: unix.MS_NOSUID}, true
	case "suid":
		return flag{clear: unix.MS_NOSUID}, true
	case "nodev":
		return flag{set: unix.MS_NODEV}, true
	case "dev":
		return flag{clear: unix.MS_NODEV}, true
	case "noexec":
		return flag{set: unix.MS_NOEXEC}, true
	case "exec":
		return flag{clear: unix.MS_NOEXEC}, true
	case "noatime":
		return flag{set: unix.MS_NOATIME, clear: accessTime}, true
	case "atime", "relatime":
		return flag{set: unix.MS_RELATIME, clear: accessTime}, true
	case "strictatime":
		return flag{set: unix.MS_STRICTATIME, clear: accessTime}, true
	case "nodiratime":
		return flag{set: unix.MS_NODIRATIME}, true
	case "diratime":
		return flag{clear: unix.MS_NODIRATIME}, true
	case "sync":
		return flag{set: unix.MS_SYNCHRONOUS}, true
	case "async":
		return flag{clear: unix.MS_SYNCHRONOUS}, true
	case "dirsync":
		return flag{set: unix.MS_DIRSYNC}, true
	case "lazytime":
		return flag{set: unix.MS_LAZYTIME}, true
	}
	return flag{}, false
}

// Parse reads the mount_flags of a volume capability. Each may hold several,
// divided by commas. Words that would make mount(8) do something other than
// mount this file system here are refused.
func Parse(flags []string) (Options, error) {
	var o Options
	for word := range strings.SplitSeq(strings.Join(flags, ","), ",") {
		f, known := lookup(word)
		switch {
		case known:
			o.Flags = o.Flags&^f.clear | f.set
		case forbidden(word):
			return Options{}, fmt.Errorf("mount flag %q is not for a volume; remove it", word)
		default:
			o.Data = append(o.Data, word)
		}
	}
	return o, nil
}

func forbidden(word string) bool {
	name, _, _ := strings.Cut(word, "=")
	return slices.Contains([]string{
		"bind", "rbind", "move", "remount", "loop", "offset", "sizelimit",
		"shared", "rshared", "private", "rprivate", "slave", "rslave", "unbindable", "runbindable",
	}, name)
}

// ForDirectory reports whether a plain directory can be mounted with the
// options, and otherwise names one that it cannot have.
func (o Options) ForDirectory() (bad string, ok bool) {
	if len(o.Data) > 0 {
		return o.Data[0], false
	}
	for _, word := range wholeFileSystem() {
		if f, _ := lookup(word); o.Flags&f.set != 0 {
			return word, false
		}
	}
	return "", true
}

// Covers reports whether a file system that is mounted with o serves a bind
// mount that asks for p, and otherwise names what is missing. What belongs to
// one mount alone does not count.
func (o Options) Covers(p Options) (missing string, ok bool) {
	for _, word := range p.Data {
		if !slices.Contains(o.Data, word) {
			return word, false
		}
	}
	for _, word := range wholeFileSystem() {
		if f, _ := lookup(word); p.Flags&f.set != 0 && o.Flags&f.set == 0 {
			return word, false
		}
	}
	return "", true
}

// Bound are the per-mount flags of a bind mount that p asks for, of a file
// system that is mounted with o. Restrictions add up; p chooses how times of
// access are kept, if it says anything about them.
func (o Options) Bound(p Options) uintptr {
	flags := o.Flags & PerMount
	if p.Flags&accessTime != 0 {
		flags &^= accessTime
	}
	return flags | p.Flags&PerMount
}

// Matches reports whether the mount has the per-mount flags. Times of access
// count only where they were asked for, because the kernel has a default.
func Matches(m *mountinfo.Info, flags uintptr) bool {
	var has uintptr
	for word := range strings.SplitSeq(m.Options, ",") {
		if f, known := lookup(word); known {
			has |= f.set
		}
	}
	const exact = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if has&exact != flags&exact {
		return false
	}
	// The kernel writes no word for strictatime.
	const asked = unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME
	return has&flags&asked == flags&asked
}
