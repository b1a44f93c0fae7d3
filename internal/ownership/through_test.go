package ownership_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/ownership"
)

// reads reports whether a user can read a file.
func reads(t *testing.T, path string, uid uint32) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/cat", path)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd.Run() == nil
}

// Who is let through reaches what is theirs, sees no names, and nobody else does.
func TestThrough(t *testing.T) {
	t.Parallel()
	top := scratch(t)
	// The directories of tests are their user's.
	for dir := filepath.Dir(top); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := unix.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir, file := top+"/closed", top+"/closed/file"
	put(t, file, 0o644)
	put(t, dir+"/", 0o700)
	for i, uid := range []int{4001, 4003, 4002, 4001} {
		if err := ownership.Through(dir, uid); err != nil {
			t.Fatal(err)
		}
		if err := ownership.Through(dir, 0); err != nil { // its owner
			t.Fatal(err)
		}
		for other, since := range map[uint32]int{4001: 0, 4003: 1, 4002: 2, 4004: 99} {
			if got, want := reads(t, file, other), since <= i; got != want {
				t.Errorf("after %d, user %d reads: %t", i, other, got)
			}
		}
	}
	list := exec.CommandContext(t.Context(), "/bin/ls", dir)
	list.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4001, Gid: 4001}}
	if out, err := list.CombinedOutput(); err == nil {
		t.Errorf("one who was let through sees %s", out)
	}
	open := top + "/open"
	put(t, open+"/", 0o711)
	if err := ownership.Through(open, 4001); err != nil || is(t, open) != "0711 0" {
		t.Errorf("a directory that is open: %v, %s", err, is(t, open))
	}
}
