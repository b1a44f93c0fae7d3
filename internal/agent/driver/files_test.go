package driver_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/internal/agent/driver"
)

func TestTaskFindsItsFiles(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, w *world, d driver.Driver) {
		spec := w.script(`stat -c '%n %a %u' app.conf a a/b a/b/c; cat app.conf a/b/c; echo mine >> a/b/c; touch a/new`)
		spec.Task.User = "daemon"
		spec.Files = []driver.File{
			{Dir: "local", Path: "app.conf", Content: "port = 1\n", Mode: 0o640},
			{Dir: "local", Path: "a/b/c", Content: "deep\n", Mode: 0o600},
			{Dir: "secrets", Path: "key", Content: "s3cret", Mode: 0o400},
		}
		// What a start left that was cut short, and what an earlier run did.
		write(t, filepath.Join(spec.Dir, "local", ".berth-template.0.new"), "half")
		if err := os.MkdirAll(filepath.Join(spec.Dir, "local", "a"), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(spec.Dir, "local", "app.conf"), "old")
		want := []string{"app.conf 640 1", "a 755 1", "a/b 755 1", "a/b/c 600 1", "port = 1", "deep"}
		if got := lines(t, d, spec); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("the task finds %q, want %q", got, want)
		}
		info, err := os.Stat(filepath.Join(spec.Dir, "secrets", "key"))
		if err != nil || info.Mode().Perm() != 0o400 {
			t.Errorf("the secret is %v, %v", info, err)
		}
		if _, err := os.Lstat(filepath.Join(spec.Dir, "local", ".berth-template.0.new")); !os.IsNotExist(err) {
			t.Errorf("the half file is still there: %v", err)
		}

		// The next run finds them as they were made, and its directories as it left them.
		if err := d.Destroy(ctx(t), spec.ID); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(spec.Dir, "local", "a"), 0o700); err != nil {
			t.Fatal(err)
		}
		again := w.script(`stat -c '%a' a; cat a/b/c; ls a`)
		again.Dir, again.Task.User, again.Files = spec.Dir, "daemon", spec.Files
		if got, want := strings.Join(lines(t, d, again), " "), "700 deep b new"; !strings.HasSuffix(got, want) {
			t.Errorf("the next run finds %q, want %q", got, want)
		}
	})
}

// A task owns the directories that its files are written to, as root, when it is
// started again. Whatever it left there, nothing outside may change.
func TestTaskCannotLeadItsFilesElsewhere(t *testing.T) {
	t.Parallel()
	const told = "something else is in its place"
	for name, tc := range map[string]struct {
		plant   func(local, outside string) error
		file    string
		written bool // in place of what was planted
	}{
		"FileIsALink": {func(local, outside string) error {
			return os.Symlink(filepath.Join(outside, "victim"), filepath.Join(local, "x"))
		}, "x", true},
		"FileIsAHardLink": {func(local, outside string) error {
			return os.Link(filepath.Join(outside, "victim"), filepath.Join(local, "x"))
		}, "x", true},
		"FreshNameIsALink": {func(local, outside string) error {
			return os.Symlink(filepath.Join(outside, "victim"), filepath.Join(local, ".berth-template.0.new"))
		}, "x", true},
		"FreshNameIsALinkToADirectory": {func(local, outside string) error {
			return os.Symlink(outside, filepath.Join(local, ".berth-template.0.new"))
		}, "x", true},
		"DirectoryIsALink":         {func(local, outside string) error { return os.Symlink(outside, filepath.Join(local, "d")) }, "d/victim", false},
		"DirectoryIsARelativeLink": {func(local, _ string) error { return os.Symlink("../../outside", filepath.Join(local, "d")) }, "d/victim", false},
		"DirectoryIsALinkToOther":  {func(local, _ string) error { return os.Symlink("../secrets", filepath.Join(local, "d")) }, "d/key", false},
		"DirectoryIsALinkToLinks": {func(local, outside string) error {
			return errors.Join(os.Symlink("e", filepath.Join(local, "d")), os.Symlink(outside, filepath.Join(local, "e")))
		}, "d/victim", false},
		"DirectoryIsALoop":   {func(local, _ string) error { return os.Symlink("d", filepath.Join(local, "d")) }, "d/x", false},
		"DirectoryIsAFile":   {func(local, _ string) error { return os.WriteFile(filepath.Join(local, "d"), nil, 0o600) }, "d/x", false},
		"FileIsADirectory":   {func(local, _ string) error { return os.MkdirAll(filepath.Join(local, "x", "y"), 0o755) }, "x", false},
		"SubdirectoryEscape": {func(local, outside string) error { return os.Symlink(outside, filepath.Join(local, "d")) }, "d/new/x", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			spec := w.script("cat /local/" + tc.file)
			spec.Files = []driver.File{{Dir: "local", Path: tc.file, Content: "ours", Mode: 0o666}}
			outside := filepath.Join(w.root, "outside")
			if err := os.Mkdir(outside, 0o700); err != nil {
				t.Fatal(err)
			}
			victim := filepath.Join(outside, "victim")
			write(t, victim, "precious")
			before := state(t, outside, victim)
			if err := tc.plant(filepath.Join(spec.Dir, "local"), outside); err != nil {
				t.Fatal(err)
			}
			if tc.written {
				if got := lines(t, w.exec(), spec); got[0] != "ours" {
					t.Errorf("the task finds %q", got)
				}
			} else if err := w.exec().Start(ctx(t), spec); api.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), told) {
				t.Errorf("Start: %v, want it to be refused for good: %s", err, told)
			}
			if after := state(t, outside, victim); after != before {
				t.Errorf("outside was\n%s\nand is\n%s", before, after)
			}
			if left, err := os.ReadDir(filepath.Join(spec.Dir, "secrets")); err != nil || len(left) > 0 {
				t.Errorf("secrets holds %v, %v", left, err)
			}
		})
	}
}

