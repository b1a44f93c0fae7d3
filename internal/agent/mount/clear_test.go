package mount_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/agent/mount"
	"github.com/berth-dev/berth/internal/agent/mount/mounttest"
)

// Behind a symbolic link, what belonged to somebody was taken for nobody's and
// unmounted: the kernel has other names for it.
func TestClearBehindALink(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	mkdir(t, filepath.Join(dir, "real", "data"))
	symlink(t, filepath.Join(dir, "real"), link)
	table := mounttest.New()
	for _, name := range []string{"", "mine", "stray", "stray/over"} {
		if err := table.Bind("/source", filepath.Join(dir, "real", "data", name), false); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(link, "data")
	below, err := mount.Clear(resolved{table, link, filepath.Join(dir, "real")}, data, func(path string) bool { return path == filepath.Join(data, "mine") })
	if err != nil {
		t.Fatal(err)
	}
	var taken []string
	for _, m := range below {
		taken = append(taken, m.Path)
	}
	if diff := cmp.Diff([]string{filepath.Join(data, "stray/over"), filepath.Join(data, "stray")}, taken); diff != "" {
		t.Errorf("taken (-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{"": true, "mine": true, "stray": false, "stray/over": false} {
		if _, mounted, err := table.At(filepath.Join(dir, "real", "data", name)); mounted != want || err != nil {
			t.Errorf("%q is mounted: %t, %v", name, mounted, err)
		}
	}
}

// resolved is a table that knows where a link leads, as the kernel does.
type resolved struct {
	mount.Table
	link, target string
}

func (r resolved) Under(dir string) ([]mount.Mount, error) {
	rest, err := filepath.Rel(r.link, dir)
	if err != nil {
		return nil, err
	}
	return r.Table.Under(filepath.Join(r.target, rest))
}
