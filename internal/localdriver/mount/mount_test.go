package mount_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/localdriver/mount"
)

// dirs makes directories in a fresh place without symbolic links.
func dirs(t *testing.T, names ...string) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(top, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for range 20 {
			for _, point := range read(t).Below(top) {
				_ = unix.Unmount(point, unix.MNT_DETACH)
			}
		}
	})
	return top
}

func read(t *testing.T) mount.Table {
	t.Helper()
	table, err := mount.Read()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func bind(t *testing.T, source, target string) {
	t.Helper()
	if err := mount.Bind(source, target); err != nil {
		t.Fatal(err)
	}
}

func TestTable_KnowsABindMountByWhatItShows(t *testing.T) {
	t.Parallel()
	top := dirs(t, "data/sub", "other", "target", "part")
	origin, err := read(t).OriginOf(filepath.Join(top, "data"))
	if err != nil {
		t.Fatal(err)
	}
	bind(t, filepath.Join(top, "data"), filepath.Join(top, "target"))
	bind(t, filepath.Join(top, "data/sub"), filepath.Join(top, "part"))
	bind(t, filepath.Join(top, "other"), filepath.Join(top, "other"))

	table := read(t)
	if m := table.Top(filepath.Join(top, "target")); m == nil || !origin.Shows(m) {
		t.Errorf("the mount at target is not known as the data: %+v", m)
	}
	for _, other := range []string{"part", "other"} {
		if m := table.Top(filepath.Join(top, other)); m == nil || origin.Shows(m) {
			t.Errorf("the mount at %s is taken for the data: %+v", other, m)
		}
	}
	var points []string
	for _, m := range table.Of(origin) {
		points = append(points, m.Mountpoint)
	}
	want := []string{filepath.Join(top, "target"), filepath.Join(top, "part")}
	if diff := cmp.Diff(want, points); diff != "" {
		t.Errorf("mounts of the data (-want +got):\n%s", diff)
	}
	// What is seen through a bind mount has the same origin.
	through, err := table.OriginOf(filepath.Join(top, "target/sub"))
	if err != nil {
		t.Fatal(err)
	}
	direct, err := table.OriginOf(filepath.Join(top, "data/sub"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(direct, through); diff != "" {
		t.Errorf("origin through a bind mount (-direct +through):\n%s", diff)
	}
}

func TestTable_TopIsTheMountThatCoversTheOthers(t *testing.T) {
	t.Parallel()
	top := dirs(t, "a", "b", "target")
	target := filepath.Join(top, "target")
	if m := read(t).Top(target); m != nil {
		t.Fatalf("a plain directory is a mount point: %+v", m)
	}
	for _, name := range []string{"a", "b"} {
		bind(t, filepath.Join(top, name), target)
		if m := read(t).Top(target); m == nil || filepath.Base(m.Root) != name {
			t.Errorf("top is %+v, want the mount of %s", m, name)
		}
	}
	if err := mount.Unmount(target); err != nil {
		t.Fatal(err)
	}
	if m := read(t).Top(target); m == nil || filepath.Base(m.Root) != "a" {
		t.Errorf("top is %+v, want the mount of a again", m)
	}
}

func TestTop_DoesNotDependOnTheOrderOfTheTable(t *testing.T) {
	t.Parallel()
	lower := &mountinfo.Info{ID: 7, Parent: 1, Mountpoint: "/t"}
	middle := &mountinfo.Info{ID: 3, Parent: 7, Mountpoint: "/t"}
	upper := &mountinfo.Info{ID: 5, Parent: 3, Mountpoint: "/t"}
	for _, table := range []mount.Table{{lower, middle, upper}, {upper, lower, middle}, {middle, upper, lower}} {
		if got := table.Top("/t"); got != upper {
			t.Errorf("top is %+v, want %+v", got, upper)
		}
	}
}

func TestTable_ZeroOriginIsShownByNoMount(t *testing.T) {
	t.Parallel()
	if mounts := read(t).Of(mount.Origin{}); len(mounts) > 0 {
		t.Errorf("%d mounts show nothing", len(mounts))
	}
}

func TestBelow_IsNotMisledByNames(t *testing.T) {
	t.Parallel()
	top := dirs(t, "data", "vol", "vol/inner", "volume")
	for _, name := range []string{"vol/inner", "volume"} {
		bind(t, filepath.Join(top, "data"), filepath.Join(top, name))
	}
	want := []string{filepath.Join(top, "vol/inner")}
	if diff := cmp.Diff(want, read(t).Below(filepath.Join(top, "vol"))); diff != "" {
		t.Errorf("mount points below vol (-want +got):\n%s", diff)
	}
}

func TestUnmount_SaysThatAProcessIsInside(t *testing.T) {
	t.Parallel()
	top := dirs(t, "data", "target")
	target := filepath.Join(top, "target")
	bind(t, filepath.Join(top, "data"), target)
	inside, err := os.Open(target)
	if err != nil {
		t.Fatal(err)
	}
	if err := mount.Unmount(target); !errors.Is(err, mount.ErrBusy) {
		t.Errorf("Unmount: %v, want %v", err, mount.ErrBusy)
	}
	if err := inside.Close(); err != nil {
		t.Fatal(err)
	}
	if err := mount.Unmount(target); err != nil {
		t.Errorf("Unmount when nobody is inside: %v", err)
	}
}

func TestRemount_SetsTheseFlagsAndNoOthers(t *testing.T) {
	t.Parallel()
	top := dirs(t, "data", "target")
	target := filepath.Join(top, "target")
	bind(t, filepath.Join(top, "data"), target)
	for _, words := range []string{"ro", "nosuid,nodev,noexec", "noatime", "ro,nodiratime,strictatime", "relatime", ""} {
		options, err := mount.Parse([]string{words})
		if err != nil {
			t.Fatal(err)
		}
		if err := mount.Remount(target, options.Flags); err != nil {
			t.Fatal(err)
		}
		m := read(t).Top(target)
		if !mount.Matches(m, options.Flags) {
			t.Errorf("asked for %q, the mount has %q", words, m.Options)
		}
	}
	if err := mount.Remount(target, unix.MS_RDONLY|unix.MS_NOATIME); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(target, "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("write through a read-only mount: %v, want %v", err, unix.EROFS)
	}
	m := read(t).Top(target)
	for _, flags := range []uintptr{0, unix.MS_RDONLY | unix.MS_NODEV, unix.MS_NOATIME, unix.MS_RDONLY | unix.MS_NODIRATIME} {
		if mount.Matches(m, flags) {
			t.Errorf("a mount with %q matches %#x", m.Options, flags)
		}
	}
}

func TestParse_DividesFlagsFromData(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   []string
		want mount.Options
	}{
		"Nothing":         {nil, mount.Options{}},
		"Defaults":        {[]string{"defaults", ""}, mount.Options{}},
		"Flags":           {[]string{"nosuid", "nodev,noexec"}, mount.Options{Flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC}},
		"Data":            {[]string{"discard,noatime", "data=ordered"}, mount.Options{Flags: unix.MS_NOATIME, Data: []string{"discard", "data=ordered"}}},
		"LastWordCounts":  {[]string{"ro", "nodev", "rw", "dev", "sync", "async"}, mount.Options{}},
		"OneWayOfAtime":   {[]string{"noatime", "relatime"}, mount.Options{Flags: unix.MS_RELATIME}},
		"NodiratimeStays": {[]string{"nodiratime", "noatime"}, mount.Options{Flags: unix.MS_NODIRATIME | unix.MS_NOATIME}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := mount.Parse(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParse_RefusesWordsThatMountSomethingElse(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"bind", "rbind", "move", "remount", "loop", "loop=/dev/loop3", "offset=512", "rshared", "private"} {
		if got, err := mount.Parse([]string{"noatime," + word}); err == nil {
			t.Errorf("Parse took %q: %+v", word, got)
		}
	}
}

func TestOptions_DirectoryHasNoFileSystemOptions(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "ro,noatime,nosuid": "", "noatime,discard": "discard", "sync": "sync", "lazytime,ro": "lazytime",
	} {
		options, err := mount.Parse([]string{in})
		if err != nil {
			t.Fatal(err)
		}
		if bad, ok := options.ForDirectory(); bad != want || ok != (want == "") {
			t.Errorf("ForDirectory of %q: %q, %v, want %q", in, bad, ok, want)
		}
	}
}

func TestOptions_StagingMustCoverWhatBelongsToTheFileSystem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ staged, asked, missing string }{
		{"", "", ""},
		{"discard,noatime", "discard", ""},
		{"", "ro,nosuid,noatime", ""},
		{"noatime", "discard", "discard"},
		{"sync", "sync,ro", ""},
		{"", "dirsync", "dirsync"},
	} {
		staged, err := mount.Parse([]string{c.staged})
		if err != nil {
			t.Fatal(err)
		}
		asked, err := mount.Parse([]string{c.asked})
		if err != nil {
			t.Fatal(err)
		}
		if missing, ok := staged.Covers(asked); missing != c.missing || ok != (c.missing == "") {
			t.Errorf("staged %q, asked %q: missing %q, %v, want %q", c.staged, c.asked, missing, ok, c.missing)
		}
	}
}

func TestOptions_BoundAddsRestrictionsAndChoosesAtime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		staged, asked string
		want          uintptr
	}{
		{"nosuid,noatime,discard", "", unix.MS_NOSUID | unix.MS_NOATIME},
		{"nosuid,noatime", "ro,relatime", unix.MS_NOSUID | unix.MS_RDONLY | unix.MS_RELATIME},
		{"ro", "rw", unix.MS_RDONLY},
		{"sync", "nodiratime", unix.MS_NODIRATIME},
	} {
		staged, err := mount.Parse([]string{c.staged})
		if err != nil {
			t.Fatal(err)
		}
		asked, err := mount.Parse([]string{c.asked})
		if err != nil {
			t.Fatal(err)
		}
		if got := staged.Bound(asked); got != c.want {
			t.Errorf("staged %q, asked %q: flags %#x, want %#x", c.staged, c.asked, got, c.want)
		}
	}
}
