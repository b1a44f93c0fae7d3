package mount_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/agent/mount"
)

const table = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
40 27 7:1 / /var/lib/berth/a\040b rw,nosuid shared:9 master:3 - ext4 /dev/loop1 ro,discard
41 27 254:0 /data//deleted /mnt/gone rw - ext4 /dev/vda rw
42 27 0:50 / /mnt/back\134slash\012 rw - fuse.s3fs s3fs rw
`

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := mount.Parse(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	want := mount.List{
		{
			ID: 22, Parent: 27, Device: "0:21", Root: "/", Path: "/proc", Source: "proc", FSType: "proc",
			Options: []string{"rw", "relatime"}, FSOptions: []string{"rw"},
		}, {
			ID: 27, Parent: 1, Device: "254:0", Root: "/", Path: "/", Source: "/dev/vda", FSType: "ext4", Shared: true,
			Options: []string{"rw", "relatime"}, FSOptions: []string{"rw", "errors=remount-ro"},
		}, {
			ID: 40, Parent: 27, Device: "7:1", Root: "/", Path: "/var/lib/berth/a b", Source: "/dev/loop1", FSType: "ext4",
			ReadOnly: true, Shared: true, Options: []string{"rw", "nosuid"}, FSOptions: []string{"ro", "discard"},
		}, {
			ID: 41, Parent: 27, Device: "254:0", Root: "/data", Deleted: true, Path: "/mnt/gone", Source: "/dev/vda",
			FSType: "ext4", Options: []string{"rw"}, FSOptions: []string{"rw"},
		}, {
			ID: 42, Parent: 27, Device: "0:50", Root: "/", Path: "/mnt/back\\slash\n", Source: "s3fs",
			FSType: "fuse.s3fs", Options: []string{"rw"}, FSOptions: []string{"rw"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// Whatever the rows are, looking ends, finds only what is there, and Under "/"
// leaves out nothing that hangs together.
func FuzzList(f *testing.F) {
	f.Add(table, "/proc")
	f.Add("1 1 0:1 / / rw - x x rw\n2 3 0:1 / /a rw - x x rw\n3 2 0:1 / /a rw - x x rw\n", "/a")
	f.Add("1 0 0:1 / / rw - x x rw\n2 1 0:1 / /a rw - x x rw\n3 2 0:1 / /a rw - x x rw\n", "/a")
	f.Fuzz(func(t *testing.T, text, path string) {
		list, err := mount.Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		if m, found := list.At(path); found && (m.Path != path || !slices.ContainsFunc(list, func(r mount.Mount) bool { return cmp.Equal(r, m) })) {
			t.Errorf("At(%q) = %+v, which is no row for it", path, m)
		}
		seen := make(map[int]int)
		for _, m := range list.Under("/") {
			seen[m.ID]++
		}
		for id, n := range seen {
			if rows := len(slices.DeleteFunc(slices.Clone(list), func(m mount.Mount) bool { return m.ID != id })); n > rows {
				t.Errorf("mount %d is there %d times, want at most %d", id, n, rows)
			}
		}
	})
}

func BenchmarkKernelAt(b *testing.B) {
	for b.Loop() {
		if _, _, err := (mount.Kernel{}).At("/proc"); err != nil {
			b.Fatal(err)
		}
	}
}
