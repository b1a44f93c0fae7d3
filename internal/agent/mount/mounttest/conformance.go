package mounttest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/agent/mount"
)

// System is a mount table and the means to fill it.
type System interface {
	mount.Table
	Bind(source, target string, readOnly bool) error
}

// Conformance runs the tests that every System passes.
func Conformance(t *testing.T, system System) {
	for name, test := range map[string]func(*fixture){
		"NotMounted":                   (*fixture).notMounted,
		"BoundIsFoundAtItsPath":        (*fixture).bound,
		"ReadOnlyIsReported":           (*fixture).readOnly,
		"ReadOnlySourceStaysReadOnly":  (*fixture).readOnlySource,
		"PathsAreCleaned":              (*fixture).cleaned,
		"RelativePathIsRefused":        (*fixture).relative,
		"OddCharactersSurvive":         (*fixture).odd,
		"TopmostOfAStackIsMeant":       (*fixture).stacked,
		"HiddenMountIsNotAtItsPath":    (*fixture).hidden,
		"UnderHasNoNeighbours":         (*fixture).neighbours,
		"UnderIsInUnmountOrder":        (*fixture).order,
		"UnderUnmountsEvenHidden":      (*fixture).hiddenOrder,
		"UnmountTwiceIsNoError":        (*fixture).unmountTwice,
		"BusyMountStaysAndSaysWhy":     (*fixture).busy,
		"RemoveAllRefusesMounts":       (*fixture).removeRefuses,
		"RemoveAllRemovesWithoutMount": (*fixture).removeRemoves,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			f := &fixture{T: t, System: system, dir: dir}
			t.Cleanup(f.unmountAll)
			test(f)
		})
	}
}

type fixture struct {
	*testing.T
	System
	dir string
}

func (f *fixture) notMounted() {
	f.mkdir("a")
	f.wantNotAt("a")
	f.wantNotAt("not/there")
	f.wantUnder("")
	f.ok(f.Unmount(f.path("a")))
	f.ok(f.Unmount(f.path("not/there")))
}

func (f *fixture) bound() {
	f.bind("source", "target", false)
	m := f.wantAt("target")
	if m.ReadOnly || m.ID == 0 || m.Parent == 0 || m.FSType == "" || m.Deleted {
		f.Errorf("mount = %+v", m)
	}
	if filepath.Base(m.Root) != "source" {
		f.Errorf("root = %q, want it to end in source", m.Root)
	}
	f.wantNotAt("source")
	f.wantNotAt("target/below")
	f.wantNotAt("")
}

func (f *fixture) readOnly() {
	f.bind("source", "target", true)
	if m := f.wantAt("target"); !m.ReadOnly {
		f.Errorf("a read-only bind is reported as writable: %+v", m)
	}
}

func (f *fixture) readOnlySource() {
	f.bind("source", "staging", true)
	f.bind("staging", "target", false)
	if m := f.wantAt("target"); !m.ReadOnly {
		f.Errorf("the bind of a read-only mount is reported as writable: %+v", m)
	}
}

func (f *fixture) cleaned() {
	f.bind("source", "target", false)
	for _, path := range []string{"/target/", "/./target", "//target", "/source/../target"} {
		if _, found, err := f.At(f.dir + path); err != nil || !found {
			f.Errorf("At(%q) = %v, %v; want it found", path, found, err)
		}
	}
	f.ok(f.Unmount(f.dir + "/target/."))
	f.wantNotAt("target")
}

func (f *fixture) relative() {
	_, _, atErr := f.At("target")
	_, underErr := f.Under("")
	for _, err := range []error{atErr, underErr, f.Unmount("target")} {
		if err == nil {
			f.Error("a relative path was accepted")
		}
	}
}

func (f *fixture) odd() {
	for _, name := range []string{"two words", "tab\tnew\nline", `back\slash`, `\040`, "#=&?:,", "ümlaut", "x (deleted)"} {
		f.bind("source of "+name, name, false)
		f.wantAt(name)
		f.wantUnder(name, name)
		f.ok(f.Unmount(f.path(name)))
		f.wantNotAt(name)
	}
}

func (f *fixture) stacked() {
	f.bind("first", "target", false)
	first := f.wantAt("target")
	f.bind("second", "target", true)
	second := f.wantAt("target")
	if second.Parent != first.ID || !second.ReadOnly {
		f.Errorf("topmost = %+v, want the read-only one on mount %d", second, first.ID)
	}
	f.wantUnder("target", "target", "target")
	f.ok(f.Unmount(f.path("target")))
	if m := f.wantAt("target"); m.ID != first.ID {
		f.Errorf("after unmount: mount %d, want the first one, %d", m.ID, first.ID)
	}
}

func (f *fixture) hidden() {
	f.bind("lower", "a/b", false)
	f.bind("upper", "a", false)
	f.wantAt("a")
	f.wantNotAt("a/b")
	f.ok(f.Unmount(f.path("a/b")))
	f.wantUnder("", "a", "a/b")
	f.ok(f.Unmount(f.path("a")))
	f.wantAt("a/b")
}

func (f *fixture) neighbours() {
	f.bind("source", "a", false)
	f.bind("source", "ab", false)
	f.bind("source", "a b", false)
	f.wantUnder("a", "a")
	f.wantUnder("source")
}

