package mount_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"

	"github.com/berth-dev/berth/internal/localdriver/mount"
)

// FuzzTable: whatever rows there are, a look ends, and what it answers is there.
func FuzzTable(f *testing.F) {
	f.Add("22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n23 22 0:5 /a /mnt rw - btrfs /dev/loop1 rw\n24 23 0:5 /b /mnt ro - btrfs /dev/loop1 rw\n", "/mnt/x")
	f.Add("1 1 0:1 / / rw - x x rw\n2 3 0:1 / /a rw - x x rw\n3 2 0:1 / /a rw - x x rw\n", "/a")
	f.Add("2 1 0:1 /d//deleted /a rw - x x rw\n", "/a/b")
	f.Fuzz(func(t *testing.T, text, path string) {
		infos, err := mountinfo.GetMountsFromReader(strings.NewReader(text), nil)
		if err != nil || !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return
		}
		table := mount.Table(infos)
		if top := table.Top(path); top != nil && (top.Mountpoint != path || !slices.Contains(infos, top)) {
			t.Errorf("Top(%q) = %+v", path, top)
		}
		for _, p := range table.Below(path) {
			if !mount.Within(p, path) {
				t.Errorf("Below(%q) has %q", path, p)
			}
		}
		origin, err := table.OriginOf(path)
		if err != nil {
			return
		}
		for _, m := range table.Of(origin) {
			if !origin.Holds(m) || origin.Shows(m) && m.Root != origin.Root {
				t.Errorf("Of(%+v) has %+v", origin, m)
			}
		}
		if (mount.Origin{}).Holds(table[0]) {
			t.Errorf("nothing is held by %+v", table[0])
		}
	})
}

// FuzzParse: no word that would mount something else passes, and what was parsed
// serves whoever asks for the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "ro,noatime", "discard,errors=remount-ro", "bind", "loop=/dev/loop1", "ro,,rw", "lazytime,sync,dirsync", "private", "remount,ro"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := mount.Parse([]string{text})
		if err != nil {
			return
		}
		for _, word := range o.Data {
			name, _, _ := strings.Cut(word, "=")
			if strings.Contains(word, ",") || slices.Contains([]string{"bind", "rbind", "move", "remount", "loop", "shared", "private", "slave"}, name) {
				t.Errorf("%q passes %q", text, word)
			}
		}
		if missing, ok := o.Covers(o); !ok {
			t.Errorf("%q does not cover itself: %q", text, missing)
		}
		if again, err := mount.Parse(append([]string{text}, text)); err != nil || again.Flags != o.Flags {
			t.Errorf("%q twice is %+v, %v, and once %+v", text, again, err, o)
		}
	})
}