// state is what must not change of a directory and a file in it.
func state(t *testing.T, dir, file string) string {
	t.Helper()
	var b strings.Builder
	for _, path := range []string{dir, file} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, path, info.Mode(), stat.Uid, stat.Gid)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(&b, string(content), entries)
	return b.String()
}

// filesWorld is the directories of a task and of its allocation.
func filesWorld(t *testing.T) (dir, alloc string) {
	t.Helper()
	dir, alloc = filepath.Join(t.TempDir(), "task"), filepath.Join(t.TempDir(), ".alloc")
	for _, d := range []string{filepath.Join(dir, "local"), filepath.Join(dir, "secrets"), filepath.Join(dir, "tmp"), alloc} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir, alloc
}

// tree is every file below the directories, with its content.
func tree(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			all[strings.TrimPrefix(path, dir+"/")] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func TestFilesAreReplacedAllOrNone(t *testing.T) {
	t.Parallel()
	dir, alloc := filesWorld(t)
	files := []driver.File{
		{Dir: "local", Path: "a", Content: "a1", Mode: 0o644},
		{Dir: "alloc", Path: "deep/b", Content: "b1", Mode: 0o600},
		{Dir: "local", Path: "new", Content: "n1", Mode: 0o600},
		{Dir: "secrets", Path: "c", Content: "c1", Mode: 0o600},
	}
	if err := driver.Rewrite(dir, alloc, files[:2]); err != nil {
		t.Fatal(err)
	}
	before := tree(t, dir, alloc)
	if before["local/a"] != "a1" || before["deep/b"] != "b1" || len(before) != 2 {
		t.Fatalf("the files are %v", before)
	}
	for i := range files {
		files[i].Content = "other"
	}
	// The last cannot be written: where it goes is no directory of the task's any more.
	if err := errors.Join(os.Remove(filepath.Join(dir, "secrets")), os.Symlink(alloc, filepath.Join(dir, "secrets"))); err != nil {
		t.Fatal(err)
	}
	if err := driver.Rewrite(dir, alloc, files); err == nil {
		t.Error("it was written through a link")
	}
	if after := tree(t, dir+"/local", alloc); len(after) != 2 || after["a"] != "a1" || after["deep/b"] != "b1" {
		t.Errorf("the files were %v and are %v", before, after)
	}
}

func TestFilesBelongToWhomTheirTemplateNames(t *testing.T) {
	t.Parallel()
	dir, alloc := filesWorld(t)
	if err := os.Chown(filepath.Join(dir, "local"), 1, 2); err != nil {
		t.Fatal(err)
	}
	uid, gid := 4711, 4712
	if err := driver.Rewrite(dir, alloc, []driver.File{
		{Dir: "local", Path: "tasks", Mode: 0o640},
		{Dir: "alloc", Path: "both", Mode: 0o640, UID: &uid, GID: &gid},
		{Dir: "tmp", Path: "group", Mode: 0o640, GID: &gid},
	}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Join(dir, "local/tasks"): "1 2", filepath.Join(alloc, "both"): "4711 4712", filepath.Join(dir, "tmp/group"): "1 4712"} {
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(stat.Uid, " ", stat.Gid); got != want {
			t.Errorf("%s belongs to %s, want %s", path, got, want)
		}
	}
}