func (f *fixture) order() {
	f.bind("s1", "a", false)
	f.mkdir("s1/b")
	f.bind("s2", "a/b", false)
	f.mkdir("s2/c")
	f.bind("s3", "a/b/c", false)
	f.bind("s1", "a/b/c", false)
	f.wantUnder("a", "a/b/c", "a/b/c", "a/b", "a")
	f.wantUnder("a/b", "a/b/c", "a/b/c", "a/b")
	f.unmountAll()
	f.wantUnder("")
}

func (f *fixture) hiddenOrder() {
	// Three layers at a, each with a mount at a/b.
	for _, layer := range []string{"one", "two", "three"} {
		f.mkdir(layer + "/b")
		f.bind(layer, "a", false)
		f.bind("source", "a/b", false)
	}
	f.wantUnder("a", "a/b", "a", "a/b", "a", "a/b", "a")
	f.unmountAll()
	f.wantUnder("")
}

func (f *fixture) unmountTwice() {
	f.bind("source", "target", false)
	f.ok(f.Unmount(f.path("target")))
	f.ok(f.Unmount(f.path("target")))
	f.wantNotAt("target")
}

func (f *fixture) busy() {
	f.bind("s1", "a", false)
	f.mkdir("s1/b")
	f.bind("s2", "a/b", false)
	err := f.Unmount(f.path("a"))
	var busy *mount.BusyError
	if !errors.As(err, &busy) || !errors.Is(err, syscall.EBUSY) {
		f.Fatalf("unmount below another mount: %v, want a BusyError", err)
	}
	if busy.Path != f.path("a") || len(busy.Holders) == 0 {
		f.Errorf("busy = %+v, want the path and the other mount", busy)
	}
	f.wantAt("a")
	f.ok(f.Unmount(f.path("a/b")))
	f.ok(f.Unmount(f.path("a")))
}

func (f *fixture) removeRefuses() {
	f.bind("volume", "alloc/data/pg", false)
	f.write("volume/precious")
	f.write("alloc/log")
	err := mount.RemoveAll(f.Context(), f, f.path("alloc"))
	var mounted *mount.MountedError
	if !errors.As(err, &mounted) {
		f.Fatalf("remove above a mount: %v, want a MountedError", err)
	}
	want := mount.MountedError{Dir: f.path("alloc"), Mount: f.path("alloc/data/pg")}
	if diff := cmp.Diff(want, *mounted); diff != "" {
		f.Error(diff)
	}
	f.wantFile("volume/precious")
	f.wantFile("alloc/log")
}

func (f *fixture) removeRemoves() {
	f.bind("volume", "alloc/data/pg", false)
	f.write("volume/precious")
	f.ok(f.Unmount(f.path("alloc/data/pg")))
	f.ok(mount.RemoveAll(f.Context(), f, f.path("alloc")))
	f.ok(mount.RemoveAll(f.Context(), f, f.path("alloc")))
	if _, err := os.Lstat(f.path("alloc")); !errors.Is(err, os.ErrNotExist) {
		f.Errorf("alloc after RemoveAll: %v", err)
	}
	f.wantFile("volume/precious")
}

func (f *fixture) path(name string) string { return filepath.Join(f.dir, name) }

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) mkdir(name string) {
	f.Helper()
	f.ok(os.MkdirAll(f.path(name), 0o755))
}

func (f *fixture) write(name string) {
	f.Helper()
	f.ok(os.WriteFile(f.path(name), []byte("data"), 0o600))
}

func (f *fixture) wantFile(name string) {
	f.Helper()
	if _, err := os.Stat(f.path(name)); err != nil {
		f.Error(err)
	}
}

// bind makes both directories; a table in memory does not mind.
func (f *fixture) bind(source, target string, readOnly bool) {
	f.Helper()
	f.mkdir(source)
	f.mkdir(target)
	f.ok(f.Bind(f.path(source), f.path(target), readOnly))
}

func (f *fixture) wantAt(name string) mount.Mount {
	f.Helper()
	m, found, err := f.At(f.path(name))
	f.ok(err)
	if !found || m.Path != f.path(name) {
		f.Fatalf("nothing is mounted at %q: %+v", name, m)
	}
	return m
}

func (f *fixture) wantNotAt(name string) {
	f.Helper()
	m, found, err := f.At(f.path(name))
	f.ok(err)
	if found {
		f.Fatalf("there is a mount at %q: %+v", name, m)
	}
}

func (f *fixture) wantUnder(dir string, names ...string) {
	f.Helper()
	mounts, err := f.Under(f.path(dir))
	f.ok(err)
	var got, want []string
	for _, m := range mounts {
		got = append(got, m.Path)
	}
	for _, name := range names {
		want = append(want, f.path(name))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.Fatalf("under %q (-want +got):\n%s", dir, diff)
	}
}

// unmountAll unmounts one by one in the order of Under.
func (f *fixture) unmountAll() {
	mounts, err := f.Under(f.dir)
	if err != nil {
		f.Error(err)
	}
	for _, m := range mounts {
		if err := f.Unmount(m.Path); err != nil {
			f.Errorf("unmount in the order of Under: %v", err)
		}
	}
}
