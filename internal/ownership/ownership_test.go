package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/ownership"
)

const group = 4711

// scratch is a volume: an empty file system in memory, mounted.
func scratch(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "volume")
	mount(t, dir)
	return dir
}

func mount(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=32m,mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A program that another test has just started may have inherited a file of it.
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// put makes a file or, with a slash at its end, a directory, with just this mode.
func put(t *testing.T, path string, mode uint32) {
	t.Helper()
	var err error
	if strings.HasSuffix(path, "/") {
		err = os.MkdirAll(path, 0o700)
	} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err == nil {
		err = unix.Chmod(path, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// is says of an entry itself its mode and its group.
func is(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%04o %d", st.Mode&0o7777, st.Gid)
}

func give(t *testing.T, o ownership.Order) ownership.Progress {
	t.Helper()
	o.Group = group
	p, err := ownership.Give(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The group gets the rights that the owner has, and no more.
func TestGive_Rights(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	was := map[string]uint32{
		"/": 0o755, "/a/": 0o700, "/a/b/": 0o1777, "/a/data": 0o644, "/a/key": 0o400, "/program": 0o755, "/setuid": 0o4755, "/shut/": 0o500,
	}
	for path, mode := range was {
		put(t, dir+path, mode)
	}
	for _, path := range []string{"/a/data", "/setuid"} {
		if err := os.Chown(dir+path, 33, 33); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Chmod(dir+"/setuid", 0o4755); err != nil { // which the change of owner took
		t.Fatal(err)
	}
	if p := give(t, ownership.Order{Dir: dir}); p.Seen != int64(len(was)) || p.Changed != int64(len(was)) {
		t.Errorf("progress = %+v, want %d of %d", p, len(was), len(was))
	}
	want := map[string]string{
		"/": "2775 4711", "/a/": "2770 4711", "/a/b/": "3777 4711", "/a/data": "0664 4711", "/a/key": "0440 4711",
		"/program": "0775 4711", "/setuid": "0775 4711", "/shut/": "2550 4711",
	}
	got := map[string]string{}
	for path := range want {
		got[path] = is(t, dir+path)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir+"/a/data", &st); err != nil || st.Uid != 33 {
		t.Errorf("owner = %d, %v, want 33 as before", st.Uid, err)
	}
	put(t, dir+"/a/later", 0o644)
	if got := is(t, dir+"/a/later"); got != "0644 4711" {
		t.Errorf("a new file is %s, and not the group's", got)
	}
}

// A volume that has it already is not walked again, unless that is asked for.
func TestGive_Once(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	put(t, dir+"/a/file", 0o644)
	give(t, ownership.Order{Dir: dir})
	put(t, dir+"/a/key", 0o600)
	if p := give(t, ownership.Order{Dir: dir}); p != (ownership.Progress{}) {
		t.Errorf("second time: %+v, want nothing looked at", p)
	}
	if got := is(t, dir+"/a/key"); got != "0600 4711" {
		t.Errorf("a key is %s: its rights were changed", got)
	}
	if p := give(t, ownership.Order{Dir: dir, Always: true}); p != (ownership.Progress{Seen: 4, Changed: 1}) {
		t.Errorf("always: %+v, want 1 of 4 changed", p)
	}
}

// What is outside stays as it is, whatever the volume's links and mounts say.
func TestGive_StaysInside(t *testing.T) {
	t.Parallel()
	dir, outside := scratch(t), t.TempDir()
	put(t, outside+"/file", 0o600)
	put(t, outside+"/dir/", 0o700)
	before := is(t, outside+"/file") + is(t, outside+"/dir")
	for name, target := range map[string]string{"file": outside + "/file", "dir": outside + "/dir", "up": "../..", "dangling": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	mount(t, dir+"/other")
	put(t, dir+"/other/file", 0o600)
	put(t, dir+"/bound", 0o600)
	if err := unix.Mount(outside+"/file", dir+"/bound", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir+"/bound", 0); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mknod(dir+"/device", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	give(t, ownership.Order{Dir: dir})
	if after := is(t, outside+"/file") + is(t, outside+"/dir"); after != before {
		t.Errorf("outside of the volume: %s, want %s", after, before)
	}
	for path, want := range map[string]string{"/": "2775 4711", "/other/file": "0600 0", "/device": "0600 0", "/file": "0777 0"} {
		if got := is(t, dir+path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	if err := os.Symlink(dir, outside+"/link"); err != nil {
		t.Fatal(err)
	}
	if _, err := ownership.Give(t.Context(), ownership.Order{Dir: outside + "/link", Group: group, Always: true}); err == nil {
		t.Error("a symbolic link was taken for a volume")
	}
}

// A walk that was cut short goes on, and until it has come to its end the top
// does not say that it has.
func TestGive_CutShort(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	const files = 3000 // more than one look at a directory shows
	for i := range files {
		put(t, fmt.Sprintf("%s/many/%d", dir, i), 0o600)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p, err := ownership.Give(ctx, ownership.Order{Dir: dir, Group: group, Said: func(p ownership.Progress) {
		if p.Seen > 1 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || p.Seen <= 1 || p.Seen >= files {
		t.Errorf("cut short: %+v, %v", p, err)
	}
	if got := is(t, dir); got != "0755 0" {
		t.Errorf("the top is %s before all below it is done", got)
	}
	rest := give(t, ownership.Order{Dir: dir})
	if rest.Changed+p.Changed != files+2 || rest.Seen != files+2 {
		t.Errorf("then %+v after %+v, want %d changed together", rest, p, files+2)
	}
}

// Directories deeper than a process may have files open.
func TestGive_Deep(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	const depth = 1500
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := at.Mkdir("d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := at.OpenRoot("d")
		if err != nil {
			t.Fatal(err)
		}
		_ = at.Close()
		at = next
	}
	_ = at.Close()
	if p := give(t, ownership.Order{Dir: dir}); p.Changed != depth+1 {
		t.Errorf("%+v, want %d changed", p, depth+1)
	}
}

// What is taken away, exchanged or moved while the walk is at it leads it
// nowhere: it goes on, or fails, and all that it changed was in the volume.
func TestGive_TreeThatChanges(t *testing.T) {
	t.Parallel()
	dir, outside := scratch(t), t.TempDir()
	put(t, outside+"/victim", 0o600)
	before := is(t, outside+"/victim")
	for i := range 200 {
		put(t, fmt.Sprintf("%s/d%d/victim", dir, i), 0o600)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		var err error
		for i := 0; ctx.Err() == nil && err == nil; i = (i + 1) % 200 {
			d := fmt.Sprintf("%s/d%d", dir, i)
			err = errors.Join(os.Rename(d, d+".away"), os.Symlink(outside, d), os.Remove(d), os.Rename(d+".away", d))
		}
		ended <- err
	}()
	for range 50 {
		_, err := ownership.Give(t.Context(), ownership.Order{Dir: dir, Group: group, Always: true})
		if err != nil && !strings.Contains(err.Error(), "moved meanwhile") {
			t.Error(err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if after := is(t, outside+"/victim"); after != before {
		t.Errorf("outside of the volume: %s, want %s", after, before)
	}
}

func TestGive_ReadOnly(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	put(t, dir+"/file", 0o600)
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := ownership.Give(t.Context(), ownership.Order{Dir: dir, Group: group}); !errors.Is(err, unix.EROFS) {
		t.Errorf("error = %v, want %v", err, unix.EROFS)
	}
}

// What is made later is the group's too, whatever the umask, also where a
// directory was as it should be but for that.
func TestGive_Inherit(t *testing.T) {
	t.Parallel()
	dir := scratch(t)
	put(t, dir+"/shared/", 0o750)
	put(t, dir+"/shared/right/", 0o770)
	if err := os.Chown(dir+"/shared/right", 0, group); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(dir+"/shared/right", 0o2770); err != nil {
		t.Fatal(err)
	}
	if p := give(t, ownership.Order{Dir: dir, Inherit: true}); p.Seen != 3 || p.Changed != 2 {
		t.Errorf("progress = %+v", p)
	}
	got := map[string]string{}
	for _, in := range []string{"/", "/shared/", "/shared/right/"} {
		// The umask of tests takes the group's right to write.
		f, err := os.OpenFile(dir+in+"new", os.O_CREATE|os.O_WRONLY, 0o660)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		got[in] = is(t, dir+in+"new")
	}
	want := map[string]string{"/": "0660 4711", "/shared/": "0660 4711", "/shared/right/": "0660 4711"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("new files (-want +got):\n%s", diff)
	}
}
